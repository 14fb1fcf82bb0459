"""What all rule scorers share: what they look at, and what they answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from consumer.scoring.scorers.keywords import Text
from consumer.scoring.session import Session, ToolCall
from consumer.scoring.text import Spot, blank, storable, unescaped
from consumer.scoring.tool_report import Price, ToolReport, tool_report
from consumer.scoring.transcript import encode

MAX_PLACES = 5
EXCERPT_CHARACTERS = 160

# The frame that TARSy puts around an analysis.
_HEADER = re.compile(r"\s*# Alert Analysis Report\n(?:\s*\*\*[^\n]*\n)*")
_FOOTER = re.compile(r"\*Processed through \d+ stages?\*\s*\Z")


class Params(BaseModel):
    """Base of scorers' parameters: frozen, and unknown ones are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class NoParams(Params):
    """For scorers that take none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place that cost points; `step` is its number in the transcript, None in the analysis."""

    step: int | None
    excerpt: str


class Measured(NamedTuple):
    """A score of 0-1, and up to five places that show why it is not 1.

    Exact where a formula allows it: 1 - 9/10 is 0.09999999999999998 in binary floating point.
    """

    score: float | Fraction
    places: tuple[Place, ...] = ()


class NotApplicable(NamedTuple):
    """Why a scorer has nothing to measure in this session."""

    reason: str


Result = Measured | NotApplicable

NO_ANALYSIS = NotApplicable("there is no final analysis")


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What rule scorers look at. Texts that several of them need are made once.

    `cost_usd` is what the session cost, None where a price is unknown; `quality_so_far` is the
    weighted mean (0-1) of the criteria that rules scored before this one, None where there is none.
    """

    session: Session
    report: ToolReport
    cost_usd: float | None
    quality_so_far: float | None = None

    @cached_property
    def analysis(self) -> str:
        """The final analysis."""
        return self.session.final_analysis

    @cached_property
    def own_text(self) -> str:
        """The final analysis with blanks for the frame that TARSy puts around it."""
        header = _HEADER.match(self.analysis)
        start = header.end() if header else 0
        return " " * start + blank(_FOOTER, self.analysis[start:])

    @cached_property
    def text(self) -> Text | None:
        """The final analysis, to look for keywords in; None if it is empty."""
        return Text(storable(self.analysis)) if self.analysis.strip() else None

    @cached_property
    def numbered_calls(self) -> tuple[tuple[int, ToolCall], ...]:
        """The tool calls, each with its step number in the transcript."""
        steps = enumerate(self.session.steps, start=1)
        return tuple((number, step) for number, step in steps if isinstance(step, ToolCall))

    @cached_property
    def evidence(self) -> str:
        """What the agent was given and found: instructions, alert, users' words, tool results, what
        the service recorded (web searches, failures); unescaped. A result that it read a summary of
        is there in full too: what it holds is true.

        Not what it said itself: neither its thoughts, nor its tool arguments, nor those lines of
        what it is told that repeat it (a stage is told what earlier stages concluded).
        """
        session = self.session
        parts = [encode(dict(session.alert_data)), session.alert_type or ""]
        parts.append(session.runbook_url or "")
        said: set[str] = set()
        for step in session.steps:
            if isinstance(step, ToolCall):
                parts += [step.result, step.full_result or "", step.error or ""]
            elif step.is_fact:
                parts.append(step.text)
            elif step.role == "assistant":
                said.update(_said(step.text))
            elif said:
                parts += [line for line in step.text.splitlines() if line.strip() not in said]
            else:
                parts.append(step.text)
        return unescaped("\n".join(parts))

    @cached_property
    def thoughts(self) -> str:
        """What the agent said on its way, and asked its tools with."""
        return "\n".join(
            encode(dict(step.arguments)) if isinstance(step, ToolCall) else step.text
            for step in self.session.steps
            if isinstance(step, ToolCall) or step.role == "assistant"
        )


def _said(text: str) -> Iterator[str]:
    """The agent's lines, without what ReAct puts in front of a conclusion."""
    return (line.removeprefix("Final Answer:").strip() for line in text.splitlines())


def subject(
    session: Session, *, price: Price, cost_usd: float | None, actions: Collection[str] = ()
) -> Subject:
    """The session with its tool report; `actions` are the tools that the profile calls so."""
    report = tool_report(session, price, actions)
    return Subject(session=session, report=report, cost_usd=cost_usd)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleScorer:
    """A named rule scorer: its function, and the model of its parameters.

    `by_quality`: it asks for `Subject.quality_so_far`, so its result depends on its place.
    """

    name: str
    params: type[Params]
    score: Callable[[Subject, Any], Result]
    by_quality: bool = False


def excerpt(text: str, start: int, end: int) -> str:
    """The text around a place, on one line."""
    room = max(0, EXCERPT_CHARACTERS - (end - start)) // 2
    cut = text[max(0, start - room) : min(len(text), end + room)]
    return " ".join(cut.split())[:EXCERPT_CHARACTERS]


def in_analysis(text: str, spots: list[Spot]) -> tuple[Place, ...]:
    """Places of the final analysis, the first five."""
    return tuple(
        Place(step=None, excerpt=excerpt(text, start, end)) for start, end in spots[:MAX_PLACES]
    )


def missing(what: str) -> Place:
    """A place for what is nowhere."""
    return Place(step=None, excerpt=f"missing: {what}"[:EXCERPT_CHARACTERS])
