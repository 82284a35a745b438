"""What a request asks, without what differs from run to run: ids, clock readings, white space, ports, secrets.

Two requests with the same substance may be answered alike. `first_difference` says where two that differ do so first.
Each kind of thing that is left out has its reason beside it; everything else counts.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from benchflow.gateway.moment import without_readings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from benchflow.gateway.moment import Span

VOLATILE_KEYS = frozenset({
    "call_id", "encrypted_content", "id", "item_id", "obfuscation", "previous_response_id", "prompt_cache_key",
    "prompt_cache_retention", "request_id", "safety_identifier", "session_id", "signature", "thoughtSignature",
    "tool_call_id", "tool_use_id", "user", "user_id",
})  # fmt: skip
"""Keys whose values, where they are texts, name things and say nothing: ids of calls and sessions, signatures."""

VOLATILE_TABLES = frozenset({"cache_control", "client_metadata", "metadata"})
"""Keys of tables about a request, for the provider's books and caches."""

SPOKEN = frozenset({"args", "arguments", "input"})
"""Keys under which a table is what a model said to a tool: there every key means something."""

UNORDERED = frozenset({"tools", "functionDeclarations"})
"""Keys of lists whose order means nothing, and depends on which server answered an agent first."""

SHOWN = 160
"""Characters that a difference shows of either side."""

_VOLATILE_TEXT = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        # tokens of a pass, and secrets that the ledger masked
        (r"bf-[\w-]{30,}|\*\*\*", "<secret>"),
        # ids of sessions and messages
        (r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b", "<id>"),
        # a sandbox listens on another port each time
        (r"\b(?:127\.0\.0\.1|localhost):\d+", "<port>"),
        # mktemp's and Python's names, and names with a random end
        (r"(?<![\w.])/(?:var/)?tmp/(?:tmp\.?\w{6,}|[\w.-]*[-_.](?=\w*\d)\w{6,})", "<tmp>"),
        (r"(?<![\w.])\.tmp\w{6}\b", "<tmp>"),
        # ids of containers and commits, which hold their time; what has the length of a SHA-256 is a content's
        (r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{12,63}\b", "<id>"),
        # a sandbox's own name
        (r"(?<=[_-])(?=[0-9a-f]*[0-9])[0-9a-f]{8}\b", "<id>"),
        # codex numbers the pieces of its tools' output, and estimates their size
        (r"\bChunk ID: [0-9a-f]{4,}\b", "<id>"),
        (r"\bOriginal token count: \d+", "<size>"),
        # how long something took: a fraction of a second, or said to be that
        (r"\b\d+\.\d+ ?(?:ms|milliseconds|s|secs?|seconds?|minutes?)\b", "<duration>"),
        (r"\b\d+ ?(?:ms|milliseconds)\b", "<duration>"),
        (
            r"(?i)\b(took|in|elapsed|duration|time):? \d+ ?(?:s|secs?|seconds?|minutes?)\b",
            r"\1 <duration>",
        ),
        # numbers of processes
        (r"\b(?:pid|PID|PGID)[ :=]*\d+\b", "<pid>"),
    )
)

_REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>", re.DOTALL)
"""How claude puts instructions into a user's message."""


def substance(value: object, span: Span) -> object:
    """A JSON value with everything volatile in it left out, or replaced by its kind. Doing it twice changes nothing.

    `span` is from the beginning of the run to this request.
    """
    return _table({"": value}, span, spoken=False).get("")


def _substance(value: object, span: Span, *, spoken: bool) -> object:
    if isinstance(value, str):
        return _stable(" ".join(value.split()), span)
    if isinstance(value, list):
        return [_substance(item, span, spoken=spoken) for item in value]
    return _table(value, span, spoken=spoken) if isinstance(value, dict) else value


def _table(value: dict[str, object], span: Span, *, spoken: bool) -> dict[str, object]:
    made = {}
    for key, item in value.items():
        if item is None or (not spoken and _volatile(key, item)):
            continue
        kept = _substance(item, span, spoken=spoken or (key in SPOKEN and isinstance(item, dict)))
        made[key] = sorted(kept, key=digest) if key in UNORDERED and isinstance(kept, list) else kept
    return made


def _volatile(key: str, item: object) -> bool:
    return key in VOLATILE_TABLES or (key in VOLATILE_KEYS and isinstance(item, str))


def conversation(body: Mapping[str, object]) -> dict[str, object]:
    """What was said in a request, in any dialect, without instructions, tools and parameters."""
    return {key: _said(body[key]) for key in ("messages", "input", "contents") if key in body}


def _said(value: object) -> object:
    if isinstance(value, str):
        return _REMINDER.sub("", value)
    if isinstance(value, dict):
        return {key: _said(item) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    return [_said(one) for one in value if not (isinstance(one, dict) and one.get("role") in ("system", "developer"))]


def _stable(text: str, span: Span) -> str:
    """A text without what is volatile. What stands beside a replaced piece may show only then what it is."""
    while True:
        replaced = without_readings(text, span)
        for pattern, name in _VOLATILE_TEXT:
            replaced = pattern.sub(name, replaced)
        if replaced == text:
            return text
        text = replaced


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
