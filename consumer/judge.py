"""The judge: one prompt, one verdict, and nothing believed that code did not check."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
)

from consumer import metrics
from consumer.errors import JudgeInvalidOutput, JudgeRejected, JudgeUnavailable
from consumer.ports import ChatMessage, Completion, Prices, Provider
from consumer.scoring.criteria import JudgeSettings
from consumer.scoring.profile import Profile
from consumer.scoring.prompt import correction, render
from consumer.scoring.score import Judgement
from consumer.scoring.scorers.base import Subject
from consumer.scoring.transcript import transcript
from consumer.scoring.verdict import VerdictInvalid, check, output_schema

log = structlog.get_logger()

RETRY_DELAYS_S = (1.0, 2.0, 4.0)
# A longer Retry-After is waited for in the queue, where it holds no slot.
LONGEST_WAIT_IN_CALL_S = 10.0
MAX_ANSWERS = 3
LOGGED_CHARACTERS = 1000
NONCE_BYTES = 16
# Judges should be repeatable: the least random setting that every provider takes.
TEMPERATURE = 0.0


@dataclass(slots=True)
class _Usage:
    """Tokens over all calls for one verdict, the rejected answers' included."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    model: str = ""

    def add(self, completion: Completion) -> None:
        self.calls += 1
        self.input_tokens += completion.input_tokens
        self.output_tokens += completion.output_tokens
        self.model = completion.model


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Asks one provider. `prompts` holds the templates by name."""

    provider: Provider
    prompts: Mapping[str, str]
    prices: Prices
    retry_delays_s: tuple[float, ...] = field(default=RETRY_DELAYS_S)

    def settings(self, profile: Profile) -> JudgeSettings:
        """What about this judge can change a score by this profile."""
        return JudgeSettings(
            provider=self.provider.name,
            model=self.provider.model,
            prompt=self.prompts[profile.judge.prompt],
            temperature=TEMPERATURE,
        )

    async def judge(self, subject: Subject, profile: Profile) -> Judgement:
        """A checked verdict.

        An invalid answer is asked for again, with what was wrong, up to three answers in all.
        Raises JudgeInvalidOutput, JudgeRefused, JudgeUnavailable, ContextOverflow.
        """
        steps = transcript(subject.session)
        nonce = secrets.token_hex(NONCE_BYTES)
        template = self.prompts[profile.judge.prompt]
        prompt = render(template, subject, steps, profile, nonce=nonce)
        messages = [ChatMessage(role="user", text=prompt)]
        max_tokens = self.provider.max_output_tokens
        usage = _Usage()
        problems: list[str] = []
        for _ in range(MAX_ANSWERS):
            completion = await self._ask(messages, profile, max_tokens)
            usage.add(completion)
            try:
                verdict = check(completion.text, profile, subject.session, steps)
            except VerdictInvalid as error:
                problems = error.problems
                if completion.truncated:
                    problems = [f"the answer was cut off after {max_tokens} tokens"]
                    max_tokens *= 2
                self._reject(completion, problems)
                # Always one correction only: a conversation of failures helps no model.
                messages = [
                    messages[0],
                    ChatMessage(role="assistant", text=completion.text or "(empty)"),
                    ChatMessage(role="user", text=correction(problems)),
                ]
                continue
            return Judgement(
                verdict=verdict,
                provider=self.provider.name,
                model=usage.model,
                samples=1,
                calls=usage.calls,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cost_usd=self._cost(usage),
                nonce=nonce,
                prompt_sha256=hashlib.sha256(prompt.encode()).hexdigest(),
            )
        shown = "; ".join(problems)[:LOGGED_CHARACTERS]
        raise JudgeInvalidOutput(f"no valid verdict in {MAX_ANSWERS} answers: {shown}")

    def _cost(self, usage: _Usage) -> float | None:
        return self.prices.cost_usd(
            provider=self.provider.name,
            model=self.provider.model,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
        )

    async def _ask(
        self, messages: list[ChatMessage], profile: Profile, max_tokens: int
    ) -> Completion:
        """One answer, tried again by the schedule while the provider is unwell."""
        log.info("judge_request", prompt=messages[-1].text[:LOGGED_CHARACTERS])
        schema = output_schema(profile)
        retrying = AsyncRetrying(
            stop=stop_after_attempt(1 + len(self.retry_delays_s)),
            wait=self._delay,
            retry=retry_if_exception(_worth_waiting),
            reraise=True,
        )
        completion: Completion = await retrying(self._call, messages, schema, max_tokens)
        log.info("judge_response", text=completion.text[:LOGGED_CHARACTERS])
        return completion

    async def _call(
        self, messages: list[ChatMessage], schema: Mapping[str, object], max_tokens: int
    ) -> Completion:
        with metrics.judge_call(self.provider.name):
            return await self.provider.complete(messages, schema, max_tokens=max_tokens)

    def _delay(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        wished = getattr(error, "retry_after", None) or 0.0
        # tenacity asks after the last try as well, before it stops.
        scheduled = self.retry_delays_s[state.attempt_number - 1 : state.attempt_number]
        return max(*scheduled, wished, 0.0)

    def _reject(self, completion: Completion, problems: list[str]) -> None:
        metrics.JUDGE_INVALID.labels(self.provider.name).inc()
        log.warning(
            "judge_answer_rejected",
            problems=problems[:10],
            answer=completion.text[:LOGGED_CHARACTERS],
        )


def _worth_waiting(error: BaseException) -> bool:
    """Whether to wait inside the call: not for a refused key, nor for long."""
    return (
        isinstance(error, JudgeUnavailable)
        and not isinstance(error, JudgeRejected)
        and (error.retry_after or 0) <= LONGEST_WAIT_IN_CALL_S
    )
