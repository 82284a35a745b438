"""What rollouts that were killed had spent. They left no result, but every answer of a model is in their ledgers."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from benchflow.gateway.ledger import read_exchanges
from benchflow.gateway.tokens import Tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from benchflow.gateway.budget import Usage

LEDGER = "trajectory/llm_trajectory.jsonl"
"""Where a rollout has its ledger; its branches have theirs below it."""

_KINDS = {field.name for field in fields(Tokens)}


def add_killed(total: Usage, folders: Iterable[Path]) -> Usage:
    """Add to `total` what the rollouts in `folders` paid for, as the gateway charged it, and return it."""
    for folder in folders:
        for ledger in folder.rglob(LEDGER):
            for exchange in read_exchanges(ledger):
                _add(total, exchange)
    return total


def _add(total: Usage, exchange: Mapping[str, Any]) -> None:
    total.retries += len(exchange.get("retries") or ())
    asked = exchange.get("operation") == "generate" and exchange.get("ended") not in ("failed", "refused")
    if asked and (exchange.get("status") or 200) < 300:
        counted = {kind: number for kind, number in (exchange.get("tokens") or {}).items() if kind in _KINDS}
        total.add(Tokens(**counted) if counted else None, exchange.get("cost"))
