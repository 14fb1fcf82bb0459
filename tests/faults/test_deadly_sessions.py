"""Sessions that end every worker that fetches them, among others that do no harm."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from signal import SIGKILL

import pytest
from starlette.responses import PlainTextResponse, Response

from consumer.demo.servers import ServerError
from consumer.error_codes import ErrorCode
from tests.support import promises
from tests.support.asking import add_sessions, ask_each
from tests.support.judging import figures
from tests.support.promises import Seen
from tests.support.replica import Replica
from tests.support.stage import Stage

MOST = 3
SLOTS = 4  # and half as many requests again
TIMEOUT_S = 120
GIVEN_UP = ("scoring_requests_given_up_total", ())
COMPANY = """
SELECT worker.lease_owner, count(*) AS requests
FROM score_requests worker JOIN score_requests deadly USING (lease_owner)
WHERE deadly.session_id = $1 GROUP BY worker.lease_owner
"""


@dataclass(slots=True, kw_only=True)
class Deadly:
    """A session whose fetching ends the process that asks for it."""

    stage: Stage
    session_id: str
    replicas: Sequence[Replica] = ()
    # How many requests each of the dead ones had under way.
    companies: list[int] = field(default_factory=list)

    async def __call__(self) -> Response:
        """What the History Service does in place of an answer."""
        for worker in await self.stage.rows(COMPANY, self.session_id):
            pid = int(worker["lease_owner"].rpartition(":")[2])
            if pid in {replica.pid for replica in self.replicas}:  # no other one has ended it
                os.kill(pid, SIGKILL)
                self.companies.append(worker["requests"])
        if len(self.companies) == MOST - 1:
            self.stage.stand_ins.judge_delay_s = 0.1
        return PlainTextResponse("nobody is there to read it", status_code=500)


@pytest.mark.ci_fault
async def test_a_deadly_session_is_given_up_and_its_neighbours_are_scored(stage: Stage) -> None:
    """They are claimed beside it, and lost with it, twice; the third time it is alone."""
    # All that is claimed beside it is still under way when it strikes.
    stage.stand_ins.judge_delay_s = 60
    (deadly,) = await stored(stage, "s-deadly", innocents=5)
    (replica,) = await worked_off(stage, deadly)
    told = await figures(replica)
    await asyncio.to_thread(replica.stop)
    seen = await promises.kept(stage, crashes=MOST - 1)
    check(seen, deadly)
    assert deadly.companies == [6, 6, 1]
    assert told[GIVEN_UP] == 1
    assert "3 workers in a row" in replica.log.read_text()


async def test_deadly_sessions_among_replicas(stage: Stage) -> None:
    """Each is given up after as many workers, whichever they were, the last one lost alone."""
    stage.stand_ins.judge_delay_s = 0.5
    deadly = await stored(stage, "s-deadly", "s-deadlier", innocents=10)
    for replica in await worked_off(stage, *deadly, replicas=2):
        await asyncio.to_thread(replica.stop)
    seen = await promises.kept(stage, crashes=2 * (MOST - 1))
    check(seen, *deadly)
    assert [one.companies[-1] for one in deadly] == [1, 1]


async def stored(stage: Stage, *deadly: str, innocents: int) -> list[Deadly]:
    """Requests for all these wait in the database, and no worker is there."""
    sessions = [*(stage.stand_ins.add(name) for name in deadly), *add_sessions(stage, innocents)]
    async with stage.consumer(roles="intake"):
        asked = await ask_each(stage, sessions)
        async with asyncio.timeout(TIMEOUT_S):
            while len(await stage.rows("SELECT FROM score_requests")) < len(asked):
                await asyncio.sleep(0.05)
    made = [Deadly(stage=stage, session_id=name) for name in deadly]
    stage.stand_ins.history_faults.forever |= {one.session_id: one for one in made}
    return made


async def worked_off(stage: Stage, *deadly: Deadly, replicas: int = 1) -> list[Replica]:
    """Workers that are started again whenever they die, until every request is answered."""
    settings = {"worker_slots": SLOTS, "max_lost_leases": MOST}
    made = [stage.process(roles="worker,relay,api", **settings) for _ in range(replicas)]
    for one in deadly:
        one.replicas = made
    async with asyncio.timeout(TIMEOUT_S):
        while await stage.rows("SELECT FROM score_requests WHERE finished_at IS NULL"):
            for replica in made:
                if not replica.pid:
                    with contextlib.suppress(ServerError):  # it may die before it is ready
                        await asyncio.to_thread(replica.start)
            await asyncio.sleep(0.05)
    return made


def check(seen: Seen, *deadly: Deadly) -> None:
    """The deadly ones failed, each after its share of workers; the others were scored."""
    rows = {row["session_id"]: row for row in seen.requests.values()}
    failed = {one.session_id: rows.pop(one.session_id) for one in deadly}
    assert {row["state"] for row in rows.values()} == {"completed"}
    assert max(row["lost_leases"] for row in rows.values()) < MOST
    assert len(seen.scores) == len(rows)
    for one in deadly:
        row = failed[one.session_id]
        assert (row["state"], row["error_code"]) == ("failed", ErrorCode.INTERNAL_ERROR)
        assert row["lost_leases"] == MOST
        assert "the last one on it alone" in row["error_message"]
        assert seen.judge_calls[one.session_id] == 0
        assert one.stage.stand_ins.history_calls[one.session_id] <= MOST
