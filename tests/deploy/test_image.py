"""What the Dockerfile makes, made without an engine, and at work: `make image-test`."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from signal import SIGTERM

import httpx
import pytest

from consumer import __version__
from consumer.demo.servers import free_port
from tests.deploy import image
from tests.support.stage import Stage

pytestmark = [pytest.mark.image, pytest.mark.timeout(900)]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[image.Stage]:
    if reason := image.reason_not_to():
        pytest.skip(reason)
    try:
        yield image.build(tmp_path_factory.mktemp("image"))
    except subprocess.CalledProcessError as error:
        pytest.fail(f"{error.stdout}{error.stderr}")


def outcome(built: image.Stage, *command: str) -> tuple[int, str]:
    """Exit code and words of a program of the image."""
    said = built.folder / "said"
    said.write_bytes(b"")
    code = built.start({}, command).wait(timeout=60)
    return code, said.read_text()


def test_it_holds_the_consumer_and_nothing_that_builds(built: image.Stage) -> None:
    assert outcome(built, "score-consumer", "--version") == (0, f"{__version__}\n")
    for package in ("pip", "setuptools", "hatchling"):
        code, said = outcome(built, "python", "-c", f"import {package}")
        assert (code, f"No module named '{package}'" in said) == (1, True), said
    code, said = outcome(built, "python", "-c", "import consumer.edges.otel")
    assert code == 0, said


def test_only_tmp_can_be_written(built: image.Stage) -> None:
    for place in ("/app/config/x", "/app/venv/x", "/etc/x", "/x"):
        code, said = outcome(built, "touch", place)
        assert code == 1
        assert "Read-only file system" in said
    assert outcome(built, "touch", "/tmp/x")[0] == 0  # noqa: S108  the image's own


async def test_it_scores_as_nobody_in_particular(built: image.Stage, stage: Stage) -> None:
    stage.stand_ins.add("s-good", "good")
    port = free_port()
    environment = stage.environment(http_host="127.0.0.1", http_port=port)
    migrated = built.run(environment, "migrate")
    assert await asyncio.to_thread(migrated.wait, 60) == 0
    process = built.run(environment)
    try:
        await ready(process, f"http://127.0.0.1:{port}/readyz")
        event = await stage.answer(await stage.ask("s-good"))
        assert event.data["total_score"] == 88
        facts = facts_of(process)
        assert facts["Uid"].split() == ["10001"] * 4
        assert facts["Gid"].split() == ["10001"] * 4
        assert int(facts["CapEff"], 16) == int(facts["CapBnd"], 16) == 0
        assert facts["NoNewPrivs"] == "1"
        healthy = built.start({"HTTP_PORT": str(port)}, built.health)
        assert await asyncio.to_thread(healthy.wait, 30) == 0
        process.send_signal(SIGTERM)
        assert await asyncio.to_thread(process.wait, 40) == 0
    finally:
        process.kill()
    sick = built.start({"HTTP_PORT": str(port)}, built.health)
    assert await asyncio.to_thread(sick.wait, 30) == 1


def facts_of(process: subprocess.Popen[bytes]) -> dict[str, str]:
    """What Linux knows of a process."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)


async def ready(process: subprocess.Popen[bytes], url: str) -> None:
    async with asyncio.timeout(60), httpx.AsyncClient() as client:
        while process.poll() is None:
            try:
                if (await client.get(url)).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            await asyncio.sleep(0.1)
    pytest.fail(f"it ended with {process.returncode}")
