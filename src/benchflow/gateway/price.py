"""What an exchange cost, from the price table of genai-prices. Who is not in the table has no known price."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from decimal import Decimal

    from benchflow.gateway.tokens import Tokens

_THEIR_NAMES: Mapping[str, str] = {
    "gemini": "google",
    "vertex": "google",
    "xai": "x-ai",
    "kimi": "moonshotai",
    "glm": "zai",
    "bedrock": "aws",
    "azure-foundry-openai": "azure",
    "azure-foundry-anthropic": "anthropic",
}
"""Our name of a provider -> the table's, where they differ."""


@cache
def price_table() -> str:
    """The name of the table, its edition and the date of the newest price in it."""
    from genai_prices.data_snapshot import get_snapshot

    today = datetime.now(UTC).date()
    models = (model for provider in get_snapshot().providers for model in provider.models)
    prices = (one for model in models if isinstance(model.prices, list) for one in model.prices)
    dates = (getattr(one.constraint, "start_date", None) for one in prices)
    newest = max((date for date in dates if date and date <= today), default=None)
    return f"genai-prices {version('genai-prices')}" + (f" ({newest})" if newest else "")


def load_prices() -> None:
    """Load the table, which takes a moment, ahead of its first use."""
    price_table()


def price(provider: str, model: str, tokens: Tokens, *, tier: str = "") -> Decimal | None:
    """Dollars for `tokens`, or None when the table does not know the provider or its model."""
    from genai_prices import Usage, calc_price

    used = {
        "input_tokens": tokens.input,
        "cache_read_tokens": tokens.cached,
        "cache_write_tokens": tokens.cache_write,
        "cache_write_1h_tokens": tokens.cache_write_1h,
        "output_tokens": tokens.output,
        "web_searches": tokens.web_searches,
    }
    try:
        found = calc_price(
            Usage(**{key: value for key, value in used.items() if value}),
            model,
            provider_id=_THEIR_NAMES.get(provider, provider),
            price_context={"service_tier": tier} if tier else None,
        )
    except (LookupError, ValueError):
        return None
    return found.total_price
