"""Commands about dead letters: records of score.requested that nobody could accept."""

from __future__ import annotations

import base64
import json
from collections import Counter
from contextlib import aclosing
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consumer.cli.base import (
    Json,
    Since,
    after,
    app,
    checked,
    fail,
    producing,
    settings_now,
    tell,
    wait_for,
    when,
    with_store,
)
from consumer.errors import NotReachable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from rich.table import Table

    from consumer.dlq import Choice, DeadLetters, Letter, Wanted
    from consumer.edges.kafka_reader import Span
    from consumer.settings import Settings

dlq_app = typer.Typer(
    no_args_is_help=True, help="Look at dead letters, and send them back to score.requested."
)
app.add_typer(dlq_app, name="dlq")

Reason = Annotated[str | None, typer.Option(help="Only this one, such as bad_json.")]
Session = Annotated[str | None, typer.Option(help="Only of this session.")]


@dlq_app.command("list")
def dlq_list(
    since: Since = None,
    reason: Reason = None,
    session: Session = None,
    limit: Annotated[int, typer.Option(min=1, help="The newest so many.")] = 50,
    as_json: Json = False,
) -> None:
    """List dead letters, the newest last.

    Example: `score-consumer dlq list --since 12h --reason schema_invalid`
    """
    from consumer.dlq import Wanted
    from consumer.edges.kafka_reader import Span

    every = reason is None and session is None
    span = Span(since=when("--since", since), newest=limit if every else None)
    wanted = Wanted(reason=reason, session_id=session)
    rows = wait_for(_rows(span, wanted, limit), saying=_reading)
    if as_json:
        tell(rows, as_json)
    else:
        from consumer import terminal

        terminal.OUT.print(_letters_table(rows))


async def _rows(span: Span, wanted: Wanted, limit: int) -> list[dict[str, Any]]:
    """What a list tells of each letter. Values are not kept: all together they may be large."""
    async with aclosing(_dead_letters(settings_now()).read(span)) as letters:
        found = [_summary(letter) async for letter in letters if wanted.fits(letter)]
    return sorted(found, key=lambda row: str(row["failed_at"]))[-limit:]


def _summary(letter: Letter) -> dict[str, Any]:
    partition, offset = letter.place
    return {
        "place": f"{partition}:{offset}",
        "failed_at": letter.said("dlq_failed_at") or letter.record.time.isoformat(),
        "reason": letter.reason,
        "message": letter.said("dlq_error_message"),
        "session_id": letter.session_id,
        "origin": letter.origin,
        "bytes": len(letter.record.value or b""),
        "cut": letter.cut,
        "redrives": letter.redrives,
    }


@dlq_app.command("show")
def dlq_show(
    place: Annotated[str, typer.Argument(help="As `dlq list` has it: partition:offset.")],
    as_json: Json = False,
) -> None:
    """Show a dead letter with all that is in it.

    Example: `score-consumer dlq show 0:17`. Exits with 1 where there is none.
    """
    from consumer.dlq import place_of
    from consumer.edges.kafka_reader import Span

    async def find(where: tuple[int, int]) -> Letter | None:
        letters = _dead_letters(settings_now()).read(Span(place=where))
        async with aclosing(letters):
            return await anext(letters, None)

    letter = wait_for(find(checked("PLACE", place_of, place)), saying=_reading)
    if letter is None:
        fail(f"there is no dead letter at {place}: it never was, or was kept long enough")
    if as_json:
        tell(_details(letter), as_json)
    else:
        _print_letter(letter)


def _details(letter: Letter) -> dict[str, Any]:
    return {
        **_summary(letter),
        "key": _told(letter.record.key),
        "headers": [[name, _told(value)] for name, value in letter.record.headers],
        "value": _told(letter.record.value),
    }


def _told(data: bytes | None) -> str | dict[str, str] | None:
    """Bytes as JSON can hold them: text where it is text, else base64."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def _print_letter(letter: Letter) -> None:
    from rich.table import Table

    from consumer import terminal
    from consumer.plaintext import Text

    facts = Table(box=None, show_header=False)
    rows = [*_summary(letter).items(), ("key", _words(_told(letter.record.key)))]
    rows += [(f"header {name}", _words(_told(value))) for name, value in letter.headers]
    for name, value in rows:
        facts.add_row(Text(name, style="dim"), Text(str(value)))
    terminal.OUT.print(facts)
    terminal.OUT.print(Text(_pretty(letter.record.value)))


def _words(told: str | dict[str, str] | None) -> str:
    if told is None:
        return "none"
    return told if isinstance(told, str) else f"base64 {told['base64']}"


def _pretty(value: bytes | None) -> str:
    """JSON with its lines, other text as it is, and of other bytes their base64."""
    try:
        return json.dumps(json.loads(value or b""), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return _words(_told(value))


@dlq_app.command("redrive")
def dlq_redrive(
    places: Annotated[
        list[str] | None, typer.Argument(help="Only these: partition:offset.")
    ] = None,
    since: Since = None,
    reason: Reason = None,
    session: Session = None,
    limit: Annotated[int, typer.Option(min=1, help="So many at most.")] = 1_000_000,
    rate: Annotated[float, typer.Option(min=0.1, help="So many a second.")] = 50.0,
    max_redrives: Annotated[
        int, typer.Option(min=1, help="Leave alone what was sent back so often.")
    ] = 3,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also what is still invalid, or was sent back too often."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Send dead letters back to score.requested, with the ids that they had.

    Left out are letters whose request was accepted meanwhile, and those that would only come back.

    Example: `score-consumer dlq redrive --reason schema_invalid --dry-run`
    """
    from consumer.dlq import Wanted, place_of
    from consumer.edges.kafka_reader import Span

    chosen = frozenset(checked("PLACES", place_of, place) for place in places or ())
    wanted = Wanted(places=chosen or None, reason=reason, session_id=session)
    span, settings = Span(since=when("--since", since)), settings_now()
    planning = _plan(settings, span, wanted, limit, max_redrives, force)
    choices = wait_for(planning, saying=_reading)
    going = [choice for choice in choices if choice.obstacle is None]
    if not dry_run and going:
        _redrive(settings, span, going, rate)
    with after(f"{0 if dry_run else len(going)} letter(s) were sent back"):
        _tell_redrive(choices, going, dry_run, as_json)


