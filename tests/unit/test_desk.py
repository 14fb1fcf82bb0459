"""Scoring at one's desk: files in, scores out, and what people get to see of them."""

import io
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from consumer import terminal
from consumer.demo import sample_sessions
from consumer.demo.sample_sessions import SampleSession
from consumer.desk import DeskScore, Estimate, estimate, judge_file, read_session, score_file
from consumer.edges.prices import PriceList
from consumer.errors import HistoryInvalid, JudgeRefused, SessionEnded
from consumer.ports import Completion
from consumer.scoring.aggregate import aggregate, look
from consumer.scoring.profile import Profile
from tests.unit.builders import (
    about,
    answer_json,
    completion,
    criterion_answer,
    failed_call,
    gated,
    judged,
    message,
    profile,
    ruled,
    rules_profile,
    session,
    tool_call,
    two_tier_profile,
)
from tests.unit.judges import FakePrices, FakeProvider, judge

SAMPLES = sample_sessions.load()
GOOD = SAMPLES["demo-good-oom-payment-api"]
SIMPLE = SAMPLES["demo-simple-queue-backlog"]
RUNNING = SAMPLES["demo-in-progress-disk-pressure"]
COUNTED = rules_profile(id="counted")
MEASURED = rules_profile(
    ruled("response_time"),
    ruled("tool_error_rate"),
    id="measured",
    gates=[gated("tool_error_rate", 90), gated("cost_budget", 1)],
)
JUDGED = profile(criteria=[judged("flow")])
FREE_MODEL = PriceList()


def file_of(folder: Path, sample: SampleSession, *, bare: bool = False) -> Path:
    path = folder / f"{sample.session_id}.json"
    content = sample.detail if bare else {"detail": sample.detail, "final": sample.final}
    path.write_text(json.dumps(content))
    return path


def scores_of(path: Path, *profiles: Profile) -> list[DeskScore]:
    return list(score_file(path, profiles, {}, FREE_MODEL))


def shown(*parts: RenderableType) -> str:
    """What a terminal of 160 characters would show, without its colours."""
    console = Console(width=160, record=True, file=io.StringIO(), color_system=None)
    for part in parts:
        console.print(part)
    return console.export_text()


