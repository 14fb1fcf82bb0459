"""The commands, as people and scripts use them."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from consumer.cli.base import app
from consumer.demo import sample_sessions
from consumer.resources import resource
from tests.support.forked import run_command
from tests.support.stage import Stage
from tests.support.stand_ins import hang

MIGRATIONS = [
    path.name.removesuffix(".up.sql").replace("_", " ", 1)
    for path in sorted((resource("sql") / "migrations").glob("*.up.sql"))
]
SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "sessions"
UNREACHABLE = "postgresql://someone:hidden-password@127.0.0.1:1/nothing"


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    code, out, err = asyncio.run(run_command(arguments, environment))
    return subprocess.CompletedProcess(arguments, code, out, err)


def commands(of: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command that there is, as typed."""
    if not hasattr(of, "commands"):
        yield path
    for name, found in getattr(of, "commands", {}).items():
        yield from commands(found, (*path, name))


@pytest.mark.parametrize("path", list(commands(typer.main.get_command(app))), ids=" ".join)
def test_every_command_has_help_with_an_example(path: tuple[str, ...]) -> None:
    done = command(*path, "--help")
    assert done.returncode == 0
    assert "Example" in done.stdout
    assert f"score-consumer {' '.join(path)}" in done.stdout or "DATABASE_URL" in done.stdout


def test_the_program_starts_from_nothing() -> None:
    """The other tests of commands fork one that has imported everything."""
    run = [sys.executable, "-m", "consumer.cli", "--help"]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert "publish" in done.stdout


def test_a_wrong_start_names_everything_that_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "scoring_config.yaml").write_text(
        "scoring: {llm_provider: '${NOT_SET}'}\nbad_prompt: 'only {{WRONG}}'\n"
    )
    (tmp_path / "llm_providers.yaml").write_text("{}")
    (tmp_path / "profiles" / "one.yaml").write_text(
        "{id: one, version: 1, match_labels: [x], method: heuristic, "
        "criteria: [{id: a, weight: 0, scorer: nonsense}]}"
    )
    done = command("run", "--roles", "cook", SCORING_CONFIG_DIR=str(tmp_path), WORKER_SLOTS="none")
    assert done.returncode == 1
    for part in (
        "WORKER_SLOTS",
        "--roles: 'cook'; allowed are intake, worker, relay, api",
        "NOT_SET is not set",
        "unknown placeholder {{WRONG}}",
        "lacks {{OUTPUT_SCHEMA}}",
        "one.yaml: criteria.0.weight",
        "one.yaml: criteria.0",
        "unknown scorer 'nonsense'; allowed: judge, citation_validity",
    ):
        assert part in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_settings_are_named_together() -> None:
    done = command("run", WORKER_SLOTS="none", HISTORY_URL="ftp://x", LOG_LEVEL="LOUD")
    assert done.returncode == 1
    for name in ("WORKER_SLOTS", "HISTORY_URL", "LOG_LEVEL"):
        assert name in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [("status",), ("migrate",), ("show", "s")])
def test_an_unreachable_database_is_told_without_its_password(arguments: tuple[str, ...]) -> None:
    done = command(*arguments, DATABASE_URL=UNREACHABLE)
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr
    assert "hidden-password" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_publish_refuses_what_intake_would_refuse() -> None:
    for bad in ("a/b", ".."):
        done = command("publish", bad, "fine")
        assert done.returncode == 1
        assert "session_id" in done.stderr
    assert command("publish").returncode == 1


