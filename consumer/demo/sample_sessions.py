"""The bundled sample sessions: short YAML scripts, expanded into what the History API answers.

`sessions/*.yaml` holds what a person would want to read and edit: the alert, the tools, thoughts,
actions and results, the conclusion, and the judge's prepared verdict. Everything that follows from
it (ids, timestamps, the conversation repeated at every turn, token counts, totals) is computed
here, so the samples can't contradict themselves. Nothing is random and no clock is read: every
`load()` gives the same data.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self
from uuid import NAMESPACE_URL, uuid5

import yaml

Json = dict[str, Any]

SESSIONS = Path(__file__).parent / "sessions"

# What tool schemas and format instructions weigh in a real agent's prompt; the scripts leave both
# out, and without them a short session would look cheaper than any real one.
PROMPT_OVERHEAD_TOKENS = 900
BYTES_PER_TOKEN = 4
# The agent's own work between two calls.
PAUSE_MS = 120
TOOL_LIST_MS = 210

SYSTEM_PROMPT = (
    "You are an SRE and security agent. Investigate the alert with the tools you are given and "
    "follow the runbook. Each turn is a Thought, an Action (server.tool) and an Action Input "
    "(JSON); when you know enough, give a Final Answer in Markdown with your confidence."
)


# An MCP communication's details, where a call or a tool list doesn't say otherwise.
MCP_DETAILS: Json = {
    "tool_name": "",
    "tool_arguments": {},
    "tool_result": {},
    "available_tools": {},
    "success": True,
    "error_message": None,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSession:
    """One session as the History API shows it, with the verdict prepared for it.

    `detail` is a DetailedSession, `final` a FinalAnalysisResponse with its conversations.
    `verdict` is the judge's answer, except that `evidence` lists bare quotes: the step numbers
    depend on the prompt. It is None where no judge is asked.
    """

    session_id: str
    case: str
    title: str
    detail: Json
    final: Json
    verdict: Json | None = None

    @property
    def alert_id(self) -> str | None:
        """The alert's id: no other sample mentions it, and no JSON encoding changes it."""
        value = self.detail["alert_data"].get("alert_id")
        return value if isinstance(value, str) else None

    @property
    def expected_total(self) -> int | None:
        """The total (0-100) under four equally weighted criteria of 25 points: their sum."""
        if self.verdict is None:
            return None
        return sum(int(criterion["score"]) for criterion in self.verdict["criteria"].values())


def load() -> Mapping[str, SampleSession]:
    """All bundled sessions by session id, in order of their start."""
    scripts = [Script.parse(path.read_text("utf-8")) for path in sorted(SESSIONS.glob("*.yaml"))]
    scripts.sort(key=lambda script: script.started_at)
    return MappingProxyType({script.session_id: expand(script) for script in scripts})


