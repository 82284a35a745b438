"""The tokens an agent says a turn took, from its reply to the prompt. Its own account; the gateway's is the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAMES = {
    "totalTokens": "total_tokens",
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "thoughtTokens": "thought_tokens",
    "cachedReadTokens": "cached_read_tokens",
    "cachedWriteTokens": "cached_write_tokens",
}


def usage_of(reply: Mapping[str, object]) -> dict[str, int] | None:
    """The counts in `usage`, or in `_meta.quota.token_count` where some agents put them; None without any."""
    counts = reply.get("usage")
    if not isinstance(counts, dict):
        meta = reply.get("_meta")
        quota = meta.get("quota") if isinstance(meta, dict) else None
        counts = quota.get("token_count") if isinstance(quota, dict) else None
    if not isinstance(counts, dict):
        return None
    named = {_NAMES.get(str(name), str(name)): value for name, value in counts.items()}
    wanted = {name: value for name, value in named.items() if name in _NAMES.values() and type(value) is int}
    return wanted or None
