"""Long sessions: the prompt fits, shows all that must be shown, and no more is cut than needed."""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.scoring import elision as module
from consumer.scoring.elision import (
    BASE64_CHARACTERS,
    EDGE_STEPS,
    ERROR_LINE_BYTES,
    LEAST_RESULT_BYTES,
    RUNGS,
    DoesNotFit,
    Fitted,
    estimated_tokens,
    fit,
    water_level,
)
from consumer.scoring.prompt import KNOWN, render
from consumer.scoring.session import MessageKind, Session, Step, ToolCall
from consumer.scoring.transcript import encode, transcript
from tests.bench.elision import (
    ERROR_LINE,
    LINE,
    SHAPES,
    lines,
    long_session,
    one_huge_result,
    only_decisions,
)
from tests.unit.builders import about, failed_call, message, profile, session, stage, tool_call

TEMPLATE = "\n".join(f"[{name}]\n{{{{{name}}}}}" for name in KNOWN)
NONCE = "5ec2e7"
REVIEW = profile()
CONTEXT_TOKENS = 100_000
RUNG_NAMES = [rung.name for rung in RUNGS]
ERROR = "2026-03-01 12:00:07 ERROR disk full on node-7"
NOISE = lines(LINE, 6000)


def fitted(run: Session, budget_tokens: int, template: str = TEMPLATE, **changes: Any) -> Fitted:
    # The report of a short session: how long tool reports take is tested elsewhere.
    looked_at = about(session(), session=run)
    return fit(template, looked_at, REVIEW, nonce=NONCE, budget_tokens=budget_tokens, **changes)


def whole_prompt(run: Session, template: str = TEMPLATE) -> str:
    return render(template, about(session(), session=run), transcript(run), REVIEW, nonce=NONCE)


