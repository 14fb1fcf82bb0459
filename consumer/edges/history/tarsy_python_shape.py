"""TARSy's Python History API (December 2025): its answers as a Session.

Unknown fields are ignored. A figure that can't be right is as if it were absent; anything else that
is missing or wrong raises HistoryInvalid with its path.
"""

from __future__ import annotations

import gc
import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, groupby
from typing import Annotated, Any, Literal, NotRequired, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    Tag,
    ValidationError,
)
from pydantic_core import CoreSchema, core_schema, from_json
from typing_extensions import TypedDict  # pydantic does not take that of Python 3.11

from consumer.batches import Listed
from consumer.edges.history.conversation import AGENT, Thread, conversation, woven
from consumer.edges.history.web_search import web_search
from consumer.errors import HistoryInvalid, HistoryUnavailable
from consumer.events import MAX_SESSION_ID, SESSION_ID_PATTERN
from consumer.scoring.session import (
    SERVICE,
    AvailableTool,
    LlmCall,
    Message,
    Session,
    Stage,
    ToolCall,
)
from consumer.scoring.text import short_name

DEFAULT_LABEL = "general"
_UNREADABLE = "the History Service's answer can't be read"
MAX_SHOWN_PROBLEMS = 5
MAX_SHOWN_PATH = 200
MAX_SERVERS = 1000  # each may have problems of its own
# What tools say when they fail although their call went through (`success` is then true).
_ERROR_TEXT = re.compile(
    r"\s*(error\b(?! (rate|budget|count))|failed to |exception\b|traceback |unknown tool:)",
    re.IGNORECASE,
)
_IS_ERROR = re.compile(r'"isError"\s*:\s*true')
# The interaction of the summarizer: it writes for the agent what a tool answered at length.
SUMMARIZATION = "summarization"
COMPLETED = "completed"
CHAIN = "chain:"
# The name of what was done in no stage.
BESIDE = "session"
_REPLICA = re.compile(r"-\d+\Z")
MAX_FIGURE = 2**53


class _ElseAbsent:
    """For a figure: where it can't be right, it is as if the service had not told it. No session
    shall be without a score for a clock that went backwards.
    """

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.with_default_schema(handler(source), default=None, on_error="default")


# A count or a time that a bigint and a double can hold. Strict: true is not 1.
Figure = Annotated[Annotated[int, Field(strict=True, ge=0, le=MAX_FIGURE)] | None, _ElseAbsent()]
ItemT = TypeVar("ItemT")
# The first wrong item ends it: each problem has a path of its own, keys of any length within.
_Many = Annotated[tuple[ItemT, ...], Field(fail_fast=True)]


def _few(servers: Any) -> Any:
    if isinstance(servers, dict) and len(servers) > MAX_SERVERS:
        raise ValueError(f"must have at most {MAX_SERVERS} servers")
    return servers


