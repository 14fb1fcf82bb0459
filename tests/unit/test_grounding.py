"""Numbers, names and citations of the analysis: which are claims, and which are grounded."""

import re
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from consumer.scoring.quantities import kept_values
from consumer.scoring.scorers.base import Measured, NotApplicable, Result, Subject, subject
from consumer.scoring.scorers.citations import CitationValidity, citation_validity
from consumer.scoring.scorers.names import _EMAIL, _QUANTITY, EntityGrounding, entity_grounding
from consumer.scoring.scorers.numbers import (
    NumericGrounding,
    numeric_grounding,
)
from consumer.scoring.session import Message, Step
from tests.unit.builders import available, failed_call, message, session, tool_call

NUMBERS = NumericGrounding()
NAMES = EntityGrounding()
REPORT = (
    "# Alert Analysis Report\n\n**Alert Type:** disk-77\n**Processing Chain:** k8s-chain-5\n"
    "**Stages:** 3\n**Timestamp:** 1764930610000000\n\n## Analysis\n\n{}\n\n---\n"
    "*Processed through 3 stages*"
)


def seen(analysis: str, *steps: Step | str, **changes: Any) -> Subject:
    """A subject with these steps (a text: a tool's result) and nothing else in evidence."""
    given = [tool_call(result=step) if isinstance(step, str) else step for step in steps]
    bare: dict[str, Any] = {"alert_data": {}, "alert_type": None, "runbook_url": None}
    run = session(
        *(given or [tool_call(result="")]), final_analysis=analysis, **{**bare, **changes}
    )
    return subject(run, price=lambda _in, _out: None, cost_usd=None)


def score(result: Result) -> float | Fraction | None:
    return result.score if isinstance(result, Measured) else None


def numbers(analysis: str, *steps: Step | str, **changes: Any) -> float | Fraction | None:
    return score(numeric_grounding(seen(analysis, *steps, **changes), NUMBERS))


def names(analysis: str, *steps: Step | str, **changes: Any) -> float | Fraction | None:
    return score(entity_grounding(seen(analysis, *steps, **changes), NAMES))


def citations(analysis: str, *steps: Step | str, **params: Any) -> float | Fraction | None:
    return score(citation_validity(seen(analysis, *steps), CitationValidity(**params)))


# --- Numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("analysis", "source"),
    [
        ("Memory: 512Mi of 1Gi (50 %)", "limit 1Gi, usage 512Mi"),
        ("CPU: 25% (250m of 1 core)", "cpu 250m of 1"),
        ("Revenue was $4.2bn", "revenue: 4200000000"),
        ("Revenue was $4.2B, 3 mn less", "revenue: 4200000000, difference: -3000000"),
        ("Der Umsatz betrug 1,5 Mio. Euro, die Kosten 12 Tsd. Euro", "1500000 12000"),
        ("売上は1,234万円、損失は2億円", "12340000 200000000"),
        ("รายได้ 1.5 ล้านบาท", "1500000"),
    ],
)
def test_figures_in_other_units_are_the_source_s(analysis: str, source: str) -> None:
    assert numbers(analysis, source) == 1


@pytest.mark.parametrize(
    "analysis",
    [
        "Use of memory rose to 931 MiB.",
        "Run 4711 failed with 932 errors.",
        "Increase of 431 percent in errors.",
        "## Recommendations\n\nThe cluster lost 7312 requests.",
    ],
)
def test_a_verb_s_noun_and_a_heading_excuse_nothing_that_was(analysis: str) -> None:
    assert numbers(analysis, "12") == 0


def test_many_figures_beside_it_excuse_no_invented_percentage() -> None:
    """Of 36 pairs of nine figures, some pair's ratio is near most whole percentages."""
    known = (1717, 4921, 8366, 2954, 6073, 7211, 9137, 3313, 5501)
    source, (early, late) = f"{known}", (known[:6], known[6:])
    excused = [p for p in range(5, 100) if numbers(f"{early}, {p} %, {late}", source) == 1]
    assert len(excused) < 30


