"""`requests` and `retry`: what became of many requests, and asking anew for those that failed."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from tests.acceptance.test_commands import UNREACHABLE, command
from tests.support.stage import Stage

MINUTE = timedelta(minutes=1)
WORDS = "the agent said: my password is swordfish"


async def stored(
    stage: Stage, session: str, state: str, code: str | None = None, *, ago: timedelta = MINUTE
) -> str:
    """A request that came, and where it is finished also ended, so long ago."""
    request_id = uuid4()
    await stage.rows(
        "INSERT INTO score_requests (request_id, session_id, force_rescore, triggered_by, priority,"
        " state, error_code, error_message, requested_at, received_at, finished_at)"
        " VALUES ($1, $2, false, 'tests', 5, $3, $4, $5, now(), now() - $6::interval,"
        " CASE WHEN $3 <> 'pending' THEN now() - $6::interval END)",
        *(request_id, session, state, code, code and WORDS, ago),
    )
    return str(request_id)


async def listed(stage: Stage, *arguments: str) -> list[str]:
    result = await stage.cli("requests", "--json", *arguments)
    assert result.code == 0, result.err
    assert WORDS not in result.out
    return [row["session_id"] for row in result.json]


async def retried(stage: Stage, *arguments: str, code: int = 0) -> Any:
    result = await stage.cli("retry", "--json", *arguments)
    assert result.code == code, result.err
    return result.json


async def test_requests_are_listed_by_state_code_time_and_session(stage: Stage) -> None:
    await stored(stage, "s-old", "failed", "history_unavailable", ago=90 * MINUTE)
    await stored(stage, "s-older", "failed", "internal_error", ago=timedelta(days=3))
    await stored(stage, "s-new", "failed", "history_unavailable", ago=2 * MINUTE)
    await stored(stage, "s-budget", "failed", "budget_exhausted")
    await stored(stage, "s-no-profile", "skipped", "no_matching_profile", ago=3 * MINUTE)
    await stored(stage, "s-waits", "pending", ago=timedelta(days=9))

    everything = ["s-budget", "s-new", "s-no-profile", "s-old", "s-waits"]
    assert await listed(stage) == everything, "of what is finished, a day; the newest first"
    assert await listed(stage, "--state", "failed", "--since", "1h") == ["s-budget", "s-new"]
    assert await listed(stage, "--since", "7d", "--until", "1h") == ["s-old", "s-older"]
    codes = ("--code", "budget_exhausted", "--code", "internal_error")
    assert await listed(stage, *codes, "--since", "7d") == ["s-budget", "s-older"]
    assert await listed(stage, "--session", "s-older") == ["s-older"]
    assert await listed(stage, "--state", "pending", "--state", "skipped") == [
        "s-no-profile",
        "s-waits",
    ]
    some = await stage.cli("requests", "--json", "--limit", "2")
    assert len(some.json) == 2
    assert "3 more fit" in some.err


async def test_the_list_for_people_fits_a_terminal_and_counts(stage: Stage) -> None:
    for n in range(3):
        await stored(stage, f"s-{n}", "failed", "session_not_completed")
    await stored(stage, "x" * 128, "failed", "judge_invalid_output", ago=2 * MINUTE)
    shown = await stage.cli("requests", "--state", "failed", "--limit", "1")
    assert shown.code == 0, shown.err
    lines = [line.split() for line in shown.out.splitlines()]
    assert ["failed", "session_not_completed", "3"] in lines
    assert ["failed", "judge_invalid_output", "1"] in lines
    assert "3 more fit" in shown.out
    long = await stage.cli("requests")
    assert max(map(len, long.out.splitlines())) <= 80
    assert "".join(long.out.split()).count("x") >= 128, "nothing of a long id is left out"
    assert WORDS not in long.out


def test_an_unknown_state_or_code_names_the_known() -> None:
    for name in ("requests", "retry"):
        for wrong, known in (("--state", "cancelled"), ("--code", "budget_exhausted")):
            done = command(name, wrong, "nonsense", DATABASE_URL=UNREACHABLE)
            assert done.returncode != 0
            assert wrong in done.stderr
            assert known in done.stderr
    late = command("requests", "--since", "soon", DATABASE_URL=UNREACHABLE)
    assert "--since: 'soon' is no time" in late.stderr


async def test_what_failed_is_asked_for_anew_and_nothing_twice(stage: Stage) -> None:
    stage.stand_ins.add("s-one", "simple")
    stage.stand_ins.add("s-two", "simple")
    for session in ("s-one", "s-two", "s-one"):
        await stored(stage, session, "failed", "history_unavailable")
    await stored(stage, "s-other", "failed", "internal_error")
    chosen = ("--code", "history_unavailable", "--since", "1h")
    async with stage.consumer():
        plan = await retried(stage, *chosen, "--dry-run")
        assert sorted(row["session_id"] for row in plan["asked"]) == ["s-one", "s-two"]
        assert len(await stage.rows("SELECT FROM score_requests")) == 4, "a dry run asks nothing"

        both = await asyncio.gather(*(retried(stage, *chosen) for _ in range(2)))
        answers = {UUID(row["asked_anew_as"]) for done in both for row in done["asked"]}
        assert len(answers) == 2, "one request a session, whoever asks"
        for request_id in answers:
            assert (await stage.answer(request_id)).topic == stage.topics.completed
        assert (await retried(stage, *chosen))["asked"] == []
        assert "asked anew already" in (await stage.cli("retry", *chosen)).out
        assert "failed, asked anew" in (await stage.cli("requests", *chosen)).out
    assert "none fits" in (await stage.cli("requests", "--session", "s-none")).out
    new = await stage.rows("SELECT triggered_by FROM score_requests WHERE state = 'completed'")
    assert [row["triggered_by"] for row in new] == ["cli", "cli"]
    seen = await stage.cli("requests", "--json", *chosen)
    assert {UUID(row["asked_anew_as"]) for row in seen.json} <= answers | {
        UUID(row["request_id"]) for row in seen.json
    }


async def test_named_requests_are_asked_for_anew_or_it_is_told_why_not(stage: Stage) -> None:
    failed = await stored(stage, "s-one", "failed", "budget_exhausted", ago=timedelta(days=30))
    waits = await stored(stage, "s-two", "pending")
    former = await stored(stage, "s-three", "failed", "internal_error", ago=2 * MINUTE)
    later = await stored(stage, "s-three", "pending")
    unknown = str(uuid4())

    done = await retried(stage, failed, former)
    assert [row["request_id"] for row in done["asked"]] == [failed]
    assert [row["obstacle"] for row in done["left"]] == [f"asked anew already, as {later}"]
    wrong = await retried(stage, failed, waits, unknown, code=1)
    assert [row["request_id"] for row in wrong["asked"]] == [failed]
    told = {row["request_id"]: row["obstacle"] for row in wrong["left"]}
    assert told[unknown] == "unknown"
    assert told[waits].startswith("is pending; only what ended without a score")


async def test_retry_needs_to_know_what(stage: Stage) -> None:
    failed = await stored(stage, "s-one", "failed", "budget_exhausted")
    for arguments in ((), ("--dry-run",), (failed, "--since", "1h")):
        refused = await stage.cli("retry", *arguments)
        assert refused.code == 1
        assert "give request ids, or a filter" in refused.err


async def test_a_retry_that_kafka_does_not_take_is_a_failure(stage: Stage) -> None:
    await stored(stage, "s-one", "failed", "budget_exhausted")
    away = await stage.cli("retry", "--since", "1h", kafka_bootstrap_servers="127.0.0.1:1")
    assert away.code == 1
    assert "Kafka at 127.0.0.1:1" in away.err
