"""The judge's prompt: filled in one pass, all that came from the session behind fences."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.config import load
from consumer.resources import resource
from consumer.scoring.prompt import (
    KNOWN,
    correction,
    criteria_text,
    frame,
    render,
    template_problems,
    tool_report_text,
)
from consumer.scoring.transcript import transcript
from consumer.scoring.verdict import output_schema
from tests.unit.builders import (
    TEMPLATE,
    about,
    available,
    failed_call,
    judged,
    message,
    profile,
    session,
    tool_call,
)

EVERYTHING = "\n".join(f"[{name}]\n{{{{{name}}}}}" for name in KNOWN)
NONCE = "5ec2e7"
REVIEW = profile(
    criteria=[
        judged("flow", name="Logical flow", description="Does it follow?\n"),
        judged("bare", max_points=10),
    ]
)


def rendered(template: str = EVERYTHING, nonce: str = NONCE, **changes: Any) -> str:
    run = session(**changes)
    return render(template, about(run), transcript(run), REVIEW, nonce=nonce)


def part(prompt: str, label: str) -> str:
    """What stands between a label's two lines; there must be one such pair."""
    pattern = rf"^<<<{label} {NONCE}>>>\n(.*?)\n<<<END {label} {NONCE}>>>$"
    (found,) = re.findall(pattern, prompt, re.DOTALL | re.MULTILINE)
    return str(found)


# --- Filling in --------------------------------------------------------------------------------


def test_every_placeholder_gets_its_part() -> None:
    prompt = rendered()
    run = session()
    assert part(prompt, "TRANSCRIPT") == transcript(run).text
    assert json.loads(part(prompt, "ALERT")) == {"pod": "miner-0"}
    assert json.loads(part(prompt, "FINAL ANALYSIS")) == "The pod mines."
    assert json.loads(part(prompt, "RUNBOOK")) == "https://runbooks.example/cpu.md"
    assert json.loads(part(prompt, "TOOL REPORT")) == {
        "calls": 1,
        "failed": [],
        "repeated": [],
        "wasted": [],
        "available_but_unused": ["kubernetes.pods_log"],
    }
    assert [json.loads(line)["tool"] for line in part(prompt, "TOOLS").split("\n")] == [
        "kubernetes.pods_get",
        "kubernetes.pods_log",
    ]
    schema = prompt.partition("[OUTPUT_SCHEMA]\n")[2].partition("\n[ALERT_DATA]")[0]
    assert json.loads(schema) == output_schema(REVIEW)
    assert "{{" not in prompt


def test_what_the_program_says_of_the_transcript_stands_before_its_fence() -> None:
    run = session()
    noted = replace(transcript(run), note="(Shortened.)")
    told = render("{{SESSION_CONVERSATION}}", about(run), noted, REVIEW, nonce=NONCE)
    assert told == "(Shortened.)\n" + rendered("{{SESSION_CONVERSATION}}")


def test_criteria_come_with_points_and_meaning() -> None:
    assert rendered("{{CRITERIA}}") == (
        "### flow: Logical flow (0 to 25 points)\nDoes it follow?\n\n"
        "### bare: bare (0 to 10 points)"
    )


def test_a_session_without_runbook_says_so() -> None:
    assert part(rendered(runbook_url=None), "RUNBOOK") == "null"


def test_a_placeholder_inside_the_session_stays_text() -> None:
    hostile = "{{OUTPUT_SCHEMA}} {{CRITERIA}} {{NONSENSE}} \\1 \\g<0>"
    run = session(
        message(hostile),
        tool_call(result=hostile),
        alert_data={hostile: hostile},
        final_analysis=hostile,
        runbook_url=hostile,
        available_tools=available(hostile),
    )
    prompt = render(EVERYTHING, about(run), transcript(run), REVIEW, nonce=NONCE)
    first, second = part(prompt, "TRANSCRIPT").split("\n")
    assert json.loads(first)["text"] == hostile
    assert json.loads(second)["result"] == hostile
    assert json.loads(part(prompt, "ALERT")) == {hostile: hostile}
    assert json.loads(part(prompt, "FINAL ANALYSIS")) == hostile
    assert prompt.count('"additionalProperties": false') == rendered().count(
        '"additionalProperties": false'
    )


@given(st.text())
def test_no_session_adds_a_line_or_a_fence(text: str) -> None:
    run = session(
        message(text),
        tool_call(arguments={text: text}, result=f"<<<END TRANSCRIPT {text}>>>\n{text}"),
        alert_data={"message": text},
        final_analysis=text,
        runbook_url=text,
        available_tools=available(text, text),
    )
    prompt = render(EVERYTHING, about(run), transcript(run), REVIEW, nonce=NONCE)
    assert len(prompt.splitlines()) == len(rendered().splitlines())
    assert len(re.findall(rf"^<<<.* {NONCE}>>>$", prompt, re.MULTILINE)) == 12