@pytest.mark.parametrize(
    ("analysis", "evidence", "expected"),
    [
        # tolerance: 2 % of the evidence's number
        ("98 pods", "100", 1), ("102 pods", "100", 1), ("97 pods", "100", 0),
        ("103 pods", "100", 0), ("0 pods", "0", 1), ("0 pods", "1", 0),
        # percentages: half a point, and shares of 1
        ("95 %", "95.5", 1), ("95%", "94.5 %", 1), ("95%", "94.4 %", 0), ("95 %", "96", 0),
        ("95 %", "0.95", 1), ("95 percent", "0.95", 1), ("95 \uff05", "0.95", 1), ("95", "0.95", 0),
        ("0.95 of it", "95 %", 1), ("100 %", "1", 0), ("100 %", "1.0", 1), ("197 %", "1.97", 0),
        ("10-20 %", "0.1 and 0.2", 1),
        # ways to write a number
        ("1,234", "1234", 1), ("1 234", "1234", 1), ("1_234", "1234", 1), ("1\u202f234", "1234", 1),
        ("1'234", "1234", 1), ("1.234,5", "1234.5", 1), ("1,234.5", "1234.5", 1),
        ("1,00,000", "100000", 1), ("1,234,567", "1234567", 1), ("0,5 h", "0.5", 1),
        ("1234", "1,234", 1), ("123 456", "[123,456]", 1), ("456", "[123,456]", 1),
        ("$1,023", "1023", 1), ("€5", "5", 1), ("1.2e5", "120000", 1), ("12e-1", "1.2", 1),
        ("٣ pods", "3", 1), ("在5分钟内", "5", 1), ("в 5мин", "6", 0),
        ("\u0663\u066b\u0665", "3.5", 1),
        # signs: what is given as negative may be told without the sign, not the other way round
        ("-5 degrees", "-5", 1), ("fell by 5", "-5", 1), ("-5 degrees", "5", 0),
        ("\u22125 degrees", "-5", 1), ("(-5)", "5", 0), ("fell to -5", "at-5", 0),
        # units: as written, and scaled
        ("5m", "5 minutes", 1), ("15GB", "15", 1), ("15GB", "15000000000", 1),
        ("15GB", "16106127360", 1), ("512Mi", "536870912", 1), ("536870912", "512Mi", 1),
        ("512 MiB", "536870912", 1), ("3k", "3000", 1), ("2.5 M", "2500000", 1),
        ("2.5 million", "2500000", 1), ("2500000", "2.5 M", 1), ("1970m", "1.97", 1),
        ("2440 ms", "2440", 1), ("5m", "5000000", 0), ("3 Kelvin", "3000", 0),
        ("5 minutes", "5m0s", 1),
        ("200MB/s", "200", 1), ("3-node cluster", "3", 1), ("4/5 replicas", "4 of 5", 1),
        ("4/5 replicas", "4", 0.5), ("10-20 pods", "10", 0.5), ("2x faster", "2", 1),
        # inside evidence: JSON escapes, ports and key:value count; dates, times and ids do not
        ("512Mi", '{"a": "x\\n512Mi"}', 1), ("3333", "203.0.113.47:3333", 1),
        ("5", "restarts:5", 1),
        ("12 pods", "2025-12-05T12:12:12Z", 0), ("47 pods", "at 12:47", 0),
        ("7425", "0c9e6679-7425-40de-944b-e07fc1f90ae7", 0), ("12 pods", "jupyter-12-0", 0),
        # each number once
        ("5 and 5 and 7", "5", 0.5), ("5 and 7", "7 5", 1), ("7 and 5", "5 7", 1),
    ],
)  # fmt: skip
def test_a_number_is_grounded_by_a_near_one(analysis: str, evidence: str, expected: float) -> None:
    assert numbers(analysis, evidence) == expected


