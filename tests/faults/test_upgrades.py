"""A new version takes over while requests flow."""

import asyncio
import io
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from consumer.edges.postgres import migrations
from tests.support import promises
from tests.support.asking import ask_slowly, judged
from tests.support.replica import Replica
from tests.support.stage import Stage

ROOT = Path(__file__).parents[2]
REPLICAS = 3
SLOTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Former:
    """The code as it was before the newest migration, and the schema it knew."""

    code: Path
    schema: int

    @property
    def settings(self) -> dict[str, str]:
        """What makes a process run that code in place of this one."""
        return {"pythonpath": str(self.code), "pythonsafepath": "1"}


@pytest.fixture
def former(tmp_path: Path) -> Former:
    newest = migrations.shipped()[-1]
    file = f"sql/migrations/{newest.file}"
    # By a merge, too.
    added = git("log", "-m", "--first-parent", "--diff-filter=A", "--format=%H", "--", file)
    before = git("rev-list", "--max-count=20", f"{added.split()[0]}^") if added else ""
    for commit in before.split():
        code = tmp_path / commit
        unpack(commit, code)
        if starts(code):
            return Former(code=code, schema=newest.version - 1)
    pytest.skip(f"git does not know the code before {newest.file}")


def git(*arguments: str) -> str:
    """What git answers; nothing where it can't."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    return done.stdout.decode()


def unpack(commit: str, folder: Path) -> None:
    command = ["git", "archive", commit]
    archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")


def starts(code: Path) -> bool:
    """Whether this is a whole program: not every commit on the way to a version was one."""
    command = [sys.executable, "-c", "import consumer.app, consumer.cli"]
    return subprocess.run(command, cwd=code, capture_output=True, check=False).returncode == 0


async def test_a_rolling_update_loses_nothing(stage: Stage) -> None:
    """Replicas are replaced under load as a Deployment does it: first a new one, then SIGTERM."""
    stage.stand_ins.judge_delay_s = 0.3
    replicas = [await started(stage) for _ in range(REPLICAS)]
    asking = asyncio.create_task(ask_slowly(stage, 150, rate=15))
    await judged(stage, 10)
    for leaving in list(replicas):
        replicas.append(await started(stage))
        assert await leaving.terminate() == 0
    await asking
    seen = await promises.kept(stage)
    for replica in replicas:
        await asyncio.to_thread(replica.stop)
    assert len(seen.scores) == 150
    assert stage.stand_ins.judge_calls.total() - 150 < REPLICAS, "beyond need"


async def test_the_former_version_works_beside_this_one(stage: Stage, former: Former) -> None:
    """The former version's own code, before the migration, after it, and started after it."""
    stage.stand_ins.judge_delay_s = 0.5
    await migrations.down(stage.database_url, to=former.schema)
    old = await started(stage, **former.settings)
    asking = asyncio.create_task(ask_slowly(stage, 60, rate=40))
    await judged(stage, 10)
    assert await migrations.up(stage.database_url), "the schema is a newer one"
    await judged(stage, 30)
    new = await started(stage)
    late = await started(stage, **former.settings)
    assert await old.terminate() == 0
    await asking
    # Only now: whoever starts slowly shall have work left for it.
    asking = asyncio.create_task(ask_slowly(stage, 100, rate=40))
    await judged(stage, 120)
    assert await late.terminate() == 0
    await asking
    seen = await promises.kept(stage)
    await asyncio.to_thread(new.stop)
    assert len(seen.scores) == 160
    for replica in (old, late, new):
        assert "score_id" in replica.log.read_text(), "each has scored"


async def started(stage: Stage, **changes: str) -> Replica:
    replica = stage.process(roles="", worker_slots=SLOTS, grace_seconds=10, **changes)
    await asyncio.to_thread(replica.start)
    return replica
