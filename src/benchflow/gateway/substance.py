"""What a request asks, without what differs from run to run: ids, times, white space, ports, secrets.

Two requests with the same substance may be answered alike. `first_difference` says where two that differ do so first.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

VOLATILE_KEYS = frozenset({
    "cache_control", "call_id", "client_metadata", "encrypted_content", "id", "item_id", "metadata", "obfuscation",
    "previous_response_id", "prompt_cache_key", "prompt_cache_retention", "request_id", "safety_identifier",
    "session_id", "signature", "thoughtSignature", "tool_call_id", "tool_use_id", "user", "user_id",
})  # fmt: skip
"""Keys whose values name things and say nothing."""

SHOWN = 160
"""Characters that a difference shows of either side."""

_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*"
_VOLATILE_TEXT = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"bf-[\w-]{30,}|\*\*\*", "<secret>"),
        (r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b", "<id>"),
        (r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)?(?:Z|[+-]\d\d:?\d\d)?", "<time>"),
        (rf"\b(?:{_DAY},? )?(?:{_MONTH} \d{{1,2}}|\d{{1,2}} {_MONTH}),? (?:\d\d:\d\d(?::\d\d)? )?\d{{4}}\b", "<time>"),
        (r"\b\d{1,2}/\d{1,2}/\d{4}\b", "<time>"),
        (r"\b\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?[AP]M)?\b", "<time>"),
        (r"\b(?:127\.0\.0\.1|localhost):\d+", "<port>"),
        (r"(?<![\w.])/(?:var/)?tmp/[\w.-]+", "<tmp>"),
        (r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{12,}\b", "<id>"),
        (r"(?<=[_-])(?=[0-9a-f]*[0-9])[0-9a-f]{8}\b", "<id>"),
        (r"(?<=[Ii][Dd][:=])( ?)[0-9a-fA-F]{4,}\b", r"\1<id>"),
        (r"\b1\d{9}(?:\d{3})?(?:\.\d+)?\b", "<time>"),
        (r"\b\d+(?:\.\d+)? ?(?:ms|milliseconds|s|secs?|seconds?|minutes?)\b", "<duration>"),
        (r"\b(?:pid|PID)[ :=]*\d+\b", "<pid>"),
    )
)


def substance(value: object) -> object:
    """A JSON value with everything volatile in it left out, or replaced by its kind. Doing it twice changes nothing."""
    if isinstance(value, str):
        return _stable(" ".join(value.split()))
    if isinstance(value, list):
        return [substance(item) for item in value]
    if isinstance(value, dict):
        return {key: substance(item) for key, item in value.items() if key not in VOLATILE_KEYS and item is not None}
    return value


def _stable(text: str) -> str:
    """A text without what is volatile. What stands beside a replaced piece may show only then what it is."""
    replaced = text
    for pattern, name in _VOLATILE_TEXT:
        replaced = pattern.sub(name, replaced)
    return text if replaced == text else _stable(replaced)


def digest(value: object) -> str:
    """A key under which requests of the same substance are found."""
    return json.dumps(value, sort_keys=True)


def first_difference(recorded: object, now: object, where: str = "request") -> str | None:
    """Where two substances differ first, and how; None when they do not."""
    if isinstance(recorded, dict) and isinstance(now, dict):
        keys = [*recorded, *(key for key in now if key not in recorded)]
        return _first(first_difference(recorded.get(key), now.get(key), f"{where}.{key}") for key in keys)
    if isinstance(recorded, list) and isinstance(now, list):
        pairs = enumerate(zip(recorded, now, strict=False))
        inner = _first(first_difference(old, new, f"{where}[{index}]") for index, (old, new) in pairs)
        if inner is None and len(recorded) != len(now):
            return f"{where} has {len(now)} items instead of {len(recorded)}: {_extra(recorded, now)}"
        return inner
    if recorded == now and type(recorded) is type(now):
        return None
    old, new = _shown(recorded, now), _shown(now, recorded)
    return f"{where} differs:\n  recorded: {old}\n  now:      {new}"


def _first(found: Iterable[str | None]) -> str | None:
    return next((one for one in found if one is not None), None)


def _extra(recorded: list[object], now: list[object]) -> str:
    shorter = min(len(recorded), len(now))
    side, item = ("now also", now[shorter]) if len(now) > len(recorded) else ("no longer", recorded[shorter])
    return f"{side} {_cut(json.dumps(item), 0)}"


def _shown(value: object, other: object) -> str:
    """A value, of long texts the part where they begin to differ."""
    if value is None:
        return "(absent)"
    if not isinstance(value, str) or not isinstance(other, str):
        return _cut(json.dumps(value), 0)
    same = next((i for i, (a, b) in enumerate(zip(value, other, strict=False)) if a != b), min(len(value), len(other)))
    return _cut(value, max(0, same - SHOWN // 4))


def _cut(text: str, start: int) -> str:
    shown = text[start : start + SHOWN]
    return ("..." if start else "") + shown + ("..." if start + SHOWN < len(text) else "")