@pytest.mark.parametrize(
    "analysis",
    [
        "", "no figures", "since 2024", "in 2025-12-05", "2025-12", "12/05/2025", "05.12.2025",
        "at 12:47", "at 12:47:03.5", "2025-12-05T08:14:02Z", "May 20, 2024", "20 May 2024",
        "on May 20", "5th of June", "20 de mayo de 2024", "20. Mai 2024", "2025年12月5日", "at 5pm",
        "1. Roll back", "  2) Ask", "- 3. Wait", "**4.** Go", "1.2. Then", "## 5. Cause",
        "## 2.1 Cause",
        "Section 4.2", "see step 3", "steps 3", "Gift Card 1: gold", "the 3rd time",
        "version 2.14.0", "v1.25", "checkout:3.8", "nginx:1.25", "10.0.0.1", "10.0.0.1:8080",
        "fe80::1", "CVE-2024-1234", "jupyter-0412-0", "HAT169", "p99", "5c4d8f7b69",
        "7c9e6679-7425-40de-944b-e07fc1f90ae7", "#1234", "/orders/77", "pod_5", "1-2-3", "1,2,3",
        "Confidence: high (90 %)", "**Confidence:** 90%", "90 % confident", "confidence is 0.9",
        "Confidence: 9/10", "1" * 50, "1" * 400,
        REPORT.format("All is well."),
    ],
)  # fmt: skip
def test_what_is_no_claim(analysis: str) -> None:
    result = numeric_grounding(seen(analysis), NUMBERS)
    assert result == NotApplicable("the analysis mentions no numbers")


@pytest.mark.parametrize(
    "analysis",
    [
        "2024 MB", "$2024", "2200 pods", "32 May", "maypole 5", "hostage 5", "apart 5", "- 5 pods",
        "5 mayors", "3 high-confidence findings", "Confidence is high: 5 pods", "pod 512: gone",
        "confidence that CPU was at 97 %", "1.97 cores", "**Stages:** 3",
        "*Processed through 3 stages* was said",
    ],
)  # fmt: skip
def test_what_is_a_claim_although_it_looks_like_none(analysis: str) -> None:
    assert numbers(analysis) == 0


@pytest.mark.parametrize(
    "analysis",
    [
        "See [1], [7] and [12].", "a leak [1, 2]", "[1]-[3]", "as [^4] says", "[5-7; 9]",
        "(1) Ask them, (2) wait, (3) ask again.",
    ],
)  # fmt: skip
def test_citation_marks_and_ordinals_are_no_figures(analysis: str) -> None:
    assert numbers(analysis) is None
    assert numbers(f"{analysis} 77 pods") == 0


def test_a_number_in_parentheses_is_no_ordinal_out_of_turn() -> None:
    assert numbers("(1) Ask, (2) wait. Pods that failed (7) wait.", "8") == 0


@pytest.mark.parametrize(
    "analysis",
    [
        "Raise the limit to 512Mi.", "1. Set replicas to 3", "- **Increase** it by 20 %",
        "Then wait: scale it to 5", "The limit should be at least 512Mi",
        "We recommend 3 replicas.",
        "Consider adding 2 nodes", "Restart it, and set the limit to 900",
        "## Recommendations\n\nA cap of 80 % and 3 replicas", "**Next steps:**\n1. Cap it at 7",
        "within the last 24 hours", "the 24-hour window",
        "will be refunded in 5 to 7 business days",
        "within 15 minutes", "the past 30 days", "You can expect it in 3-5 days.",
    ],
)  # fmt: skip
def test_what_is_advised_and_how_long_it_takes_are_no_claims(analysis: str) -> None:
    assert numbers(analysis) is None


@pytest.mark.parametrize(
    "analysis",
    [
        "It was set to 512Mi.", "Raise the limit because it uses 490Mi", "It rose by 20 %",
        "Raise it from 256Mi", "The limit should be higher: it is 77 % now",
        "Raise the limit. It holds 900 entries.", "## Recommendations\nWait: there are 7 errors\n",
        "## Recommendations\n\n## Evidence\n7 errors", "The outage took 33 minutes.",
        "It was down for 5 hours", "We should act. 40 pods failed", "(7) pods", "pods [4711.5]",
    ],
)  # fmt: skip
def test_what_stands_beside_advice_is_a_claim(analysis: str) -> None:
    assert numbers(analysis) == 0


