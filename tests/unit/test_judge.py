"""The judge: what is sent, what is asked again and when, and what the verdict cost."""

import asyncio
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import structlog
from prometheus_client import REGISTRY

from consumer import judge as module
from consumer.edges.judge.openai import OpenAIProvider
from consumer.errors import (
    ContextOverflow,
    InternalError,
    JudgeInvalidOutput,
    JudgeRefused,
    JudgeRejected,
    JudgeUnavailable,
)
from consumer.judge import Judge
from consumer.ports import ChatMessage, Completion
from consumer.scoring.criteria import JudgeSettings
from consumer.scoring.prompt import correction, render
from consumer.scoring.score import Judgement
from consumer.scoring.transcript import transcript
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
)

REVIEW = profile()
INVALID = completion(answer_json(disqualified=True))
WHAT_WAS_WRONG = "disqualified: this profile has no disqualifiers, so it must be false"
UNWELL = JudgeUnavailable("the judge answers 503")


@dataclass(frozen=True)
class Call:
    """What one call sent."""

    messages: tuple[ChatMessage, ...]
    schema: Mapping[str, Any]
    max_tokens: int

    @property
    def prompt(self) -> str:
        return self.messages[0].text


@dataclass
class ScriptedProvider:
    """Gives these answers in order; an exception among them is raised."""

    script: list[Completion | Exception]
    name: str = "main"
    model: str = "judge-1"
    max_output_tokens: int = 4096
    calls: list[Call] = field(default_factory=list)

    async def complete(
        self, messages: Sequence[ChatMessage], schema: Mapping[str, Any], *, max_tokens: int
    ) -> Completion:
        self.calls.append(Call(tuple(messages), schema, max_tokens))
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass
class FlatPrice:
    """A thousandth of a dollar a token, or no price at all."""

    known: bool = True
    asked: list[dict[str, Any]] = field(default_factory=list)

    def cost_usd(self, **usage: Any) -> float | None:
        self.asked.append(usage)
        return (usage["input_tokens"] + usage["output_tokens"]) / 1000 if self.known else None


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were asked for, none of them made."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return pauses


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the judge logs, independent of how logging is set up."""
    capture = structlog.testing.LogCapture()
    monkeypatch.setattr(module, "log", structlog.wrap_logger(None, processors=[capture]))
    return capture.entries


def asking(provider: Any, prices: Any = None) -> Judge:
    return Judge(
        provider=provider, prompts={"judge_prompt": TEMPLATE}, prices=prices or FlatPrice()
    )


async def ask(*script: Completion | Exception) -> tuple[Judgement, ScriptedProvider]:
    provider = ScriptedProvider(list(script))
    return await asking(provider).judge(about(session()), REVIEW), provider


async def fail(error: type[Exception], *script: Completion | Exception) -> ScriptedProvider:
    provider = ScriptedProvider(list(script))
    with pytest.raises(error):
        await asking(provider).judge(about(session()), REVIEW)
    return provider


def invalid_answers(provider: str) -> float:
    labels = {"provider": provider}
    return REGISTRY.get_sample_value("scoring_judge_invalid_answers_total", labels) or 0.0


def calls_measured(provider: str, result: str) -> float:
    labels = {"provider": provider, "result": result}
    return REGISTRY.get_sample_value("scoring_judge_call_seconds_count", labels) or 0.0


# --- One call ----------------------------------------------------------------------------------


async def test_one_valid_answer_is_one_call(slept: list[float]) -> None:
    judgement, provider = await ask(completion())
    assert judgement.verdict.points == {"logical_flow": 20, "consistency": 5}
    (call,) = provider.calls
    assert [m.role for m in call.messages] == ["user"]
    assert call.schema == output_schema(REVIEW)
    assert call.max_tokens == 4096
    assert slept == []


async def test_what_a_judgement_tells_of_its_making() -> None:
    prices = FlatPrice()
    provider = ScriptedProvider([completion(input_tokens=700, output_tokens=50)])
    judgement = await asking(provider, prices).judge(about(session()), REVIEW)
    assert (judgement.provider, judgement.model) == ("main", "judge-1-2026-01-01")
    assert (judgement.samples, judgement.calls) == (1, 1)
    assert (judgement.input_tokens, judgement.output_tokens) == (700, 50)
    assert judgement.cost_usd == 0.75
    assert prices.asked == [
        {"provider": "main", "model": "judge-1", "input_tokens": 700, "output_tokens": 50}
    ]


async def test_an_unknown_price_is_no_price_of_zero() -> None:
    provider = ScriptedProvider([completion()])
    judgement = await asking(provider, FlatPrice(known=False)).judge(about(session()), REVIEW)
    assert judgement.cost_usd is None


async def test_the_prompt_sent_is_the_prompt_hashed() -> None:
    judgement, provider = await ask(completion())
    prompt = provider.calls[0].prompt
    assert hashlib.sha256(prompt.encode()).hexdigest() == judgement.prompt_sha256
    run = session()
    again = render(TEMPLATE, about(run), transcript(run), REVIEW, nonce=judgement.nonce)
    assert again == prompt


async def test_the_nonce_is_another_for_every_judgement() -> None:
    judgements = [await ask(completion()) for _ in range(20)]
    nonces = {judgement.nonce for judgement, _ in judgements}
    assert len(nonces) == 20
    for judgement, provider in judgements:
        assert re.fullmatch(r"[0-9a-f]{32}", judgement.nonce)
        assert f"<<<TRANSCRIPT {judgement.nonce}>>>" in provider.calls[0].prompt


async def test_a_session_that_cannot_be_encoded_is_judged_all_the_same() -> None:
    odd = session(message("half a pair: \ud800, and \x00"), final_analysis="\udfff")
    provider = ScriptedProvider([completion(answer_json(criteria=_unquoted()))])
    judgement = await asking(provider).judge(about(odd), REVIEW)
    assert judgement.verdict.verified_share is None
    provider.calls[0].prompt.encode()


def _unquoted() -> dict[str, Any]:
    return {i: criterion_answer(5, evidence=[]) for i in ("logical_flow", "consistency")}


def test_settings_name_what_can_change_a_score() -> None:
    assert asking(ScriptedProvider([])).settings(REVIEW) == JudgeSettings(
        provider="main", model="judge-1", prompt=TEMPLATE, temperature=0.0, samples=1
    )


async def test_a_profile_s_own_prompt_is_used() -> None:
    provider = ScriptedProvider([completion()])
    prompts = {"judge_prompt": TEMPLATE, "short_prompt": "Short. " + TEMPLATE}
    judge = Judge(provider=provider, prompts=prompts, prices=FlatPrice())
    short = profile(judge={"prompt": "short_prompt"})
    assert judge.settings(short).prompt == "Short. " + TEMPLATE
    await judge.judge(about(session()), short)
    assert provider.calls[0].prompt.startswith("Short. Judge this:")


# --- Answers that don't pass -------------------------------------------------------------------


async def test_an_invalid_answer_is_asked_for_again_with_what_was_wrong(
    slept: list[float],
) -> None:
    before = invalid_answers("main")
    _, provider = await ask(INVALID, completion())
    first, second = provider.calls
    assert second.messages == (
        *first.messages,
        ChatMessage(role="assistant", text=INVALID.text),
        ChatMessage(role="user", text=correction([WHAT_WAS_WRONG])),
    )
    assert WHAT_WAS_WRONG in second.messages[-1].text
    assert second.max_tokens == first.max_tokens
    assert slept == []
    assert invalid_answers("main") == before + 1


async def test_only_the_last_correction_is_kept() -> None:
    broken = completion("no JSON at all")
    _, provider = await ask(INVALID, broken, completion())
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
    provider = ScriptedProvider([INVALID] * 3)
    with pytest.raises(JudgeInvalidOutput) as error:
        await asking(provider).judge(about(session()), REVIEW)
    assert str(error.value) == f"no valid verdict in 3 answers: {WHAT_WAS_WRONG}"
    assert len(provider.calls) == 3


async def test_the_message_of_invalid_output_is_short_and_keeps_the_answer_out() -> None:
    wrong = {f"criterion-{n}": criterion_answer() for n in range(200)}
    text = f"SECRET OF THE SESSION {answer_json(criteria=wrong)}"
    provider = ScriptedProvider([completion(text)] * 3)
    with pytest.raises(JudgeInvalidOutput) as error:
        await asking(provider).judge(about(session()), REVIEW)
    assert len(str(error.value)) < 1100
    assert "SECRET" not in str(error.value)


async def test_usage_is_summed_over_all_answers() -> None:
    judgement, _ = await ask(
        completion("no", input_tokens=1000, output_tokens=7),
        completion("", input_tokens=1010, output_tokens=0, truncated=True),
        completion(input_tokens=1100, output_tokens=200, model="judge-1-later"),
    )
    assert judgement.calls == 3
    assert (judgement.input_tokens, judgement.output_tokens) == (3110, 207)
    assert judgement.cost_usd == pytest.approx(3.317)
    assert judgement.model == "judge-1-later"


async def test_a_cut_off_answer_is_asked_for_with_more_room() -> None:
    cut = completion(answer_json()[:-20], truncated=True)
    _, provider = await ask(cut, completion())
    assert [call.max_tokens for call in provider.calls] == [4096, 8192]
    told = provider.calls[1].messages[-1].text
    assert told == correction(["the answer was cut off after 4096 tokens"])


async def test_room_is_doubled_for_cut_off_answers_only() -> None:
    cut = completion("{", truncated=True)
    _, provider = await ask(INVALID, cut, completion())
    assert [call.max_tokens for call in provider.calls] == [4096, 4096, 8192]
    provider = await fail(JudgeInvalidOutput, cut, cut, cut)
    assert [call.max_tokens for call in provider.calls] == [4096, 8192, 16384]


async def test_a_complete_answer_counts_though_cut_off_later() -> None:
    judgement, _ = await ask(completion(answer_json() + "\n   ", truncated=True))
    assert judgement.calls == 1


# --- A provider that is unwell -----------------------------------------------------------------


async def test_the_schedule_of_retries(slept: list[float]) -> None:
    judgement, provider = await ask(UNWELL, UNWELL, UNWELL, completion())
    assert slept == [1.0, 2.0, 4.0]
    assert len(provider.calls) == 4
    assert len({call.messages for call in provider.calls}) == 1
    # What was never answered used no tokens that we know of.
    assert judgement.calls == 1


async def test_after_the_last_retry_the_error_is_told(slept: list[float]) -> None:
    before = calls_measured("main", "JudgeUnavailable")
    provider = ScriptedProvider([UNWELL] * 4)
    with pytest.raises(JudgeUnavailable, match=r"^the judge answers 503$"):
        await asking(provider).judge(about(session()), REVIEW)
    assert slept == [1.0, 2.0, 4.0]
    assert provider.script == []
    assert calls_measured("main", "JudgeUnavailable") == before + 4


async def test_a_judge_may_have_no_schedule(slept: list[float]) -> None:
    provider = ScriptedProvider([UNWELL])
    judge = Judge(provider=provider, prompts={"judge_prompt": TEMPLATE}, prices=FlatPrice(),
                  retry_delays_s=())  # fmt: skip
    with pytest.raises(JudgeUnavailable):
        await judge.judge(about(session()), REVIEW)
    assert (slept, len(provider.calls)) == ([], 1)


@pytest.mark.parametrize(
    ("wished", "pauses"),
    [
        (None, [1.0, 2.0, 4.0]),
        (0.0, [1.0, 2.0, 4.0]),
        (0.5, [1.0, 2.0, 4.0]),
        (3.0, [3.0, 3.0, 4.0]),
        (10.0, [10.0, 10.0, 10.0]),
    ],
)
async def test_a_longer_retry_after_is_waited_for(
    slept: list[float], wished: float | None, pauses: list[float]
) -> None:
    busy = JudgeUnavailable("429", retry_after=wished)
    await ask(busy, busy, busy, completion())
    assert slept == pauses


async def test_a_wish_of_more_than_ten_seconds_goes_back_to_the_queue(slept: list[float]) -> None:
    busy = JudgeUnavailable("429", retry_after=10.5)
    provider = ScriptedProvider([UNWELL, busy, completion()])
    with pytest.raises(JudgeUnavailable) as error:
        await asking(provider).judge(about(session()), REVIEW)
    assert error.value is busy
    assert error.value.retry_after == 10.5
    assert slept == [1.0]
    assert len(provider.calls) == 2


@pytest.mark.parametrize(
    "error",
    [
        JudgeRejected("our key is refused"),
        JudgeRefused("content filter"),
        ContextOverflow("too long"),
        InternalError("bad request"),
        ZeroDivisionError(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_waiting_does_not_mend_is_not_tried_again(
    slept: list[float], error: Exception
) -> None:
    provider = await fail(type(error), error)
    assert (slept, len(provider.calls)) == ([], 1)


async def test_each_answer_has_retries_of_its_own(slept: list[float]) -> None:
    judgement, provider = await ask(UNWELL, INVALID, UNWELL, UNWELL, completion())
    assert slept == [1.0, 1.0, 2.0]
    assert (judgement.calls, len(provider.calls)) == (2, 5)
    assert provider.calls[-1].messages[-1].text == correction([WHAT_WAS_WRONG])


# --- Logs --------------------------------------------------------------------------------------


async def test_rejected_answers_are_logged_and_cut(logged: list[Any]) -> None:
    long = "x" * 5000
    await ask(completion(long), completion())
    (rejected,) = [entry for entry in logged if entry["event"] == "judge_answer_rejected"]
    assert rejected["log_level"] == "warning"
    assert rejected["problems"] == ["there is no complete JSON object in the answer"]
    assert rejected["answer"] == "x" * 1000
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
        if status != 200:
            told = {"error": {"message": f"wrong key {key}", "code": "invalid", "param": key}}
            return httpx.Response(status, json=told)
        choice = {"message": {"content": "no verdict"}, "finish_reason": "stop"}
        return httpx.Response(200, json={"model": "m", "choices": [choice]})

    headers = {"authorization": f"Bearer {key}"}
    transport = httpx.MockTransport(respond)
    async with httpx.AsyncClient(
        transport=transport, base_url="https://llm.example/v1/", headers=headers
    ) as client:
        provider = OpenAIProvider(client=client, name="main", model="m", max_output_tokens=256)
        with pytest.raises(error) as raised:
            await asking(provider).judge(about(session()), REVIEW)
    assert sent
    assert set(sent) == {f"Bearer {key}"}
    assert logged
    assert key not in json.dumps(logged)
    assert key not in str(raised.value)
