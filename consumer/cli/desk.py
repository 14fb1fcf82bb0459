"""Commands for one's desk: session files, and profiles."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from consumer.cli.base import (
    EXIT_PROBLEM,
    Json,
    app,
    config_now,
    fail,
    settings_now,
    spare_the_collector,
    tell,
    wait_for,
    with_store,
)
from consumer.errors import ConfigError

if TYPE_CHECKING:
    from consumer.desk import DeskScore, Estimate
    from consumer.edges.postgres.store import Store
    from consumer.scoring.profile import Profile

# Calls at a time: a desk is no data centre.
DESK_CALLS = 8

profiles_app = typer.Typer(no_args_is_help=True, help="Look at, check and store profiles.")
app.add_typer(profiles_app, name="profiles")


@app.command()
def score(
    files: Annotated[list[Path], typer.Argument(help="Session files (JSON).")],
    profile: Annotated[
        str, typer.Option(help="A profile's id, or a profile file.")
    ] = "efficiency-simple",
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="PROFILE_A PROFILE_B", help="Show how two profiles differ."),
    ] = None,
    judge: Annotated[
        bool, typer.Option("--judge", help="Ask the configured judge too; costs are told first.")
    ] = False,
    max_cost: Annotated[
        float | None, typer.Option(min=0, help="With --judge: USD that it may cost at most.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Score session files by a profile's rules: no Kafka, no Postgres, and no provider but with
    --judge; else what the judge would score is left out.

    A file holds what the History Service answers for a session, or `{"detail": ..., "final": ...}`.

    Example: `score-consumer score session.json --profile efficiency-simple`
    """
    from consumer import config, desk, terminal
    from consumer.edges.prices import PriceList

    folder = settings_now().scoring_config_dir
    profiles = _desk_profiles(folder, compare or (profile,), by_rules=not judge)
    labels = config.load_labels(folder)
    scores: list[desk.DeskScore] = []
    spare_the_collector()
    if judge:
        scores = wait_for(_judged(files, profiles, labels, max_cost, quiet=as_json))
    else:
        prices = PriceList()
        for path in terminal.progress(files, "scoring", quiet=as_json):
            scores += desk.score_file(path, profiles, labels, prices)
    if as_json:
        tell([terminal.desk_json(item) for item in scores], as_json)
    elif compare:
        terminal.OUT.print(terminal.comparison(scores, *(p.id for p in profiles)))
    else:
        terminal.print_desk(scores)
    if any(item.total is None for item in scores):
        raise SystemExit(EXIT_PROBLEM)


def _desk_profiles(folder: Path, names: tuple[str, ...], *, by_rules: bool) -> list[Profile]:
    from consumer import config

    problems: list[str] = []
    found = [config.desk_profile(name, folder, problems) for name in names]
    profiles = [chosen for chosen in found if chosen is not None]
    if by_rules:
        problems += [
            f"profile {p.id}: it has no rule scorer and no gate; rules alone can't score it: "
            "give --judge"
            for p in profiles
            if not p.gates and not any(c.by_rules for c in p.criteria)
        ]
    if problems:
        raise ConfigError(problems)
    return profiles


async def _judged(
    files: list[Path],
    profiles: list[Profile],
    labels: Mapping[str, str],
    max_cost: float | None,
    *,
    quiet: bool,
) -> list[DeskScore]:
    """Every file by every profile, a few at a time; the estimate is told before the first."""
    import asyncio

    from consumer import desk, logs, terminal
    from consumer.judge.line import Account
    from consumer.judges import DeskSpend, open_judge, prices

    logs.set_up("WARNING", "console")
    config = config_now(profiles)
    known = prices(config)
    account = None if max_cost is None else Account(spend=DeskSpend(), cap_usd=max_cost)
    scores: list[DeskScore] = []
    async with open_judge(config, known, account=account) as judge:
        for profile in profiles:
            _tell_estimate(desk.estimate(files, profile, labels, known, judge), max_cost)
        work = [(path, profile) for path in files for profile in profiles]
        for n in terminal.progress(range(0, len(work), DESK_CALLS), "judging", quiet=quiet):
            scores += await asyncio.gather(
                *(
                    desk.judge_file(path, profile, labels, known, judge)
                    for path, profile in work[n : n + DESK_CALLS]
                )
            )
    return scores


def _tell_estimate(estimate: Estimate, max_cost: float | None) -> None:
    """Says on standard error what it may cost. Raises ConfigError where that is too much."""
    cost = "an unknown price" if estimate.usd is None else f"at most ${estimate.usd:.4f}"
    typer.echo(
        f"{estimate.prompts} prompt(s), about {estimate.input_tokens} tokens in and up to "
        f"{estimate.output_tokens} out: {cost}",
        err=True,
    )
    if max_cost is not None and (estimate.usd is None or estimate.usd > max_cost):
        raise ConfigError([f"--max-cost: {cost} is not within ${max_cost:g}; nothing was asked"])


@profiles_app.command("list")
def profiles_list(as_json: Json = False) -> None:
    """List the configured profiles.

    Example: `score-consumer profiles list`
    """
    from consumer import config, terminal

    problems: list[str] = []
    found = config.load_profiles(settings_now().scoring_config_dir / "profiles", problems)
    if problems:
        raise ConfigError(problems)
    if as_json:
        tell([p.model_dump(mode="json", include=_LISTED) for p in found], as_json)
    else:
        terminal.OUT.print(terminal.profiles_table(found))


@profiles_app.command("show")
def profiles_show(profile: Annotated[str, typer.Argument(help="Id or file.")]) -> None:
    """Show a profile with all its defaults, as JSON.

    Example: `score-consumer profiles show alert-investigation`
    """
    tell(_one_profile(profile).body(), True)


@profiles_app.command("check")
def profiles_check(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Profile files; none: the configured ones.")
    ] = None,
) -> None:
    """Check profiles: every problem is told, with its file, its key and what is allowed.

    Example: `score-consumer profiles check my-profile.yaml`
    """
    from consumer import config

    problems: list[str] = []
    if files:
        found = [p for p in (config.load_profile(path, problems) for path in files) if p]
    else:
        folder = settings_now().scoring_config_dir / "profiles"
        found = list(config.load_profiles(folder, problems))
    if problems:
        raise ConfigError(problems)
    for checked in found:
        typer.echo(f"{checked.id} v{checked.version}: fine")


@profiles_app.command("apply")
def profiles_apply(
    profile: Annotated[str, typer.Argument(help="Id or file.")],
    by: Annotated[str, typer.Option(help="Who applies it.")] = "cli",
) -> None:
    """Store a profile's version in the database; a changed body under a stored version is refused.

    Example: `score-consumer profiles apply my-profile.yaml`
    """
    chosen = _one_profile(profile)

    async def keep(store: Store) -> bool:
        return await store.register_profile(chosen, by=by)

    if not wait_for(with_store(keep)):
        fail(
            f"profile {chosen.id}: version {chosen.version} is stored with other content: "
            "raise the version"
        )
    typer.echo(f"{chosen.id} v{chosen.version} is stored")


_LISTED = {"id", "version", "name", "match_labels", "method"}


def _one_profile(name: str) -> Profile:
    from consumer import config

    problems: list[str] = []
    found = config.desk_profile(name, settings_now().scoring_config_dir, problems)
    if found is None:
        raise ConfigError(problems)
    return found