@pytest.mark.parametrize(
    ("analysis", "evidence", "expected"),
    [
        # sums, differences, products, ratios, shares and changes, means of what stands beside
        ("102 and 105, 207 in all", "102, 105", 1),
        ("of 500, 299 are spent: 201 left", "299 500", 1),
        ("3 seats at $174: $522", "[3, 174]", 1), ("106 = 39 + 67", "39 67", 1),
        ("$500, $250, $129 and $110: $989", "500 250 129 110", 1),
        ("12.5 + 7.25 = 19.8", "12.5 7.25", 1),
        ("90 requests in 30 s: 3 per second", "90 30", 1), ("7 of 30 failed (23.3 %)", "7 30", 1),
        ("up from 40 to 50, 25 %", "40 50", 1), ("20 % of 4500 are 900", "4500, 20 %", 1),
        ("between 4500 and 900, so 2700 on average", "4500 900", 1),
        ("102 and 105, 208 in all", "102, 105", 2 / 3), ("of 500, 299: 205 left", "299 500", 2 / 3),
        ("7 of 30 failed (27 %)", "7 30", 2 / 3), ("102 and 4444, 4546 in all", "102", 1 / 3),
        # what is far away is not what it was made of
        ("102 and 105." + " Well." * 200 + " 207 in all", "102, 105", 2 / 3),
        # rounded, and in another unit of time
        ("16 MiB", "15.6 MiB", 1), ("17 MiB", "15.6 MiB", 0),
        ("0.7", "0.66", 1), ("0.6", "0.66", 0),
        ("90 minutes", "5400 s", 1), ("1.5 hours", "5400", 1), ("2 days", "48 h", 1),
        ("91 pods", "5460", 0), ("80 minutes", "5400 s", 0),
        ("from 12:55 to 13:03, 8 minutes", "12:55 up, 13:03 down", 1),
        ("from 12:55 to 13:03, 30 minutes", "12:55 up, 13:03 down", 0),
        ("from 12:55 to 13:03, 8 minutes", "nothing", 0),
        ("from 12:55 to 13:03, 8 minutes, then 33 minutes", "12:55 13:03", 0.5),
        ("0 of 5 failed, 8 in all", "0 5", 2 / 3),
        # counted: what was seen, and what follows
        ("All 3 pods run", "NAME READY\na 1/1\nb 1/1\nc 1/1", 1),
        ("4 pods", '{"pods": ["a", "b"]}', 0),
        ("2 pods", '{"pods": ["a", "b"]}', 1), ("2 pods", '{"pods": [', 0),
        ("33 pods:\n- a\n- b", "x", 0), ("2 pods:\n- a\n- b", "x", 1),
        ("2 pods:\n- a\n  - its log\n- b\n", "x", 1), ("3 pods (a, b and c)", "x", 1),
        # the last digits of a card
        ("the card ending in 1784", "gift_card_8641784", 1),
        ("ending in 1785", "gift_card_8641784", 0),
        ("the card ending in 784", "gift_card_8641784", 0),
    ],
)  # fmt: skip
def test_what_is_made_of_what_was_seen_is_grounded(
    analysis: str, evidence: str, expected: float
) -> None:
    assert numbers(analysis, evidence) == pytest.approx(expected)


def test_what_the_agent_computed_on_its_way_is_grounded() -> None:
    seen_ = tool_call(result="402, 306 and 16005")
    thought = message("In all 402 + 306 + 16005 = 16713")
    asked = tool_call("think", arguments={"thought": "402 + 306 + 16005 = 16713"}, result="")
    assert numbers("It costs $16,713.", seen_, thought) == 1
    assert numbers("It costs $16,713.", seen_, asked) == 1
    assert numbers("It costs $16,713.", seen_) == 0
    assert numbers("It costs $16,713.", thought) == 0
    assert numbers("It costs $16,713.", seen_, message("It costs 16713")) == 0


def test_what_the_agent_is_told_is_evidence_whoever_tells_it() -> None:
    assert numbers("77 pods", message("At most 77 pods", role="system")) == 1
    assert names("miner-01", message("as miner-01", role="system")) == 1
    # But not where it repeats what the agent said.
    assert numbers("77 pods", message("77 pods"), message("77 pods", role="system")) == 0


