"""The shipped profile for reports: what it lets through, and what it finds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from consumer.resources import resource
from consumer.scoring.aggregate import Findings, JudgeView, aggregate, look
from consumer.scoring.profile import Profile, parse_profile
from consumer.scoring.scorers.base import Measured, NotApplicable, Result, Subject, subject
from consumer.scoring.scorers.citations import CitationValidity, citation_validity
from consumer.scoring.scorers.proper_names import NameGrounding, name_grounding
from consumer.scoring.scorers.wording import (
    Conciseness,
    Readability,
    Structure,
    conciseness,
    readability,
    structure,
)
from tests.unit.builders import message, session, stage

NEWS = [{"title": "Quarterly figures"}, {"title": "A new plant"}, {"title": "A merger"}]
DATA: dict[str, Any] = {
    "close": 152.5,
    "rsi": 62,
    "company": "Siam Copper Works",
    "news": {"items": NEWS},
}
REPORT = """# Summary
The close of 152.5 was the highest of the week [1], and the cause is the new plant [2].
# Findings
The index stands at 62, which is below the level that traders call overbought. The effect on peers
of the Siam Copper Works was small, because volume rose for this share alone. It follows that the
market takes the news for a matter of one company. The volume of the others stayed where it was.
# Recommendations
The next step is to compare the coming figures with those of the last two quarters, all public.
"""
THAI = (
    "รายงานฉบับนี้สรุปราคาหุ้นของวันทำการที่ผ่านมา ราคาปิดสูงขึ้นเล็กน้อยเมื่อเทียบกับวันก่อน\n\n"
    "ปริมาณการซื้อขายสูงกว่าค่าเฉลี่ยอย่างชัดเจน นักลงทุนกลับเข้ามาในกลุ่มพลังงาน\n\n"
    "ความผันผวนยังคงสูงกว่าปกติ ผู้อ่านจึงควรระมัดระวังเมื่อตีความข้อมูลเหล่านี้\n\n"
    "ผลการดำเนินงานในอดีตไม่ได้ยืนยันผลในอนาคต รายงานนี้จัดทำขึ้นเพื่อให้ข้อมูลเท่านั้น\n"
)


def about(text: str, *, cost_usd: float | None = 0.01, **facts: Any) -> Subject:
    seen = {"alert_data": DATA, "duration_ms": 20_000, "stages": (stage(message("look at it")),)}
    return subject(
        session(final_analysis=text, **{**seen, **facts}), price=lambda *_: None, cost_usd=cost_usd
    )


def value(result: Result) -> float:
    assert isinstance(result, Measured), result
    return float(result.score)


@pytest.fixture
def shipped() -> Profile:
    text = (resource("config") / "profiles" / "report-two-tier.yaml").read_text("utf-8")
    return parse_profile(yaml.safe_load(text))


def findings(profile: Profile, *args: Any, **changes: Any) -> Findings:
    return look(profile, about(*args, **changes))


def failed(found: Findings) -> list[str]:
    return [gate.id for gate in found.gates if not gate.passed]


def test_a_sound_report_passes_every_gate_and_its_marks_are_no_figures(shipped: Profile) -> None:
    found = findings(shipped, REPORT)
    assert failed(found) == []
    points = {c.id: 20 for c in shipped.judge_criteria}
    total = aggregate(shipped, found, JudgeView(points=points))
    assert total.ranking is not None
    assert total.ranking > 0.8
    assert {"completeness", "readability", "faithfulness"} <= points.keys()
    assert "compliance" not in points
    assert total.scores["compliance"] == 100


@pytest.mark.parametrize(
    ("cost_usd", "gates"), [(0.05, []), (0.0501, ["within_budget"]), (None, [])]
)
def test_a_report_may_cost_five_cents(
    shipped: Profile, cost_usd: float | None, gates: list[str]
) -> None:
    assert failed(findings(shipped, REPORT, cost_usd=cost_usd)) == gates


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ValueError: no data for that day",
        "# Error: the model did not answer\nSummary\nFindings\nRecommendations",
        "Traceback (most recent call last):\n  File x",
        '{"error": "rate limited"}',
        "HTTP 503 from upstream",
        "I'm sorry, but I can't help with that.",
        "I cannot access the data.",
        "ขออภัย ไม่สามารถสร้างรายงานได้",
        "เกิดข้อผิดพลาดในระบบ",
    ],
)
def test_an_error_message_is_no_report(shipped: Profile, text: str) -> None:
    result = structure(about(text), Structure(refuse_errors=True, min_characters=1))
    assert value(result) == 0
    assert "format" in failed(findings(shipped, text))


@pytest.mark.parametrize(
    "text",
    [
        "Errors rose to 5 % after the deploy, and the pool was full.",
        "Error rates are well: 0.1 %.",
        "503 answers came from one pod alone, whose probe had failed since the morning. " * 3,
        "Sorry for the delay: the queue was full.",
        "The service says: ValueError: no data",
        "Rate limits of the provider were reached. " * 4,
        "ValueError: x. " + "What follows is a long account of what was found. " * 20,
    ],
)
def test_a_report_about_errors_is_one(text: str) -> None:
    assert value(structure(about(text), Structure(refuse_errors=True))) == 1


@pytest.mark.parametrize(
    ("text", "scripts", "expected"),
    [
        (THAI, ["thai"], 1),
        (THAI + "RSI MACD SMA", ["thai"], 1),
        (REPORT, ["thai"], 0),
        (REPORT, ["latin"], 1),
        (REPORT, ["thai", "latin"], 1),
        ("障害は解決した。", ["han", "hiragana"], 1),
        ("Отчёт о сбое", ["cyrillic"], 1),  # noqa: RUF001
        ("12345 !!!", ["latin"], 0),
    ],
)
def test_a_report_is_in_its_language(text: str, scripts: list[str], expected: float) -> None:
    params = Structure.model_validate({"scripts": scripts})
    assert value(structure(about(text), params)) == expected


def test_an_unknown_script_is_refused() -> None:
    with pytest.raises(ValidationError, match="'thai'"):
        Structure.model_validate({"scripts": ["siamese"]})


def test_a_thai_report_can_be_read(shipped: Profile) -> None:
    """Its words are not two characters long: 5.1 on average, as a tokenizer counts them."""
    assert value(readability(about(THAI), Readability())) > 0.8
    assert value(readability(about(THAI), Readability(characters_per_word=2))) < 0.6
    assert value(conciseness(about(THAI), Conciseness())) > 0.8
    thai = shipped.model_copy(update={"gates": ()})
    assert aggregate(thai, look(thai, about(THAI)), None).scores["readability"] > 80


# ── what the citations point at ──────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The plant [2] and the merger [3].", 1),
        ("The plant [2] and a rumour [4].", 0.5),
        ("Nothing [0] of it.", 0),
        ("All of it [1-3], and more [2-4].", 0.5),
    ],
)
def test_citations_are_checked_against_the_data(text: str, expected: float) -> None:
    params = CitationValidity(sources="data", data_path="news.items")
    assert value(citation_validity(about(text), params)) == expected


@pytest.mark.parametrize("path", ["nowhere", "news", "close", "news.items.title"])
def test_where_the_data_has_no_such_list_no_citation_points_at_anything(path: str) -> None:
    params = CitationValidity(sources="data", data_path=path)
    assert value(citation_validity(about("It rose [2]."), params)) == 0


@pytest.mark.parametrize("params", [{"sources": "data"}, {"data_path": "news"}])
def test_a_path_goes_with_its_kind_of_source(params: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="go together"):
        CitationValidity.model_validate(params)


# ── names that occur nowhere ─────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Shares of Siam Copper Works rose.", 1),
        ("Shares of Siam Phantom Energy rose.", 0),
        ("Shares of Siam Copper Works and of Siam Phantom Energy rose.", 0.5),
        ("It is Copper Works that rose, not the Bank of Phantoms.", 0.5),
    ],
)
def test_a_name_that_occurs_nowhere_is_found(text: str, expected: float) -> None:
    assert value(name_grounding(about(text), NameGrounding())) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# Root Cause Analysis\n**Next Steps**\nit rose.",
        "Phantom Energy rose.",  # the first word of a sentence is written large anyway
        "we did a Root Cause Analysis; the root of the cause is plain.",
        "| Phantom Energy | 5 |",
        "ราคาหุ้นของบริษัทสูงขึ้น",
        "It Is So",
    ],
)
def test_what_is_no_name(text: str) -> None:
    assert isinstance(name_grounding(about(text), NameGrounding()), NotApplicable)


def test_a_name_may_be_known() -> None:
    params = NameGrounding(known=("Siam Phantom Energy",))
    assert value(name_grounding(about("Shares of Siam Phantom Energy rose."), params)) == 1


def test_the_agent_s_own_words_are_no_evidence() -> None:
    said = stage(replace(message("it is Siam Phantom Energy"), role="assistant"))
    found = name_grounding(
        about("Shares of Siam Phantom Energy rose.", stages=(said,)), NameGrounding()
    )
    assert value(found) == 0
    assert isinstance(found, Measured)
    assert "siam phantom energy" in found.places[0].excerpt
