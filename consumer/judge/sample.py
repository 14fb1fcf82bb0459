"""One sample: one judge, one prompt, and an answer that passes every check."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from time import monotonic

import structlog

from consumer import metrics
from consumer.errors import ContextOverflow, InternalError, JudgeInvalidOutput
from consumer.judge.line import Line, Question
from consumer.ports import ChatMessage, Completion, Errand, Prices, Provider, Sent
from consumer.scoring.elision import DoesNotFit, Fitted, fit
from consumer.scoring.judgement import Sample
from consumer.scoring.profile import Profile
from consumer.scoring.prompt import correction
from consumer.scoring.scorers.base import Subject
from consumer.scoring.sent import sent_request
from consumer.scoring.verdict import Verdict, VerdictInvalid, check, output_schema, place
from consumer.together import beside

log = structlog.get_logger()

MAX_ANSWERS = 3
LOGGED_CHARACTERS = 1000
NONCE_BYTES = 16
# Judges should be repeatable: the least random setting that every provider takes.
TEMPERATURE = 0.0
# Of the context, for what tokens are estimated wrongly and for corrections.
SPARE_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One judge: a model, and the line to its provider. `context_window` is in tokens."""

    line: Line
    provider: Provider
    context_window: int

    @property
    def budget_tokens(self) -> int:
        """How long a prompt may be."""
        return self._usable_tokens - self.provider.max_output_tokens

    def answer_tokens(self, prompt: str) -> int:
        """How long an answer may be beside this prompt, which is within the budget."""
        read = self.line.estimate(self.provider.model).tokens(prompt)
        return max(self._usable_tokens - read, self.provider.max_output_tokens)

    @property
    def _usable_tokens(self) -> int:
        return int(self.context_window * (1 - SPARE_SHARE))


@dataclass(slots=True)
class _Usage:
    """Tokens and USD over all calls for one verdict, the rejected answers' included; what was first
    sent and answered, and who answered last.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0
    model: str = ""
    fingerprint: str | None = None
    sent: Sent = field(init=False)

    def add(self, completion: Completion, cost_usd: float | None) -> None:
        if self.calls == 0:
            self.sent = completion.sent
        self.calls += 1
        self.input_tokens += completion.input_tokens
        self.output_tokens += completion.output_tokens
        self.model, self.fingerprint = completion.model, completion.fingerprint
        # Call by call: some prices depend on how long a call's prompt is.
        if self.cost_usd is not None:
            self.cost_usd = None if cost_usd is None else self.cost_usd + cost_usd


@dataclass(slots=True, kw_only=True)
class _Conversation:
    """What is said to the judge: the prompt, and at most one correction of its last answer."""

    prompt: str
    least_tokens: int
    most_tokens: int
    max_tokens: int = field(init=False)
    messages: tuple[ChatMessage, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.max_tokens = self.least_tokens
        self.messages = (ChatMessage(role="user", text=self.prompt),)

    @property
    def longer(self) -> bool:
        """Whether the answer may be longer than at first."""
        return self.max_tokens > self.least_tokens

    def shorten(self) -> None:
        """As long as at first again, for good: the judge takes no longer limit."""
        self.max_tokens = self.most_tokens = self.least_tokens

    def correct(self, completion: Completion, problems: list[str]) -> list[str]:
        """Says what was wrong; answers what that is. A cut-off answer may be longer, once, by as
        much as the context leaves.
        """
        if completion.truncated:
            problems = [f"the answer was cut off after {self.max_tokens} tokens"]
            self.max_tokens = min(2 * self.least_tokens, self.most_tokens)
            # The same again: the cut-off answer would take the room that the next one needs.
            self.messages = self.messages[:1]
            return problems
        # Always one correction only: a conversation of failures helps no model.
        self.messages = (
            self.messages[0],
            ChatMessage(role="assistant", text=completion.text or "(empty)"),
            ChatMessage(role="user", text=correction(problems)),
        )
        return problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What all samples of one judgement have in common. `size`: bytes of the session."""

    subject: Subject
    profile: Profile
    template: str
    prices: Prices
    errand: Errand
    size: int
    asked_at: float = field(default_factory=monotonic)