# --- The scripts, as written -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One turn: a thought, a tool call and what came back.

    `result` is what the tool said, an error of the tool's own included; `failure` is set instead
    when the call never reached the tool (transport error, timeout).
    """

    thought: str
    think_ms: int
    action: str
    input: Json
    tool_ms: int
    result: str | None = None
    failure: str | None = None

    @property
    def server(self) -> str:
        return self.action.partition(".")[0]

    @property
    def tool(self) -> str:
        return self.action.partition(".")[2]

    @property
    def tool_result(self) -> Json:
        return {} if self.result is None else {"result": self.result.strip()}

    @property
    def message(self) -> str:
        return (
            f"Thought: {self.thought}\nAction: {self.action}\n"
            f"Action Input: {json.dumps(self.input)}"
        )

    @property
    def observation(self) -> str:
        if self.failure is not None:
            return f"Observation: {self.action}: Error executing action: {self.failure}"
        return f"Observation: {self.action}: {json.dumps(self.tool_result)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One agent's part. Without a `conclusion` it is still running.

    `parallel` holds agents that run at the same time; such a stage has no turns of its own.
    """

    name: str
    agent: str
    model: str
    provider: str
    steps: tuple[Step, ...] = ()
    thought: str | None = None
    think_ms: int = 0
    conclusion: str | None = None
    parallel: tuple["Stage", ...] = ()
    synthesis: bool = False

    @classmethod
    def parse(cls, raw: Json, defaults: Json) -> Self:
        """A stage from its YAML; `defaults` are name, model and provider unless it says its own."""
        fields = {"agent": "ParallelStage", **defaults, **raw}
        inherited = {name: fields[name] for name in ("name", "model", "provider")}
        fields["steps"] = tuple(Step(**step) for step in raw.get("steps", ()))
        fields["parallel"] = tuple(cls.parse(child, inherited) for child in raw.get("parallel", ()))
        return cls(**fields)

    @property
    def strategy(self) -> str:
        return "synthesis" if self.synthesis else "react"

    @property
    def finding(self) -> str | None:
        """What later stages are told; of parallel agents, each one's conclusion under its name."""
        if not self.parallel:
            return self.conclusion and self.conclusion.strip()
        return "\n\n".join(f"### {agent.agent}\n\n{agent.finding}" for agent in self.parallel)

    @property
    def finished(self) -> bool:
        return all(child.finished for child in self.parallel) and self.finding is not None

    @property
    def answer(self) -> str:
        """The last message. A synthesis has no turns, so it answers in plain text."""
        conclusion = (self.conclusion or "").strip()
        if self.thought is None:
            return conclusion
        return f"Thought: {self.thought}\nFinal Answer: {conclusion}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """A follow-up question after the end. It is not part of the investigation."""

    author: str
    asked_after_s: int
    question: str
    thought: str
    think_ms: int
    conclusion: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One YAML file. An unknown or missing key is a TypeError, so a typo can't pass."""

    session_id: str
    case: str
    title: str
    alert_type: str
    chain: str
    author: str
    started_at: datetime
    model: str
    provider: str
    runbook_url: str
    alert_data: Json
    tools: dict[str, dict[str, str]]
    stages: tuple[Stage, ...]
    verdict: Json | None
    status: str = "completed"
    label: str | None = None
    summary: str | None = None
    summary_ms: int = 1450
    chat: Chat | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        raw: Json = yaml.safe_load(text)
        defaults = {"model": raw["model"], "provider": raw["provider"]}
        raw["stages"] = tuple(Stage.parse(stage, defaults) for stage in raw["stages"])
        raw["chat"] = Chat(**raw["chat"]) if "chat" in raw else None
        return cls(**raw)

    @property
    def started_at_us(self) -> int:
        return int(self.started_at.timestamp()) * 1_000_000

    def id(self, *path: object) -> str:
        """A UUID that is the same on every machine."""
        return str(uuid5(NAMESPACE_URL, "/".join(map(str, (self.session_id, *path)))))

    def task(self, earlier: str) -> str:
        """The first user message of a stage; `earlier` is what former stages found."""
        tools = "\n".join(
            f"- {server}.{name}: {description}"
            for server, descriptions in self.tools.items()
            for name, description in descriptions.items()
        )
        known = f"\n\nEarlier stages found:\n\n{earlier}" if earlier else ""
        return (
            f"Investigate this alert.\n\nAlert type: {self.alert_type}\n"
            f"Alert data: {json.dumps(self.alert_data)}\nRunbook: {self.runbook_url}\n\n"
            f"Available tools:\n{tools}{known}"
        )


# --- Their expansion ---------------------------------------------------------------------------


@dataclass(slots=True)
class _Clock:
    """The session's own time, in microseconds since the epoch."""

    now_us: int

    def after(self, ms: int) -> int:
        self.now_us += ms * 1000
        return self.now_us


def expand(script: Script) -> SampleSession:
    """The script as the History API would show it."""
    clock = _Clock(script.started_at_us)
    clock.after(1000)
    stages = list(_stages(script, clock))
    last, ended_us = stages[-1], clock.now_us
    summaries = [_summary(script, clock)] if script.summary else []
    done = script.status == "completed"
    completed_us = clock.after(PAUSE_MS) if done else None
    chat = _chat(script, script.chat, clock) if script.chat else None
    stages += [chat] if chat else []
    analysis = _report(script, ended_us) if done else None
    detail = {
        "session_id": script.session_id,
        "alert_type": script.alert_type,
        "agent_type": f"chain:{script.chain}",
        "status": script.status,
        "author": script.author,
        "runbook_url": script.runbook_url,
        "started_at_us": script.started_at_us,
        "completed_at_us": completed_us,
        "error_message": None,
        "alert_data": script.alert_data,
        "final_analysis": analysis,
        "final_analysis_summary": script.summary,
        "session_metadata": {"classification_label": script.label} if script.label else None,
        "pause_metadata": None,
        "chain_id": script.chain,
        "chain_definition": _chain(script),
        "current_stage_index": last["stage_index"],
        "current_stage_id": last["execution_id"],
        "mcp_selection": None,
        **_session_totals(stages, summaries),
        "stages": stages,
        "session_level_interactions": summaries,
        "duration_ms": (completed_us - script.started_at_us) // 1000 if completed_us else None,
    }
    final = {
        "final_analysis": analysis,
        "final_analysis_summary": script.summary,
        "session_id": script.session_id,
        "status": script.status,
        "llm_conversation": _thread(last) if done else None,
        "chat_conversation": _thread(chat) if chat else None,
        "alert_data": script.alert_data,
    }
    return SampleSession(
        session_id=script.session_id,
        case=script.case,
        title=script.title,
        detail=_as_read(detail),
        final=_as_read(final),
        verdict=script.verdict,
    )


