"""`score-consumer demo`: everything at work, shown as it happens, and checked at the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import asyncpg
from aiokafka import AIOKafkaConsumer
from rich.console import RenderableType
from rich.table import Table

from consumer import requesting
from consumer.demo import sample_sessions
from consumer.demo.sample_sessions import SampleSession
from consumer.demo.world import World, world
from consumer.edges.kafka import Producer
from consumer.events import DLQ_TYPE, ScoreRequested
from consumer.outgoing import OutboxRow
from consumer.plaintext import Text, plain
from consumer.terminal import OUT, bar, score_text

UNKNOWN_SESSION = "demo-no-such-session"
BROKEN_RECORD = b'{"session_id": "not a valid id", "priority": 12}'
ANSWER_LIMIT_S = 180.0
WATCH_S = 0.5
ANSWERS = ("score.completed", "score.failed")


@dataclass(slots=True)
class Seen:
    """What the topics held: answers by request, distinct event ids, dead letters."""

    answers: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    event_ids: set[str] = field(default_factory=set)
    types: Counter[str] = field(default_factory=Counter)
    dead_letters: int = 0

    def note(self, topic: str, ce_id: str, data: Mapping[str, Any]) -> bool:
        """Counts an event; False for one that was seen before under the same id."""
        if topic == DLQ_TYPE:
            self.dead_letters += 1
            return True
        if ce_id in self.event_ids:
            return False
        self.event_ids.add(ce_id)
        self.types[topic] += 1
        if topic in ANSWERS:
            self.answers.setdefault(data["request_id"], []).append({**data, "type": topic})
        return True

    def complete(self, requests: Sequence[ScoreRequested], dead_letters: int) -> bool:
        return self.dead_letters >= dead_letters and all(
            str(request.request_id) in self.answers for request in requests
        )


async def run(*, once: bool, limit_s: float = ANSWER_LIMIT_S) -> int:
    """Runs the demo; answers the exit code: 0 where every request got its one answer in time."""
    stop = asyncio.Event()
    for sign in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(sign, stop.set)
    sessions = sample_sessions.load()
    started = monotonic()
    OUT.rule("score consumer demo")
    async with world(sessions, _say) as surroundings:
        _say(f"ready after {monotonic() - started:.1f} s")
        show = asyncio.create_task(_show(surroundings, sessions, stop, once, limit_s))
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait([show, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not show.done():
            _say("stopping")
            show.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await show
            return 130
        code = show.result()
    _say(f"everything is stopped and removed; {monotonic() - started:.1f} s in all")
    return code


def _say(text: str) -> None:
    OUT.print(Text(text, style="dim"))


async def _show(
    surroundings: World,
    sessions: Mapping[str, SampleSession],
    stop: asyncio.Event,
    once: bool,
    limit_s: float,
) -> int:
    seen = Seen()
    async with _events(surroundings) as events:
        printing = asyncio.create_task(_print_events(events, seen))
        watching = asyncio.create_task(_keep_alive(surroundings))
        requests = await _publish(surroundings, [*sessions, UNKNOWN_SESSION])
        answered = await _wait_for_answers(seen, requests, limit_s)
        ok = await _summary(surroundings, sessions, requests, seen) and answered
        if not once:
            _look_further(surroundings)
            await stop.wait()
        for task in (printing, watching):
            task.cancel()
        await asyncio.gather(printing, watching, return_exceptions=True)
    return 0 if ok else 1


async def _wait_for_answers(seen: Seen, requests: Sequence[ScoreRequested], limit_s: float) -> bool:
    deadline = monotonic() + limit_s
    while monotonic() < deadline:
        if seen.complete(requests, dead_letters=1):
            return True
        await asyncio.sleep(0.05)
    return False


async def _publish(surroundings: World, session_ids: Sequence[str]) -> list[ScoreRequested]:
    """Asks for each session, and sends one record that nobody can accept."""
    producer = Producer(surroundings.kafka.bootstrap, idempotent=False, options={})
    requests = requesting.with_ids(
        ScoreRequested(session_id=session_id, triggered_by="demo") for session_id in session_ids
    )
    try:
        await requesting.publish(
            requests, producer=producer, topic="score.requested", source="/demo"
        )
        broken = OutboxRow(
            event_id=uuid.uuid4(),
            topic="score.requested",
            key=None,
            type="score.requested",
            payload=BROKEN_RECORD,
            headers=[],
        )
        await producer.send([broken], timeout_s=10)
    finally:
        await producer.close()
    for request in requests:
        OUT.print(Text.assemble(("→ score.requested   ", "cyan"), request.session_id))
    OUT.print(Text.assemble(("→ score.requested   ", "cyan"), BROKEN_RECORD.decode(), " (bad)"))
    return requests


@contextlib.asynccontextmanager
async def _events(surroundings: World) -> AsyncIterator[AIOKafkaConsumer]:
    """A reader of everything that the consumer sends, from the beginning."""
    consumer = AIOKafkaConsumer(
        *ANSWERS,
        "quality_risk",
        DLQ_TYPE,
        bootstrap_servers=surroundings.kafka.bootstrap,
        auto_offset_reset="earliest",
        group_id=None,
    )
    try:
        await consumer.start()
        yield consumer
    finally:
        await consumer.stop()


async def _print_events(consumer: AIOKafkaConsumer, seen: Seen) -> None:
    while True:
        for records in (await consumer.getmany(timeout_ms=200)).values():
            for record in records:
                headers = {name: value.decode() for name, value in record.headers}
                if record.topic == DLQ_TYPE:
                    data: Mapping[str, Any] = {}
                else:
                    data = json.loads(record.value)
                if seen.note(record.topic, headers.get("ce_id", ""), data):
                    OUT.print(_event_line(record.topic, data, headers))


def _event_line(topic: str, data: Mapping[str, Any], headers: Mapping[str, str]) -> RenderableType:
    head = Text(f"← {topic:<18}", style="magenta")
    if topic == "score.completed":
        total = data["total_score"]
        return Text.assemble(head, f"{data['session_id']:<42} ", bar(total), " ", score_text(total))
    if topic == "quality_risk":
        reasons = ", ".join(data["reasons"])
        weakest = ", ".join(data["weakest_criteria"])
        why = f"{data['total_score']} of {data['threshold']:g}: {reasons}; weakest: {weakest}"
        return Text.assemble(head, f"{data['session_id']:<42} ", (why, "red"))
    if topic == "score.failed":
        why = f"{data['state']}, {data['error_code']}: {data['message']}"
        return Text.assemble(head, f"{data['session_id']:<42} ", (why, "yellow"))
    why = f"{headers.get('dlq_error_code')}: {headers.get('dlq_error_message')}"
    return Text.assemble(head, " ", (why, "yellow"))


async def _keep_alive(surroundings: World) -> None:
    """Starts the consumer again when someone kills it: what was asked is still answered."""
    consumer = surroundings.consumer
    while True:
        await asyncio.sleep(WATCH_S)
        if consumer.pid is None:
            _say("the consumer is gone; starting it again")
            await asyncio.to_thread(consumer.start)
            _say(f"score-consumer run, process {consumer.pid}")


async def _summary(
    surroundings: World,
    sessions: Mapping[str, SampleSession],
    requests: Sequence[ScoreRequested],
    seen: Seen,
) -> bool:
    """Shows what Postgres holds, and whether the topics tell the same."""
    database = await asyncpg.connect(surroundings.postgres.dsn)
    try:
        rows = await database.fetch(
            "SELECT r.request_id, r.session_id, r.state, r.error_code, r.attempt, c.total_score,"
            " c.judge_model, c.method, c.missing_tools"
            " FROM score_requests r LEFT JOIN score_cards c USING (score_id)"
            " ORDER BY c.total_score DESC NULLS LAST, r.session_id"
        )
        left = await database.fetchval("SELECT count(*) FROM outbox")
    finally:
        await database.close()
    OUT.print(_requests_table(rows, sessions))
    OUT.print(_missing_tools_table(rows))
    problems = _differences(rows, requests, seen)
    if left:
        problems.append(f"{left} event(s) are still in the outbox")
    for problem in problems:
        OUT.print(Text(problem, style="red"))
    answers = sum(len(answers) for answers in seen.answers.values())
    OUT.print(
        f"{len(requests)} requests, {answers} answers ({seen.types['score.completed']} scored, "
        f"{seen.types['score.failed']} not), {seen.types['quality_risk']} quality risks, "
        f"{seen.dead_letters} record in the DLQ"
    )
    if not problems:
        OUT.print(Text("Postgres and the topics tell the same.", style="green"))
    return not problems


def _differences(
    rows: Sequence[asyncpg.Record], requests: Sequence[ScoreRequested], seen: Seen
) -> list[str]:
    """Where a request has not exactly one answer, or another one than the tables hold."""
    stored = {str(row["request_id"]): row for row in rows}
    problems = []
    for request in requests:
        request_id = str(request.request_id)
        answers, row = seen.answers.get(request_id, []), stored.get(request_id)
        if len(answers) != 1 or row is None:
            problems.append(f"{request.session_id}: {len(answers)} answers instead of one")
            continue
        told = (answers[0].get("total_score"), answers[0].get("error_code"))
        if told != (row["total_score"], row["error_code"]):
            problems.append(f"{request.session_id}: the topic says {told}, Postgres {dict(row)}")
    return problems


def _requests_table(rows: Sequence[asyncpg.Record], sessions: Mapping[str, SampleSession]) -> Table:
    judges = sorted({row["judge_model"] for row in rows if row["judge_model"]})
    table = Table(
        "session",
        "what it is",
        "state",
        "score",
        "scored by",
        title="Requests and scores",
        caption=f"judge: {', '.join(judges)}",
    )
    for row in rows:
        sample = sessions.get(row["session_id"])
        total = row["total_score"]
        table.add_row(
            row["session_id"],
            sample.case if sample else "unknown id",
            row["state"],
            row["error_code"] if total is None else score_text(total),
            "" if total is None else "judge" if row["judge_model"] else "rules only",
        )
    return table


def _missing_tools_table(rows: Sequence[asyncpg.Record]) -> Table:
    table = Table("session", "missing tool", "available?", title="Tools that the judge missed")
    for row in rows:
        for tool in json.loads(row["missing_tools"] or "[]"):
            table.add_row(row["session_id"], plain(tool["tool_name"]), tool["availability"])
    return table


def _look_further(surroundings: World) -> None:
    settings = "\n".join(f"  export {n}='{v}'" for n, v in surroundings.environment.items())
    OUT.print(
        "\n[bold]Look further[/bold], in another terminal, until you press Ctrl-C here:\n"
        f"{settings}\n"
        "  score-consumer show demo-good-oom-payment-api\n"
        "  score-consumer publish demo-weak-latency-after-deploy --force\n"
        f"  kcat -b {surroundings.kafka.bootstrap} -C -t score.completed\n"
        f"  psql '{surroundings.postgres.dsn}' -c 'TABLE score_requests'\n"
        f"  curl {surroundings.consumer.url}/metrics\n"
        f"  curl {surroundings.history_url}/api/v1/history/sessions\n"
        f"  less {surroundings.consumer.log}"
    )
