"""The items of a session that are labelled, found without any rule of the product.

python -m tests.labelled.items FILE [--ids]
python -m tests.labelled.items --demo CASE [--ids]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from consumer.demo import sample_sessions

Json = Mapping[str, Any]

_FIGURE = re.compile(r"(?<![\w.])[$€£]?\d[\d.,:]*(?:\s?%)?(?![\w])")
_NAME = re.compile(
    r"\b(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[A-Za-z0-9][\w./:-]{2,}\w"  # letters and digits
    r"|\b\w+_\w+\b|\b[\w-]+(?:[./:]{1,3}[\w-]+)+\b"  # parts held together
    r"|\b[A-Z][A-Za-z]+(?:[ -][A-Z][A-Za-z]+)+\b"  # capitalised words in a row
)
_END = ".,:;/-"


def session_in(path: Path) -> Json:
    """A session file's detail, with the final analysis in it."""
    raw = json.loads(path.read_text("utf-8"))
    return _whole(raw["detail"], raw.get("final") or {}) if "detail" in raw else raw


def demo_session(case: str) -> Json:
    """A session of the demo by its case."""
    found = {sample.case: sample for sample in sample_sessions.load().values()}[case]
    return _whole(found.detail, found.final)


def _whole(detail: Json, final: Json) -> Json:
    return {**detail, "final_analysis": detail.get("final_analysis") or final.get("final_analysis")}


def events(session: Json) -> Iterator[tuple[str, Json]]:
    """(kind, what was recorded) of all stages but follow-up chat, in order of time."""
    stages = [s for stage in session["stages"] for s in (stage, *_parallel(stage))]
    found = [
        (one["timestamp_us"], kind, one)
        for stage in stages
        if not stage.get("chat_id")
        for kind in ("llm_interactions", "mcp_communications")
        for one in stage.get(kind) or ()
    ]
    for _, kind, one in sorted(found, key=lambda each: each[0]):
        yield kind, one


def _parallel(stage: Json) -> list[Json]:
    return stage.get("parallel_executions") or []


def items(session: Json) -> Iterator[tuple[str, str]]:
    """(item, its text) of each tool call, figure and name."""
    for kind, one in events(session):
        details = one["details"]
        if kind == "mcp_communications" and details["communication_type"] == "tool_call":
            yield f"call:{one['id']}", f"{details['server_name']}.{details['tool_name']}"
    text = session["final_analysis"] or ""
    taken: list[tuple[int, int]] = []
    for kind, pattern in (("name", _NAME), ("figure", _FIGURE)):
        for match in pattern.finditer(text):
            start, end = match.start(), match.start() + len(match[0].rstrip(_END))
            if not any(start < other and begin < end for begin, other in taken):
                taken.append((start, end))
                yield f"{kind}:{start}-{end}", text[start:end]


def show(session: Json) -> Iterator[str]:
    """The session as a reader sees it: what was said, in order, each once; then its items."""
    said: set[tuple[str, str]] = set()
    yield f"session {session['session_id']}"
    yield f"alert {json.dumps(session['alert_data'], ensure_ascii=False)}"
    for kind, one in events(session):
        details = one["details"]
        if kind == "mcp_communications":
            told = [details.get("tool_name"), details.get("tool_arguments")]
            failed = "" if details["success"] else f" FAILED {details.get('error_message')}"
            result = json.dumps(details.get("tool_result"), ensure_ascii=False)
            if details["communication_type"] == "tool_call":
                yield f"\n[call:{one['id']}] {told[0]} {told[1]}{failed}\n-> {result}"
            continue
        for message in (details.get("conversation") or {}).get("messages") or ():
            key = (message["role"], message["content"] or "")
            if key not in said:
                said.add(key)
                yield f"\n<{key[0]}> {key[1]}"
    yield f"\nFINAL ANALYSIS\n{session['final_analysis']}\n\nITEMS"
    for item, text in items(session):
        yield f"{item}  {text}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--demo", metavar="CASE")
    parser.add_argument("--ids", action="store_true", help="only the items' ids, as JSON lines")
    asked = parser.parse_args()
    session = demo_session(asked.demo) if asked.demo else session_in(asked.file)
    if not asked.ids:
        sys.stdout.write("\n".join((*show(session), "")))
        return
    for item, _ in items(session):
        sys.stdout.write(json.dumps({"session": session["session_id"], "item": item}) + "\n")


if __name__ == "__main__":
    main()