def _stages(script: Script, clock: _Clock) -> Iterator[Json]:
    earlier = ""
    for index, stage in enumerate(script.stages):
        task = script.task(earlier)
        if stage.parallel:
            yield _parallel(_Run(script=script, stage=stage, index=index, clock=clock), task)
        else:
            yield _Run(script=script, stage=stage, index=index, clock=clock).perform(task)
        earlier = f"{earlier}\n\n{stage.finding}".strip()
        clock.after(PAUSE_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One agent at work on one stage; `number` counts parallel agents from 1, 0 is a single one."""

    script: Script
    stage: Stage
    clock: _Clock
    index: int = 0
    number: int = 0

    @property
    def id(self) -> str:
        return self.script.id(self.stage.name, self.index, self.number)

    def perform(self, task: str) -> Json:
        """All turns one after the other; the clock stands at the end of the last."""
        started_us = self.clock.now_us
        llm: list[Json] = []
        mcp = list(self._tool_lists()) if self.stage.steps else []
        messages = [_message("system", SYSTEM_PROMPT), _message("user", task)]
        for step in self.stage.steps:
            messages.append(_message("assistant", step.message))
            llm.append(self._turn(len(llm), step.think_ms, messages, "investigation"))
            mcp.append(self._tool_call(len(mcp), step))
            messages.append(_message("user", step.observation))
        if self.stage.conclusion is not None:
            messages.append(_message("assistant", self.stage.answer))
            llm.append(self._turn(len(llm), self.stage.think_ms, messages, "final_analysis"))
        return self.as_stage(started_us, llm, mcp)

    def as_stage(self, started_us: int, llm: list[Json], mcp: list[Json]) -> Json:
        """The DetailedStage of a run from `started_us` until now."""
        done, ended_us = self.stage.finished, self.clock.now_us
        duration_ms = (ended_us - started_us) // 1000
        tokens = _tokens(llm)
        return {
            "execution_id": self.id,
            "session_id": self.script.session_id,
            "stage_id": f"{self.stage.name}_{self.index}",
            "stage_index": self.index,
            "stage_name": self.stage.name,
            "agent": self.stage.agent,
            "status": "completed" if done else "active",
            "started_at_us": started_us,
            "completed_at_us": ended_us if done else None,
            "duration_ms": duration_ms if done else None,
            "stage_output": _stage_output(self.stage, ended_us, duration_ms) if done else None,
            "error_message": None,
            "chat_id": None,
            "chat_user_message_id": None,
            "chat_user_message": None,
            "parent_stage_execution_id": None,
            "parallel_index": self.number,
            "parallel_type": "single",
            "parallel_executions": None,
            "llm_interactions": llm,
            "mcp_communications": mcp,
            "llm_interaction_count": len(llm),
            "mcp_communication_count": len(mcp),
            "total_interactions": len(llm) + len(mcp),
            "stage_interactions_duration_ms": sum(e["duration_ms"] for e in llm + mcp) or None,
            "stage_input_tokens": tokens["input_tokens"] or None,
            "stage_output_tokens": tokens["output_tokens"] or None,
            "stage_total_tokens": tokens["total_tokens"] or None,
            "chronological_interactions": sorted(llm + mcp, key=lambda e: int(e["timestamp_us"])),
            # The service reads both from the output, which a running stage has not.
            "iteration_strategy": self.stage.strategy if done else None,
            "llm_provider": f"{self.stage.provider}-default" if done else None,
        }

    def _turn(self, number: int, think_ms: int, messages: list[Json], kind: str) -> Json:
        at_us = self.clock.after(PAUSE_MS + think_ms)
        mark = _Mark(event_id=self.script.id(self.id, "llm", number), run_id=self.id, at_us=at_us)
        details = _llm_details(self.stage, think_ms, messages, kind)
        return mark.llm_event(self.script.session_id, details)

    def _tool_lists(self) -> Iterator[Json]:
        for number, (server, tools) in enumerate(self.script.tools.items()):
            listed = [
                {"name": name, "description": description, "inputSchema": {"type": "object"}}
                for name, description in tools.items()
            ]
            details = MCP_DETAILS | {
                "server_name": server,
                "communication_type": "tool_list",
                "available_tools": {server: listed},
                "duration_ms": TOOL_LIST_MS,
            }
            yield self._communication(number, f"Discover available tools from {server}", details)

    def _tool_call(self, number: int, step: Step) -> Json:
        details = MCP_DETAILS | {
            "tool_name": step.tool,
            "server_name": step.server,
            "communication_type": "tool_call",
            "tool_arguments": step.input,
            "tool_result": step.tool_result,
            "success": step.failure is None,
            "error_message": step.failure,
            "duration_ms": step.tool_ms,
        }
        return self._communication(number, f"Execute {step.tool} via {step.server}", details)

    def _communication(self, number: int, description: str, details: Json) -> Json:
        at_us = self.clock.after(PAUSE_MS + int(details["duration_ms"]))
        mark = _Mark(event_id=self.script.id(self.id, "mcp", number), run_id=self.id, at_us=at_us)
        return mark.event("mcp", description, details)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    """Where an interaction belongs and when it ended; `run_id` None is the session itself."""

    event_id: str
    run_id: str | None
    at_us: int

    def event(self, kind: str, description: str, details: Json) -> Json:
        return {
            "id": self.event_id,
            "event_id": self.event_id,
            "timestamp_us": self.at_us,
            "step_description": description,
            "duration_ms": details["duration_ms"],
            "stage_execution_id": self.run_id or "unknown",
            "type": kind,
            "details": details,
        }

    def llm_event(self, session_id: str, details: Json) -> Json:
        """As `event`; an LLM interaction's details repeat where it belongs."""
        belongs = {
            "interaction_id": self.event_id,
            "session_id": session_id,
            "stage_execution_id": self.run_id,
            "timestamp_us": self.at_us,
        }
        return self.event("llm", f"LLM analysis using {details['model_name']}", belongs | details)


def _llm_details(stage: Stage, think_ms: int, messages: list[Json], kind: str) -> Json:
    """What one call of the model was: the last message is its answer, the rest the prompt."""
    *prompt, answer = messages
    read = PROMPT_OVERHEAD_TOKENS + sum(map(_estimate, prompt))
    written = _estimate(answer)
    return {
        "duration_ms": think_ms,
        "success": True,
        "model_name": stage.model,
        "provider": stage.provider,
        "temperature": 0.1,
        "conversation": {"messages": list(messages)},
        "input_tokens": read,
        "output_tokens": written,
        "total_tokens": read + written,
        "interaction_type": kind,
        "error_message": None,
        "response_metadata": None,
        "native_tools_config": None,
        "mcp_event_id": None,
        "thinking_content": None,
    }


def _stage_output(stage: Stage, ended_us: int, duration_ms: int) -> Json:
    return {
        "status": "completed",
        "agent_name": stage.agent,
        "stage_name": stage.name,
        "stage_description": "Agent execution",
        "timestamp_us": ended_us,
        "result_summary": stage.finding,
        "complete_conversation_history": None,
        "investigation_history": None,
        "paused_conversation_state": None,
        "final_analysis": stage.finding,
        "error_message": None,
        "duration_ms": duration_ms,
        "iteration_strategy": stage.strategy,
        "llm_provider": f"{stage.provider}-default",
    }


def _parallel(parent: _Run, task: str) -> Json:
    """The stage of agents that start together; it ends with the slowest of them."""
    started_us = parent.clock.now_us
    nested = {"parent_stage_execution_id": parent.id, "parallel_type": "multi_agent"}
    children = []
    for number, stage in enumerate(parent.stage.parallel, start=1):
        clock = _Clock(started_us)
        run = replace(parent, stage=stage, number=number, clock=clock)
        children.append(run.perform(task) | nested)
        parent.clock.now_us = max(parent.clock.now_us, clock.now_us)
    return parent.as_stage(started_us, [], []) | {
        "parallel_type": "multi_agent",
        "parallel_executions": children,
    }


def _chat(script: Script, chat: Chat, clock: _Clock) -> Json:
    asked_us = clock.after(chat.asked_after_s * 1000)
    message_id = script.id("chat", "message")
    stage = Stage(
        name="Chat Response",
        agent="ChatAgent",
        model=script.model,
        provider=script.provider,
        thought=chat.thought,
        think_ms=chat.think_ms,
        conclusion=chat.conclusion,
    )
    task = f"The investigation found:\n\n{script.stages[-1].finding}\n\nQuestion: {chat.question}"
    return _Run(script=script, stage=stage, clock=clock).perform(task) | {
        "stage_id": f"chat-response-{message_id}",
        "chat_id": script.id("chat"),
        "chat_user_message_id": message_id,
        "chat_user_message": {
            "message_id": message_id,
            "content": chat.question,
            "author": chat.author,
            "created_at_us": asked_us,
        },
    }


def _summary(script: Script, clock: _Clock) -> Json:
    """The executive summary: an LLM interaction that belongs to no stage."""
    at_us = clock.after(script.summary_ms)
    messages = [
        _message("system", SYSTEM_PROMPT),
        _message("user", f"Summarise in one or two sentences:\n\n{script.stages[-1].finding}"),
        _message("assistant", script.summary or ""),
    ]
    stage = Stage(name="summary", agent="", model=script.model, provider=script.provider)
    details = _llm_details(stage, script.summary_ms, messages, "final_analysis_summary")
    mark = _Mark(event_id=script.id("summary"), run_id=None, at_us=at_us)
    return mark.llm_event(script.session_id, details)


def _report(script: Script, ended_us: int) -> str:
    count = len(script.stages)
    return (
        f"# Alert Analysis Report\n\n**Alert Type:** {script.alert_type}\n"
        f"**Processing Chain:** {script.chain}\n**Stages:** {count}\n**Timestamp:** {ended_us}\n\n"
        f"## Analysis\n\n{script.stages[-1].finding}\n\n"
        f"---\n*Processed through {count} stage{'s' * (count != 1)}*"
    )


def _chain(script: Script) -> Json:
    return {
        "chain_id": script.chain,
        "alert_types": [script.alert_type],
        "stages": [
            {
                "name": stage.name,
                "agent": None if stage.parallel else stage.agent,
                "agents": [{"name": child.agent} for child in stage.parallel] or None,
                "replicas": 1,
                "failure_policy": "all",
                "iteration_strategy": stage.strategy,
                "llm_provider": None,
                "synthesis": None,
            }
            for stage in script.stages
        ],
        "description": None,
        "chat": {
            "enabled": True,
            "agent": "ChatAgent",
            "iteration_strategy": None,
            "llm_provider": None,
        },
        "llm_provider": None,
    }


def _session_totals(stages: list[Json], summaries: list[Json]) -> Json:
    """Counts and tokens over everything, nested agents and chat included."""
    flat = [nested for stage in stages for nested in (stage, *(stage["parallel_executions"] or ()))]
    llm = [event for stage in flat for event in stage["llm_interactions"]] + summaries
    mcp = [event for stage in flat for event in stage["mcp_communications"]]
    return {
        "total_interactions": len(llm) + len(mcp),
        "llm_interaction_count": len(llm),
        "mcp_communication_count": len(mcp),
        **{f"session_{name}": count for name, count in _tokens(llm).items()},
    }


def _thread(stage: Json) -> Json:
    """The conversation of a stage's last LLM interaction, as the final-analysis call shows it."""
    details = stage["llm_interactions"][-1]["details"]
    names = ("model_name", "provider", "timestamp_us", "input_tokens", "output_tokens")
    return {
        **{name: details[name] for name in names},
        "total_tokens": details["total_tokens"],
        "messages": details["conversation"]["messages"],
    }


def _as_read(document: Json) -> Json:
    """The document as if read off the wire: plain JSON, and no two places share an object."""
    copy: Json = json.loads(json.dumps(document))
    return copy


def _tokens(llm: Iterable[Json]) -> dict[str, int]:
    names = ("input_tokens", "output_tokens", "total_tokens")
    events = list(llm)
    return {name: sum(event["details"][name] for event in events) for name in names}


def _estimate(message: Json) -> int:
    return len(str(message["content"]).encode()) // BYTES_PER_TOKEN


def _message(role: str, content: str) -> Json:
    return {"role": role, "content": content}