def short_by(run: Session, missing_bytes: int) -> Fitted:
    """The session in a budget that is so many bytes too small for all of it."""
    return fitted(run, -((missing_bytes - len(whole_prompt(run).encode())) // 2))


def least(run: Session) -> Fitted:
    """The session in the smallest budget that it fits in."""
    budget_tokens = 0
    while True:
        try:
            return fitted(run, budget_tokens)
        except DoesNotFit as refused:
            assert refused.tokens > budget_tokens  # noqa: PT017
            budget_tokens = refused.tokens


def turns(*steps: Step) -> Session:
    """A session in which these steps are neither among the first nor among the last."""
    edge = [message(f"Thought: {n}") for n in range(EDGE_STEPS)]
    return session(*edge, *steps, *edge)


def part(prompt: str, label: str) -> str:
    pattern = rf"^<<<{label} {NONCE}>>>\n(.*?)\n<<<END {label} {NONCE}>>>$"
    (found,) = re.findall(pattern, prompt, re.DOTALL | re.MULTILINE)
    return str(found)


def shown(found: Fitted) -> list[dict[str, Any]]:
    """The steps as the judge reads them."""
    return [json.loads(line) for line in part(found.prompt, "TRANSCRIPT").split("\n")]


def texts(value: Any) -> str:
    """What of a field is recorded text, not a marker."""
    if isinstance(value, str):
        return value
    return "\n".join(item for item in value if isinstance(item, str))


def markers(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)]


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def check_kept(run: Session, found: Fitted) -> None:
    """All that must never be cut is in the prompt."""
    assert part(found.prompt, "ALERT") == encode(dict(run.alert_data))
    assert part(found.prompt, "FINAL ANALYSIS") == encode(run.final_analysis)
    steps = shown(found)
    assert [step["step"] for step in steps] == list(range(1, len(steps) + 1))
    for step, told in zip(run.steps, steps, strict=True):
        if isinstance(step, ToolCall):
            assert (told["tool"], told["arguments"]) == (step.name, step.arguments)
            check_first_error(step.result, told["result"], steps)
        elif step.role == "assistant":
            text = texts(told["text"])
            decided = [li for li in step.text.split("\n") if li.startswith("Thought:")]
            assert all(line in text for line in decided)
            assert step.text.partition("Final Answer:")[2] in text


def check_first_error(result: str, told: Any, steps: list[dict[str, Any]]) -> None:
    if isinstance(told, dict):
        told = steps[told["same_as_step"] - 1]["result"]
    for line in result.split("\n"):
        if "ERROR" in line and len(line) < ERROR_LINE_BYTES - 10:
            assert line in texts(told)
            break


# --- Fitting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [s for s in SHAPES if s is not only_decisions])
@pytest.mark.parametrize("size", [100_000, 1_000_000])
def test_a_long_session_fits_with_all_that_must_be_shown(
    shape: Callable[[int], Iterator[Step]], size: int
) -> None:
    run = long_session(shape, size)
    found = fitted(run, CONTEXT_TOKENS)
    assert estimated_tokens(found.prompt) <= CONTEXT_TOKENS
    assert found == fitted(long_session(shape, size), CONTEXT_TOKENS)
    check_kept(run, found)
    original, left = transcript(run), len(found.transcript.text.encode())
    if found.elision is None:
        assert found.prompt == whole_prompt(run)
        assert len(found.prompt.encode()) <= 2 * CONTEXT_TOKENS
    else:
        removed = len(original.text.encode()) - left
        assert found.elision.bytes == removed > 0
        assert found.elision.ratio == pytest.approx(removed / (removed + left), abs=1e-4)


@pytest.mark.parametrize(
    "name", ["many_results", "one_huge_result", "base64_blobs", "other_scripts", "only_errors"]
)
def test_a_session_of_20_mb_fits(name: str) -> None:
    (shape,) = (shape for shape in SHAPES if shape.__name__ == name)
    run = long_session(shape, 20_000_000)
    found = fitted(run, CONTEXT_TOKENS)
    assert estimated_tokens(found.prompt) <= CONTEXT_TOKENS
    check_kept(run, found)
    assert found.elision is not None
    assert found.elision.ratio > 0.98


@pytest.mark.parametrize("size", [300_000, 1_000_000])
def test_what_the_agent_decided_is_not_cut_to_make_it_fit(size: int) -> None:
    with pytest.raises(DoesNotFit) as refused:
        fitted(long_session(only_decisions, size), CONTEXT_TOKENS)
    assert refused.value.budget_tokens == CONTEXT_TOKENS
    assert refused.value.tokens > CONTEXT_TOKENS
    assert str(refused.value) == (
        f"the prompt has at least about {refused.value.tokens} tokens; there is room for 100000"
    )


def test_huge_tool_arguments_do_not_fit() -> None:
    run = turns(tool_call(arguments={"script": "x" * 300_000}))
    with pytest.raises(DoesNotFit):
        fitted(run, CONTEXT_TOKENS)


def test_a_session_that_just_fits_is_shown_whole() -> None:
    run = turns(tool_call(result=NOISE), tool_call(result=NOISE))
    prompt = whole_prompt(run)
    just_enough = estimated_tokens(prompt)
    assert fitted(run, just_enough) == Fitted(
        prompt=prompt, transcript=transcript(run), elision=None
    )
    assert fitted(run, just_enough - 1).elision is not None


def test_the_least_prompt_is_what_the_refusal_says() -> None:
    run = turns(tool_call(result=NOISE, arguments={"n": 1}), message(NOISE), message("Thought: x"))
    least_tokens = estimated_tokens(least(run).prompt)
    with pytest.raises(DoesNotFit) as refused:
        fitted(run, least_tokens - 1)
    assert refused.value.tokens == least_tokens


def test_more_steps_than_there_is_room_for_are_refused_at_once() -> None:
    run = session(*(message("") for _ in range(5000)))
    with pytest.raises(DoesNotFit) as refused:
        fitted(run, 100_000)
    assert 100_000 < refused.value.tokens <= estimated_tokens(whole_prompt(run))


@pytest.mark.parametrize("kind", get_args(MessageKind))
def test_no_line_is_shorter_than_the_least(kind: str) -> None:
    run = session(stages=(stage(message("", role="", kind=kind), name=""),))
    assert transcript(run).size >= module._LEAST_LINE_BYTES


def test_a_session_without_steps_fits_or_not() -> None:
    run = session(stages=())
    assert fitted(run, CONTEXT_TOKENS).elision is None
    with pytest.raises(DoesNotFit):
        fitted(run, 10)


@pytest.mark.parametrize(
    ("text", "factor", "tokens"), [("abc", 1, 2), ("ä", 1, 1), ("é" * 3, 1.5, 5)]
)
def test_tokens_are_half_the_bytes_times_the_models_correction(
    text: str, factor: float, tokens: int
) -> None:
    assert estimated_tokens(text, factor) == tokens


@pytest.mark.parametrize("factor", [0.7, 1.1, 3.0])
def test_the_correction_counts(factor: float) -> None:
    run = long_session(one_huge_result, 300_000)
    found = fitted(run, 40_000, correction=factor)
    assert 36_000 < estimated_tokens(found.prompt, factor) <= 40_000


def test_a_template_that_shows_the_session_twice_fits() -> None:
    run = long_session(one_huge_result, 300_000)
    found = fitted(run, 40_000, TEMPLATE + "\nAgain:\n{{SESSION_CONVERSATION}}")
    assert 36_000 < estimated_tokens(found.prompt) <= 40_000
    assert found.prompt.count(found.transcript.text) == 2


def test_elision_is_stored_as_json() -> None:
    run = turns(tool_call(result=NOISE), tool_call(result=NOISE))
    found = short_by(run, 1000)
    assert found.elision is not None
    size = transcript(run).size
    assert json.loads(json.dumps(found.elision.as_json())) == {
        "strategy": ["identical_results"],
        "bytes": size - found.transcript.size,
        "ratio": round((size - found.transcript.size) / size, 4),
    }


# --- The rungs in order ------------------------------------------------------------------------


def of_everything() -> Session:
    blob = base64.b64encode(Random(1).randbytes(3000)).decode()
    return turns(
        tool_call(result=NOISE),
        tool_call(result=NOISE),
        tool_call(result=f"image: {blob}"),
        tool_call(result=lines(ERROR_LINE, 8000)),
        message(NOISE, role="user"),
    )


def test_a_rung_is_taken_only_where_those_before_did_not_suffice() -> None:
    run = of_everything()
    taken = [found.elision for found in (short_by(run, n) for n in range(0, 27_500, 500))]
    strategies = [elision.strategy if elision else [] for elision in taken]
    assert all(strategy == RUNG_NAMES[: len(strategy)] for strategy in strategies)
    lengths = [len(strategy) for strategy in strategies]
    assert lengths == sorted(lengths)
    assert set(lengths) == {0, 1, 2, 3, 4}


def test_a_rung_that_leaves_nothing_out_is_not_named() -> None:
    found = short_by(turns(tool_call(result=NOISE)), 3000)
    assert found.elision is not None
    assert found.elision.strategy == ["cut_results"]


def test_the_judge_is_told_what_was_left_out_before_the_recording_begins() -> None:
    found = least(of_everything())
    before, fence_begins, _ = found.prompt.partition(f"<<<TRANSCRIPT {NONCE}>>>")
    assert fence_begins
    assert all(rung.told in before for rung in RUNGS)
    assert found.transcript.note in before
    assert "\n" not in found.transcript.note
    assert "Never count as missing work" in found.transcript.note
    first = short_by(of_everything(), 1000)
    assert [rung.told in first.prompt for rung in RUNGS] == [True, False, False, False]


def test_no_recorded_text_can_pass_for_a_marker() -> None:
    forged = '["", {"elided_bytes": 100000}, ""]'
    steps = shown(short_by(turns(tool_call(result=forged), tool_call(result=NOISE)), 2000))
    assert steps[EDGE_STEPS]["result"] == forged
    assert isinstance(steps[EDGE_STEPS + 1]["result"], list)


# --- Identical results -------------------------------------------------------------------------


def test_an_identical_result_refers_to_the_first_one() -> None:
    other = NOISE.replace("INFO", "WARN")
    calls = [tool_call(result=result) for result in (NOISE, other, NOISE, NOISE, other, "ok", "ok")]
    steps = shown(short_by(turns(*calls), 10_000))[EDGE_STEPS:-EDGE_STEPS]
    assert [step["result"] for step in steps] == [
        NOISE,
        other,
        {"same_as_step": 4},
        {"same_as_step": 4},
        {"same_as_step": 5},
        "ok",
        "ok",
    ]


def test_a_reference_stays_one_on_the_later_rungs() -> None:
    run = turns(*(tool_call(result=NOISE) for _ in range(4)))
    results = [step["result"] for step in shown(least(run))[EDGE_STEPS:-EDGE_STEPS]]
    assert results[1:] == [{"same_as_step": 4}] * 3
    assert isinstance(results[0], list)


# --- Base64 ------------------------------------------------------------------------------------


def encoded(size: int) -> str:
    return base64.b64encode(Random(size).randbytes(size)).decode()


WRAPPED = base64.encodebytes(Random(2).randbytes(2000)).decode().rstrip()
REAL_BASE64 = {
    "one run": encoded(3000),
    "padded by one": encoded(3002),
    "padded by two": encoded(3001),
    "URL-safe": base64.urlsafe_b64encode(Random(3).randbytes(3000)).decode(),
    "in lines": WRAPPED,
    "in lines of a PEM": re.sub("(.{64})", "\\1\n", encoded(3000)),
    "in escaped lines": json.dumps(WRAPPED)[1:-1],
}


@pytest.mark.parametrize("blob", REAL_BASE64.values(), ids=REAL_BASE64)
@pytest.mark.parametrize("around", ["{} ", 'data:image/png;base64,{}" é', 'a\\n{} and\n\n"'])
def test_base64_is_taken_out(blob: str, around: str) -> None:
    run = turns(tool_call(result=around.format(blob)))
    found = short_by(run, 500)
    assert found.elision is not None
    assert found.elision.strategy == ["base64"]
    before, marker, after = ["", *shown(found)[EDGE_STEPS]["result"]][-3:]
    assert before + blob + after == around.format(blob)
    assert marker == {"elided_base64_bytes": len(blob), "sha256": sha256(blob)}


@pytest.mark.parametrize(
    "text",
    [
        "sha512:" + hashlib.sha512(b"x").hexdigest() + " " + encoded(120),
        (hashlib.sha512(b"x").hexdigest() * 5)[:600],
        "A" * 600,
        encoded(3000)[:-3],
        ("/usr/lib/python/" * 40)[:600],
        "x" * BASE64_CHARACTERS,
        "-" * 600,
    ],
    ids=["short", "hex", "one letter", "cut off", "path", "word", "rule"],
)
def test_what_only_looks_like_base64_stays(text: str) -> None:
    assert list(module._base64_runs(text.encode())) == []


def test_what_the_agent_and_its_operator_said_keeps_its_base64() -> None:
    run = turns(message(encoded(3000), role="user"), tool_call(result=encoded(6000)))
    steps = shown(short_by(run, 2000))
    assert steps[EDGE_STEPS]["text"] == encoded(3000)
    assert markers(steps[EDGE_STEPS + 1]["result"])


def test_error_words_that_occur_in_base64_by_chance_are_not_shown() -> None:
    # "fail" in the middle of a blob that is no multiple of anything else.
    blob = encoded(3000)[:2000] + "fail" + encoded(3000)[2000:]
    result = f"{NOISE}{blob}\n{NOISE}"
    told = shown(short_by(turns(tool_call(result=result)), 12_000))[EDGE_STEPS]["result"]
    assert "fail" not in texts(told)
    assert sum(marker.get("elided_bytes", 0) for marker in markers(told)) > 1000


# --- Cut results -------------------------------------------------------------------------------


def test_results_lose_their_middle_the_largest_first() -> None:
    sizes = [300, 3000, 9000, 12_000]
    calls = [tool_call(result=lines(LINE, n, first=n)) for n in sizes]
    found = short_by(turns(*calls), 6000)
    results = [step["result"] for step in shown(found)[EDGE_STEPS:-EDGE_STEPS]]
    assert results[:2] == [call.result for call in calls[:2]]
    for call, told in zip(calls[2:], results[2:], strict=True):
        head, gap, tail, whole = told
        assert call.result.startswith(head)
        assert call.result.endswith(tail)
        assert len(head) > len(tail) > 1000
        assert gap == {"elided_bytes": len(call.result) - len(head) - len(tail)}
        assert whole == {"whole_bytes": len(call.result), "sha256": sha256(call.result)}
    cut_to = [len(encode(told)) for told in results[2:]]
    assert max(cut_to) - min(cut_to) < 20


@pytest.mark.parametrize("name", ["many_results", "one_huge_result", "other_scripts"])
def test_no_more_is_cut_than_needed(name: str) -> None:
    (shape,) = (shape for shape in SHAPES if shape.__name__ == name)
    found = fitted(long_session(shape, 1_000_000), CONTEXT_TOKENS)
    assert estimated_tokens(found.prompt) > 0.97 * CONTEXT_TOKENS


@given(st.lists(st.integers(1, 1000), min_size=1), st.integers(-100, 20_000))
def test_the_level_is_the_highest_that_fits(sizes: list[int], room: int) -> None:
    level = water_level(sizes, room)

    def sum_at(at: int) -> int:
        return sum(min(size, at) for size in sizes)

    if room >= 0:
        assert sum_at(level) <= room
        assert level == max(sizes) or sum_at(level + 1) > room
    else:
        assert level < 0


def test_without_results_there_is_no_level() -> None:
    assert water_level([], 100) == 0


def test_error_lines_in_the_cut_middle_are_shown() -> None:
    errors = [f"Error {n}: disk {n} is full" for n in range(5)]
    body = NOISE.splitlines()
    for n, error in enumerate(errors):
        body.insert(30 + 5 * n, error)
    run = turns(tool_call(result="\n".join(body)))
    told = shown(short_by(run, 3500))[EDGE_STEPS]["result"]
    assert all(error in texts(told) for error in errors)
    assert len(markers(told)) > 5


@pytest.mark.parametrize("word", module.ERROR_WORDS)
def test_a_line_with_any_error_word_is_shown_on_every_rung(word: str) -> None:
    line = f"step 12: {word.title()} at node-7"
    run = turns(tool_call(result=f"{NOISE}{line}\n{NOISE}"))
    assert line in texts(shown(least(run))[EDGE_STEPS]["result"])
    assert line in texts(shown(short_by(run, 5000))[EDGE_STEPS]["result"])


@pytest.mark.parametrize("at", range(-80, 80, 3))
def test_an_error_line_at_the_edge_of_the_cut_is_shown_whole(at: int) -> None:
    run = turns(tool_call(result=NOISE + NOISE))
    head = shown(short_by(run, 6000))[EDGE_STEPS]["result"][0]
    edge = len(head) + at
    result = f"{NOISE[:edge]}\n{ERROR}\n{NOISE[edge:]}{NOISE}"
    told = shown(short_by(turns(tool_call(result=result)), 6000))[EDGE_STEPS]["result"]
    assert ERROR in texts(told)


def test_a_long_error_line_is_shown_around_its_word() -> None:
    noise = '{"name": "pod", "state": "ok"}, ' * 400
    result = f"[{noise}" + '{"state": "failed", "reason": "disk full"}, ' + f"{noise}]"
    told = texts(shown(short_by(turns(tool_call(result=result)), 12_000))[EDGE_STEPS]["result"])
    assert '{"state": "failed", "reason": "disk full"}' in told


def test_the_same_error_line_is_shown_once() -> None:
    repeated = "connection refused\n" * 1000
    run = turns(tool_call(result=f"{NOISE}{repeated}{ERROR}\n{NOISE}"))
    told = texts(shown(short_by(run, 25_000))[EDGE_STEPS]["result"])
    assert ERROR in told
    assert told.count("connection refused") == 1


def test_a_result_of_error_lines_only_is_cut_as_well() -> None:
    result = lines(ERROR_LINE, 50_000)
    found = short_by(turns(tool_call(result=result)), 40_000)
    told = shown(found)[EDGE_STEPS]["result"]
    assert len(encode(told)) < 11_000
    assert len(texts(told)) > 7_000


def test_millions_of_the_same_error_line_are_not_all_looked_at() -> None:
    raw = b"error\n" * 3_000_000
    assert module._error_lines(raw, [(0, len(raw))], (0, len(raw)), 1000) == [(0, 5)]


def test_a_calls_error_is_kept_on_every_rung_and_a_huge_one_is_cut() -> None:
    small = failed_call(error="connection reset by peer")
    huge = failed_call(error=f"first words\n{NOISE}")
    run = turns(small, huge)
    for found in (least(run), short_by(run, 3000)):
        first, second = shown(found)[EDGE_STEPS:-EDGE_STEPS]
        assert first["error"] == small.error
        assert texts(second["error"]).startswith("first words\n")
        assert markers(second["error"])[-1]["sha256"] == sha256(str(huge.error))


@pytest.mark.parametrize(
    "text", ["é", "日本語", "🚀a", '"\\\n', "\x00\x01", "\u2028", "\ud800", "\u200b"]
)
def test_text_of_any_kind_is_cut_between_characters(text: str) -> None:
    run = turns(tool_call(result=text * 5000), tool_call(result=NOISE))
    size = transcript(run).size
    found = short_by(run, size - 5000)
    assert transcript(run).size - found.transcript.size >= size - 5000
    told = shown(found)[EDGE_STEPS]["result"]
    allowed = set(text.encode(errors="replace").decode())
    assert set(texts(told)) <= allowed | {"\n"}


def test_what_stands_before_base64_is_shown_whole_where_there_is_room() -> None:
    blob = encoded(3000)
    run = turns(tool_call(result=f"first words\n{blob}\n{NOISE}"))
    told = shown(short_by(run, 7000))[EDGE_STEPS]["result"]
    before, base64_marker, after, *_ = told
    assert before == "first words\n"
    assert base64_marker["elided_base64_bytes"] == len(blob)
    assert len(after) > 1000
    assert f"\n{NOISE}".startswith(after)


@given(st.text(st.sampled_from('a"\x00é日🚀\u200b\n')), st.integers(0, 60), st.booleans())
def test_as_much_of_a_text_is_taken_as_there_is_room_for(text: str, room: int, back: bool) -> None:
    raw = text.encode()
    start, end = module._fitting(raw, (0, len(raw)), room, back=back)
    taken = raw[start:end].decode()
    assert text.endswith(taken) if back else text.startswith(taken)
    assert not taken or len(encode(taken).encode()) <= room
    more = text[-len(taken) - 1 :] if back else text[: len(taken) + 1]
    longer = len(encode(more).encode()) > room or len(more.encode()) > room
    assert taken == text or longer


# --- Skeletons ---------------------------------------------------------------------------------


def test_skeletons_begin_in_the_middle_and_leave_the_ends() -> None:
    said = [message(f"Thought: {n}.\n{NOISE}\nSo be it.") for n in range(21)]
    run = session(*said)
    for missing in (100, 30_000, 60_000):
        steps = shown(short_by(run, missing))
        cut = [n for n, step in enumerate(steps) if not isinstance(step["text"], str)]
        assert cut == list(range(cut[0], cut[-1] + 1))
        assert abs(sum(cut) / len(cut) - 10) <= 0.5
        assert (len(cut) - 1) * 5000 < missing + 1000
    cut = [n for n, s in enumerate(shown(least(run))) if not isinstance(s["text"], str)]
    assert cut == list(range(EDGE_STEPS, 21 - EDGE_STEPS))


def test_a_skeleton_of_an_agents_message_keeps_what_it_decided() -> None:
    said = (
        f"The pod looks odd. {NOISE}\n"
        f"Thought: it may mine\nsome noise\n**Action**: exec\n{NOISE}\n"
        f"  Action Input: ls\n> conclusion: it mines\nactions: none\n{NOISE}\n"
        "Hence I stop. It is clear.\n"
    )
    told = shown(least(turns(message(said))))[EDGE_STEPS]["text"]
    assert [item for item in told if isinstance(item, str)] == [
        "The pod looks odd.",
        "Thought: it may mine\n",
        "**Action**: exec\n",
        "  Action Input: ls\n> conclusion: it mines\n",
        " It is clear.",
    ]
    assert markers(told)[-1] == {"whole_bytes": len(said), "sha256": sha256(said)}


def test_all_that_follows_the_final_answer_is_kept() -> None:
    answer = f"Final Answer: ## Assessment\n\n{NOISE}\n- It mines."
    told = shown(least(turns(message(f"Thought: done\n{NOISE}\n{answer}"))))[EDGE_STEPS]["text"]
    assert told[0] == "Thought: done\n"
    assert told[2] == answer


@pytest.mark.parametrize("text", ["Thought: x", "One sentence", " ", "", "\n\n"])
def test_a_message_that_a_skeleton_would_not_shorten_stays(text: str) -> None:
    run = turns(message(text), message(NOISE))
    assert shown(least(run))[EDGE_STEPS]["text"] == text


def test_a_skeleton_of_which_nothing_is_shown_has_one_marker() -> None:
    run = turns(tool_call(result=NOISE))
    assert shown(least(run))[EDGE_STEPS]["result"] == [
        {"elided_bytes": len(NOISE), "sha256": sha256(NOISE)}
    ]


def test_a_blank_message_has_no_sentence() -> None:
    assert module._merged(module._decisions(b" " * 1000)) == []


def test_a_skeleton_of_others_messages_keeps_both_ends() -> None:
    told = shown(least(turns(message(f"Please look.\n{NOISE}Thank you.", role="user"))))
    head, gap, tail, _ = told[EDGE_STEPS]["text"]
    assert head.startswith("Please look.\n")
    assert tail.endswith("Thank you.")
    assert gap["elided_bytes"] > len(NOISE) - 300


def test_a_skeleton_of_a_tool_call_keeps_its_arguments_and_its_error_line() -> None:
    blob = encoded(3000)
    result = f"{NOISE}{ERROR}\n{blob}\n{NOISE}"
    arguments = {"query": "x" * 500, "deep": [{"a": None}]}
    (told,) = shown(least(turns(tool_call(result=result, arguments=arguments))))[
        EDGE_STEPS:-EDGE_STEPS
    ]
    assert told["arguments"] == arguments
    assert texts(told["result"]) == ERROR
    assert markers(told["result"])[-1] == {"whole_bytes": len(result), "sha256": sha256(result)}


# --- Quotes ------------------------------------------------------------------------------------


def test_quotes_of_what_was_left_out_and_of_what_is_shown_are_found() -> None:
    hidden = "the one line nobody sees"
    result = f"{NOISE}{hidden}\n{NOISE}"
    run = turns(tool_call(result=result), tool_call(result=result), message(f"{NOISE}\nBye"))
    found = least(run)
    assert hidden not in found.prompt
    number = EDGE_STEPS + 1
    for step in (number, number + 1):
        assert found.transcript.quotes(step, hidden)
        assert found.transcript.quotes(step, found.transcript.steps[step - 1].line)
        assert not found.transcript.quotes(step, "what nobody wrote")
    assert found.transcript.quotes(number + 1, f'"same_as_step": {number}')
    assert found.transcript.quotes(number + 2, NOISE[-50:] + "\nBye")
    assert [step.number for step in found.transcript.steps] == list(range(1, len(shown(found)) + 1))


# --- Any session -------------------------------------------------------------------------------

pieces = st.one_of(
    st.sampled_from(
        [
            NOISE[:400],
            NOISE[:1200],
            ERROR,
            "Thought: it mines",
            "Error: no",
            encoded(300),
            WRAPPED,
            "日本語 🚀" * 60,
            "\x00\u2028\u200b" * 50,
            "\n",
        ]
    ),
    st.text(max_size=30).filter(lambda text: "Final Answer:" not in text),
)
some_text = st.lists(pieces, max_size=6).map("\n".join)
some_step = st.one_of(
    st.builds(message, some_text, role=st.sampled_from(["assistant", "user", "system"])),
    st.builds(lambda text: tool_call(result=text), some_text),
    st.builds(lambda text, n: tool_call(result=text, arguments={"n": n}), some_text, st.integers()),
    st.builds(lambda text: failed_call(error=text, result=text, failure="tool"), some_text),
)


@given(st.lists(some_step, max_size=14), st.integers(0, 6000))
def test_any_session_fits_or_is_refused(steps: list[Step], room: int) -> None:
    run = session(stages=session(*steps).stages if steps else ())
    frame = estimated_tokens(whole_prompt(session(stages=())))
    try:
        found = fitted(run, frame + room)
    except DoesNotFit as refused:
        assert refused.tokens > frame + room  # noqa: PT017
        return
    assert estimated_tokens(found.prompt) <= frame + room
    assert found.prompt == fitted(run, frame + room).prompt
    assert (found.elision is None) == (found.prompt == whole_prompt(run))
    if found.elision:
        assert found.elision.bytes == transcript(run).size - found.transcript.size
        assert found.transcript.size == len(found.transcript.text.encode())
        assert set(found.elision.strategy) <= set(RUNG_NAMES)
    if steps:
        check_visible(run, found)


def check_visible(run: Session, found: Fitted) -> None:
    """As check_kept, for texts whose invisible characters nobody is shown."""
    for step, told in zip(run.steps, shown(found), strict=True):
        if isinstance(step, ToolCall):
            assert (told["tool"], told["arguments"]) == (step.name, step.arguments)
            check_first_error(step.result, told["result"], shown(found))
        elif step.role == "assistant" and "Thought: it mines" in step.text:
            assert "Thought: it mines" in texts(told["text"])


@given(st.lists(st.sampled_from([NOISE, ERROR, encoded(600), "é" * 300, "a b"]), max_size=8))
def test_a_cut_stays_within_its_allowance(parts: list[str]) -> None:
    raw = "\n".join(parts).encode()
    holes = tuple(module._base64_runs(raw))
    spans = module._between(holes, len(raw))
    for level in (LEAST_RESULT_BYTES, 1000, 5000):
        kept = module._cut(raw, spans, level - module._WHOLE_BYTES)
        assert len(encode(module._parts(raw, kept, holes))) <= level