async def sample(asking: Asking, member: Member) -> Sample:
    """A checked verdict. An invalid answer is asked for again, with what was wrong, up to three
    answers in all; a cut-off one once more beside them. Raises JudgeInvalidOutput, ContextOverflow,
    and what Line.ask raises.
    """
    nonce = secrets.token_hex(NONCE_BYTES)
    learnt = member.line.estimate(member.provider.model).correction
    fitted = await beside(asking.size, _fitted, asking, member, nonce, learnt)
    conversation = _Conversation(
        prompt=fitted.prompt,
        least_tokens=member.provider.max_output_tokens,
        most_tokens=member.answer_tokens(fitted.prompt),
    )
    usage = _Usage()
    verdict = await _accepted(asking, member, conversation, fitted, usage)
    content = usage.sent.content
    request = await beside(len(content), sent_request, content, fitted.prompt, nonce)
    return Sample(
        verdict=verdict,
        provider=member.provider.name,
        model=usage.model,
        fingerprint=usage.fingerprint,
        asked_model=member.provider.model,
        dialect=usage.sent.dialect,
        max_tokens=usage.sent.max_tokens,
        temperature=usage.sent.temperature,
        calls=usage.calls,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cost_usd=usage.cost_usd,
        nonce=nonce,
        request=request,
        elision=fitted.elision,
    )


def _fitted(asking: Asking, member: Member, nonce: str, learnt: float) -> Fitted:
    try:
        fitted = fit(
            asking.template,
            asking.subject,
            asking.profile,
            nonce=nonce,
            budget_tokens=member.budget_tokens,
            correction=learnt,
        )
    except DoesNotFit as error:
        raise ContextOverflow(f"judge {member.provider.name}: {error}") from error
    if fitted.elision is not None:
        metrics.JUDGE_ELIDED.inc()
    return fitted


async def _accepted(
    asking: Asking, member: Member, conversation: _Conversation, fitted: Fitted, usage: _Usage
) -> Verdict:
    """The first answer that passes the checks."""
    # The one with more room is no retry of a verdict, which was never whole: it does not count.
    while usage.calls < MAX_ANSWERS + conversation.longer:
        completion = await _answer(asking, member, conversation)
        usage.add(completion, _cost(asking.prices, member.provider, completion))
        try:
            size = max(asking.size, len(completion.text))
            return await beside(size, _checked, asking, completion, fitted)
        except VerdictInvalid as error:
            problems = conversation.correct(completion, error.problems)
            _reject(asking.profile, member.provider, completion, problems)
    # Not what was wrong: that repeats the answer, which may hold what an attacker planted.
    raise JudgeInvalidOutput(f"no valid verdict in {usage.calls} answers; the log tells why")


def _checked(asking: Asking, completion: Completion, fitted: Fitted) -> Verdict:
    return check(completion.text, asking.profile, asking.subject.session, fitted.transcript)


async def _answer(asking: Asking, member: Member, conversation: _Conversation) -> Completion:
    try:
        return await _asked(asking, member, conversation)
    except (ContextOverflow, InternalError):
        # The prompt was answered before; only the longer limit can be what is refused.
        if not conversation.longer:
            raise
    conversation.shorten()
    return await _asked(asking, member, conversation)


async def _asked(asking: Asking, member: Member, conversation: _Conversation) -> Completion:
    question = Question(
        messages=conversation.messages,
        schema=output_schema(asking.profile),
        max_tokens=conversation.max_tokens,
        temperature=TEMPERATURE,
        errand=asking.errand,
        asked_at=asking.asked_at,
    )
    log.debug("judge_request", prompt=conversation.messages[-1].text[:LOGGED_CHARACTERS])
    completion = await member.line.ask(member.provider, question)
    log.debug("judge_response", text=completion.text[:LOGGED_CHARACTERS])
    return completion


def _cost(prices: Prices, provider: Provider, completion: Completion) -> float | None:
    if not completion.tells_usage:
        return None
    return prices.cost_usd(
        provider=provider.name,
        model=provider.model,
        input_tokens=completion.input_tokens,
        output_tokens=completion.output_tokens,
    )


def _reject(
    profile: Profile, provider: Provider, completion: Completion, problems: list[str]
) -> None:
    """Counts and logs it; what the answer says is logged only where somebody asked for that."""
    metrics.JUDGE_INVALID.labels(provider.name).inc()
    places = [place(problem, profile) for problem in problems[:10]]
    log.warning(
        "judge_answer_rejected", provider=provider.name, problems=len(problems), places=places
    )
    log.debug("judge_answer", problems=problems[:10], answer=completion.text[:LOGGED_CHARACTERS])
