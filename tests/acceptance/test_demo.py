"""`score-consumer demo` as a newcomer runs it."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil

from consumer.demo import judge_stand_in
from consumer.demo.world import served

DEMO = [sys.executable, "-m", "consumer.cli", "demo"]
PROCESS = re.compile(r"score-consumer run, process (\d+)")


@contextmanager
def demo(temp: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The demo as a process, with a folder for temporary files of its own."""
    clean = {k: v for k, v in os.environ.items() if not k.endswith("LLM_PROVIDER")}
    with subprocess.Popen(
        [*DEMO, *arguments],
        env={**clean, "TMPDIR": str(temp)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def temp_folder() -> Iterator[Path]:
    """Open to PostgreSQL's own user, unlike pytest's folders."""
    with tempfile.TemporaryDirectory(prefix="score-demo-test-") as folder:
        yield Path(folder)


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """What it printed, up to the line that holds the text."""
    assert process.stdout
    seen = ""
    for line in process.stdout:
        seen += line
        if text in line:
            return seen
    raise AssertionError(f"{text!r} was never printed:\n{seen}")


def check_nothing_is_left(temp: Path, children: list[psutil.Process]) -> None:
    deadline = time.monotonic() + 10
    while any(child.is_running() and child.status() != "zombie" for child in children):
        assert time.monotonic() < deadline, children
        time.sleep(0.05)
    assert list(temp.iterdir()) == []


def test_once_answers_everything_and_leaves_nothing() -> None:
    with temp_folder() as temp, demo(temp, "--once") as process:
        read_until(process, "score.requested")
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) >= 3
        rest, _ = process.communicate(timeout=90)
        assert process.returncode == 0, rest
        assert "Postgres and the topics tell the same." in rest
        assert "10 requests, 10 answers (8 scored, 2 not)" in rest
        assert "prepared verdicts, not a model" in rest
        check_nothing_is_left(temp, children)


def test_killing_the_consumer_in_the_middle_changes_no_answer() -> None:
    with temp_folder() as temp, demo(temp, "--once") as process:
        started = read_until(process, "score-consumer run, process")
        found = PROCESS.search(started)
        assert found
        read_until(process, "→ score.requested")
        time.sleep(0.5)
        os.kill(int(found[1]), signal.SIGKILL)
        rest, _ = process.communicate(timeout=90)
        assert process.returncode == 0, rest
        assert "starting it again" in rest
        assert "10 requests, 10 answers" in rest
        assert list(temp.iterdir()) == []


async def test_a_provider_of_the_users_own_is_used() -> None:
    async with served(judge_stand_in.app({})) as judge:
        with temp_folder() as temp:
            own = {
                "SCORING_LLM_PROVIDER": "openai-compatible",
                "LLM_BASE_URL": f"{judge}/v1",
                "LLM_API_KEY": "sk-own",
                "LLM_MODEL": "my-model",
            }
            process = await asyncio.create_subprocess_exec(
                *DEMO,
                "--once",
                env={**os.environ, **own, "TMPDIR": str(temp)},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            out, _ = await process.communicate()
        async with httpx.AsyncClient(base_url=judge) as http:
            calls = (await http.get("/calls")).json()["count"]
    assert process.returncode == 0, out.decode()
    assert calls == 7, "each session that needs a judge was sent to the user's own"
    assert "judge: openai-compatible" in out.decode()


def test_ctrl_c_leaves_neither_process_nor_folder() -> None:
    with temp_folder() as temp, demo(temp) as process:
        read_until(process, "Look further")
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        check_nothing_is_left(temp, children)
