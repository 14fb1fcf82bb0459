"""Every attack of the corpus: what is sent stays whole, and what a fooled judge says is checked."""

import json
import re
from collections import Counter
from typing import Any

import pytest

from consumer.config import load as load_config
from consumer.resources import resource
from consumer.scoring.injection import flags
from consumer.scoring.prompt import KNOWN, render
from consumer.scoring.session import Session
from consumer.scoring.transcript import transcript, visible
from consumer.scoring.verdict import VerdictInvalid, check, output_schema
from tests.injection.attacks import PLANTED, Attack, load, planted
from tests.unit.builders import about, profile

ATTACKS = load()
TEMPLATE = load_config(resource("config"), {}).prompts["judge_prompt"]
NONCE = "6f1c0a35d2e84b7f9c1e5a7d3b2f8e60"
LABELS = ["ALERT", "RUNBOOK", "TOOLS", "TRANSCRIPT", "TOOL REPORT", "FINAL ANALYSIS"]
PLACES = {
    "alert": "ALERT",
    "runbook_url": "RUNBOOK",
    "tool_name": "TOOLS",
    "tool_description": "TOOLS",
    "final_analysis": "FINAL ANALYSIS",
}

each_attack = pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.id)
each_answer = pytest.mark.parametrize(
    "attack", [a for a in ATTACKS if a.refused], ids=lambda attack: attack.id
)
each_legal_answer = pytest.mark.parametrize(
    "attack", [a for a in ATTACKS if a.depends_on_model], ids=lambda attack: attack.id
)


def sent(run: Session) -> str:
    return render(TEMPLATE, about(run), transcript(run), profile(), nonce=NONCE)


def part(prompt: str, label: str) -> list[str]:
    """The lines between a label's two marks."""
    lines = prompt.split("\n")
    start, end = lines.index(f"<<<{label} {NONCE}>>>"), lines.index(f"<<<END {label} {NONCE}>>>")
    return lines[start + 1 : end]


def instructions() -> list[str]:
    """What the template says around the placeholders; the schema, which ends it, filled in."""
    parts = re.split(r"\{\{\w+\}\}", TEMPLATE)
    schema = json.dumps(output_schema(profile()), indent=1)
    return [*parts[:-2], parts[-2] + schema + parts[-1]]


# --- The corpus itself ---------------------------------------------------------------------------


def test_the_corpus_holds_what_it_should() -> None:
    assert len(ATTACKS) == len({a.id for a in ATTACKS}) >= 60
    assert len([a for a in ATTACKS if a.refused]) >= 40
    kinds = Counter(a.kind for a in ATTACKS)
    assert min(kinds.values()) >= 5
    assert set(PLACES) | {"tool_result", "tool_arguments", "tool_error", "assistant", "user"} <= {
        a.where for a in ATTACKS
    }
    for attack in ATTACKS:
        assert (attack.fooled is not None) is (bool(attack.refused) or attack.depends_on_model)
        assert not (attack.refused and attack.depends_on_model)


# --- What is sent --------------------------------------------------------------------------------


@each_attack
def test_there_is_one_fence_of_each_part_and_no_line_more(attack: Attack) -> None:
    prompt, harmless = sent(attack.session), sent(planted(attack.where, "harmless"))
    marks = re.findall(rf"^<<<(.*) {NONCE}>>>$", prompt, re.MULTILINE)
    assert marks == [mark for label in LABELS for mark in (label, f"END {label}")]
    assert prompt.count(NONCE) == harmless.count(NONCE) == 3 * len(LABELS)
    # splitlines() knows every line break there is.
    assert prompt.splitlines() == prompt.removesuffix("\n").split("\n")
    assert prompt.count("\n") == harmless.count("\n")


@each_attack
def test_every_step_is_its_own_line(attack: Attack) -> None:
    lines = part(sent(attack.session), "TRANSCRIPT")
    assert [json.loads(line)["step"] for line in lines] == [1, 2, PLANTED]