def test_an_analysis_of_very_many_figures_is_looked_at_as_far_as_it_goes() -> None:
    # Each the sum of two before it, for as long as it is looked at.
    text = ", ".join(f"{n}0001 and {n}0002: {2 * n}0003" for n in range(1000, 1800))
    evidence = " ".join(f"{n}0001 {n}0002" for n in range(1000, 1800))
    assert numbers(text, evidence) == 1


def test_a_word_beside_a_number_is_passed_over() -> None:
    assert numbers("7 pods", "rate 7/second") == 1
    assert numbers("8 pods", "rate 7/second") == 0


def test_numbers_the_agent_asked_with_prove_nothing() -> None:
    assert numbers("port 3333", tool_call(arguments={"port": 3333}, result="no data")) == 0
    assert numbers("port 3333", tool_call(result="port 3333")) == 1


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (message("It is 77", role="user"), 1), (message("It is 77"), 0),
        (message("It is 77", role="system"), 1), (failed_call(error="exit code 77"), 1),
    ],
)  # fmt: skip
def test_whose_words_are_evidence(step: Step, expected: float) -> None:
    assert numbers("77 pods, pod-abc", step) == expected


def test_the_alert_is_evidence() -> None:
    assert numbers("77 pods", alert_data={"pods": [{"n": 77}]}) == 1


def test_what_a_stage_is_told_of_earlier_stages_is_the_agents_own_word() -> None:
    told: tuple[Message, ...] = (
        message("Thought: done\nFinal Answer: 77 pods\nand 88 nodes"),
        message("Earlier stages found:\n 77 pods\nand 88 nodes\nLimit: 99", role="user"),
    )
    assert numbers("77 pods, 88 nodes, 99 users", *told) == pytest.approx(1 / 3)
    assert numbers("77 pods, 88 nodes, 99 users", *reversed(told)) == 1


def test_places_show_what_is_not_grounded_and_are_five_at_most() -> None:
    result = numeric_grounding(seen("7 pods on 3 nodes", "3"), NUMBERS)
    assert isinstance(result, Measured)
    assert [(place.step, place.excerpt) for place in result.places] == [(None, "7 pods on 3 nodes")]
    many = numeric_grounding(seen(", ".join(map(str, range(100, 900, 100)))), NUMBERS)
    assert isinstance(many, Measured)
    assert (many.score, len(many.places)) == (0, 5)


@pytest.mark.parametrize(
    ("params", "analysis", "evidence", "expected"),
    [
        ({"relative_tolerance": 0.1}, "95 pods", "100", 1),
        ({"relative_tolerance": 0}, "99 pods", "100", 0),
        ({"percentage_points": 2}, "93 %", "95", 1),
        ({"date_words": ["Mai"]}, "am 20. Mai", "", None),
        ({"date_words": []}, "on May 20", "", 0),
        ({"part_words": ["Abschnitt"]}, "Abschnitt 4", "", None),
        ({"own_words": ["Sicherheit"]}, "Sicherheit: 90 %", "", None),
        ({"own_words": []}, "Confidence: 90 %", "", 0),
    ],
)
def test_numeric_params(
    params: dict[str, Any], analysis: str, evidence: str, expected: float | None
) -> None:
    chosen = NumericGrounding(**params)
    assert score(numeric_grounding(seen(analysis, evidence), chosen)) == expected


