"""What commands read may have no end, and what they tell may find no place."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.forked import run_command
from tests.support.stage import Stage

ENDLESS = Path("/dev/zero")
FULL = Path("/dev/full")
COMMANDS = [("profiles", "list"), ("profiles", "show", "efficiency-simple"), ("--help",)]

pytestmark = pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")


def shell(line: str, *command: str) -> subprocess.CompletedProcess[str]:
    """The command in a shell line, where it is "$@"."""
    return subprocess.run(
        ["bash", "-c", line, "-", sys.executable, "-m", "consumer.cli", *command],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("closed", [">&-", ">&- 2>&- <&-"])
def test_a_closed_output_takes_all(command: tuple[str, ...], closed: str) -> None:
    done = shell(f'"$@" {closed}', *command)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_full_output_is_told_in_one_line(command: tuple[str, ...]) -> None:
    done = shell('"$@" > /dev/full', *command)
    assert done.returncode == 1
    assert done.stderr == "standard output: No space left on device\n"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_reader_that_has_gone_ends_a_command_as_a_signal_would(command: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        run = [sys.executable, "-m", "consumer.cli", *command]
        done = subprocess.run(run, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


async def test_what_was_done_is_told_where_its_account_finds_no_place(stage: Stage) -> None:
    environment = stage.environment()
    code, _, err = await run_command(["publish", "s-1", "s-2"], environment, stdout=FULL)
    assert code == 1
    assert err == "standard output: No space left on device; 2 request(s) were published\n"
    code, _, err = await run_command(["dlq", "redrive"], environment, stdout=FULL)
    assert code == 1
    assert err == "standard output: No space left on device; 0 letter(s) were sent back\n"


def test_a_file_that_is_not_utf_8_is_told_by_its_lines(tmp_path: Path) -> None:
    file = tmp_path / "sessions"
    file.write_bytes(b"s-1\ns-\xff\n")
    done = shell('"$@"', "publish", "--file", str(file))
    assert done.returncode == 1
    assert "line 2: not UTF-8" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("command", "told", "most"),
    [
        (("publish", "--file", str(ENDLESS)), "--file: /dev/zero: ", 64),
        (("publish", "--file", "-"), "--file: -: ", 64),
        (("score", str(ENDLESS)), "can't be read: ", 64),
        (("profiles", "check", str(ENDLESS)), "/dev/zero: ", 4),
        (("status",), "DATABASE_URL_FILE: /dev/zero: ", 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_has_no_end_is_not_read_to_it(command: tuple[str, ...], told: str, most: int) -> None:
    # Where more memory is asked for than that, the command fails.
    limited = f"export {'DATABASE_URL_FILE=/dev/zero' if command == ('status',) else 'X='}"
    done = shell(f'ulimit -v 2000000; {limited}; "$@" < /dev/zero', *command)
    assert done.returncode == 1
    allowed = f"{told}has more than {most * 1024 * 1024} bytes, which is all that is allowed"
    assert allowed in done.stdout + done.stderr
