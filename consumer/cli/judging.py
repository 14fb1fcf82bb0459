"""Commands about judges: are they there, and what were they asked?"""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from consumer.cli.base import (
    EXIT_CANNOT_TELL,
    EXIT_PROBLEM,
    Json,
    app,
    config_now,
    fail,
    settings_now,
    tell,
    wait_for,
    with_store,
)

if TYPE_CHECKING:
    from consumer.checks import Check
    from consumer.edges.postgres.store import Store
    from consumer.replay import Again, Replayed


@app.command()
def check(as_json: Json = False) -> None:
    """Try all that the settings name, as the consumer needs it: Postgres, Kafka, History, and each
    judge by a tiny call.

    Postgres: is the schema up to date, may its tables be written to, and if not, who holds a lock?
    Kafka: are the topics there, has each partition a leader, what does the consumer group do? It is
    not joined, and nothing is written: that a topic takes our records is only seen by sending.
    History: does it list a session? Each may take 15 s, History HISTORY_TIMEOUT_SECONDS.

    Example: `score-consumer check`. Exits with 1 where something is wrong.
    """
    from consumer import checks, terminal

    settings, config = settings_now(), config_now()
    logging.disable()  # what is wrong is told by the checks themselves

    async def all_checks() -> list[Check]:
        found = []
        async for made in checks.run(settings, config):
            found.append(made)
            if not as_json:
                terminal.OUT.print(terminal.check_line(made))
        return found

    found = wait_for(all_checks(), saying=lambda: "checking")
    if as_json:
        tell([asdict(made) for made in found], as_json)
    if not all(made.ok for made in found):
        raise SystemExit(EXIT_PROBLEM)


@app.command()
def replay(
    score: Annotated[UUID, typer.Argument(help="Score id, as score.completed has it.")],
    send: Annotated[bool, typer.Option("--send", help="Ask the judge again.")] = False,
    max_cost: Annotated[
        float | None, typer.Option(min=0, help="With --send: USD that it may cost at most.")
    ] = None,
    prompt: Annotated[bool, typer.Option("--prompt", help="Print the prompts themselves.")] = False,
    as_json: Json = False,
) -> None:
    """Rebuild what a score's judge was sent, and say whether it is the same byte for byte.

    Example: `score-consumer replay 1c0e4bb2-... --send`. Exits with 1 where it does not match, and
    with 3 where it can't be rebuilt: it was pruned, or a former version did not store it.
    """
    from consumer import logs
    from consumer import replay as replaying

    async def rebuild(store: Store) -> list[Replayed]:
        return await replaying.rebuild(store, score)

    logs.set_up("WARNING", "console")
    replayed = wait_for(with_store(rebuild))
    why_not = dict.fromkeys(sample.why_not for sample in replayed if sample.why_not)
    answers = wait_for(_sent(replayed, max_cost)) if send and not why_not else []
    rebuilt = [sample for sample in replayed if not sample.why_not]
    if as_json:
        tell(replaying.as_json(replayed, answers), as_json)
    elif prompt:
        for sample in rebuilt:
            typer.echo(sample.prompt)
    else:
        _tell_replay(rebuilt, answers)
    if not all(sample.matches for sample in rebuilt):
        fail("what is stored is not what was sent then")
    if why_not:
        fail("\n".join(why_not), EXIT_CANNOT_TELL)


async def _sent(replayed: list[Replayed], max_cost: float | None) -> list[Again]:
    from consumer import replay as replaying
    from consumer.judge.line import Account
    from consumer.judges import DeskSpend, open_judge, prices

    config = config_now()
    account = None if max_cost is None else Account(spend=DeskSpend(), cap_usd=max_cost)
    async with open_judge(config, prices(config), account=account) as judge:
        return [await replaying.send(sample, judge) for sample in replayed]


def _tell_replay(replayed: list[Replayed], answers: list[Again]) -> None:
    from consumer import terminal

    for n, sample in enumerate(replayed):
        terminal.OUT.print(terminal.replay_line(sample))
        if n < len(answers):
            terminal.OUT.print(terminal.changes_table(answers[n]))