@pytest.mark.parametrize(
    ("model", "params"),
    [
        (NumericGrounding, {"relative_tolerance": -0.1}), (NumericGrounding, {"unknown": 1}),
        (NumericGrounding, {"relative_tolerance": 1}), (NumericGrounding, {"own_words": [""]}),
        (NumericGrounding, {"percentage_points": 101}), (CitationValidity, {"sources": "none"}),
        (EntityGrounding, {"not_names": [""]}),
    ],
)  # fmt: skip
def test_bad_params_are_refused(model: Any, params: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        model(**params)


# --- Names -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "miner-0-abc", "jupyter-0412-0", "payment-api-6d9f7c5b84-x2kqj", "GV1N64", "HAT169",
        "4XGCCM", "lucas_brown_4047", "node_memory_total", "shop.acme.example", "values.yaml",
        "/var/log/syslog", "uploads/2025/avatar.php", "https://acme.example/run?id=1",
        "images.acme.example/reporting/worker:1.9.2", "10.0.0.1", "10.0.0.1:8080", "10.0.0.0/24",
        "fe80::1", "00:1a:2b:3c:4d:5e", "ops@acme.example", "CVE-2024-1234", "sha256:5c4d8f7b69",
        "7c9e6679-7425-40de-944b-e07fc1f90ae7", "`svc-backup`", "`kube-system/web`",
        "Années_1.txt", "сервер-12",
    ],
)  # fmt: skip
def test_names_are_grounded_where_the_evidence_has_them(name: str) -> None:
    assert names(f"It is **{name}**.", "nothing of it") == 0
    evidence = f'{{"x":"{name.strip("`").upper()}"}}'
    assert names(f"It is {name}, see ({name}).", evidence) == 1


@pytest.mark.parametrize(
    "text",
    [
        "", "Plain words, e.g. and i.e. or U.S. prose", "crypto-miner, follow-up and well-known",
        "OOMKilled by GitHub", "and/or, CPU/memory, read/write/execute, TCP/IP, 24/7",
        "I/O at 5 /day",
        "done.The end", "512Mi in 30s, 15GB, 3-node, 90-day, 99th-percentile, 1h30m",
        "2.14.0 and v1.25.3-rc1",
        "2025-12-05T08:14:02Z at 13:04:12", "_italic_ **bold** __strong__", "`kubectl get pods`",
        "SHA256, UTF-8 and Node.js", "p99 of K8s", "2025-12-05",
        REPORT.format("All is well."),
    ],
)  # fmt: skip
def test_what_is_no_name(text: str) -> None:
    result = entity_grounding(seen(text), NAMES)
    assert result == NotApplicable("the analysis mentions no identifiers")


@pytest.mark.parametrize(
    ("analysis", "evidence", "expected"),
    [
        ("payment-api-6d9f7c5b84", "pod payment-api-6d9f7c5b84-x2kqj", 1),  # its replica set
        ("x2kqj1", "payment-api-6d9f7c5b84-x2kqj1", 1),
        ("api-6d9f7c5b84", "payment-api-6d9f7c5b84-x2kqj", 0),  # the middle of a name
        ("d9f7c5b84", "payment-api-6d9f7c5b84", 0),  # not at a boundary
        ("demo-77/miner-0", '{"namespace": "demo-77", "name": "miner-0"}', 1),
        ("demo-77/miner-1", '{"namespace": "demo-77", "name": "miner-0"}', 0),
        ("miner-01", "configmap/miner-01", 1), ("miner-01", "name=miner-01,x", 1),
        ("acme1.example", "shop.acme1.example", 1), ("https://acme.example/a", "acme.example a", 1),
        ("https://acme.example/b", "https://acme.example/a", 0), ("fe80::1", "fe80 1", 0),
        ("miner-01", "see\\nminer-01\\n", 1),
        ("miner-01 and miner-01 and miner-02", "miner-01", 0.5),
        ("-".join(["a1"] * 20), "-".join(["a1"] * 21), 0),  # too many parts to try each cut
    ],
)  # fmt: skip
def test_parts_of_names(analysis: str, evidence: str, expected: float) -> None:
    assert names(analysis, evidence) == expected


@pytest.mark.parametrize("between", [" ", ", Größe é_1: "])
def test_many_names_are_found_where_each_would_be(between: str) -> None:
    pods = [f"pod{n}x" for n in range(12)]
    evidence = between.join([*(f"ns/{pod}-0" for pod in pods[:5]), "pod5xx", "xpod6x", *pods[7:9]])
    assert names(" ".join(pods), evidence) == 1 - 5 / 12
    assert [names(pod, evidence) for pod in pods] == [1] * 5 + [0, 0, 1, 1, 0, 0, 0]