def test_kafka_that_is_away_is_told_in_one_line() -> None:
    done = command("publish", "s-one", KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("Kafka at 127.0.0.1:1 ")


def test_unknown_roles_name_the_known() -> None:
    done = command("run", "--roles", "worker,cook")
    assert done.returncode == 1
    assert "intake, worker, relay, api" in done.stderr


async def test_publish_from_a_file_and_from_stdin(stage: Stage, tmp_path: Path) -> None:
    lines = 's-one\n\n{"session_id": "s-two", "priority": 9}\n'
    requests = tmp_path / "requests.txt"
    requests.write_text(lines)
    for result in (
        await stage.cli("publish", "--file", str(requests), "--json"),
        await stage.cli("publish", "--file", "-", "--json", stdin=lines),
    ):
        assert result.code == 0, result.err
        assert [r["session_id"] for r in result.json] == ["s-one", "s-two"]
    broken = await stage.cli("publish", "--file", "-", stdin='ok\n{"session_id": 1}\n{broken\n')
    assert broken.code == 1
    assert "line 2: session_id" in broken.err
    assert "line 3: Invalid JSON" in broken.err


async def test_migrate_up_status_down(stage: Stage) -> None:
    assert "nothing to do" in (await stage.cli("migrate")).out
    states = (await stage.cli("migrate", "status", "--json")).json
    assert [state["migration"] for state in states] == MIGRATIONS
    assert all(state["applied_at"] for state in states)
    refused = await stage.cli("migrate", "down")
    assert refused.code == 1
    assert "--to" in refused.err
    taken_back = (await stage.cli("migrate", "down", "--to", "0")).out.splitlines()
    assert taken_back == [f"taken back: {title}" for title in reversed(MIGRATIONS)]
    missing = await stage.cli("status")
    assert missing.code == 1
    assert "score-consumer migrate" in missing.err
    assert (await stage.cli("migrate", "--json")).json == {"applied": MIGRATIONS}


async def test_show_of_an_unknown_session_exits_with_1(stage: Stage) -> None:
    result = await stage.cli("show", "never-asked")
    assert result.code == 1
    assert "never requested" in result.err


async def test_show_and_status_for_people(stage: Stage) -> None:
    stage.stand_ins.add("s-good", "good")
    async with stage.consumer():
        await stage.answer(await stage.ask("s-good"))
    shown = (await stage.cli("show", "s-good")).out
    for part in ("88 good", "logical_flow", "Missing tools", "Alternative approaches", "1. "):
        assert part in shown
    assert "completed" in (await stage.cli("status")).out


async def test_a_cancelled_request_is_answered_and_those_that_waited_go_on(stage: Stage) -> None:
    stage.stand_ins.add("s-good", "good")
    stage.stand_ins.judge_faults.queued["s-good"] = [hang()]
    async with stage.consumer():
        first = await stage.ask("s-good")
        async with asyncio.timeout(20):
            while not stage.stand_ins.judge_calls["s-good"]:
                await asyncio.sleep(0.02)
        second = await stage.ask("s-good")
        async with asyncio.timeout(20):
            while len(await stage.rows("SELECT FROM score_requests")) < 2:
                await asyncio.sleep(0.05)
        done = await stage.cli("cancel", str(first), "--by", "bob")
        assert done.code == 0, done.err
        cancelled, scored = await stage.answer(first), await stage.answer(second)
    assert (cancelled.data["state"], cancelled.data["error_code"]) == ("cancelled", "cancelled")
    assert cancelled.data["message"] == "cancelled by bob"
    assert scored.data["reused"] is False
    again = await stage.cli("cancel", str(first))
    assert again.code == 1
    assert "finished already" in again.err
    assert len(await stage.rows("SELECT FROM session_scores")) == 1


async def test_prune_deletes_old_requests_and_keeps_scores(stage: Stage) -> None:
    stage.stand_ins.add("s-simple", "simple")
    async with stage.consumer():
        old = await stage.ask("s-simple")
        await stage.answer(old)
        recent = await stage.ask("s-simple")
        await stage.answer(recent)
    await stage.rows(
        "UPDATE score_requests SET finished_at = now() - interval '31 days' WHERE request_id = $1",
        old,
    )
    pruned = (await stage.cli("prune", "--older-than", "30", "--json")).json
    assert pruned == {"deleted": 1, "spend": 0, "inputs": 0}
    left = await stage.rows("SELECT request_id FROM score_requests")
    assert [row["request_id"] for row in left] == [recent]
    assert len(await stage.rows("SELECT FROM session_scores")) == 1


@pytest.fixture
def session_files(tmp_path: Path) -> list[Path]:
    """A detail as the History Service answers it, and the combined form."""
    sample = next(s for s in sample_sessions.load().values() if s.case == "simple")
    detail, combined = tmp_path / "detail.json", tmp_path / "combined.json"
    detail.write_text(json.dumps(sample.detail))
    combined.write_text(json.dumps({"detail": sample.detail, "final": sample.final}))
    return [detail, combined]


def test_score_at_the_desk_needs_no_server(session_files: list[Path]) -> None:
    files = [str(path) for path in session_files]
    done = command("score", *files, "--json", DATABASE_URL=UNREACHABLE)
    assert done.returncode == 0, done.stderr
    one, other = json.loads(done.stdout)
    assert one["total_score"] == other["total_score"] == 98
    assert set(one["score_breakdown"]) == {"response_time", "token_efficiency", "tool_count"}
    people = command("score", *files)
    assert "98 near-perfect" in people.stdout
    assert "█" in people.stdout


def test_score_says_what_is_wrong_with_a_file_and_scores_the_others(
    session_files: list[Path], tmp_path: Path
) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text('{"detail": {"session_id": "x"}}')
    done = command(
        "score", str(broken), str(tmp_path / "none.json"), str(session_files[0]), "--json"
    )
    assert done.returncode == 1
    wrong, absent, good = json.loads(done.stdout)
    assert "status: Field required" in wrong["error"]
    assert "can't be read" in absent["error"]
    assert good["total_score"] == 98


def test_score_by_a_profile_file_or_a_reason_why_not(
    session_files: list[Path], tmp_path: Path
) -> None:
    profile = tmp_path / "mine.yaml"
    profile.write_text(
        "{id: mine, version: 1, match_labels: [x], method: heuristic, "
        "criteria: [{id: calls, weight: 1, scorer: tool_count}]}"
    )
    file = str(session_files[0])
    done = command("score", file, "--profile", str(profile), "--json")
    assert json.loads(done.stdout)[0]["score_breakdown"].keys() == {"calls"}
    judged = command("score", file, "--profile", "alert-investigation")
    assert judged.returncode == 1
    assert "rules alone can't score it" in judged.stderr
    unknown = command("score", file, "--profile", "nothing")
    assert "alert-investigation, efficiency-simple" in unknown.stderr


def test_two_profiles_side_by_side(session_files: list[Path]) -> None:
    pair = ("--compare", "efficiency-simple", "hybrid-code")
    done = command("score", str(session_files[0]), *pair, "--json")
    one, other = json.loads(done.stdout)
    assert (one["profile"], other["profile"]) == ("efficiency-simple", "hybrid-code")
    assert "the judge was not asked" in other["not_applicable"]["solution"]
    people = command("score", *map(str, session_files), *pair).stdout
    assert f"{other['total_score'] - one['total_score']:+d}" in people
    assert "mean difference" in people


def test_profiles_are_listed_shown_and_checked(tmp_path: Path) -> None:
    listed = json.loads(command("profiles", "list", "--json").stdout)
    assert {p["id"]: p["method"] for p in listed} == {
        "alert-investigation": "llm",
        "efficiency-simple": "heuristic",
        "hybrid-code": "hybrid",
        "report-two-tier": "two_tier",
    }
    assert "report-two-tier" in command("profiles", "list").stdout
    shown = json.loads(command("profiles", "show", "efficiency-simple").stdout)
    assert [c["weight"] for c in shown["criteria"]] == [2, 1, 1]
    assert "hybrid-code v1: fine" in command("profiles", "check").stdout
    broken = tmp_path / "broken.yaml"
    broken.write_text(
        "{id: b, version: 1, match_labels: [x], method: heuristic, colour: red, "
        "criteria: [{id: a, weight: 1, scorer: policy, params: {banned: ['pattern:(']}}]}"
    )
    done = command("profiles", "check", str(broken))
    assert done.returncode == 1
    assert "broken.yaml: colour" in done.stderr
    assert "allowed: id, version" in done.stderr
    assert "broken.yaml: criteria.0" in done.stderr
    assert command("profiles", "show", "nothing").returncode == 1


async def test_a_changed_profile_under_a_stored_version_is_refused(
    stage: Stage, tmp_path: Path
) -> None:
    profile = tmp_path / "mine.yaml"
    text = (
        "{id: mine, version: 1, match_labels: [x], method: heuristic, "
        "criteria: [{id: calls, weight: 1, scorer: tool_count}]}"
    )
    profile.write_text(text)
    for _ in range(2):
        applied = await stage.cli("profiles", "apply", str(profile))
        assert "mine v1 is stored" in applied.out, applied.err
    profile.write_text(text.replace("weight: 1", "weight: 2"))
    refused = await stage.cli("profiles", "apply", str(profile))
    assert refused.code == 1
    assert "raise the version" in refused.err


def test_score_of_real_sessions() -> None:
    if not SHARED.exists():
        pytest.skip("the shared sample sessions are not here")
    sessions = sorted(SHARED.glob("*.json"))
    done = command("score", *map(str, sessions), "--json")
    assert done.returncode == 0, done.stderr
    scores = json.loads(done.stdout)
    assert len(scores) == len(sessions)
    assert all(0 <= score["total_score"] <= 100 for score in scores)
    assert len({score["total_score"] for score in scores}) > 3, "they differ"
