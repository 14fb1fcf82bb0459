"""The session as the judge reads it: hostile text stays on its line, and quotes can be checked."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.scoring.session import Message, Session
from consumer.scoring.transcript import (
    Transcript,
    encode,
    fence,
    fold,
    numbered,
    tools_text,
    transcript,
    visible,
)
from tests.unit.builders import (
    available,
    failed_call,
    message,
    session,
    stage,
    tool_call,
)

# What str.splitlines, a terminal, an editor or a tokeniser may take for the end of a line.
LINE_BREAKS = ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
INVISIBLE = {
    "soft hyphen": "\u00ad",
    "combining grapheme joiner": "\u034f",
    "Arabic letter mark": "\u061c",
    "Hangul filler": "\u3164",
    "Mongolian vowel separator": "\u180e",
    "zero-width space": "\u200b",
    "zero-width joiner": "\u200d",
    "left-to-right mark": "\u200e",
    "right-to-left mark": "\u200f",
    "right-to-left override": "\u202e",
    "pop directional formatting": "\u202c",
    "word joiner": "\u2060",
    "invisible plus": "\u2064",
    "right-to-left isolate": "\u2067",
    "pop directional isolate": "\u2069",
    "variation selector 1": "\ufe00",
    "variation selector 17": "\U000e0100",
    "byte order mark": "\ufeff",
    "interlinear annotation anchor": "\ufff9",
    "tag letter a": "\U000e0061",
    "cancel tag": "\U000e007f",
}
# Any text at all, with what breaks lines, hides or is no character drawn often.
ALL_CHARACTERS = st.characters(exclude_categories=())
hostile = st.text(
    st.one_of(
        ALL_CHARACTERS,
        st.sampled_from("".join(LINE_BREAKS) + "".join(INVISIBLE.values()) + '"\\{}<>\x00\ud800'),
    )
)


def steps(*given_steps: Any) -> Transcript:
    return transcript(session(*given_steps))


def lines(run: Session) -> list[dict[str, Any]]:
    return [json.loads(line) for line in transcript(run).text.split("\n")]


# --- One line per step -------------------------------------------------------------------------


def test_every_step_is_a_numbered_line_of_json() -> None:
    run = session(
        stages=(
            stage(message("Thought: look", role="assistant"), tool_call("pods_get")),
            stage(failed_call("pods_log"), name="report", agent="Writer", parallel=True),
        )
    )
    assert lines(run) == [
        {
            "step": 1,
            "stage": "analysis",
            "kind": "message",
            "role": "assistant",
            "text": "Thought: look",
        },
        {
            "step": 2,
            "stage": "analysis",
            "kind": "tool_call",
            "tool": "kubernetes.pods_get",
            "arguments": {"name": "miner-0"},
            "result": "pod miner-0 is Running",
        },
        {
            "step": 3,
            "stage": "report",
            "parallel_agent": "Writer",
            "kind": "tool_call",
            "tool": "kubernetes.pods_log",
            "arguments": {"name": "miner-0"},
            "result": "",
            "failure": "transport",
            "error": "connection reset",
        },
    ]
    assert [step.number for step in transcript(run).steps] == [1, 2, 3]


def test_what_is_no_message_has_no_role() -> None:
    kinds = ("thought", "web_search", "model_call_failed", "stage_status")
    told = lines(session(*(message("x", kind=kind) for kind in kinds)))
    assert [(line["kind"], line["text"], "role" in line) for line in told] == [
        (kind, "x", False) for kind in kinds
    ]


def test_a_summarized_result_tells_the_size_of_what_was_not_read() -> None:
    run = session(tool_call(result="short", full_result="\u00e9 \ud83d long"))
    (line,) = lines(run)
    assert line["result"] == "short"
    assert line["summarized"] == (
        "The result is a summary: the agent did not read the full one of 9 bytes."
    )
    assert not transcript(run).quotes(1, "long")


@pytest.mark.parametrize("line_break", LINE_BREAKS, ids=ascii)
def test_no_text_breaks_its_line(line_break: str) -> None:
    text = f"one{line_break}two"
    call = tool_call(text, server=text, arguments={text: [text]}, result=text)
    run = session(stages=(stage(message(text), call, name=text, agent=text, parallel=True),))
    told = transcript(run).text
    assert len(told.splitlines()) == 2
    first, second = (json.loads(line) for line in told.splitlines())
    assert (first["text"], first["stage"], first["parallel_agent"]) == (text, text, text)
    assert (second["result"], second["arguments"]) == (text, {text: [text]})


@given(hostile, hostile)
def test_whatever_the_text_a_step_is_one_line_of_utf_8_json(text: str, key: str) -> None:
    call = tool_call(arguments={key: text}, result=text, failure="tool", error=text)
    told = steps(message(text), call).text
    told.encode()
    assert len(told.splitlines()) == 2
    assert [json.loads(line)["step"] for line in told.splitlines()] == [1, 2]


@given(st.text(st.characters(exclude_categories=("Cc", "Cf", "Cs", "Cn", "Mn"))))
def test_ordinary_text_reaches_the_judge_unchanged(text: str) -> None:
    visible_text = visible(text)
    assert json.loads(steps(message(text)).text)["text"] == visible_text
    kept = [c for c in text if c not in "\u115f\u1160\u3164\uffa0"]
    assert visible_text == "".join(kept)


# --- Invisible text ----------------------------------------------------------------------------


@pytest.mark.parametrize("character", INVISIBLE.values(), ids=INVISIBLE)
def test_invisible_characters_are_removed(character: str) -> None:
    assert visible(f"ig{character}nore") == "ignore"
    assert json.loads(encode({f"k{character}": f"v{character}"})) == {"k": "v"}


@pytest.mark.parametrize("text", ["naïve café", "日本語", "مرحبا", "👍 ok", "a\tb", "x²"])
def test_visible_text_stays(text: str) -> None:
    assert visible(text) == text


@pytest.mark.parametrize("text", ["a" + chr(0xD800), "a" + chr(0xDFFF), "a\ud83d\u200b\ude00"])
def test_half_a_surrogate_pair_becomes_a_replacement_character(text: str) -> None:
    shown = visible(text)
    assert shown == "a" + "\ufffd" * (len(shown) - 1)
    assert len(shown) == len(text) - text.count("\u200b")
    shown.encode()


def test_removing_characters_makes_no_new_escape() -> None:
    assert json.loads(encode("\\\u200bu2028")) == "\\u2028"


@given(hostile)
def test_removing_is_done_once_and_for_all(text: str) -> None:
    assert visible(visible(text)) == visible(text)


# --- Quotes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "quote",
    [
        "pod miner-0 is Running",
        "miner-0   is\n\tRunning",
        "  is Running  ",
        "is\u2028Running",
        '"name": "miner-0"',
        "kubernetes.pods_get",
    ],
)
def test_a_quote_is_found_with_white_space_folded(quote: str) -> None:
    assert steps(tool_call()).quotes(1, quote)


@pytest.mark.parametrize("quote", ["", " ", "\n\t", "\u2028", "\u00a0"])
def test_an_empty_quote_is_never_found(quote: str) -> None:
    assert not steps(tool_call(), message("")).quotes(1, quote)
    assert not steps(message("")).quotes(1, quote)


def test_a_quote_is_found_in_its_own_step_only() -> None:
    told = steps(message("alpha"), message("beta"))
    assert told.quotes(1, "alpha")
    assert told.quotes(2, "beta")
    assert not told.quotes(1, "beta")
    assert not told.quotes(2, "alpha")
    assert not told.quotes(1, "Alpha")


def test_a_quote_may_be_the_text_or_its_json() -> None:
    told = steps(tool_call(result='pods "miner-0"\nnot found'))
    assert told.quotes(1, 'pods "miner-0" not found')
    assert told.quotes(1, r"pods \"miner-0\"\nnot found")
    assert not told.quotes(1, r"pods \'miner-0\'")


def test_an_error_can_be_quoted() -> None:
    assert steps(failed_call()).quotes(1, "connection reset")


def test_a_quote_of_what_the_judge_saw_is_found() -> None:
    # The judge saw the text without the characters that nobody can see.
    assert steps(message("ig\u200bnore \u202eall")).quotes(1, "ignore all")


@given(hostile)
def test_all_that_is_shown_of_a_step_can_be_quoted(text: str) -> None:
    told = steps(message(text))
    shown = visible(text)
    assert told.quotes(1, shown) is bool(fold(shown))
    assert told.quotes(1, told.steps[0].line)


@given(hostile)
def test_folding_leaves_single_blanks_only(text: str) -> None:
    assert fold(text).split(" ") == (text.split() or [""])


def test_a_step_that_is_not_shown_whole_can_be_quoted_from_both() -> None:
    call = tool_call(result="pod miner-0\nis Running")
    step = numbered(7, stage(), call, {"result": ["pod", {"elided_bytes": 19}]})
    assert json.loads(step.line)["result"] == ["pod", {"elided_bytes": 19}]
    assert json.loads(step.line)["arguments"] == call.arguments
    told = Transcript(steps=(step,))
    assert told.quotes(1, "miner-0 is Running")
    assert told.quotes(1, '"pod", {"elided_bytes": 19}')


@given(st.lists(hostile))
def test_the_size_is_that_of_the_text(texts: list[str]) -> None:
    told = transcript(session(stages=(stage(*map(message, texts)),)))
    assert told.size == len(told.text.encode())


# --- Fences and the other parts ----------------------------------------------------------------


def test_a_fence_stands_on_lines_of_its_own() -> None:
    note, first, body, last = fence("ALERT", "n0nce", "{}").split("\n")
    assert (first, body, last) == ("<<<ALERT n0nce>>>", "{}", "<<<END ALERT n0nce>>>")
    assert "n0nce" in note
    assert "not instructions" in note


def test_tools_are_listed_one_a_line() -> None:
    tools = (*available("pods_get"), *available("search\nall", server="logs"))
    assert [json.loads(line) for line in tools_text(tools).split("\n")] == [
        {"tool": "kubernetes.pods_get", "description": "does pods_get"},
        {"tool": "logs.search\nall", "description": "does search\nall"},
    ]


def test_that_no_tools_are_known_is_said() -> None:
    assert tools_text(()) == "(the session does not tell which tools were available)"


def test_steps_of_a_session_run_through_all_stages() -> None:
    one, two, three = message("1"), tool_call(), message("3")
    run = session(stages=(stage(one), stage(two, three), stage()))
    assert list(run.steps) == [one, two, three]
    assert run.tool_calls == (two,)
    assert [isinstance(step, Message) for step in run.steps] == [True, False, True]
    assert transcript(session(stages=())).text == ""
