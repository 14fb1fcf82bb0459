"""Sessions that are made to be slow, as the History Service would send them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from typing import Any

from tests.growth.texts import TEXTS, Text

Json = Any
Shape = Callable[[int], bytes]


def detail(*stages: Json, **changes: Json) -> bytes:
    """The answer for a completed session of these stages."""
    fields = {
        "session_id": "s-1",
        "status": "completed",
        "agent_type": "A",
        "alert_type": "Alert",
        "alert_data": {},
        "final_analysis": "pod-1 has 5 errors [1].",
        "session_total_tokens": 1,
        "stages": stages,
    }
    return json.dumps({**fields, **changes}, ensure_ascii=False).encode()


def stage(**changes: Json) -> Json:
    return {"execution_id": "1", "stage_name": "s", "agent": "A", "status": "completed", **changes}


def said(text: str, role: str = "assistant") -> Json:
    return {"role": role, "content": text}


def told(at_us: int, *messages: Json, **changes: Json) -> Json:
    """A model call with this thread."""
    details = {"model_name": "m", "conversation": {"messages": messages}, **changes}
    return {"id": f"l{at_us}", "timestamp_us": at_us, "details": details}


def called(at_us: int, tool: str = "t", **changes: Json) -> Json:
    """A tool call."""
    details = {
        "server_name": "k",
        "communication_type": "tool_call",
        "tool_name": tool,
        "tool_arguments": {"a": at_us},
        "tool_result": {"result": "ok-1"},
        "success": True,
        **changes,
    }
    return {"id": f"c{at_us}", "timestamp_us": at_us, "details": details}


def listing(*names: str) -> Json:
    """A list of available tools."""
    tools = {"k": [{"name": name, "description": ""} for name in names]}
    return called(0, "", communication_type="tool_list", available_tools=tools)


def of_text(text: Text) -> Shape:
    """This text wherever a session has one."""

    def made(size: int) -> bytes:
        one = text(size // 9)
        thread = told(9, said(one, "user"), said(one), said(f"Observation: k.x: {one}", "user"))
        calls = [
            called(1, tool_arguments={"a": one}, tool_result={"result": one}),
            called(2, success=False, tool_result=None, error_message=one),
        ]
        alert = {"a": one, "b": [1]}
        whole = stage(llm_interactions=[thread], mcp_communications=calls)
        return detail(whole, alert_data=alert, final_analysis=one, runbook_url=one)

    return made


def many(item: Callable[[int], Json], wrap: Callable[[list[Json]], bytes]) -> Shape:
    """As many items as there is room for."""

    def made(size: int) -> bytes:
        length = len(json.dumps(item(10**4))) + 2
        return wrap([item(n) for n in range(max(2, size // length))])

    return made


def _calls(items: list[Json]) -> bytes:
    return detail(stage(mcp_communications=items))


def _told(items: list[Json]) -> bytes:
    return detail(stage(llm_interactions=items))


def _one_thread(items: list[Json]) -> bytes:
    return _told([told(1, *items)])


def _arguments(items: list[Json]) -> bytes:
    """Calls with these as arguments: only calls of the same tool are compared."""
    items = items[: len(items) // 6]
    both = [{f"k{n}": item for n, item in enumerate(items)}, {"all": items}]
    return _calls([called(n, tool_arguments=one) for n, one in enumerate([*both, *both])])


def growing_threads(size: int) -> bytes:
    """Each model call tells the whole thread so far, as agents' do."""
    turns = int((2 * size / 40) ** 0.5)
    thread = [said(f"message {n}") for n in range(turns)]
    return _told([told(n, *thread[:n]) for n in range(1, turns)])


