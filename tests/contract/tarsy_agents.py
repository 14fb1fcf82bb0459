"""Sessions as TARSy's agents leave them, each kind of agent, with invented texts.

An agent here does what TARSy's own code does with its conversation and its records; its shapes were
taken from what that code answered.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from typing import Any

Json = dict[str, Any]
START_US = 1_795_000_000_000_000
TOOLS = [
    {"name": "pods_get", "description": "Gets pods.", "inputSchema": {"type": "object"}},
    {"name": "pods_log", "description": None, "inputSchema": {}},
]
NOTE = "[NOTE: The tool output was too long and has been summarized below.]\n\n"


class Clock:
    """Microseconds UTC, and ids."""

    def __init__(self) -> None:
        self._ticks = count(1)

    def tick(self) -> tuple[int, str]:
        n = next(self._ticks)
        return START_US + n * 150_000, f"00000000-0000-4000-8000-{n:012}"


class Agent:
    """One agent at work in a stage. `native`: with native function calling, else ReAct."""

    def __init__(
        self, clock: Clock, name: str, *, native: bool = False, tools: bool = True
    ) -> None:
        self.clock, self.name, self.native = clock, name, native
        self.llm: list[Json] = []
        self.mcp: list[Json] = []
        self.said = [
            {"role": "system", "content": f"You are {name}."},
            {"role": "user", "content": f"Look at alert A-1, {name}."},
        ]
        if tools:
            self._mcp("tool_list", tool_name="", available_tools={"k8s": TOOLS})

    def told(self, text: str) -> None:
        """By TARSy, as an observation."""
        self.said.append({"role": "user", "content": text})

    def turn(self, text: str = "", thought: str | None = None, **details: Any) -> None:
        """One model call, and what it answered."""
        if text:
            self.said.append({"role": "assistant", "content": text})
        fields = {"conversation": {"messages": [*self.said]}, "thinking_content": thought}
        self._llm(**fields, input_tokens=100, output_tokens=20, total_tokens=120, **details)

    def fails(self, error: str) -> None:
        self._llm(conversation=None, success=False, error_message=error)

    def call(self, tool: str, arguments: Json, result: str, summary: str | None = None) -> None:
        event_id = self._mcp(
            "tool_call", tool_name=tool, tool_arguments=arguments, tool_result={"result": result}
        )
        if summary is not None:
            asked = [
                {"role": "system", "content": "You summarize."},
                {"role": "user", "content": f"Below is the conversation: {self.said} {result}"},
                {"role": "assistant", "content": summary},
            ]
            self._llm(
                conversation={"messages": asked},
                interaction_type="summarization",
                mcp_event_id=event_id,
                input_tokens=900,
                output_tokens=30,
                total_tokens=930,
            )
        read = result if summary is None else f"{NOTE}{summary}\n\nIMPORTANT: do not ask again."
        told = json.dumps({"result": read}, indent=2)
        if self.native:
            self.told(f"Tool Result: k8s.{tool}:\n{told}")
        else:
            self.told(f"Observation: k8s.{tool}: {told}")

    def breaks(self, tool: str, arguments: Json, error: str) -> None:
        """A call that did not go through."""
        failed = {"success": False, "error_message": error, "tool_result": None}
        self._mcp("tool_call", tool_name=tool, tool_arguments=arguments, **failed)
        if self.native:
            self.told(f"Tool Error: Error executing k8s.{tool}: {error}")
        else:
            self.told(f"Observation: Error executing action: {error}")

    def stage(self, name: str, **fields: Any) -> Json:
        """The stage, once the agent is done."""
        every = sorted([*self.llm, *self.mcp], key=lambda event: int(event["timestamp_us"]))
        own: Json = {
            "execution_id": self.clock.tick()[1],
            "stage_name": name,
            "agent": self.name,
            "iteration_strategy": "native-thinking" if self.native else "react",
            "status": "completed",
            "duration_ms": 700,
            "error_message": None,
            "chat_id": None,
            "parallel_type": "single",
            "parallel_executions": None,
            "llm_interactions": self.llm,
            "mcp_communications": self.mcp,
            "chronological_interactions": every,
        }
        return own | fields

    def _llm(self, **details: Any) -> None:
        at_us, event_id = self.clock.tick()
        fields: Json = {
            "model_name": "gemini-2.5-flash",
            "provider": "gem",
            "interaction_type": "investigation",
            "mcp_event_id": None,
            "timestamp_us": at_us,
            "duration_ms": 5,
            "success": True,
            "error_message": None,
            "response_metadata": None,
        }
        self.llm.append(_event("llm", at_us, event_id, fields | details))

    def _mcp(self, kind: str, **details: Any) -> str:
        at_us, event_id = self.clock.tick()
        fields: Json = {
            "server_name": "k8s",
            "communication_type": kind,
            "tool_arguments": {},
            "tool_result": {},
            "available_tools": {},
            "success": True,
            "error_message": None,
            "duration_ms": 30,
        }
        self.mcp.append(_event("mcp", at_us, event_id, fields | details))
        return event_id


def _event(kind: str, at_us: int, event_id: str, details: Json) -> Json:
    common = {"id": event_id, "event_id": event_id, "timestamp_us": at_us, "type": kind}
    return common | {"duration_ms": details["duration_ms"], "details": details}


def parallel(clock: Clock, name: str, kind: str, *stages: Json, **fields: Any) -> Json:
    """The stage around those that ran side by side."""
    inside = [stage | {"parallel_type": kind} for stage in stages]
    agent = Agent(clock, f"parallel-{kind}", tools=False)
    return agent.stage(name, parallel_type=kind, parallel_executions=inside, **fields)


def detail(*stages: Json, beside: list[Json] | None = None) -> Json:
    """The answer for a completed session."""
    summary = Agent(Clock(), "summary", tools=False)
    summary.turn("In short: the pod was killed.", interaction_type="final_analysis_summary")
    counted = [i["details"] for stage in _flat(list(stages)) for i in stage["llm_interactions"]]
    counted += [i["details"] for i in (beside or []) + summary.llm if "model_name" in i["details"]]

    def total(name: str) -> int | None:
        return sum(call.get(name) or 0 for call in counted) or None

    return {
        "session_id": "s-1",
        "status": "completed",
        "agent_type": "chain:shop",
        "alert_type": "PodKilled",
        "alert_data": {"pod": "cart-7", "restarts": 4},
        "runbook_url": None,
        "final_analysis": "cart-7 was killed: it used 512Mi of 512Mi. Evidence: exit code 137.",
        "session_metadata": None,
        "started_at_us": START_US,
        "session_input_tokens": total("input_tokens"),
        "session_output_tokens": total("output_tokens"),
        "session_total_tokens": total("total_tokens"),
        "duration_ms": 3182,
        "stages": list(stages),
        "session_level_interactions": [*(beside or []), *summary.llm],
    }


def _flat(stages: list[Json]) -> list[Json]:
    return [one for s in stages for one in (s, *_flat(s["parallel_executions"] or []))]


# --- The kinds -----------------------------------------------------------------------------------


def _react(clock: Clock, name: str, mark: str = "") -> Agent:
    agent = Agent(clock, name)
    agent.turn(f"Thought: first the pod {mark}\nAction: k8s.pods_get\nAction Input: name: cart-7")
    agent.call("pods_get", {"name": "cart-7"}, f"cart-7 restarts=4 limit=512Mi {mark}")
    agent.turn(f"Thought: now its log {mark}\nAction: k8s.pods_log\nAction Input: name: cart-7")
    agent.call("pods_log", {"name": "cart-7"}, f'exit code 137\nline "two" {mark}')
    agent.turn(
        f"Thought: enough {mark}\nFinal Answer: it was killed {mark}",
        interaction_type="final_analysis",
    )
    return agent


def _native(clock: Clock, name: str, mark: str = "") -> Agent:
    agent = Agent(clock, name, native=True)
    agent.turn(thought=f"The pod tells most {mark}.")
    agent.call("pods_get", {"name": "cart-7"}, f"cart-7 restarts=4 \u00e9 {mark}")
    agent.turn(f"Let me see both logs {mark}.", thought=f"Both logs at once {mark}.")
    agent.call("pods_log", {"name": "cart-7"}, f"exit code 137 {mark}")
    agent.call("pods_log", {"name": "cart-8"}, f"Error: no such pod {mark}")
    agent.turn(thought=f"Once more the same {mark}.")
    agent.call("pods_log", {"name": "cart-7"}, f"exit code 137 {mark}")
    agent.turn(f"It was killed {mark}.", thought=f"Sure now {mark}.")
    return agent


def react() -> Json:
    return detail(_react(Clock(), "KubernetesAgent").stage("analysis"))


def stages() -> Json:
    """Three in a row; the last one has no tools."""
    clock = Clock()
    first = _react(clock, "Collector", "one").stage("collect", iteration_strategy="react-stage")
    second = _react(clock, "Checker", "two").stage("check")
    last = Agent(clock, "Collector", tools=False)
    last.turn("Thought: both agree\nFinal Answer: killed")
    return detail(first, second, last.stage("final"))


def native() -> Json:
    return detail(_native(Clock(), "ThinkingAgent").stage("think"))


def _synthesis(clock: Clock, *, native: bool = False) -> Json:
    agent = Agent(clock, "SynthesisAgent", native=native, tools=False)
    agent.turn("Both agents agree.", thought="They say the same." if native else None)
    return agent.stage("synthesis")


def multi_agent() -> Json:
    """A native-thinking and a ReAct agent side by side, with a native-thinking synthesis."""
    clock = Clock()
    one = _native(clock, "ThinkingAgent", "a").stage("look - ThinkingAgent")
    other = _react(clock, "LogAgent", "b").stage("look - LogAgent")
    both = parallel(clock, "look", "multi_agent", one, other)
    return detail(both, _synthesis(clock, native=True))


def replica() -> Json:
    clock = Clock()
    each = [_react(clock, f"LogAgent-{n}", f"r{n}").stage(f"look - LogAgent-{n}") for n in (1, 2)]
    return detail(parallel(clock, "look", "replica", *each), _synthesis(clock))


def failed_agent() -> Json:
    """Of parallel agents one fails, model call by model call, and one leaves no line at all."""
    clock = Clock()
    one = _react(clock, "ThinkingAgent", "a").stage("look - ThinkingAgent")
    broken = Agent(clock, "LogAgent")
    for error in ("429: too many", "400: boom", "400: boom", "400: boom"):
        broken.fails(error)
    reason = {"status": "failed", "error_message": "Stage failed: no iterations left"}
    idle = Agent(clock, "IdleAgent", tools=False).stage("look - IdleAgent", status="cancelled")
    stopped = broken.stage("look - LogAgent", **reason)
    both = parallel(clock, "look", "multi_agent", one, stopped, idle, status="partial")
    return detail(both, _synthesis(clock))


def failed_then_well() -> Json:
    """A model call that failed between two that did not."""
    agent = Agent(Clock(), "KubernetesAgent")
    agent.turn("Thought: first\nAction: k8s.pods_get\nAction Input: a: 1")
    agent.call("pods_get", {"a": "1"}, "cart-7 killed")
    agent.fails("503: overloaded")
    agent.told("Use the format.")
    agent.turn("Thought: enough\nFinal Answer: killed")
    return detail(agent.stage("analysis"))


LONG = "".join(f"cart-{n} Running 10.0.0.{n} \u00fc\n" for n in range(300))


def summarized() -> Json:
    agent = Agent(Clock(), "KubernetesAgent")
    agent.turn("Thought: all pods\nAction: k8s.pods_get\nAction Input: all: true")
    agent.call("pods_get", {"all": "true"}, LONG, summary="300 pods run; cart-7 was killed.")
    agent.turn("Thought: enough\nFinal Answer: killed")
    return detail(agent.stage("analysis"))


def summarized_native() -> Json:
    """Of two calls in a turn the second is summarized, then the first tool is called again."""
    agent = Agent(Clock(), "ThinkingAgent", native=True)
    agent.turn(thought="Everything at once.")
    agent.call("pods_get", {"name": "cart-7"}, "cart-7 restarts=4")
    agent.call("pods_get", {"all": True}, LONG, summary="300 pods run; cart-7 was killed.")
    agent.turn("Killed.", thought="That is all.")
    return detail(agent.stage("think"))


def errors() -> Json:
    agent = Agent(Clock(), "KubernetesAgent")

    def ask(thought: str, tool: str) -> None:
        agent.turn(f"Thought: {thought}\nAction: k8s.{tool}\nAction Input: name: x")

    ask("one that is not there", "no_such_tool")
    agent.call("no_such_tool", {"name": "x"}, "Unknown tool: no_such_tool")
    ask("an error in the result", "pods_get")
    agent.call("pods_get", {"name": "x"}, 'Error executing tool pods_get: "x" not found')
    ask("one that does not go through", "pods_get")
    agent.breaks("pods_get", {"name": "y"}, "timed out after 60 s")
    ask("the same again, which does", "pods_get")
    agent.call("pods_get", {"name": "y"}, "y restarts=2")
    agent.turn("I forgot the format")
    agent.told("FORMAT ERROR: Could not detect any ReAct sections.")
    ask("an empty result", "pods_log")
    agent.call("pods_log", {"name": "x"}, "")
    agent.turn("Thought: enough\nFinal Answer: killed")
    return detail(agent.stage("analysis"))


def errors_native() -> Json:
    agent = Agent(Clock(), "ThinkingAgent", native=True)
    agent.turn(thought="Two calls.")
    agent.breaks("pods_log", {"name": "cart-7"}, "connection refused")
    agent.call("pods_log", {"name": "cart-7"}, "exit code 137")
    agent.turn("Killed.", thought="Well.")
    return detail(agent.stage("think"))


def repeated() -> Json:
    """Three identical turns, thoughts and all."""
    agent = Agent(Clock(), "ThinkingAgent", native=True)
    for _ in range(3):
        agent.turn("The log again.", thought="The log.")
        agent.call("pods_log", {"name": "cart-7"}, "exit code 137")
    agent.turn("Killed.", thought="Enough.")
    return detail(agent.stage("think"))


def repeated_in_silence() -> Json:
    """The same without a word in between: nothing but results is told."""
    agent = Agent(Clock(), "ThinkingAgent", native=True)
    for n in range(3):
        agent.turn(thought=f"The log, time {n}.")
        agent.call("pods_log", {"name": "cart-7"}, "exit code 137")
    agent.turn("Killed.", thought="Enough.")
    return detail(agent.stage("think"))


def web_search() -> Json:
    agent = Agent(Clock(), "KubernetesAgent")
    found = {
        "web_search_queries": ["exit code 137 meaning", "cgroup limit"],
        "grounding_chunks": [{"web": {"uri": "https://docs.example/137", "title": "Signal 9"}}],
        "search_entry_point": {"rendered_content": "<style>.x{}</style>"},
    }
    agent.turn(
        "Thought: what is 137?\nFinal Answer: killed by signal 9",
        thought="I search.",
        response_metadata={"finish_reason": "STOP", "grounding_metadata": found},
    )
    return detail(agent.stage("analysis"))


def chat() -> Json:
    """A follow-up question after the investigation."""
    clock = Clock()
    work = _react(clock, "KubernetesAgent").stage("analysis")
    asked = _react(clock, "ChatAgent", "chat").stage("chat", chat_id="chat-1")
    return detail(work, asked)


def beside() -> Json:
    """Tool calls of no stage: one before the second stage, one after all."""
    clock = Clock()
    other = Agent(clock, "nobody", tools=False)
    first = _react(clock, "KubernetesAgent", "one").stage("analysis")
    other.call("pods_get", {"between": True}, "between the stages")
    second = _react(clock, "KubernetesAgent", "two").stage("more")
    other.breaks("pods_log", {"after": True}, "refused")
    return detail(first, second, beside=other.mcp)


KINDS: dict[str, Callable[[], Json]] = {
    made.__name__: made
    for made in (
        react,
        stages,
        native,
        multi_agent,
        replica,
        failed_agent,
        failed_then_well,
        summarized,
        summarized_native,
        errors,
        errors_native,
        repeated,
        repeated_in_silence,
        web_search,
        chat,
        beside,
    )
}