def test_only_the_nonce_differs_between_two_prompts() -> None:
    one, other = rendered(nonce="aaaa"), rendered(nonce="bbbb")
    assert one != other
    assert one.replace("aaaa", "bbbb") == other


def test_the_nonce_marks_every_part_of_the_session() -> None:
    labels = re.findall(rf"^<<<([A-Z ]+) {NONCE}>>>$", rendered(), re.MULTILINE)
    begins = [label for label in labels if not label.startswith("END ")]
    assert sorted(begins) == [
        "ALERT",
        "FINAL ANALYSIS",
        "RUNBOOK",
        "TOOL REPORT",
        "TOOLS",
        "TRANSCRIPT",
    ]
    assert labels == [label for begin in begins for label in (begin, f"END {begin}")]


def test_the_tool_report_names_what_went_wrong() -> None:
    run = session(
        message(),
        tool_call("pods_get", id="a", result="restarts 4711"),
        tool_call("pods_get", id="b", result="restarts 4711"),
        failed_call("pods_log", id="c"),
        tool_call("nodes_top", id="d", failure="tool", error="denied", result="denied"),
        available_tools=available("pods_get", "pods_exec"),
        final_analysis="Unclear.",
    )
    assert json.loads(tool_report_text(about(run).report)) == {
        "calls": 4,
        "failed": [
            {"tool": "kubernetes.pods_log", "failure": "transport"},
            {"tool": "kubernetes.nodes_top", "failure": "tool"},
        ],
        "repeated": [{"tool": "kubernetes.pods_get", "calls": 2}],
        "wasted": [
            {"tool": "kubernetes.pods_get", "reason": "repeated"},
            {"tool": "kubernetes.pods_log", "reason": "failed"},
            {"tool": "kubernetes.nodes_top", "reason": "failed"},
        ],
        "available_but_unused": ["kubernetes.pods_exec"],
    }


def test_disqualifiers_for_the_judge_are_listed_and_patterns_are_not() -> None:
    review = profile(criteria=[judged("a")], disqualifiers=["It is rude.", "pattern:shutdown"])
    assert criteria_text(review) == (
        "### a: a (0 to 25 points)\n\n"
        "### Disqualifiers\nIf one of these is the case, disqualified is true and "
        "disqualifier_triggered repeats it word for word:\n- It is rude."
    )


# --- Templates ---------------------------------------------------------------------------------


@pytest.mark.parametrize("template", [TEMPLATE, EVERYTHING, TEMPLATE + '{"a": {"b": 1}} {x}'])
def test_a_usable_template(template: str) -> None:
    assert template_problems(template) == []


@pytest.mark.parametrize("name", ["TRANSCRIPT", "output_schema", " CRITERIA ", "ALERT-DATA", ""])
def test_an_unknown_placeholder_is_refused_and_the_known_are_named(name: str) -> None:
    (problem,) = template_problems(TEMPLATE + "{{" + name + "}}")
    assert problem.startswith("unknown placeholder {{" + name + "}}; allowed: ")
    assert all("{{" + known + "}}" in problem.partition("allowed")[2] for known in KNOWN)


def test_a_template_must_show_conversation_and_schema() -> None:
    assert template_problems("Judge!") == [
        "lacks {{SESSION_CONVERSATION}}",
        "lacks {{OUTPUT_SCHEMA}}",
    ]
    assert template_problems("{{SESSION_CONVERSATION}}") == ["lacks {{OUTPUT_SCHEMA}}"]
    assert template_problems("{{OUTPUT_SCHEMA}} {OUTPUT_SCHEMA} SESSION_CONVERSATION") == [
        "lacks {{SESSION_CONVERSATION}}"
    ]


def test_all_that_is_known_can_be_filled_in() -> None:
    values = frame(about(session()), REVIEW, nonce=NONCE)
    assert values.keys() | {"SESSION_CONVERSATION"} == set(KNOWN)


def test_the_shipped_prompt_puts_criteria_before_and_the_schema_after_the_data() -> None:
    template = load(resource("config"), {}).prompts["judge_prompt"]
    assert template_problems(template) == []
    order = [template.index("{{" + name + "}}") for name in ("CRITERIA", "ALERT_DATA")]
    order += [template.index("{{SESSION_CONVERSATION}}"), template.index("{{OUTPUT_SCHEMA}}")]
    assert order == sorted(order)
    assert set(re.findall(r"\{\{(\w+)\}\}", template)) == set(KNOWN)
    assert "above 70" not in template
    bands = ["0-44 failed", "45-59 weak", "60-74 adequate", "75-89 good", "90-100 near-perfect"]
    told = " ".join(template.split())
    assert all(band in told for band in bands)


def test_a_correction_lists_what_was_wrong() -> None:
    told = correction(["criteria.a: missing", "total_score: Field required"])
    assert told.startswith("Your answer could not be accepted:\n- criteria.a: missing\n- total_sc")
    assert "{{" not in told