class _Shape(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


# What a session has many of. A TypedDict is made, and read, in less time than a model: that spares
# a twentieth of all that is done for a session by rules.
class _Message(TypedDict):
    role: str
    content: str | None


class _Conversation(TypedDict):
    messages: _Many[_Message]


class _LlmDetails(TypedDict):
    model_name: str
    provider: NotRequired[str | None]
    conversation: NotRequired[_Conversation | None]
    input_tokens: NotRequired[Figure]
    output_tokens: NotRequired[Figure]
    total_tokens: NotRequired[Figure]
    duration_ms: NotRequired[Figure]
    success: NotRequired[bool | None]
    error_message: NotRequired[str | None]
    interaction_type: NotRequired[str | None]
    mcp_event_id: NotRequired[str | None]
    thinking_content: NotRequired[str | None]
    response_metadata: NotRequired[Any]


class _LlmInteraction(TypedDict):
    id: str
    timestamp_us: int
    details: _LlmDetails


class _Tool(TypedDict):
    name: str
    description: NotRequired[str | None]
    annotations: NotRequired[Any]


class _McpDetails(TypedDict):
    server_name: str
    communication_type: Literal["tool_list", "tool_call"]
    tool_name: NotRequired[str | None]
    tool_arguments: NotRequired[dict[str, Any] | None]
    tool_result: NotRequired[Any]
    available_tools: NotRequired[Annotated[dict[str, _Many[_Tool]], BeforeValidator(_few)] | None]
    success: bool
    error_message: NotRequired[str | None]
    duration_ms: NotRequired[Figure]


class _McpCommunication(TypedDict):
    id: str
    timestamp_us: int
    details: _McpDetails


def _kind(interaction: Any) -> str:
    details = interaction.get("details") if isinstance(interaction, dict) else None
    return "mcp" if isinstance(details, dict) and "communication_type" in details else "llm"


_Interaction = Annotated[
    Annotated[_LlmInteraction, Tag("llm")] | Annotated[_McpCommunication, Tag("mcp")],
    Discriminator(_kind),
]


class _Stage(_Shape):
    execution_id: str
    stage_name: str
    agent: str
    status: str
    error_message: str | None = None
    chat_id: str | None = None
    parallel_type: str | None = None
    parallel_executions: _Many[_Stage] | None = None
    llm_interactions: _Many[_LlmInteraction] = ()
    mcp_communications: _Many[_McpCommunication] = ()


class _Metadata(_Shape):
    classification_label: str | None = None


class Detail(_Shape):
    """DetailedSession: the fields that scoring reads."""

    session_id: str
    status: str
    agent_type: str
    alert_type: str | None = None
    alert_data: dict[str, Any]
    runbook_url: str | None = None
    final_analysis: str | None = None
    session_metadata: _Metadata | None = None
    session_input_tokens: Figure = None
    session_output_tokens: Figure = None
    session_total_tokens: Figure = None
    duration_ms: Figure = None
    stages: _Many[_Stage]
    session_level_interactions: _Many[_Interaction] = ()


class FinalAnalysis(_Shape):
    """FinalAnalysisResponse: only asked for where the detail has no final analysis."""

    final_analysis: str | None


class _Overview(_Shape):
    session_id: str
    alert_type: str | None = None
    agent_type: str | None = None
    session_total_tokens: Figure = None

    @property
    def can_be_asked_for(self) -> bool:
        matches = re.fullmatch(SESSION_ID_PATTERN, self.session_id) is not None
        return matches and len(self.session_id) <= MAX_SESSION_ID


class _Pagination(_Shape):
    total_pages: int


class SessionPage(_Shape):
    """A page of the list of sessions."""

    sessions: _Many[_Overview]
    pagination: _Pagination


ShapeT = TypeVar("ShapeT", Detail, FinalAnalysis, SessionPage)


def parse(shape: type[ShapeT], body: bytes) -> ShapeT:
    """The answer's fields. Raises HistoryUnavailable where the answer ends too early, and
    HistoryInvalid with the paths of the first that are wrong; neither repeats anything of it.
    """
    try:
        with _without_collections():
            return shape.model_validate(_json(body))
    except ValidationError as error:
        # Without its cause, which holds the answer.
        raise HistoryInvalid(f"{_UNREADABLE}: {_told(error)}") from None


def _json(body: bytes) -> Any:
    """The body's JSON. Not read and checked at once: each problem then had a copy of its input."""
    try:
        return from_json(body, cache_strings="keys")
    except ValueError as error:
        # Who hangs up early is not told from who has said all, where no length is told.
        kind = HistoryUnavailable if str(error).startswith("EOF ") else HistoryInvalid
        raise kind(f"{_UNREADABLE}: {error}") from error


def _told(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(
        f"{_path(problem['loc'])}{problem['msg']}" for problem in problems[:MAX_SHOWN_PROBLEMS]
    )


def _path(keys: Sequence[int | str]) -> str:
    path = ".".join(str(key)[:MAX_SHOWN_PATH] for key in keys)
    return f"{path[:MAX_SHOWN_PATH]}: " if path else ""


@contextmanager
def _without_collections() -> Iterator[None]:
    """An answer may make millions of lists, and none of them is garbage: to look for some meanwhile
    takes five times as long as to make them. For the thread of the event loop alone.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def session(detail: Detail, *, final_analysis: str | None, labels: Mapping[str, str]) -> Session:
    """The session of these answers; `labels` maps alert types to classification labels.

    Follow-up chat is no part of it, of its tokens neither: see `_tokens`.
    """
    stages = [stage for stage in _flat(detail.stages) if not stage.chat_id]
    interactions = [i for stage in stages for i in stage.llm_interactions]
    summaries = dict(_summaries(interactions))
    communications = [c for stage in stages for c in stage.mcp_communications]
    beside: list[_McpCommunication] = []
    for interaction in detail.session_level_interactions:
        if "communication_type" in interaction["details"]:
            beside.append(interaction)  # type: ignore[arg-type]
        else:
            interactions.append(interaction)
    told = [_stage(stage, summaries) for stage in stages]
    agent = _agent(detail, stages)
    read, written, both = _tokens(detail, interactions)
    return Session(
        id=detail.session_id,
        alert_type=detail.alert_type,
        agent=short_name(agent),
        label=short_name(_label(detail, labels)),
        alert_data=detail.alert_data,
        runbook_url=detail.runbook_url,
        final_analysis=final_analysis or "",
        stages=tuple(_with_calls_beside(told, beside, agent)),
        llm_calls=tuple(_llm_call(interaction) for interaction in interactions),
        available_tools=_available_tools([*communications, *beside]),
        input_tokens=read,
        output_tokens=written,
        total_tokens=both,
        duration_ms=detail.duration_ms,
    )


def _agent(detail: Detail, stages: Sequence[_Stage]) -> str:
    """Who did the work: for a chain its stages' agents, each once, in order, joined by `+`. The
    replicas of an agent are that agent. A chain whose stages tell no agent stays the chain.
    """
    if not detail.agent_type.startswith(CHAIN):
        return detail.agent_type
    names = (
        _REPLICA.sub("", stage.agent) if stage.parallel_type == "replica" else stage.agent
        for stage in stages
        if not stage.parallel_executions  # whose agent is only a name for those inside
    )
    return "+".join(dict.fromkeys(filter(None, names))) or detail.agent_type


def _tokens(detail: Detail, calls: Sequence[_LlmInteraction]) -> list[int | None]:
    """Input, output and total tokens of the investigation.

    The service's sums include follow-up chat, which is no part of it. Where there is chat, and
    where a sum is absent, ours is taken, of the given model calls; where these tell no tokens, or
    more than can be, it stays the service's.
    """
    has_chat = any(stage.chat_id for stage in _flat(detail.stages))
    details = [call["details"] for call in calls]
    read = [d.get("input_tokens") for d in details]
    written = [d.get("output_tokens") for d in details]
    both = [
        d.get("total_tokens") or _sum(rw) for d, *rw in zip(details, read, written, strict=True)
    ]
    sums = (
        (detail.session_input_tokens, read),
        (detail.session_output_tokens, written),
        (detail.session_total_tokens, both),
    )
    return [
        service if known is None or (service is not None and not has_chat) else known
        for service, known in ((service, _sum(own)) for service, own in sums)
    ]


def _sum(counts: Iterable[int | None]) -> int | None:
    """None where nothing was counted, or more than can be."""
    counted = [count for count in counts if count is not None]
    return total if counted and (total := sum(counted)) <= MAX_FIGURE else None


def listed(overview: _Overview, labels: Mapping[str, str]) -> Listed:
    """A session as the list shows it. Its metadata is not there: the alert type tells the label."""
    return Listed(
        session_id=overview.session_id,
        agent=overview.agent_type,
        label=labels.get(overview.alert_type or "", DEFAULT_LABEL),
        tokens=overview.session_total_tokens,
    )


def _label(detail: Detail, labels: Mapping[str, str]) -> str:
    """From the session's metadata, else by its alert type, else the default."""
    if detail.session_metadata and detail.session_metadata.classification_label:
        return detail.session_metadata.classification_label
    return labels.get(detail.alert_type or "", DEFAULT_LABEL)


def _flat(stages: Sequence[_Stage]) -> Iterator[_Stage]:
    """Stages in order; what ran in parallel comes right after the stage that holds it."""
    waiting = [*reversed(stages)]
    while waiting:
        stage = waiting.pop()
        yield stage
        waiting += reversed(stage.parallel_executions or ())


def _thread(interaction: _LlmInteraction) -> Thread:
    conversation = interaction["details"].get("conversation")
    told = conversation["messages"] if conversation else ()
    return Thread(
        told_at_us=interaction["timestamp_us"],
        messages=tuple([(message["role"], message["content"] or "") for message in told]),
        besides=tuple(_besides(interaction)),
    )


def _besides(interaction: _LlmInteraction) -> Iterator[Message]:
    """What a model call brought besides its answer."""
    details, at_us = interaction["details"], interaction["timestamp_us"]
    if thought := details.get("thinking_content"):
        yield Message(role=AGENT, kind="thought", text=thought, at_us=at_us)
    if searched := web_search(details.get("response_metadata")):
        yield Message(role=SERVICE, kind="web_search", text=searched, at_us=at_us)


def _summarizes(interaction: _LlmInteraction) -> bool:
    details = interaction["details"]
    return details.get("interaction_type") == SUMMARIZATION or bool(details.get("mcp_event_id"))


def _summaries(interactions: Iterable[_LlmInteraction]) -> Iterator[tuple[str, str]]:
    """By the id of the tool call, what the summarizer wrote of its result; "" where it failed."""
    for interaction in filter(_summarizes, interactions):
        if call_id := interaction["details"].get("mcp_event_id"):
            messages = _thread(interaction).messages
            answered = messages and messages[-1][0] == AGENT
            yield call_id, messages[-1][1] if answered else ""


def _failed_calls(interactions: Iterable[_LlmInteraction]) -> Iterator[Message]:
    """The model calls that failed; those in a row for the same reason as one."""
    in_order = sorted(interactions, key=lambda interaction: interaction["timestamp_us"])
    for error, failed in groupby(in_order, _error):
        if error is not None:
            first, *more = failed
            text = f"{1 + len(more)} calls in a row: {error}" if more else error
            at_us = first["timestamp_us"]
            yield Message(role=SERVICE, kind="model_call_failed", text=text, at_us=at_us)


def _error(interaction: _LlmInteraction) -> str | None:
    details = interaction["details"]
    return details.get("error_message") or "" if details.get("success") is False else None


def _llm_call(interaction: _LlmInteraction) -> LlmCall:
    details = interaction["details"]
    provider = details.get("provider")
    return LlmCall(
        model=short_name(details["model_name"]),
        provider=short_name(provider) if provider else None,
        input_tokens=details.get("input_tokens") or 0,
        output_tokens=details.get("output_tokens") or 0,
        duration_ms=details.get("duration_ms"),
    )


def _available_tools(communications: Iterable[_McpCommunication]) -> tuple[AvailableTool, ...]:
    """Every tool that any stage could see, once, in the order they were listed."""
    seen: dict[tuple[str, str], AvailableTool] = {}
    for communication in communications:
        told = communication["details"].get("available_tools") or {}
        for server, tools in ((short_name(name), tools) for name, tools in told.items()):
            for tool in tools:
                name = tool["name"]
                seen.setdefault(
                    (server, name),
                    AvailableTool(
                        server=server,
                        name=name,
                        description=tool.get("description") or "",
                        read_only=_read_only(tool.get("annotations")),
                    ),
                )
    return tuple(seen.values())


def _read_only(hints: Any) -> bool | None:
    """What MCP's hints say of a tool. What only reads destroys nothing."""
    told = hints if isinstance(hints, dict) else {}
    if isinstance(read_only := told.get("readOnlyHint"), bool):
        return read_only
    return False if told.get("destructiveHint") is True else None


def _stage(stage: _Stage, summaries: Mapping[str, str]) -> Stage:
    interactions = [i for i in stage.llm_interactions if not _summarizes(i)]
    threads = [_thread(interaction) for interaction in interactions]
    facts = [message for thread in threads if not thread.messages for message in thread.besides]
    facts += _failed_calls(interactions)
    steps = woven(conversation(threads), _tool_calls(stage.mcp_communications), facts, summaries)
    if stage.status != COMPLETED or stage.error_message:
        text = f"{stage.status}: {stage.error_message}" if stage.error_message else stage.status
        at_us = max((step.at_us for step in steps), default=0)
        steps.append(Message(role=SERVICE, kind="stage_status", text=text, at_us=at_us))
    return Stage(
        id=stage.execution_id,
        # Told with each of its steps: of their own length they would be most of the prompt.
        name=short_name(stage.stage_name),
        agent=short_name(stage.agent),
        status=stage.status,
        parallel=stage.parallel_type not in {None, "single"},
        steps=tuple(steps),
    )


def _with_calls_beside(
    stages: Sequence[Stage], communications: Iterable[_McpCommunication], agent: str
) -> Iterator[Stage]:
    """The stages in order, and the calls that were made in none of them, as stages of their own:
    before the first stage that went on after them.
    """
    ends = list(accumulate((max((s.at_us for s in t.steps), default=0) for t in stages), max))
    calls = sorted(_tool_calls(communications), key=lambda call: call.at_us)
    taken = 0
    for place, own in groupby(calls, lambda call: bisect_right(ends, call.at_us)):
        yield from stages[taken:place]
        taken = place
        yield Stage(
            id="",
            name=BESIDE,
            agent=short_name(agent),
            status=COMPLETED,
            parallel=False,
            steps=tuple(own),
        )
    yield from stages[taken:]


def _tool_calls(communications: Iterable[_McpCommunication]) -> list[ToolCall]:
    return [call for call in map(_tool_call, communications) if call]


def _tool_call(communication: _McpCommunication) -> ToolCall | None:
    details = communication["details"]
    if details["communication_type"] != "tool_call":
        return None
    result = _result_text(details.get("tool_result"))
    failure = _failure(details, result)
    return ToolCall(
        id=communication["id"],
        server=short_name(details["server_name"]),
        tool=details.get("tool_name") or "",
        arguments=details.get("tool_arguments") or {},
        result=result,
        failure=failure,
        error=(details.get("error_message") or result[:500]) if failure else None,
        duration_ms=details.get("duration_ms"),
        at_us=communication["timestamp_us"],
    )


def _result_text(result: Any) -> str:
    """The result as the tool answered it: the text of `{"result": text}`, else its JSON."""
    if isinstance(result, dict) and isinstance(result.get("result"), str):
        return str(result["result"])
    return json.dumps(result, ensure_ascii=False) if result else ""


def _says_error(result: str) -> bool:
    # Most do not have it, and `in` tells so many times as fast.
    return "isError" in result and _IS_ERROR.search(result) is not None


def _failure(details: _McpDetails, result: str) -> Literal["transport", "tool"] | None:
    """`success` is false for transport errors and timeouts only; a tool's own error is in its
    result.
    """
    if not details["success"]:
        return "transport"
    raw = details.get("tool_result")
    told = isinstance(raw, dict) and bool(raw.get("isError") or raw.get("error"))
    return "tool" if told or _ERROR_TEXT.match(result) or _says_error(result) else None
