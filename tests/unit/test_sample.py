"""One sample: what is sent, what is asked again, and what the accepted verdict tells of itself."""

import json
import re
import threading
from dataclasses import replace
from typing import Any

import httpx
import pytest
import structlog

from consumer import together
from consumer.edges.judge.openai import OpenAIProvider
from consumer.errors import (
    ContextOverflow,
    InternalError,
    JudgeInvalidOutput,
    JudgeRejected,
    JudgeUnavailable,
)
from consumer.judge import sample as module
from consumer.judge.sample import TEMPERATURE, Asking, Member, sample
from consumer.ports import ChatMessage, Completion
from consumer.scoring.elision import Fitted, estimated_tokens, fit
from consumer.scoring.judgement import Sample
from consumer.scoring.prompt import correction
from consumer.scoring.sent import prompt_of, unpacked, whole
from consumer.scoring.session import Session
from consumer.scoring.verdict import output_schema
from tests.unit.builders import (
    TEMPLATE,
    about,
    answer_json,
    completion,
    criterion_answer,
    message,
    profile,
    session,
    tool_call,
)
from tests.unit.judges import ERRAND, FakePrices, FakeProvider, line, measured, member
from tests.unit.virtual_time import virtually

REVIEW = profile()
INVALID = completion(answer_json(disqualified=True))
WHAT_WAS_WRONG = "disqualified: this profile has no disqualifiers, so it must be false"
UNWELL = JudgeUnavailable("the judge answers 503")
UNQUOTED = {i: criterion_answer(5, evidence=[]) for i in ("logical_flow", "consistency")}
# Tool results of 40,000 bytes: more than a small context holds.
LONG = session(message(), *(tool_call(id=f"call-{n}", result=f"{n} " * 5000) for n in range(4)))


def asking(run: Session | None = None, **changes: Any) -> Asking:
    run = run or session()
    fields: dict[str, Any] = {
        "subject": about(run),
        "profile": REVIEW,
        "template": TEMPLATE,
        "prices": FakePrices(),
        "errand": ERRAND,
        "size": 0,
    }
    return Asking(**{**fields, **changes})


async def ask(*script: Completion | Exception) -> tuple[Sample, FakeProvider]:
    provider = FakeProvider(list(script))
    return await sample(asking(), member(provider)), provider


