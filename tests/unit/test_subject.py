"""What rule scorers look at: evidence apart from claims, and places fit to be shown."""

from hypothesis import given
from hypothesis import strategies as st

from consumer.scoring.scorers.base import EXCERPT_CHARACTERS, Place, excerpt, in_analysis
from tests.unit.builders import about, failed_call, message, session, tool_call


def test_calls_carry_the_number_of_their_step() -> None:
    one, two = tool_call(id="1"), failed_call(id="2")
    assert about(session(message(), one, message(), two)).numbered_calls == ((2, one), (4, two))


def test_evidence_is_what_the_agent_was_given_and_found() -> None:
    run = session(
        message("system words", role="system"),
        message("user words", role="user"),
        message("agent words\nFinal Answer: concluded"),
        message("deep thoughts", kind="thought"),
        message("concluded\n  agent words\ndeep thoughts\nmore user words", role="user"),
        message("query: 137", role="service", kind="web_search"),
        message("429: too many", role="service", kind="model_call_failed"),
        message("failed: boom", role="service", kind="stage_status"),
        tool_call(arguments={"asked": "asked for"}, result="tool result"),
        tool_call(result="what it read", full_result="what it did not read"),
        failed_call(error="tool error"),
        alert_data={"alert": "alert words"},
        alert_type="AlertType",
        runbook_url="runbook words",
        final_analysis="claimed",
    )
    subject = about(run)
    assert subject.analysis == "claimed"
    for given_ in (
        "alert words",
        "AlertType",
        "runbook words",
        "system words",
        "user words",
        "more user words",
        "tool result",
        "tool error",
        "what it read",
        "what it did not read",
        "query: 137",
        "429: too many",
        "failed: boom",
    ):
        assert given_ in subject.evidence, given_
    for own in ("agent words", "deep thoughts", "concluded", "asked", "claimed"):
        assert own not in subject.evidence, own


def test_evidence_of_a_session_that_holds_none() -> None:
    bare = session(message(), alert_type=None, runbook_url=None, alert_data={})
    assert about(bare).evidence.split() == ["{}"]


def test_an_excerpt_is_one_line_around_its_place() -> None:
    text = f"{'a' * 200}\n  here\t{'b' * 200}"
    start = text.index("here")
    cut = excerpt(text, start, start + 4)
    assert cut == f"{'a' * 75} here {'b' * 77}"
    assert excerpt("short", 0, 5) == "short"
    assert excerpt("x" * 999, 0, 999) == "x" * EXCERPT_CHARACTERS


@given(st.text(max_size=400), st.integers(0, 400), st.integers(0, 400))
def test_no_excerpt_is_longer_than_told(text: str, start: int, length: int) -> None:
    cut = excerpt(text, start, start + length)
    assert len(cut) <= EXCERPT_CHARACTERS
    assert cut.splitlines() in ([], [cut])


def test_the_first_five_places_of_an_analysis() -> None:
    text = "one two three four five six"
    spots = [(text.index(word), text.index(word) + len(word)) for word in text.split()]
    assert in_analysis(text, spots) == (Place(step=None, excerpt=text),) * 5
    assert in_analysis(text, []) == ()
