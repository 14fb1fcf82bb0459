"""What tokens cost, by the price list that `genai-prices` ships (offline)."""

from __future__ import annotations

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
        try:
            price = calc_price(usage, model_ref=model, provider_id=provider)
        except LookupError:
            # Providers have names of their own in our configuration; a model's is its maker's.
            return self._by_model(usage, model)
        return float(price.total_price)

    def _by_model(self, usage: Usage, model: str) -> float | None:
        try:
            return float(calc_price(usage, model_ref=model).total_price)
        except LookupError:
            return None