@each_attack
def test_nothing_is_expanded(attack: Attack) -> None:
    prompt, harmless = sent(attack.session), sent(planted(attack.where, "harmless"))
    for told in (instructions()[-1], '"additionalProperties": false', "# What you score"):
        assert prompt.count(told) == harmless.count(told) >= 1
    for name in KNOWN:
        placeholder = "{{" + name + "}}"
        assert (placeholder in prompt) is (placeholder in visible(attack.text))


@each_attack
def test_nothing_invisible_is_sent(attack: Attack) -> None:
    prompt = sent(attack.session)
    assert visible(prompt) == prompt
    controls = [c for c in prompt if c < " " and c != "\n"]
    assert controls == []


@each_attack
def test_the_instructions_stand_around_the_data_word_for_word(attack: Attack) -> None:
    prompt = sent(attack.session)
    position = 0
    for told in instructions():
        assert told in prompt[position:]
        position = prompt.index(told, position) + len(told)
    assert prompt.startswith(instructions()[0])
    assert prompt.endswith(instructions()[-1])
    last_mark = prompt.rindex(f"<<<END FINAL ANALYSIS {NONCE}>>>")
    assert prompt[last_mark:].partition("\n")[2] == instructions()[-1].removeprefix("\n")


@each_attack
def test_the_judge_reads_the_text_as_it_was(attack: Attack) -> None:
    lines = part(sent(attack.session), PLACES.get(attack.where, "TRANSCRIPT"))
    text = visible(attack.text)
    assert read(attack.where, json.loads(lines[-1])) == text


def read(where: str, found: Any) -> str:
    """The planted text, out of the JSON that the judge gets."""
    match where:
        case "alert":
            assert list(found) == ["message", found["message"]]
            return str(found["message"])
        case "runbook_url" | "final_analysis":
            return str(found)
        case "tool_name":
            return str(found["tool"]).removeprefix("kubernetes.")
        case "tool_arguments":
            ((key, [value]),) = found["arguments"].items()
            assert key == value
            return str(value)
    keys = {"assistant": "text", "user": "text", "tool_result": "result", "tool_error": "error"}
    more = {"stage_name": "stage", "tool_description": "description"}
    return str(found[(keys | more)[where]])


# --- What is flagged -----------------------------------------------------------------------------


@each_attack
def test_the_detector_flags_it_as_the_corpus_says(attack: Attack) -> None:
    places = {"runbook_url": "runbook", "tool_description": "tools"}
    place = places.get(attack.where, attack.where)
    found = [flag for flag in flags(attack.session) if flag.part in {"step", "tools", place}]
    assert found == list(flags(attack.session))
    assert sorted({flag.kind for flag in found}) == sorted(attack.flagged)
    assert {flag.step for flag in found} <= {PLANTED, None}


# --- What is accepted ----------------------------------------------------------------------------


def checked(attack: Attack) -> Any:
    run = attack.session
    return check(attack.answer, attack.profile, run, transcript(run))


@each_answer
def test_what_a_fooled_judge_says_is_refused(attack: Attack) -> None:
    with pytest.raises(VerdictInvalid) as refusal:
        checked(attack)
    assert attack.refused is not None
    assert any(attack.refused in problem for problem in refusal.value.problems)
    assert len(str(refusal.value)) < 1000, "what is wrong is told in few words"


@each_legal_answer
def test_a_legal_answer_is_the_model_s_own_and_stays_within_its_bounds(attack: Attack) -> None:
    verdict = checked(attack)
    assert verdict.verified_share == attack.verified
    assert verdict.disqualified is False
    if attack.free_form:
        assert 0 <= verdict.total_score <= 100
    else:
        assert verdict.total_score is None, "the total is computed, not believed"
        assert all(0 <= points <= 25 for points in verdict.points.values())


def test_a_good_answer_passes_whatever_was_planted() -> None:
    """So that what is refused above is refused for what the fooled judge did."""
    for attack in ATTACKS:
        run = attack.session
        good = Attack(id="", kind="", where="", text="", flagged=[], free_form=attack.free_form)
        assert check(good.answer, attack.profile, run, transcript(run)).reasoning
