"""The configured judges, put together: for the consumer, and for one's desk."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from functools import partial
from uuid import UUID, uuid4

import httpx
import structlog

from consumer.config import Config, JudgeConfig
from consumer.edges import judge as edge
from consumer.edges.http import open_client
from consumer.edges.prices import PriceList
from consumer.errors import ConfigError
from consumer.judge.line import TOLERATED_CONGESTION as TOLERATED
from consumer.judge.line import Account, Line
from consumer.judge.panel import Judge
from consumer.judge.sample import Member
from consumer.limits.breaker import Breaker
from consumer.limits.concurrency import AdaptiveConcurrency
from consumer.limits.rate import RateLimiter
from consumer.ports import Prices, Spend
from consumer.scoring.profile import Seat
from consumer.traced import traced_provider
from consumer.tracing import OFF, Tracer

log = structlog.get_logger()

REACH_LIMIT_S = 5.0


def prices(config: Config) -> PriceList:
    """The shipped price list, with the judges' own prices where they have one."""
    overrides = {
        (judge.name, model): (price.input_per_million, price.output_per_million)
        for judge in config.judges
        if (price := judge.provider.price)
        for model in judge.models.values()
    }
    return PriceList(overrides=overrides)


@contextlib.asynccontextmanager
async def open_judge(
    config: Config,
    known: Prices,
    *,
    spend: Spend | None = None,
    account: Account | None = None,
    tracer: Tracer = OFF,
    most_calls: int | None = None,
) -> AsyncIterator[Judge]:
    """Every configured judge, each provider with a client and limits of its own.

    No provider is asked more than `most_calls` times at once, nor more often than it allows.
    `spend` holds the configured caps; `account` is for all providers, in their place.
    """
    members: dict[Seat, Member] = {}
    async with contextlib.AsyncExitStack() as stack:
        for judge in config.judges:
            client = open_client(
                judge.provider.base_url,
                timeout_s=judge.provider.timeout_s,
                headers=edge.headers(judge.provider.type, judge.api_key),
            )
            await stack.enter_async_context(client)
            provider = partial(
                edge.provider,
                judge.provider.type,
                client=client,
                name=judge.name,
                max_output_tokens=judge.provider.max_output_tokens,
                dialect=judge.provider.dialect,
            )
            # One a model: what a server refuses is remembered for each.
            models = {
                model: traced_provider(provider(model=model), tracer, client, judge.provider.type)
                for model in judge.models.values()
            }
            line = _line(judge, account or _account(judge, spend), known, most_calls)
            for seat, model in judge.models.items():
                members[seat] = Member(
                    line=line,
                    provider=models[model],
                    context_window=judge.provider.context_window,
                )
        yield Judge(members=members, prompts=config.prompts, prices=known)


def refuse_unpriced(config: Config, known: Prices) -> None:
    """Raises ConfigError where a cap is set and a model's price is unknown."""
    if problems := [problem for judge in config.judges for problem in _unpriced(judge, known)]:
        raise ConfigError(problems)


def _account(judge: JudgeConfig, spend: Spend | None) -> Account | None:
    cap = judge.provider.daily_cap_usd
    return None if cap is None or spend is None else Account(spend=spend, cap_usd=cap)


def _line(
    judge: JudgeConfig, account: Account | None, known: Prices, most_calls: int | None
) -> Line:
    limits = judge.provider
    ceiling = min(limits.max_concurrency, most_calls or limits.max_concurrency)
    return Line(
        name=judge.name,
        prices=known,
        concurrency=AdaptiveConcurrency(ceiling, tolerance=TOLERATED),
        breaker=Breaker(open_s=limits.breaker_open_s),
        requests=RateLimiter(limits.requests_per_minute) if limits.requests_per_minute else None,
        tokens=RateLimiter(limits.tokens_per_minute) if limits.tokens_per_minute else None,
        account=account,
    )


def _unpriced(judge: JudgeConfig, known: Prices) -> Iterable[str]:
    """The problem of each model whose cost could not be held under the cap."""
    if judge.provider.daily_cap_usd is None:
        return
    for model in dict.fromkeys(judge.models.values()):
        cost = known.cost_usd(
            provider=judge.name, model=model, input_tokens=1000, output_tokens=1000
        )
        if cost is None:
            yield (
                f"llm_providers.yaml: {judge.name}: daily_cap_usd: the price of {model!r} is "
                "unknown; give price: {input_per_million, output_per_million} (USD)"
            )


async def warn_unreachable(config: Config) -> None:
    """One line for each judge at whose address nobody listens; the consumer waits for it."""
    for judge in config.judges:
        url = httpx.URL(judge.provider.base_url)
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            async with asyncio.timeout(REACH_LIMIT_S):
                _, writer = await asyncio.open_connection(url.host, port)
        except (OSError, TimeoutError) as error:
            why = type(error).__name__
            log.warning("judge_unreachable", provider=judge.name, host=url.host, error=why)
        else:
            writer.close()


class DeskSpend:
    """The account of one command, in memory: see ports.Spend."""

    def __init__(self) -> None:
        self.spent_usd = 0.0
        self._reserved: dict[UUID, float] = {}

    async def reserve(
        self,
        *,
        provider: str,  # noqa: ARG002  one account for all
        cap_usd: float,
        amount_usd: float,
        request_id: UUID,  # noqa: ARG002
        lease_token: UUID,  # noqa: ARG002
    ) -> UUID | None:
        """A reservation; None where it would pass the cap."""
        if self.spent_usd + sum(self._reserved.values()) + amount_usd > cap_usd:
            return None
        reservation = uuid4()
        self._reserved[reservation] = amount_usd
        return reservation

    async def settle(self, reservation_id: UUID, spent_usd: float) -> None:
        """Books what was really spent, once."""
        if self._reserved.pop(reservation_id, None) is not None:
            self.spent_usd += spent_usd