def random_threads(size: int) -> bytes:
    """Threads of which none holds another, and that have much in common."""
    random = Random(7)
    parts = [[said(f"{place}{n}") for n in range(6)] for place in "abcdefgh"]
    threads = (
        told(n, *(random.choice(part) for part in random.sample(parts, random.choice([5, 6, 7]))))
        for n in range(size // 330)
    )
    return _told(list(threads))


def untold_calls(size: int) -> bytes:
    """Calls that were made before all that was said."""
    turns = size // 240
    calls = [called(n) for n in range(turns)]
    thread = [said(f"m{n}") for n in range(2 * turns)]
    return detail(stage(llm_interactions=[told(10**9, *thread)], mcp_communications=calls))


def told_calls(size: int) -> bytes:
    """Calls of two tools by turns, each told in the conversation."""
    turns = size // 260
    calls = [called(n, f"t{n % 2}") for n in range(turns)]
    thread = [said(f"Observation: k.t{n % 2}: ok", "user") for n in range(turns)]
    return detail(stage(llm_interactions=[told(10**9, *thread)], mcp_communications=calls))


def told_results(size: int) -> bytes:
    """The same, as agents with native function calling are told, each after a thought."""
    turns = int((2 * size / 240) ** 0.5)
    calls = [called(n, f"t{n % 2}") for n in range(turns)]
    thread = [said(f"Tool Result: k.t{n % 2}:\nok", "user") for n in range(turns)]
    thoughts = [told(n, *thread[:n], thinking_content=f"t{n}") for n in range(1, turns)]
    return detail(stage(llm_interactions=thoughts, mcp_communications=calls))


def summarized_calls(size: int) -> bytes:
    """Each call has a summary, and every other one is told."""
    turns = size // 700
    calls = [called(n) for n in range(turns)]
    note = '{"result": "[NOTE: The tool output was too long and has been summarized below.]"}'
    thread = [said(f"Observation: k.t: {note}", "user") for _ in range(turns // 2)]
    summaries = [
        told(n, said("s"), interaction_type="summarization", mcp_event_id=f"c{n}")
        for n in range(turns)
    ]
    interactions = [told(10**9, *thread), *summaries]
    return detail(stage(llm_interactions=interactions, mcp_communications=calls))


def unnamed_errors(size: int) -> bytes:
    """Calls whose errors are told without their names, after all that the agent said."""
    turns = size // 700
    calls = [called(n, success=False, error_message="x") for n in range(turns)]
    asked = said("Action: k.t\n" * 20)
    wrong = said("Observation: Error executing action: y", "user")
    thread = told(10**9, *(turn for _ in range(turns) for turn in (asked, wrong)))
    return detail(stage(llm_interactions=[thread], mcp_communications=calls))


def _beside(items: list[Json]) -> bytes:
    """Calls of no stage, between as many stages."""
    half = len(items) // 2
    stages = [stage(llm_interactions=[told(at, said("x"))], agent=f"A{at}") for at in range(half)]
    return detail(*stages, session_level_interactions=items[:half], agent_type="chain:x")


def _searched(items: list[Json]) -> bytes:
    chunks = [{"web": {"uri": item, "title": "t"}} for item in items]
    found = {"web_search_queries": items, "grounding_chunks": chunks}
    return _told([told(1, response_metadata={"grounding_metadata": found})])


def nested_stages(size: int) -> bytes:
    """Stages as deep as they may be, and many at the bottom."""
    inner = [stage() for _ in range(size // len(json.dumps(stage())))]
    for _ in range(50):
        inner = [stage(parallel_executions=inner, parallel_type="multi_agent")]
    return detail(*inner)


def long_titles(size: int) -> bytes:
    """Many steps of a parallel stage whose name and agent are long: each is told with them."""
    thread = told(1, *(said(f"{n}") for n in range(size // 80)))
    long = "n" * (size // 4)
    whole = stage(stage_name=long, agent=long, parallel_type="a", llm_interactions=[thread])
    return detail(stage(parallel_executions=[whole]))


def long_server(size: int) -> bytes:
    """Many tools of a server whose name is long."""
    long = "k" * (size // 2)
    tools = {long: [{"name": f"t{n}"} for n in range(size // 40)]}
    listed = called(0, "", communication_type="tool_list", available_tools=tools, server_name=long)
    return detail(stage(mcp_communications=[listed, called(1, server_name=long)]))


def long_key(size: int) -> bytes:
    """Many leaves below one long key."""
    leaves = {f"{n}": n for n in range(size // 60)}
    inside = {"k" * (size // 4): leaves}
    return _calls([called(n, tool_arguments=inside) for n in range(2)])


def deep_arguments(size: int) -> bytes:
    """Many leaves as deep as they may be."""
    inside: Json = list(range(size // 16))
    for _ in range(100):
        inside = {"a": inside}
    return _calls([called(n, tool_arguments=inside) for n in range(2)])


def deep_alert(size: int) -> bytes:
    inside: Json = list(range(size // 8))
    for _ in range(100):
        inside = {"a": inside}
    return detail(stage(), alert_data=inside)


def many_tools(name: Callable[[int], str]) -> Shape:
    """As many available tools as there is room for, half of them called."""

    def made(size: int) -> bytes:
        names = list(_fitting(map(name, count()), size // 2, 35))
        calls = [called(n, name) for n, name in enumerate(names[:: 2 * (1 + 240 // len(name(0)))])]
        return detail(stage(mcp_communications=[listing(*names), *calls]))

    return made


def _fitting(items: Iterator[str], size: int, beside: int) -> Iterator[str]:
    for item in items:
        size -= len(item) + beside
        if size < 0:
            return
        yield item


def against(claims: str, facts: str) -> Shape:
    """An analysis that claims many things, and evidence that holds as many others."""

    def made(size: int) -> bytes:
        halves = [piece.format(n) for n in range(size // 40) for piece in (claims, facts)]
        result = {"result": " ".join(halves[1::2])}
        return detail(
            stage(mcp_communications=[called(1, tool_result=result)]),
            final_analysis=" ".join(halves[::2]),
        )

    return made


def look_ups(result: str, arguments: Callable[[int], Json] = lambda n: {"a": n % 7}) -> Shape:
    """Look-ups of whose results nobody says anything, apart: the same tool is never asked twice."""
    return many(
        lambda n: called(
            n, f"get_{n % 2}", tool_arguments=arguments(n), tool_result={"result": result.format(n)}
        ),
        _calls,
    )


SESSIONS: dict[str, Shape] = {
    **{f"text: {name}": of_text(text) for name, text in TEXTS.items()},
    "tiny messages": many(lambda n: said(""), _one_thread),
    "other messages": many(lambda n: said(f"{n}"), _one_thread),
    "messages by anyone": many(lambda n: said("x", f"role {n}"), _one_thread),
    "threads with one end": many(lambda n: told(n, said(f"{n}"), said("end")), _told),
    "threads with one beginning": many(lambda n: told(n, said("a"), said(f"{n}")), _told),
    "equal threads": many(lambda n: told(n, said("a"), said("b")), _told),
    "threads without messages": many(told, _told),
    "threads at one time": many(lambda n: told(1, said(f"{n % 7}"), said(f"{n % 11}")), _told),
    "growing threads": growing_threads,
    "random threads": random_threads,
    "thoughts of one place": many(
        lambda n: told(n, said("a", "user"), thinking_content=f"thought number {n} of many"), _told
    ),
    "thoughts of no place": many(lambda n: told(n, thinking_content="t"), _told),
    "failures": many(lambda n: told(n, success=False, error_message="x"), _told),
    "other failures": many(lambda n: told(n, success=False, error_message=f"{n}"), _told),
    "failures of stages": many(
        lambda n: stage(status="failed", error_message="x"), lambda items: detail(*items)
    ),
    "searches": many(lambda n: f"query {n}", _searched),
    "calls of no stage": many(called, _beside),
    "replicas": many(
        lambda n: stage(agent=f"A-{n}-{n}", parallel_type="replica"),
        lambda items: detail(*items, agent_type="chain:x"),
    ),
    "a replica of dashes": lambda size: detail(
        stage(agent="-1" * (size // 2) + "x", parallel_type="replica"), agent_type="chain:x"
    ),
    "told results": told_results,
    "summarized calls": summarized_calls,
    "unnamed errors": unnamed_errors,
    "untold calls": untold_calls,
    "told calls": told_calls,
    "equal calls": many(lambda n: called(1), _calls),
    "calls of one tool": many(called, _calls),
    "calls of many tools": many(lambda n: called(n, f"t{n}"), _calls),
    "failed calls": many(lambda n: called(n, success=False, error_message="x"), _calls),
    "errors in results": many(lambda n: called(n, tool_result={"isError": True}), _calls),
    "equal results": many(lambda n: called(n, tool_result={"result": "word-1 " * 40}), _calls),
    "other results": many(lambda n: called(n, tool_result={"result": f"pod-{n}"}), _calls),
    "results of base64": many(
        lambda n: called(n, tool_result={"result": "QUJDa1" * 100 + f"{n}"}), _calls
    ),
    "results of keys": many(lambda n: called(n, tool_result={f"k{n}": [n]}), _calls),
    "stages": many(lambda n: stage(), lambda items: detail(*items)),
    "stages of one step": many(
        lambda n: stage(llm_interactions=[told(n, said("x"))]), lambda items: detail(*items)
    ),
    "parallel stages": many(
        lambda n: stage(parallel_type="multi_agent", llm_interactions=[told(n, said("x"))]),
        lambda items: detail(stage(parallel_executions=items)),
    ),
    "nested stages": nested_stages,
    "models": many(lambda n: told(n, said("x")) | {"id": f"{n}" * 9}, _told),
    "keys of arguments": many(lambda n: n, _arguments),
    "lists of arguments": many(lambda n: [n], _arguments),
    "empty arguments": many(lambda n: {}, _arguments),
    "long key": long_key,
    "long titles": long_titles,
    "long server": long_server,
    "deep arguments": deep_arguments,
    "alert of keys": many(
        lambda n: {f"k{n}": n},
        lambda items: detail(stage(), alert_data={k: v for i in items for k, v in i.items()}),
    ),
    "alert of lists": many(lambda n: [[n]], lambda items: detail(stage(), alert_data={"a": items})),
    "deep alert": deep_alert,
    "tools": many_tools(lambda n: f"t{n}"),
    "tools of one name": many_tools(lambda n: "tool"),
    "tools of dots": many_tools(lambda n: f"a.b.c.{n}"),
    "tools with long names": many_tools(lambda n: "prefix-" * 30 + f"{n}"),
    "claims of numbers": against("1{0:07}", "2{0:07}"),
    "claims of shares": against("{0}.{0}%", "0.{0}"),
    "claims of names": against("pod-{0}-a", "pod-{0}-b"),
    "claims of hosts": against("h{0}.example.io/a", "x-h{0}.example.io:80/b"),
    "look-ups of numbers": look_ups("at 9{0:06}.5 on 2026-05-17, 7{0:06} left: no"),
    "look-ups of names": look_ups("pod-a{0:06} of node-a{0:06}"),
    "look-ups of lists": look_ups("[[9{0:06}], [], [[1, 8{0:06}]]]"),
    "look-ups about names": look_ups("pod-a{0:06}", lambda n: {f"k{n}": [f"pod-b{n}", n]}),
    "look-ups again": look_ups("pod-a", lambda n: {"a": 1}),
    "actions": many(lambda n: called(n, "updatePodsAndNodes"), _calls),
    "wrong fields": many(lambda n: {"role": 1}, _one_thread),
    "wrong stages": many(lambda n: {"x": n}, lambda items: detail(*items)),
}