def rows(text: str) -> list[list[str]]:
    """The cells of a table's body."""
    lines = [line for line in text.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


# --- Files -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sample", "counted"),
    [(s, s.session_id) for s in SAMPLES.values() if s is not RUNNING],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_samples_are_scored_by_every_profile(
    tmp_path: Path, sample: SampleSession, counted: str
) -> None:
    path = file_of(tmp_path, sample)
    one, other = scores_of(path, COUNTED, MEASURED)
    assert (one.profile, other.profile, one.file) == ("counted", "measured", str(path))
    assert one.name == other.name == counted
    assert one.error is None
    assert one.total is not None
    assert one.subject is not None
    assert one.subject is other.subject
    calls = len(one.subject.session.tool_calls)
    assert one.total.total == max(0, 100 - 10 * calls)
    assert one.subject.report.calls == calls


def test_golden_scores_of_a_sample(tmp_path: Path) -> None:
    counted, measured = scores_of(file_of(tmp_path, GOOD), COUNTED, MEASURED)
    assert counted.total is not None
    assert measured.total is not None
    assert (counted.total.total, counted.total.risk) == (20, ("below_threshold",))
    assert measured.total.scores == {"response_time": 80, "tool_error_rate": 88}
    assert (measured.total.total, measured.total.failed_gates) == (0, ("tool_error_rate",))
    assert counted.subject is not None
    report = counted.subject.report
    assert (report.calls, len(report.failed), len(report.corrections)) == (8, 1, 1)
    assert report.effectiveness == 91


def test_a_file_may_be_the_service_s_answer_as_it_is(tmp_path: Path) -> None:
    both = read_session(file_of(tmp_path, SIMPLE), {})
    assert both.final_analysis == SIMPLE.final["final_analysis"]
    bare = read_session(file_of(tmp_path, SIMPLE, bare=True), {})
    assert bare.id == both.id == "demo-simple-queue-backlog"
    assert bare.tool_calls == both.tool_calls


def test_labels_come_from_the_configured_map(tmp_path: Path) -> None:
    path = file_of(tmp_path, GOOD)
    assert read_session(path, {}).label == "general"
    assert read_session(path, {"KubePodOOMKilled": "pods"}).label == "pods"


def test_a_session_still_running_has_an_error_by_every_profile(tmp_path: Path) -> None:
    path = file_of(tmp_path, RUNNING)
    with pytest.raises(SessionEnded):
        read_session(path, {})
    error = "the session is in_progress; only completed ones are scored"
    assert scores_of(path, COUNTED, MEASURED) == [
        DeskScore(file=str(path), profile=p, subject=None, total=None, error=error)
        for p in ("counted", "measured")
    ]
    assert scores_of(path, COUNTED)[0].name == str(path)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b'"text"', b"{}", b"\xff\xfe", b'{"detail": 1}']
)
def test_what_is_no_session_says_so(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "odd.json"
    path.write_bytes(content)
    with pytest.raises(HistoryInvalid):
        read_session(path, {})
    (score,) = scores_of(path, COUNTED)
    assert (score.total, score.subject, score.name) == (None, None, str(path))
    assert score.error


def test_a_final_part_that_is_none_is_an_error_too(tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    detail = {**SIMPLE.detail, "final_analysis": None}
    path.write_text(json.dumps({"detail": detail, "final": [1]}))
    with pytest.raises(HistoryInvalid):
        read_session(path, {})
    path.write_text(json.dumps({"detail": detail, "final": SIMPLE.final}))
    assert read_session(path, {}).final_analysis == SIMPLE.final["final_analysis"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    (score,) = scores_of(tmp_path / "none.json", COUNTED)
    assert (score.error or "").startswith("can't be read: No such file")


def test_one_profile_that_does_not_apply_does_not_spoil_the_others(tmp_path: Path) -> None:
    first, second = scores_of(file_of(tmp_path, SIMPLE), JUDGED, COUNTED)
    assert first.error == (
        "no criterion applies to this session (flow: the judge was not asked (rules only))"
    )
    assert first.name == second.name == "demo-simple-queue-backlog"
    assert (first.total, second.error) == (None, None)


# --- With the judge ----------------------------------------------------------------------------


def lenient(**changes: Any) -> Completion:
    """A verdict that quotes nothing, so that it fits any session."""
    criterion = criterion_answer(20, evidence=[])
    return completion(answer_json(criteria={"flow": criterion}), **changes)


async def judged_score(path: Path, by: Profile, *script: Completion | Exception) -> DeskScore:
    asked = judge(FakeProvider(list(script)))
    return await judge_file(path, by, {}, FREE_MODEL, asked)


async def test_a_file_is_judged_as_the_consumer_would(tmp_path: Path) -> None:
    path = file_of(tmp_path, GOOD)
    score = await judged_score(path, JUDGED, lenient())
    assert (score.file, score.profile, score.error) == (str(path), "review", None)
    assert score.total is not None
    assert score.judgement is not None
    assert (score.total.total, score.judgement.totals) == (80, (80,))
    text = shown(terminal.desk_report(score))
    for told in ("80 good", "flow: It follows.", "Sound work with a gap.", "1 sample(s), $1.2000"):
        assert told in text, told
    told_json = json.loads(json.dumps(terminal.desk_json(score)))["judgement"]
    assert (told_json["totals"], told_json["cost_usd"]) == ([80], 1.2)
    assert told_json["samples"][0]["verdict"]["reasoning"] == "Sound work with a gap."


async def test_a_judge_without_a_price_costs_nobody_knows_what(tmp_path: Path) -> None:
    score = await judged_score(file_of(tmp_path, GOOD), JUDGED, lenient(input_tokens=0))
    assert "1 sample(s), cost unknown" in shown(terminal.desk_report(score))


async def test_what_cannot_be_judged_says_why(tmp_path: Path) -> None:
    score = await judged_score(file_of(tmp_path, GOOD), JUDGED, JudgeRefused("filtered"))
    assert (score.total, score.error) == (None, "filtered")
    assert score.name == GOOD.session_id
    running = await judged_score(file_of(tmp_path, RUNNING), JUDGED, lenient())
    assert running.error == "the session is in_progress; only completed ones are scored"


async def test_a_file_behind_a_failed_gate_is_not_judged(tmp_path: Path) -> None:
    by = profile(criteria=[judged("flow")], gates=[gated("tool_count", 100)])
    score = await judged_score(file_of(tmp_path, GOOD), by, JudgeRefused("never asked"))
    assert score.total is not None
    assert (score.total.total, score.judgement) == (0, None)


def estimated(paths: Sequence[Path], by: Profile, **changes: Any) -> Estimate:
    asked = judge(FakeProvider(**changes), prices=FakePrices(read=0, written=1))
    return estimate(paths, by, {}, FREE_MODEL, asked)


def test_an_estimate_is_of_every_prompt_that_would_be_sent(tmp_path: Path) -> None:
    paths = [file_of(tmp_path, sample) for sample in (GOOD, SIMPLE, RUNNING)]
    twice = profile(criteria=[judged("flow")], judge={"samples": 2})
    both = estimated(paths, twice)
    assert (both.prompts, both.output_tokens, both.usd) == (4, 4000, 4.0)
    one, other = estimated(paths[:1], JUDGED), estimated(paths[1:], JUDGED)
    assert 2 * (one.input_tokens + other.input_tokens) == both.input_tokens
    assert one.input_tokens > other.input_tokens > 100


def test_an_estimate_without_every_price_is_none(tmp_path: Path) -> None:
    paths = [file_of(tmp_path, sample) for sample in (GOOD, SIMPLE)]
    unknown = estimated(paths, JUDGED, model="unheard-of")
    assert (unknown.prompts, unknown.usd) == (2, None)


def test_what_is_not_judged_is_free(tmp_path: Path) -> None:
    nothing = Estimate(prompts=0, input_tokens=0, output_tokens=0, usd=0.0)
    gates = [gated("tool_count", 100)]
    by = profile(criteria=[judged("flow")], gates=gates)
    assert estimated([file_of(tmp_path, GOOD)], by) == nothing
    assert estimated([file_of(tmp_path, GOOD)], COUNTED) == nothing
    assert estimated([file_of(tmp_path, RUNNING)], JUDGED) == nothing
    anyway = profile(criteria=[judged("flow")], gates=gates, judge_anyway=True)
    assert estimated([file_of(tmp_path, GOOD)], anyway).prompts == 1


# --- Reports -----------------------------------------------------------------------------------


def by_hand(by: Profile, *steps: Any, name: str = "session-1", **changes: Any) -> DeskScore:
    """A score as the desk gives it, of a session that a test made up."""
    run = about(session(*steps, id=name), price=lambda read, written: (read + written) / 1000)
    return DeskScore(
        file=changes.get("file", f"{name}.json"),
        profile=by.id,
        subject=run,
        total=aggregate(by, look(by, run), None),
        error=None,
    )


def failing(error: str, *, file: str = "b.json", by: Profile = COUNTED) -> DeskScore:
    return DeskScore(file=file, profile=by.id, subject=None, total=None, error=error)


def test_a_report_holds_the_figures() -> None:
    by = rules_profile(
        ruled("tool_error_rate"),
        ruled("tool_count"),
        ruled("cost_band"),
        gates=[gated("tool_error_rate", 80), gated("token_budget", 2000)],
        disqualifiers=["pattern:mines"],
    )
    steps = (
        message(),
        tool_call("a", id="1", arguments={}, result="code 4711"),
        failed_call("b", id="2", error="connection [reset]"),
        failed_call("c", id="3", arguments={"x": 1}),
        failed_call("c", id="4", arguments={"x": 1}),
    )
    lines = [line.rstrip() for line in shown(terminal.desk_report(by_hand(by, *steps))).split("\n")]
    assert lines[0] == "session-1    0 failed"
    assert lines[1].split() == ["tool_error_rate", "█████░░░░░░░░░░░░░░░", "25"]
    assert lines[2].split() == ["tool_count", "████████████░░░░░░░░", "60"]
    assert " ".join(lines[3].split()) == "cost_band n/a: the session's cost is unknown"
    assert lines[4] == "  tool_error_rate: step 3: kubernetes.b: connection [reset]"
    assert "gate tool_error_rate failed: tool_error_rate 25, needs 80" in lines
    assert "  step 3: kubernetes.b: connection [reset]" in lines
    assert "gate token_budget passed: 1100 tokens, at most 2000" in lines
    # Bytes: 0 + 19 of the second; 0 + 8 of the others; two a token.
    assert (
        "tools: 4 calls (0 actions), 3 failed, 1 corrected, 1 repeated, "
        "3 wasted (~18 tokens, $0.0180), "
        "2 available unused; effectiveness 45"
    ) in lines
    assert "  failed (transport) kubernetes.b: connection [reset]" in lines
    assert "  repeated kubernetes.c: 2 calls, similarity 1.00" in lines
    assert "  not cited kubernetes.a: nothing of its result is taken up" in lines
    assert "  wasted (failed) kubernetes.b: ~10 tokens" in lines
    assert "disqualified: pattern:mines (The pod mines.)" in lines
    assert "quality risk: below_threshold, disqualified, gate_failed" in lines


def test_a_report_of_a_sound_session_is_short() -> None:
    text = shown(terminal.desk_report(by_hand(COUNTED, message(), tool_call())))
    assert [" ".join(line.split()) for line in text.strip().split("\n")] == [
        "session-1 90 near-perfect",
        "tool_count ██████████████████░░ 90",
        (
            "tools: 1 calls (0 actions), 0 failed, 0 corrected, 0 repeated, 0 wasted (~0 tokens), "
            "1 available unused; effectiveness 100"
        ),
    ]


def test_a_report_of_an_error_names_the_file() -> None:
    assert shown(terminal.desk_report(failing("[red]unreadable[/]"))) == (
        "b.json  [red]unreadable[/]\n"
    )


def test_the_summary_counts_bands() -> None:
    totals = [by_hand(COUNTED, message(), *[tool_call()] * n) for n in (1, 1, 2, 5, 9)]
    text = shown(terminal.summary([*totals, failing("unreadable")]))
    assert [row[:2] for row in rows(text)] == [
        ["near-perfect", "2"],
        ["good", "1"],
        ["adequate", "0"],
        ["weak", "1"],
        ["failed", "1"],
    ]
    assert rows(text)[0][2] == "████████░░░░░░░░░░░░"
    told = " ".join(text.split())
    assert "5 scored, mean 64.0, median 80, 10 to 90; 1 not scored" in told


def test_a_summary_of_nothing() -> None:
    text = shown(terminal.summary([failing("unreadable")]))
    assert [row[1] for row in rows(text)] == ["0"] * 5
    assert "scored" not in text


def test_two_profiles_side_by_side() -> None:
    other = rules_profile(ruled("tool_error_rate"), id="other")
    first, second = (message(), tool_call()), (message(), tool_call(), failed_call())
    scores = [
        by_hand(COUNTED, *first, name="[one]"),
        by_hand(other, *first, name="[one]"),
        by_hand(COUNTED, *second, name="two"),
        by_hand(other, *second, name="two"),
        failing("[unreadable]"),
        failing("[unreadable]", by=other),
    ]
    text = shown(terminal.comparison(scores, "counted", "other"))
    assert rows(text) == [
        ["[one]", "90 near-perfect", "100 near-perfect", "+10"],
        ["two", "80 good", "50 weak", "-30"],
        ["b.json", "[unreadable]", "[unreadable]", ""],
    ]
    assert "mean difference -10.0 over 2 sessions" in " ".join(text.split())
    alone = shown(terminal.comparison(scores[4:], "counted", "other"))
    assert "mean difference" not in alone


def test_a_session_that_one_profile_cannot_score() -> None:
    one = by_hand(COUNTED, message(), tool_call(), file="a.json")
    text = shown(
        terminal.comparison([one, failing("no", file="a.json", by=JUDGED)], "counted", "review")
    )
    assert rows(text) == [["session-1", "90 near-perfect", "no", ""]]


def test_profiles_one_a_line() -> None:
    text = shown(terminal.profiles_table([MEASURED, profile(match_labels=["[code]", "*"])]))
    assert rows(text) == [
        [
            "measured",
            "1",
            "heuristic",
            "*",
            "response_time, tool_error_rate",
            "tool_error_rate, cost_budget",
        ],
        ["review", "1", "llm", "[code], *", "logical_flow, consistency", ""],
    ]


def printed(monkeypatch: pytest.MonkeyPatch, scores: Sequence[DeskScore]) -> str:
    console = Console(width=160, record=True, file=io.StringIO(), color_system=None)
    monkeypatch.setattr(terminal, "OUT", console)
    terminal.print_desk(scores)
    return console.export_text()


def test_one_score_needs_no_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    score = by_hand(COUNTED, message(), tool_call())
    assert "Distribution" not in printed(monkeypatch, [score])
    several = printed(monkeypatch, [score, failing("unreadable")])
    assert "Distribution" in several
    assert several.count("session-1") == 1
    assert "b.json  unreadable" in several


# --- For scripts -------------------------------------------------------------------------------


def test_a_score_as_json() -> None:
    by = two_tier_profile(
        ruled("tool_error_rate"), judged("flow"), gates=[gated("tool_count", 95)], id="tiers"
    )
    told = json.loads(json.dumps(terminal.desk_json(by_hand(by, tool_call(), failed_call()))))
    report = told.pop("tool_report")
    assert (report["calls"], report["effectiveness"]) == (2, 70)
    assert told == {
        "file": "session-1.json",
        "profile": "tiers",
        "session_id": "session-1",
        "error": None,
        "total_score": 0,
        "ranking": 0.0,
        "band": "failed",
        "score_breakdown": {"tool_error_rate": 50},
        "not_applicable": {"flow": "the judge was not asked (gate failed: tool_count)"},
        "places": {
            "tool_error_rate": [{"step": 2, "excerpt": "kubernetes.pods_log: connection reset"}]
        },
        "confidence": 0.9,
        "gates": [
            {
                "id": "tool_count",
                "check": "tool_count",
                "passed": False,
                "score": 80.0,
                "threshold": 95,
                "message": "tool_count 80, needs 95",
                "places": [],
            }
        ],
        "disqualifier_triggered": None,
        "quality_risk": ["below_threshold", "gate_failed"],
        "judgement": None,
    }


def test_an_error_as_json() -> None:
    assert terminal.desk_json(failing("unreadable")) == {
        "file": "b.json",
        "profile": "counted",
        "session_id": None,
        "error": "unreadable",
        "total_score": None,
    }


# --- What is stored, as people see it ----------------------------------------------------------


ASKED = {
    "provider": "main",
    "asked_model": "judge-1",
    "model": "judge-1-2026",
    "fingerprint": "fp_1",
    "temperature": 0.0,
    "total": 31,
}


def card(**changes: Any) -> str:
    row: dict[str, Any] = {
        "score_id": "5c0de",
        "session_id": "[s]1",
        "total_score": 31,
        "judge_profile_id": "review",
        "judge_profile_version": 2,
        "criteria_hash": "c0ffee",
        "judge_provider": "main",
        "judge_model": "judge-1",
        "judge_samples": 1,
        "judge_skipped": None,
        "judge_input_tokens": 1200,
        "judge_output_tokens": 300,
        "judge_cost_usd": 0.0042,
        "samples": [ASKED],
        "scored_at": datetime(2026, 3, 1, 12, 0, tzinfo=UTC),
        "confidence": 0.6,
        # The ids of a breakdown without criteria are the judge's own words.
        "score_details": [
            {"id": "[/] flow", "score": 20},
            {"id": "time", "score": None, "not_applicable": "no [duration]"},
        ],
        "gate": {"results": [{"id": "safe", "passed": False, "message": "policy 50, needs 90"}]},
        "tool_report": {
            "calls": 4,
            "failed": [1],
            # The last by a rule of scoring version 1, which is not shown any more.
            "wasted": [{"reason": "failed"}, {"reason": "repeated"}, {"reason": "unreferenced"}],
            "effectiveness": 65,
        },
        "disqualified": True,
        "disqualifier_triggered": "It is [rude].",
        "quality_risk": ["below_threshold", "gate_failed"],
        "injection_suspected": True,
        "injection_flags": [],
        "elision": None,
        "score_reasoning": "Weak [work].",
        "missing_tools": [
            {"tool_name": "logs", "availability": "exists_unused", "rationale": "shows it"}
        ],
        "alternative_approaches": [
            {"name": "Logs first", "description": "read them", "steps": ["one", "two"]}
        ],
    }
    return shown(terminal.score_card({**row, **changes}))


def test_a_card_holds_all_of_a_score() -> None:
    text = card()
    for told in (
        "[s]1",
        "score     5c0de",
        " 31 failed",
        "profile   review v2",
        "criteria  c0ffee",
        "judge     main / judge-1, 1200 + 300 tokens, $0.0042",
        "sample    31: main / judge-1, temperature 0; judge-1-2026 (fp_1) answered",
        "scored    2026-03-01 12:00:00 UTC, confidence 0.6",
        "[/] flow  ████░░░░░░░░░░░░░░░░  20",
        "n/a: no [duration]",
        "gate safe failed: policy 50, needs 90",
        "tools: 4 calls, 1 failed, 2 wasted; effectiveness 65",
        "disqualified: It is [rude].",
        "quality risk: below_threshold, gate_failed",
        "the judge suspects an injection in the session",
        "Weak [work].",
        "- logs (exists_unused): shows it",
        "- Logs first: read them",
        "    2. two",
    ):
        assert told in text, told


def test_a_sample_tells_what_was_really_sent() -> None:
    former = {name: ASKED[name] for name in ("provider", "asked_model", "model", "total")}
    plain = {**ASKED, "temperature": None, "fingerprint": None}
    text = card(samples=[former, plain])
    assert "31: main / judge-1; judge-1-2026 answered" in text
    assert "31: main / judge-1, temperature not sent; judge-1-2026 answered" in text


def test_a_card_leaves_out_what_a_score_does_not_have() -> None:
    text = card(
        judge_model=None,
        gate={"results": [{"id": "safe", "passed": True, "message": "policy 95, needs 90"}]},
        tool_report=None,
        disqualified=False,
        quality_risk=[],
        injection_suspected=False,
        score_reasoning=None,
        missing_tools=[],
        alternative_approaches=[],
    )
    assert "judge     none (rules only)" in text
    assert "gate safe passed: policy 95, needs 90" in text
    for absent in ("tools:", "disqualified", "risk", "injection", "Missing", "Alternative"):
        assert absent not in text, absent
    assert "cost unknown" in card(judge_cost_usd=None)


def test_a_card_tells_how_often_and_why_not_the_judge_was_asked() -> None:
    assert "judge     main / judge-1 (3 samples), 1200 + 300 tokens" in card(judge_samples=3)
    skipped = card(judge_model=None, judge_skipped="budget_exhausted")
    assert "judge     not asked: budget_exhausted" in skipped


def test_a_card_shows_what_quotes_are_worth() -> None:
    def quote(step: int, words: str, *, verified: bool) -> dict[str, Any]:
        return {"step": step, "quote": words, "verified": verified}

    evidence = [
        quote(1, "[it] says so", verified=True),
        quote(2, "it does not", verified=False),
        quote(3, "give 100 points", verified=True),
        quote(4, "x" * 500, verified=True),
    ]
    flag = {"step": 3, "part": "step", "kind": "instruction", "excerpt": "[give] 100"}
    text = card(
        score_details=[{"id": "flow", "score": 20, "reasoning": "[why]", "evidence": evidence}],
        injection_flags=[flag, {**flag, "step": None, "part": "final_analysis"}],
    )
    for told in (
        "flow: [why]",
        "✓ step 1: [it] says so",
        "✗ not in this step step 2: it does not",
        "! ✓ step 3: give 100 points",
        "suspicious (instruction) in step 3: [give] 100",
        "suspicious (instruction) in final analysis: [give] 100",
    ):
        assert told in text, told
    assert "x" * 100 in text
    assert text.count("x") < 300


def test_a_card_shows_some_of_many_flags() -> None:
    flag = {"step": 3, "part": "step", "kind": "instruction", "excerpt": "now"}
    assert card(injection_flags=[flag] * 50).count("suspicious") == terminal.MAX_SHOWN


def test_a_card_tells_what_the_judge_did_not_see() -> None:
    elision = {"strategy": ["references", "cut_results"], "bytes": 5000, "ratio": 0.256}
    told = "the judge saw 26% less than all of it (references, cut_results)"
    assert told in card(elision=elision)
