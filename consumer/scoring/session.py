"""What is scored: one agent run, as frozen values.

Times are microseconds UTC, as the History Service gives them; an interaction's time is its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

# `web_search`, `model_call_failed` and `stage_status` are what the service recorded beside the
# conversation: facts, and nobody's words.
MessageKind = Literal["message", "thought", "web_search", "model_call_failed", "stage_status"]
SERVICE = "service"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a conversation between agent, its operator and its model; or a thought of the
    agent's, whose role is its (`assistant`), or a fact, whose role is SERVICE.
    """

    role: str
    text: str
    at_us: int
    kind: MessageKind = "message"

    @property
    def is_fact(self) -> bool:
        """Whether the service recorded it: neither the agent nor its operator said it."""
        return self.kind not in {"message", "thought"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One tool call. `failure` tells a transport error or timeout from an error in the result.

    `result` is what the agent read. `full_result` is what the tool answered, where the agent read
    a summary instead: evidence that it did not see, else None.
    """

    id: str
    server: str
    tool: str
    arguments: Mapping[str, Any]
    result: str
    failure: Literal["transport", "tool"] | None
    error: str | None
    duration_ms: int | None
    at_us: int
    full_result: str | None = None

    @property
    def name(self) -> str:
        """`server.tool`, as the agent writes it."""
        return f"{self.server}.{self.tool}"


Step = Message | ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of the run; `parallel` stages ran side by side under the same parent."""

    id: str
    name: str
    agent: str
    status: str
    parallel: bool
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmCall:
    """One call of the agent's own model. Tokens are 0 where the service did not count them."""

    model: str
    provider: str | None
    input_tokens: int
    output_tokens: int
    duration_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AvailableTool:
    """A tool that the agent could have called. `read_only` is what its server says of it: false
    where it changes something, None where nothing is said.
    """

    server: str
    name: str
    description: str
    read_only: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Session:
    """One completed agent run: everything that scoring may look at."""

    id: str
    alert_type: str | None
    agent: str
    label: str
    alert_data: Mapping[str, Any]
    runbook_url: str | None
    final_analysis: str
    stages: tuple[Stage, ...]
    llm_calls: tuple[LlmCall, ...]
    available_tools: tuple[AvailableTool, ...]
    input_tokens: int | None
    output_tokens: int | None
    total_tokens: int | None
    duration_ms: int | None

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """All steps of all stages, in order."""
        return tuple(step for stage in self.stages for step in stage.steps)

    @cached_property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(step for step in self.steps if isinstance(step, ToolCall))

    @cached_property
    def tool_names(self) -> frozenset[str]:
        """Names of the available tools, without their servers."""
        return frozenset(tool.name for tool in self.available_tools)

    @cached_property
    def called_names(self) -> frozenset[str]:
        """Names of the tools that were called, without their servers."""
        return frozenset(call.tool for call in self.tool_calls)

    @property
    def model(self) -> tuple[str | None, str | None]:
        """(model, provider) of the calls with the most tokens in all; the first on a tie."""
        totals: dict[tuple[str | None, str | None], int] = {}
        for call in self.llm_calls:
            key = (call.model, call.provider)
            totals[key] = totals.get(key, 0) + call.input_tokens + call.output_tokens
        return max(totals, key=totals.__getitem__) if totals else (None, None)
