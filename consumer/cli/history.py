"""`publish --from-history`: a batch as the API makes it, worked on by the command itself."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from pydantic import ValidationError
from rich.console import Console
from rich.progress import Progress

from consumer import logs
from consumer.batches import NewBatch, Plan, Selection, TooMany, plan
from consumer.cli.base import config_now, fail, settings_now, tell, wait_for
from consumer.config import Config
from consumer.errors import ConfigError, NotReachable, ScoringError
from consumer.scoring.profile import by_id, describe
from consumer.serving import Batching, open_batching
from consumer.settings import Settings

SHOW_EVERY_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """What all requests of the batch have in common."""

    profile_id: str | None
    force_rescore: bool
    priority: int
    per_second: float | None
    created_by: str


def publish(filters: Mapping[str, Any], how: How, *, dry_run: bool, as_json: bool) -> None:
    """Plans, or works until all is asked for. An API process goes on where this one is killed."""
    settings, config = settings_now(), config_now()
    logs.set_up("WARNING", "console")
    selection = _selection(filters)
    if how.profile_id is not None and by_id(config.profiles, how.profile_id) is None:
        known = ", ".join(profile.id for profile in config.profiles)
        raise ConfigError([f"--profile: there is no {how.profile_id!r}; there are: {known}"])
    try:
        if dry_run:
            planning = _planned(settings, config, selection, how)
            _tell_plan(wait_for(planning, saying=lambda: "listing sessions of History"), as_json)
        else:
            publishing = _published(settings, config, selection, how, quiet=as_json)
            made = wait_for(publishing, saying=lambda: "asking for sessions of History")
            _tell_batch(made, as_json)
    except (TooMany, ScoringError) as error:
        raise ConfigError([f"--from-history: {error}"]) from error


def _selection(filters: Mapping[str, Any]) -> Selection:
    try:
        return Selection.model_validate(filters)
    except ValidationError as error:
        problems = [f"--from-history: {describe(problem)}" for problem in error.errors()]
        raise ConfigError(problems) from error


async def _planned(settings: Settings, config: Config, selection: Selection, how: How) -> Plan:
    async with open_batching(settings, config) as batching:
        chosen = batching.selecting.pages(selection, how.profile_id, datetime.now(UTC))
        return await plan(batching.selecting, chosen)


async def _published(
    settings: Settings, config: Config, selection: Selection, how: How, *, quiet: bool
) -> dict[str, Any]:
    stop = asyncio.Event()
    for sign in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(sign, stop.set)
    async with open_batching(settings, config) as batching:
        batch_id = await batching.batches.create(
            NewBatch(sessions=(), selection=selection, **asdict(how))
        )
        showing = asyncio.create_task(_show(batching, batch_id, quiet=quiet))
        try:
            await batching.runner.work_on(batch_id, stop)
        finally:
            showing.cancel()
        row = await batching.batches.batch(batch_id)
        if row is None:
            raise NotReachable(f"batch {batch_id} is gone")
        progress = await batching.batches.progress(batch_id)
        return {"batch_id": str(batch_id), **row, "progress": dict(progress)}


async def _show(batching: Batching, batch_id: UUID, *, quiet: bool) -> None:
    """A bar on standard error, from the database: it is also right where another process works."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("listing", total=None)
        while True:
            await asyncio.sleep(SHOW_EVERY_S)
            row = await batching.batches.batch(batch_id)
            progress = await batching.batches.progress(batch_id)
            listing = row is not None and row["state"] == "listing"
            bar.update(
                task,
                description="listing" if listing else "publishing",
                total=None if listing else progress["sessions"],
                completed=progress["published"],
            )


def _tell_plan(planned: Plan, as_json: bool) -> None:
    cost = "an unknown price" if planned.cost_usd is None else f"${planned.cost_usd:.2f}"
    basis = {
        "none": "no judge is asked",
        "recent_scores": f"about {cost}, by what recent scores cost",
        "upper_bound": f"at most {cost}, by tokens and prices",
        "unknown": cost,
    }[planned.cost_basis]
    lines = [f"{planned.sessions} session(s), {planned.judged} with a judge: {basis}"]
    lines += [f"  {name}: {count}" for name, count in planned.by_profile.items()]
    tell(planned.model_dump(mode="json"), as_json, lines=lines)


def _tell_batch(made: Mapping[str, Any], as_json: bool) -> None:
    progress = made["progress"]
    told = f"batch {made['batch_id']}: {progress['published']} of {progress['sessions']} requested"
    names = ("batch_id", "state", "error_message", "progress")
    tell({name: made[name] for name in names}, as_json, lines=[told])
    if made["state"] != "completed":
        fail(f"batch {made['batch_id']} is {made['state']}: {made['error_message'] or 'stopped'}")
