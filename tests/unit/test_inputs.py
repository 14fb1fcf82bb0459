"""What a prompt was rendered from: kept whole, under its own address."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.scoring.inputs import inputs_of, request_sha256, session_in
from consumer.scoring.prompt import KNOWN, render
from consumer.scoring.session import Session
from consumer.scoring.transcript import transcript
from consumer.scoring.verdict import output_schema
from tests.unit.builders import (
    about,
    available,
    failed_call,
    judged,
    llm_call,
    message,
    profile,
    session,
    stage,
    tool_call,
)

# Any text, half a surrogate pair, U+0000 and line breaks of all kinds included.
texts = st.text(st.characters(), max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(texts, json_values, max_size=3)
messages = st.builds(message, texts, role=texts, at_us=st.integers())
calls = st.builds(tool_call, texts, result=texts, arguments=objects)
failures = st.builds(
    failed_call, texts, error=texts, failure=st.sampled_from(["transport", "tool"])
)
stages = st.builds(
    lambda steps, **changes: stage(*steps, **changes),
    st.lists(messages | calls | failures, max_size=3),
    name=texts,
    agent=texts,
    parallel=st.booleans(),
)
numbers = st.none() | st.integers(0, 2**63)
sessions = st.builds(
    session,
    id=texts,
    alert_type=st.none() | texts,
    label=texts,
    alert_data=objects,
    runbook_url=st.none() | texts,
    final_analysis=texts,
    stages=st.lists(stages, max_size=2).map(tuple),
    llm_calls=st.lists(
        st.builds(llm_call, texts, provider=st.none() | texts, duration_ms=numbers), max_size=2
    ).map(tuple),
    available_tools=st.lists(texts, max_size=2).map(lambda names: available(*names)),
    total_tokens=numbers,
    duration_ms=numbers,
)


@given(sessions)
def test_a_session_comes_back_as_it_was(run: Session) -> None:
    kept = inputs_of(run)
    again = session_in(kept.content)
    assert again == run
    assert inputs_of(again) == kept
    assert hashlib.sha256(kept.content).hexdigest() == kept.sha256


@given(sessions)
def test_a_session_that_comes_back_makes_the_same_prompt(run: Session) -> None:
    template = " ".join(f"{{{{{name}}}}}" for name in KNOWN)

    def prompt(of: Session) -> str:
        return render(template, about(of), transcript(of), profile(), nonce="n")

    assert prompt(session_in(inputs_of(run).content)) == prompt(run)


def test_what_json_has_no_number_for_comes_back() -> None:
    # JSON from outside may hold 1e400, and the History Service's NaN.
    odd = session(alert_data={"much": float("inf"), "none": float("nan"), "int": 10**30})
    again = session_in(inputs_of(odd).content)
    assert repr(again.alert_data) == repr(odd.alert_data)


@pytest.mark.parametrize(
    "change",
    [
        {"id": "session-2"},
        {"final_analysis": "The pod mines!"},
        {"alert_data": {"pod": "miner-1"}},
        {"stages": ()},
        {"available_tools": ()},
        {"duration_ms": None},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_session_has_another_address(change: dict[str, Any]) -> None:
    assert inputs_of(session()).sha256 == inputs_of(session()).sha256
    assert inputs_of(session(**change)).sha256 != inputs_of(session()).sha256


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[]", b'{"id": "session-1"}'])
def test_what_is_no_session_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        session_in(content)


REQUEST: dict[str, Any] = {
    "model": "judge-1",
    "temperature": 0.0,
    "profile": profile(),
    "prompt": "Judge this: \u00e9",
}


@pytest.mark.parametrize(
    "change",
    [
        {"model": "judge-2"},
        {"temperature": 0.1},
        {"profile": profile(criteria=[judged("other")])},
        {"prompt": "Judge this"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_request_s_name_is_of_all_that_is_sent(change: dict[str, Any]) -> None:
    assert request_sha256(**REQUEST) == request_sha256(**REQUEST)
    assert len(request_sha256(**REQUEST)) == 64
    assert request_sha256(**REQUEST | change) != request_sha256(**REQUEST)


def test_a_request_s_name_stays_what_it_is() -> None:
    """Scores of former versions are replayed by it."""
    asked = {"model": "judge-1", "temperature": 0.0, "schema": output_schema(profile())}
    named = f"{json.dumps(asked)}\n{REQUEST['prompt']}"
    assert request_sha256(**REQUEST) == hashlib.sha256(named.encode()).hexdigest()


def test_no_part_of_a_request_can_pass_for_another() -> None:
    whole = request_sha256(**REQUEST | {"model": "a", "prompt": "b\nc"})
    assert whole != request_sha256(**REQUEST | {"model": "a\nb", "prompt": "c"})