def test_tools_are_no_names_of_the_world() -> None:
    tools = available("pods_list", server="k8s-server")
    text = "k8s-server.pods_list, pods_list, k8s-server, extra-1.find_it"
    assert names(text, tool_call("find_it", server="extra-1"), available_tools=tools) is None
    assert names(text, "k8s-server.pods_list") == 0.75


def test_names_the_agent_asked_with_prove_nothing() -> None:
    assert names("miner-01", tool_call(arguments={"name": "miner-01"}, result="no data")) == 0


def test_the_runbooks_address_is_given() -> None:
    assert names("https://runbooks.example/1", runbook_url="https://runbooks.example/1") == 1


def test_terms_that_only_look_like_names() -> None:
    params = EntityGrounding(not_names=("Web3.0-beta1",))
    assert score(entity_grounding(seen("web3.0-beta1"), params)) is None
    assert score(entity_grounding(seen("sha256"), params)) == 0


def test_evidence_is_read_to_its_end() -> None:
    filler = "word " * 500_000
    assert names("miner-01 and miner-02", f"{filler} miner-01 {filler} miner-02") == 1


# --- Citations ---------------------------------------------------------------------------------

LIST = "\n\n## References\n1. the log\n2) the event\n- [3] the metric\n\n## End\n4. no source\n"


@pytest.mark.parametrize(
    ("analysis", "expected"),
    [
        ("A leak [1]." + LIST, 1), ("A leak [1][3]." + LIST, 1), ("A leak [4]." + LIST, 0),
        ("A leak [1, 2; 5]." + LIST, 2 / 3), ("A leak [1-3]." + LIST, 1), ("[2-4]" + LIST, 0),
        ("[3-1]" + LIST, 0), ("[0]" + LIST, 0), ("[1-999999999]" + LIST, 0), ("漏れ[1]" + LIST, 1),
        ("[1] [1] [9]" + LIST, 2 / 3), ("leak.[2]" + LIST, 1), ("[1]", 0),
        ("A [7]\n\n[7]: https://x.example\n", 1), ("A [^7]\n\n[^7]: the log\n", 1),
        ("A [7]\n\n[7] the log\n", 0), ("A [7]\n\n[7]:\n", 0),
        ("[1]\n\n**Sources**\n[1] a", 1), ("[1]\n\nSources:\n[1] a", 1),
        ("[1]\n## 5. Sources\n[1] a", 1),
        ("[1]\n## Sources\n**Next**\n1. a", 0), ("[1]\n## Quellen\n1. a", 0),
        ("[1]\n" + REPORT.format("## Sources\n1. a"), 1),
    ],
)  # fmt: skip
def test_citations_of_a_list_of_references(analysis: str, expected: float) -> None:
    assert citations(analysis) == pytest.approx(expected)


@pytest.mark.parametrize(
    "analysis",
    [
        "", "- [x] done\n- [ ] open", "[text](https://x.example)", "[1](https://x.example)",
        "items[0], items[1], a()[1], grid[1][2]", "`x [1]`", "```\nx [1]\n```", "~~~\n[1]", "[a1]",
        "[0.5]", "see [text][1]", "## References\n[1] the log", "[1]: the log",
    ],
)  # fmt: skip
def test_what_is_no_citation(analysis: str) -> None:
    result = citation_validity(seen(analysis), CitationValidity())
    assert result == NotApplicable("the analysis cites nothing")


def test_citations_of_steps() -> None:
    steps = (message(), tool_call())
    assert citations("[1] [2] [3]", *steps, sources="steps") == pytest.approx(2 / 3)
    assert citations("[0]", *steps, sources="steps") == 0
    assert citations("[3]\n\n[3]: a list does not matter", *steps, sources="steps") == 0


def test_citation_params() -> None:
    assert citations("[1]\n## Quellen\n1. a", headings=("Quellen",)) == 1
    assert citations("a leak[1] and items[2]\n## Sources\n1. a", attached=True) == 0.5


# --- Any text ----------------------------------------------------------------------------------

