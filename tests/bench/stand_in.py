"""The History Service and the judge of the benchmarks: one process that costs next to nothing.

    GET  /api/v1/history/sessions/b-<n>   a session, at once
    POST /v1/chat/completions             its verdict, after a while
    POST /graded/v1/chat/completions      a grade in the shape that is asked for; see `graded`
    POST /control                         a Plan as JSON; counts begin anew
    GET  /stats                           what was asked since
    GET  /asked                           the last request for a verdict

Latencies and faults are dealt from shuffled decks, so that their mean and their share are what the
plan says in every run, and only their order is chance. Speaks as much HTTP/1.1 as its clients need.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from random import Random
from statistics import NormalDist
from typing import Any

from tests.bench import graded, sessions

DECK = 256
FAULTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to answer. `cv` is the standard deviation over the mean; 0: always the mean.

    Shares of the judge's calls that go wrong; they take as long as the good ones. `slow` is one
    session that takes `slow_s`.
    """

    mean_s: float = 1.0
    cv: float = 0.5
    prompt_kb: int = 100
    rate_limited: float = 0.0
    broken: float = 0.0
    truncated: float = 0.0
    slow: int = -1
    slow_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class Stats:
    """What was asked since the last plan; `busy_s` is the sum of the latencies that were dealt.

    `taken_s` is what sessions and verdicts really took, from a whole request to its answer.
    `graded_s` says when each grade was due, by this process's clock.
    """

    history: int = 0
    calls: int = 0
    good: int = 0
    busy_s: float = 0.0
    taken_s: float = 0.0
    most_at_once: int = 0
    at_once: int = 0
    prompt_bytes: int = 0
    graded_s: list[float] = field(default_factory=list)


def latencies(plan: Plan, chance: Random) -> Iterator[float]:
    """Seconds, lognormal: the mean of each deck is the plan's."""
    variance = math.log(1 + plan.cv**2)
    normal = NormalDist(-variance / 2, math.sqrt(variance) or 1e-9)
    deck = [math.exp(normal.inv_cdf((n + 0.5) / DECK)) for n in range(DECK)]
    scale = plan.mean_s / (sum(deck) / DECK)
    while True:
        chance.shuffle(deck)
        yield from (scale * drawn for drawn in deck)


def outcomes(plan: Plan, chance: Random) -> Iterator[str]:
    """What becomes of each call."""
    kinds = ("rate_limited", "broken", "truncated")
    deck = [kind for kind in kinds for _ in range(round(getattr(plan, kind) * FAULTS))]
    deck += ["good"] * (FAULTS - len(deck))
    while True:
        chance.shuffle(deck)
        yield from deck


@dataclass(slots=True)
class Services:
    """Both services, as the last plan wants them."""

    plan: Plan = field(default_factory=Plan)
    stats: Stats = field(default_factory=Stats)
    chance: Random = field(default_factory=lambda: Random(42))
    latency: Iterator[float] = field(init=False)
    outcome: Iterator[str] = field(init=False)
    asked: bytes = b""

    def __post_init__(self) -> None:
        self.follow(self.plan)

    def follow(self, plan: Plan) -> None:
        self.plan, self.stats, self.chance = plan, Stats(), Random(42)
        self.latency, self.outcome = latencies(plan, self.chance), outcomes(plan, self.chance)

    def judge(self, prompt: bytes) -> tuple[float, bytes]:
        """(seconds until it is sent, the answer)."""
        self.asked = prompt
        number = sessions.number_in(prompt)
        delay_s, outcome = self._dealt(number, prompt)
        return delay_s, _answer(outcome, number)

    def grade(self, prompt: bytes, now_s: float) -> tuple[float, bytes]:
        """The same for one who asks in another shape. Nothing is cut off here."""
        number = sessions.number_in(prompt)
        delay_s, outcome = self._dealt(number, prompt)
        if outcome != "good":
            return delay_s, _answer(outcome, number)
        self.stats.graded_s.append(now_s + delay_s)
        message = graded.message(prompt)
        finish = "tool_calls" if "tool_calls" in message else "stop"
        return delay_s, _http(200, completion(message, finish))

    def _dealt(self, number: int, prompt: bytes) -> tuple[float, str]:
        """How long this call takes, and what becomes of it."""
        delay_s = self.plan.slow_s if number == self.plan.slow else next(self.latency)
        outcome = next(self.outcome)
        self.stats.calls += 1
        self.stats.busy_s += delay_s
        self.stats.prompt_bytes += len(prompt)
        if outcome == "good":
            self.stats.good += 1
        return delay_s, outcome


def _answer(outcome: str, number: int) -> bytes:
    if outcome == "rate_limited":
        return _http(429, b'{"error": {"message": "slow down"}}', "retry-after: 1\r\n")
    if outcome == "broken":
        return _http(500, b'{"error": {"message": "sorry"}}')
    text = sessions.verdict(number)
    cut = outcome == "truncated"
    content = text[: len(text) // 2] if cut else text
    message = {"role": "assistant", "content": content, "refusal": None}
    return _http(200, completion(message, "length" if cut else "stop"))


def completion(message: dict[str, Any], finish: str) -> bytes:
    """A chat completion with this message."""
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
    usage = {"prompt_tokens": 25_000, "completion_tokens": 1_700, "total_tokens": 26_700}
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_772_000_000,
        "model": "bench",
        "choices": [choice],
        "usage": usage,
    }
    return json.dumps(body).encode()


def _http(status: int, body: bytes, headers: str = "") -> bytes:
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{headers}"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


class Connection(asyncio.Protocol):
    """One client, whose requests come one after the other."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._wanted = 0  # bytes of the whole request, once its head is there

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._wanted:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                return
            self._wanted = end + 4 + _length(bytes(self._received[:end]))
        if len(self._received) >= self._wanted:
            request = bytes(self._received)
            self._received, self._wanted = bytearray(), 0
            self._answer(request)

    def _answer(self, request: bytes) -> None:
        services = self._services
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        head, _, body = request.partition(b"\r\n\r\n")
        path = head.split(b" ", 2)[1]
        if path.startswith(b"/api/v1/history/sessions/b-"):
            services.stats.history += 1
            number = int(path.rpartition(b"-")[2])
            self._send(_http(200, sessions.session(number, prompt_kb=services.plan.prompt_kb)))
            services.stats.taken_s += loop.time() - began_s
        elif path.endswith(b"/chat/completions"):
            own = not path.startswith(b"/graded/")
            delay_s, answer = services.judge(body) if own else services.grade(body, loop.time())
            services.stats.at_once += 1
            services.stats.most_at_once = max(services.stats.most_at_once, services.stats.at_once)
            loop.call_later(delay_s, self._judged, answer, began_s)
        elif path == b"/control":
            services.follow(Plan(**json.loads(body)))
            self._send(_http(200, b"{}"))
        elif path == b"/stats":
            self._send(_http(200, json.dumps(asdict(services.stats)).encode()))
        elif path == b"/asked":
            self._send(_http(200, services.asked))
        else:
            self._send(_http(404, b"{}"))

    def _judged(self, answer: bytes, began_s: float) -> None:
        self._services.stats.at_once -= 1
        self._send(answer)
        self._services.stats.taken_s += asyncio.get_running_loop().time() - began_s

    def _send(self, answer: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(answer)


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


async def serve(port: int) -> None:
    """Answers until the process is ended."""
    services = Services()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(services), "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


def main(arguments: list[str] | None = None) -> Any:
    """`python -m tests.bench.stand_in PORT`."""
    (port,) = arguments or sys.argv[1:]
    asyncio.run(serve(int(port)))


if __name__ == "__main__":
    main()