async def fail(*script: Completion | Exception) -> tuple[JudgeInvalidOutput, FakeProvider]:
    provider = FakeProvider(list(script))
    with pytest.raises(JudgeInvalidOutput) as raised:
        await sample(asking(), member(provider))
    return raised.value, provider


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is logged, independent of how logging is set up."""
    capture = structlog.testing.LogCapture()
    monkeypatch.setattr(module, "log", structlog.wrap_logger(None, processors=[capture]))
    return capture.entries


# --- One answer --------------------------------------------------------------------------------


async def test_one_valid_answer_is_one_call() -> None:
    taken, provider = await ask(completion())
    assert taken.verdict.points == {"logical_flow": 20, "consistency": 5}
    (call,) = provider.calls
    assert [m.role for m in call.messages] == ["user"]
    assert call.schema == output_schema(REVIEW)
    assert call.max_tokens == 1000


async def test_what_a_sample_tells_of_its_making() -> None:
    prices = FakePrices(read=1.0, written=2.0)
    provider = FakeProvider([completion(input_tokens=700, output_tokens=50)])
    taken = await sample(asking(prices=prices), member(provider, context_window=20_000))
    assert taken == replace(
        taken,
        provider="main",
        model="judge-1-2026-01-01",
        fingerprint=None,
        asked_model="judge-1",
        dialect="json_schema",
        max_tokens=1000,
        temperature=0.0,
        calls=1,
        input_tokens=700,
        output_tokens=50,
        cost_usd=0.8,
        elision=None,
    )
    # The price is that of the model asked for; what its answer calls itself is no name of a list's.
    assert prices.asked == [{"provider": "main", "model": "judge-1"}]


async def test_an_unknown_price_is_no_price_of_zero() -> None:
    taken = await sample(asking(), member(FakeProvider([INVALID, completion()], model="new")))
    assert (taken.calls, taken.cost_usd) == (2, None)


async def test_what_an_answer_cost_is_unknown_where_it_does_not_tell_its_usage() -> None:
    taken, _ = await ask(INVALID, completion(input_tokens=0, output_tokens=0))
    assert (taken.calls, taken.input_tokens, taken.cost_usd) == (2, 1000, None)


async def test_what_was_sent_is_kept_as_it_was_sent() -> None:
    provider = FakeProvider()
    taken = await sample(asking(), member(provider))
    (call,) = provider.calls
    kept = [unpacked(content) for content in taken.request.contents]
    assert prompt_of(kept, taken.nonce) == call.prompt
    told = json.loads(whole(kept, taken.nonce).partition(b"\n")[2])
    assert told["schema"] == output_schema(REVIEW)
    assert (told["model"], told["temperature"], call.temperature) == ("judge-1", 0.0, TEMPERATURE)


async def test_what_a_judge_takes_no_temperature_was_sent() -> None:
    taken = await sample(asking(), member(FakeProvider(picky=True)))
    assert taken.temperature is None
    kept = [unpacked(content) for content in taken.request.contents]
    assert b"temperature" not in kept[0]


@virtually
async def test_of_several_calls_the_first_that_was_answered_is_kept() -> None:
    first = completion("no", fingerprint="fp_1")
    taken, provider = await ask(UNWELL, first, completion(fingerprint="fp_2"))
    kept = [unpacked(content) for content in taken.request.contents]
    told = json.loads(whole(kept, taken.nonce).partition(b"\n")[2])
    assert [message["text"] for message in told["messages"]] == [provider.calls[0].prompt]
    assert taken.fingerprint == "fp_2", "of the answer that was accepted"


async def test_the_nonce_is_another_for_every_sample() -> None:
    taken = [await ask(completion()) for _ in range(20)]
    assert len({one.nonce for one, _ in taken}) == 20
    for one, provider in taken:
        assert re.fullmatch(r"[0-9a-f]{32}", one.nonce)
        assert f"<<<TRANSCRIPT {one.nonce}>>>" in provider.calls[0].prompt


async def test_a_session_that_cannot_be_encoded_is_judged_all_the_same() -> None:
    odd = session(message("half a pair: \ud800, and \x00"), final_analysis="\udfff")
    provider = FakeProvider([completion(answer_json(criteria=UNQUOTED))])
    taken = await sample(asking(odd), member(provider))
    assert taken.verdict.verified_share is None
    provider.calls[0].prompt.encode()


# --- Prompts that do not fit -------------------------------------------------------------------


def test_the_budget_leaves_room_for_the_answer_and_a_tenth() -> None:
    assert Member(line=line(), provider=FakeProvider(), context_window=10_001).budget_tokens == 8000


async def test_a_long_session_is_shortened_to_the_budget() -> None:
    before = measured("judge_elided_total")
    provider = FakeProvider()
    taken = await sample(asking(LONG), member(provider, context_window=8000))
    assert taken.elision is not None
    assert taken.elision.strategy == ["cut_results"]
    assert estimated_tokens(provider.calls[0].prompt) <= 6200
    assert measured("judge_elided_total") == before + 1


async def test_what_a_model_taught_about_its_tokens_shortens_too() -> None:
    provider = FakeProvider()
    judge = member(provider, context_window=30_000)
    assert (await sample(asking(LONG), judge)).elision is None
    judge.line.estimate("judge-1").correction = 1.5
    taken = await sample(asking(LONG), judge)
    assert taken.elision is not None
    assert estimated_tokens(provider.calls[1].prompt, 1.5) <= judge.budget_tokens


async def test_a_session_that_cannot_be_shortened_enough_is_never_sent() -> None:
    before = measured("judge_elided_total")
    provider = FakeProvider()
    with pytest.raises(ContextOverflow, match=r"^judge main: the prompt has at least about \d+ "):
        await sample(asking(LONG), member(provider, context_window=1200))
    assert provider.calls == []
    assert measured("judge_elided_total") == before


@pytest.mark.parametrize(("limit", "beside"), [(0, True), (10**9, False)], ids=["large", "small"])
async def test_a_large_prompt_is_made_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, limit: int, beside: bool
) -> None:
    threads: list[int] = []

    def fit_somewhere(*args: Any, **kwargs: Any) -> Fitted:
        threads.append(threading.get_ident())
        return fit(*args, **kwargs)

    monkeypatch.setattr(module, "fit", fit_somewhere)
    monkeypatch.setattr(together, "LARGE_BYTES", limit)
    await ask(completion())
    (thread,) = threads
    assert (thread != threading.get_ident()) is beside


# --- Answers that don't pass -------------------------------------------------------------------


async def test_an_invalid_answer_is_asked_for_again_with_what_was_wrong() -> None:
    before = measured("judge_invalid_answers_total", provider="main")
    _, provider = await ask(INVALID, completion())
    first, second = provider.calls
    assert second.messages == (
        *first.messages,
        ChatMessage(role="assistant", text=INVALID.text),
        ChatMessage(role="user", text=correction([WHAT_WAS_WRONG])),
    )
    assert WHAT_WAS_WRONG in second.messages[-1].text
    assert (second.max_tokens, second.schema) == (first.max_tokens, first.schema)
    assert measured("judge_invalid_answers_total", provider="main") == before + 1


async def test_only_the_last_correction_is_kept() -> None:
    _, provider = await ask(INVALID, completion("no JSON at all"), completion())
    third = provider.calls[2]
    assert [m.role for m in third.messages] == ["user", "assistant", "user"]
    assert third.messages[0] == provider.calls[0].messages[0]
    assert third.messages[1].text == "no JSON at all"
    assert "there is no complete JSON object" in third.messages[2].text
    assert WHAT_WAS_WRONG not in third.messages[2].text


async def test_an_empty_answer_is_shown_as_such() -> None:
    # Providers refuse a message without text.
    _, provider = await ask(completion(""), completion())
    assert provider.calls[1].messages[1] == ChatMessage(role="assistant", text="(empty)")


async def test_three_invalid_answers_are_enough() -> None:
    error, provider = await fail(INVALID)
    # Published, so it holds nothing of the answer, nor of the problems, which quote it.
    assert str(error) == "no valid verdict in 3 answers; the log tells why"
    assert len(provider.calls) == 3


async def test_usage_is_summed_over_all_answers() -> None:
    taken, _ = await ask(
        completion("no", input_tokens=1000, output_tokens=7),
        completion("", input_tokens=1010, output_tokens=0, truncated=True),
        completion(input_tokens=1100, output_tokens=200, model="judge-1-later"),
    )
    assert taken.calls == 3
    assert (taken.input_tokens, taken.output_tokens) == (3110, 207)
    assert taken.cost_usd == pytest.approx(3.317)
    assert taken.model == "judge-1-later"


async def test_each_call_has_the_price_of_its_own_length() -> None:
    class LongerIsDearer(FakePrices):
        def cost_usd(self, *, input_tokens: int, **_: Any) -> float:
            return input_tokens / 1000 * (2 if input_tokens > 1500 else 1)

    provider = FakeProvider([INVALID, completion()])
    taken = await sample(asking(prices=LongerIsDearer()), member(provider))
    assert (taken.input_tokens, taken.cost_usd) == (2000, 2.0)


async def test_a_cut_off_answer_is_asked_for_with_more_room() -> None:
    cut = completion(answer_json()[:-20], truncated=True)
    _, provider = await ask(cut, completion())
    assert [call.max_tokens for call in provider.calls] == [1000, 2000]
    assert provider.calls[1].messages == provider.calls[0].messages


async def test_room_is_doubled_once_and_for_cut_off_answers_only() -> None:
    cut = completion("{", truncated=True)
    _, provider = await ask(INVALID, cut, completion())
    assert [call.max_tokens for call in provider.calls] == [1000, 1000, 2000]
    error, provider = await fail(cut)
    assert [call.max_tokens for call in provider.calls] == [1000, 2000, 2000, 2000]
    assert str(error) == "no valid verdict in 4 answers; the log tells why"


@pytest.mark.parametrize(
    "refusal", [InternalError("400"), ContextOverflow("400")], ids=["invalid", "overflow"]
)
async def test_where_more_room_is_refused_the_judge_is_asked_as_before(refusal: Exception) -> None:
    cut = completion("{", truncated=True)
    taken, provider = await ask(cut, refusal, cut, completion())
    assert [call.max_tokens for call in provider.calls] == [1000, 2000, 1000, 1000]
    assert taken.calls == 3


async def test_a_request_refused_with_the_first_limit_too_ends() -> None:
    provider = FakeProvider([completion("{", truncated=True), InternalError("400")])
    with pytest.raises(InternalError):
        await sample(asking(), member(provider))
    assert [call.max_tokens for call in provider.calls] == [1000, 2000, 1000]


@pytest.mark.parametrize(
    ("left", "limits"), [(1700, [1000, 1700, 1700, 1700]), (1000, [1000, 1000, 1000])]
)
async def test_more_room_is_no_more_than_the_context_leaves(left: int, limits: list[int]) -> None:
    cut = completion("{", truncated=True, input_tokens=0)  # which teaches no other estimate
    _, provider = await ask(cut, completion())
    read = estimated_tokens(provider.calls[0].prompt)
    provider = FakeProvider([cut])
    # A tenth is spare.
    window = -(-(read + left) * 10 // 9)
    with pytest.raises(JudgeInvalidOutput):
        await sample(asking(), member(provider, context_window=window))
    assert [call.max_tokens for call in provider.calls] == limits


async def test_a_cut_off_answer_is_none_of_the_three() -> None:
    cut = completion("{", truncated=True)
    taken, _ = await ask(cut, cut, INVALID, completion())
    assert taken.calls == 4


async def test_a_complete_answer_counts_though_cut_off_later() -> None:
    taken, _ = await ask(completion(answer_json() + "\n   ", truncated=True))
    assert taken.calls == 1


@virtually
async def test_each_answer_has_retries_of_its_own() -> None:
    taken, provider = await ask(UNWELL, INVALID, UNWELL, UNWELL, completion())
    assert provider.times == [0, 1, 1, 2, 4]
    # What was never answered used no tokens that we know of.
    assert (taken.calls, taken.input_tokens) == (2, 2000)
    assert provider.calls[-1].messages[-1].text == correction([WHAT_WAS_WRONG])


@virtually
async def test_a_call_is_made_for_the_errand_and_its_time() -> None:
    provider = FakeProvider([JudgeUnavailable("503", retry_after=8)])
    with pytest.raises(JudgeUnavailable):
        await sample(asking(errand=replace(ERRAND, left_s=5)), member(provider))
    assert len(provider.calls) == 1


# --- Logs --------------------------------------------------------------------------------------


async def test_rejected_answers_are_logged_and_cut(logged: list[Any]) -> None:
    await ask(completion("x" * 5000), completion())
    (rejected,) = [entry for entry in logged if entry["event"] == "judge_answer_rejected"]
    assert rejected == {
        "event": "judge_answer_rejected",
        "log_level": "warning",
        "provider": "main",
        "problems": 1,
        "places": ["there is no complete JSON object in the answer"],
    }
    (words,) = [entry for entry in logged if entry["event"] == "judge_answer"]
    assert words["log_level"] == "debug"
    assert words["problems"] == ["there is no complete JSON object in the answer"]
    assert words["answer"] == "x" * 1000
    assert all(len(str(value)) <= 1000 for entry in logged for value in entry.values())
    assert [entry["event"] for entry in logged].count("judge_request") == 2


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, JudgeRejected), (400, InternalError), (200, JudgeInvalidOutput)],
)
async def test_the_key_is_neither_logged_nor_told(
    logged: list[Any], status: int, error: type[Exception]
) -> None:
    key = "sk-live-1234567890"
    sent: list[str] = []

    def respond(request: httpx.Request) -> httpx.Response:
        sent.append(request.headers["authorization"])
        choice = {"message": {"content": "no verdict"}, "finish_reason": "stop"}
        told: dict[str, Any] = {"model": "m", "choices": [choice]}
        if status != 200:
            told = {"error": {"message": f"wrong key {key}", "code": "invalid", "param": key}}
        return httpx.Response(status, stream=httpx.ByteStream(json.dumps(told).encode()))

    async with httpx.AsyncClient(
        transport=httpx.MockTransport(respond),
        base_url="https://llm.example/v1/",
        headers=OpenAIProvider.headers(key),
    ) as client:
        provider = OpenAIProvider(client=client, name="main", model="m", max_output_tokens=256)
        with pytest.raises(error) as raised:
            await sample(asking(), Member(line=line(), provider=provider, context_window=128_000))
    assert sent
    assert set(sent) == {f"Bearer {key}"}
    assert logged
    assert key not in json.dumps(logged)
    assert key not in str(raised.value)
