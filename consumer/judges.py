"""The configured judges, put together: for the consumer, and for one's desk."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable
from functools import partial

from consumer.config import Config, JudgeConfig
from consumer.edges import judge as edge
from consumer.edges.http import open_client
from consumer.edges.prices import PriceList
from consumer.errors import ConfigError
from consumer.judge.line import TOLERATED_CONGESTION as TOLERATED
from consumer.judge.line import Account, Line
from consumer.judge.panel import Judge
from consumer.judge.sample import Member
from consumer.limits.concurrency import AdaptiveConcurrency
from consumer.limits.rate import RateLimiter
from consumer.ports import Prices, Spend
from consumer.scoring.profile import Seat


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
async def open_judge(config: Config, spend: Spend, known: Prices) -> AsyncIterator[Judge]:
    """Every configured judge, each provider with a client and limits of its own.

    Raises ConfigError where a cap is set and a model's price is unknown.
    """
    refuse_unpriced(config, known)
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
            models = {model: provider(model=model) for model in judge.models.values()}
            line = _line(judge, spend, known)
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


def _line(judge: JudgeConfig, spend: Spend, known: Prices) -> Line:
    limits = judge.provider
    cap = limits.daily_cap_usd
    return Line(
        name=judge.name,
        prices=known,
        concurrency=AdaptiveConcurrency(limits.max_concurrency, tolerance=TOLERATED),
        requests=RateLimiter(limits.requests_per_minute) if limits.requests_per_minute else None,
        tokens=RateLimiter(limits.tokens_per_minute) if limits.tokens_per_minute else None,
        account=None if cap is None else Account(spend=spend, cap_usd=cap),
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
