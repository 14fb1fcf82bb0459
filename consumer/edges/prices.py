"""What tokens cost, by the price list that `genai-prices` ships (offline)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from genai_prices import Usage, calc_price

MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """`overrides`: (provider, model) to USD per million (input, output) tokens."""

    overrides: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)

    def cost_usd(
        self, *, provider: str | None, model: str | None, input_tokens: int, output_tokens: int
    ) -> float | None:
        """See ports.Prices."""
        if not model:
            return None
        if override := self.overrides.get((provider or "", model)):
            return (input_tokens * override[0] + output_tokens * override[1]) / MILLION
        usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens)
        # Providers have names of their own in our configuration; a model's is its maker's.
        for provider_id in (provider, None):
            with suppress(LookupError):
                price = calc_price(usage, model_ref=model, provider_id=provider_id).total_price
                # The list has models without a price for tokens: nothing is known, not "free".
                return float(price) if price or not (input_tokens or output_tokens) else None
        return None