PARTS = st.sampled_from(
    ["1", "12", "1,234", "95 %", "0.95", "-", ".", ",", "/", ":", " ", "\n", "[1]", "[", "]", "`",
     "```", "pod-1", "a_b_c", "May", "#", "**", "confidence", "2024", "(", "Mi", "k", "٣", "é",
     "\x00", "## References\n", "1. x\n", "@", "::", "http://", "e", "\ud800", "\u202e", "²",
     "9" * 60]
)  # fmt: skip
TEXTS = st.one_of(st.text(), st.lists(PARTS, max_size=30).map("".join))
SCORERS = st.sampled_from(
    [
        (numeric_grounding, NUMBERS),
        (entity_grounding, NAMES),
        (citation_validity, CitationValidity()),
        (citation_validity, CitationValidity(sources="steps", attached=True)),
    ]
)


@settings(max_examples=300)
@given(analysis=TEXTS, result=TEXTS, scorer=SCORERS)
def test_scores_stay_within_bounds_for_any_text(analysis: str, result: str, scorer: Any) -> None:
    measure, params = scorer
    found = measure(seen(analysis, result), params)
    if isinstance(found, Measured):
        assert 0 <= found.score <= 1
        assert (found.score == 1) == (not found.places)
    else:
        assert found.reason.startswith("the analysis")


@given(analysis=TEXTS, result=TEXTS, more=TEXTS, scorer=SCORERS)
def test_more_evidence_never_lowers_a_score(
    analysis: str, result: str, more: str, scorer: Any
) -> None:
    measure, params = scorer
    before = score(measure(seen(analysis, result), params))
    after = score(measure(seen(analysis, result, more), params))
    assert (before is None) == (after is None)
    assert (after or 0) >= (before or 0)


@given(st.floats(min_value=0.001, max_value=1e12))
def test_a_number_grounds_itself(value: float) -> None:
    written = f"{value:.3f}"
    assert numbers(f"It is {written} units", f'{{"x":{written}}}') == 1


@given(
    st.lists(TEXTS, min_size=2, max_size=4).flatmap(
        lambda t: st.tuples(st.just(t), st.permutations(t))
    )
)
def test_the_order_of_tool_results_does_not_matter(both: tuple[list[str], list[str]]) -> None:
    analysis = "12 of 95 % at 1,234 on pod-1 and a_b_c"
    one, other = both
    assert numbers(analysis, *one) == numbers(analysis, *other)
    assert names(analysis, *one) == names(analysis, *other)


# --- Patterns that take linear time find what the plain ones do ----------------------------------

_PLAIN = {
    _EMAIL: r"[^@/:]+@[^@/:]+\.[^@/:]+",
    _QUANTITY: (r"\d[\d.,]*[A-Za-z]{0,4}(?:-[A-Za-z-]+)?|[vV]?\d+(?:\.\d+)+[\w.-]*"),
}


@pytest.mark.parametrize("quick", _PLAIN, ids=["email", "quantity"])
@given(token=st.text(alphabet="@.ab:1v-,\u00d7", max_size=9))
def test_quick_patterns_match_what_the_plain_ones_do(quick: re.Pattern[str], token: str) -> None:
    assert bool(quick.fullmatch(token)) == bool(re.fullmatch(_PLAIN[quick], token))


def test_values_of_long_runs_are_not_kept() -> None:
    long, short = "1" * 1000, "1234"
    about = seen("7 pods", f"{long} {short}")
    kept_values.cache_clear()
    assert score(numeric_grounding(about, NUMBERS)) == 0
    assert kept_values.cache_info().currsize == 1


@pytest.mark.parametrize("claims", ["95% of -5 pods", "512Mi, 1 234 and 0.5", "9 GB, 7 and 8 pods"])
def test_numbers_of_a_huge_result_are_those_of_a_small_one(claims: str) -> None:
    result = "0.95 -5 1,234 x 536870912\n8.05-9 GB pod-7 0.49"
    assert numbers(claims, result + " " * 1_000_000) == numbers(claims, result)
    assert numbers(claims, result + "\u00a0" * 1_000_000) == numbers(claims, result)