async def _plan(
    settings: Settings,
    span: Span,
    wanted: Wanted,
    limit: int,
    max_redrives: int,
    force: bool,
) -> list[Choice]:
    from consumer import dlq

    async with aclosing(_dead_letters(settings).read(span)) as letters:
        return await dlq.plan(
            letters,
            wanted,
            settings.topic_score_requested,
            limit=limit,
            max_redrives=max_redrives,
            force=force,
            known=_known,
        )


async def _known(ids: Iterable[UUID]) -> set[UUID]:
    """Those that are accepted already. Without the database intake has to find that out."""
    wanted = list(ids)

    async def look(store: Any) -> set[UUID]:
        found: set[UUID] = await store.known(wanted)
        return found

    try:
        return set(await with_store(look))
    except NotReachable as error:
        typer.echo(f"What was accepted already is not known, and sent too: {error}", err=True)
        return set()


def _redrive(settings: Settings, span: Span, going: Sequence[Choice], rate: float) -> None:
    from consumer import dlq

    turns: list[int] = []

    async def send() -> None:
        async with (
            producing(settings) as producer,
            aclosing(_dead_letters(settings).read(span)) as letters,
        ):
            await dlq.redrive(
                letters,
                {choice.place for choice in going},
                topic=settings.topic_score_requested,
                producer=producer,
                rate=rate,
                sent=turns.append,
            )

    wait_for(send(), saying=lambda: f"sent back {sum(turns)} of {len(going)}")


def _reading() -> str:
    return "reading dead letters from Kafka"


def _tell_redrive(
    choices: Sequence[Choice], going: Sequence[Choice], dry_run: bool, as_json: bool
) -> None:
    left = [choice for choice in choices if choice.obstacle is not None]
    told = {"dry_run": dry_run, "sent": [_row(c) for c in going], "left": [_row(c) for c in left]}
    if as_json:
        tell(told, as_json)
        return
    from consumer import terminal
    from consumer.plaintext import Text

    if dry_run and choices:
        terminal.OUT.print(_choices_table(choices))
    done = "would be sent back" if dry_run else "sent back"
    terminal.OUT.print(Text(f"{len(going)} {done}, {len(left)} left"))
    if not dry_run:
        reasons = Counter(str(choice.obstacle).partition(":")[0] for choice in left)
        for reason, count in reasons.most_common(10):
            terminal.OUT.print(Text(f"  {count} left: {reason}"))


def _row(choice: Choice) -> dict[str, Any]:
    partition, offset = choice.place
    return {**asdict(choice), "place": f"{partition}:{offset}"}


def _letters_table(rows: Sequence[dict[str, Any]]) -> Table:
    columns = ("place", "failed_at", "reason", "session_id", "origin", "bytes", "redrives")
    return _table(columns, rows, title="Dead letters")


def _choices_table(choices: Sequence[Choice]) -> Table:
    rows = [{**_row(c), "redrive": c.obstacle or "would be sent back"} for c in choices]
    return _table(("place", "reason", "session_id", "origin", "redrives", "redrive"), rows)


def _table(
    columns: Sequence[str], rows: Sequence[dict[str, Any]], title: str | None = None
) -> Table:
    from rich.table import Table

    from consumer.plaintext import Text

    table = Table(*(name.replace("_", " ") for name in columns), title=title)
    for row in rows:
        table.add_row(*(Text(str(row[name])[:200]) for name in columns))
    return table


def _dead_letters(settings: Settings) -> DeadLetters:
    """Call it inside the event loop."""
    from consumer.brokers import kafka_security
    from consumer.dlq import DeadLetters

    return DeadLetters(
        bootstrap=settings.kafka_bootstrap_servers,
        topic=settings.topic_dlq,
        options=kafka_security(settings).options,
    )
