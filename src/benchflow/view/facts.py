"""What is known of a rollout beside its story, as short plain texts. What is absent is left out; unknown is said.

Pure: result.json in, words out. The page and the terminal show the same words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchflow.job.row import trust_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_PHASES = {
    "environment_setup": "sandbox",
    "agent_setup": "agent set-up",
    "agent_execution": "agent working",
    "verifier": "verifier",
    "waiting": "of it waiting for the model",
    "total": "total",
}


def verdict(result: Mapping[str, Any]) -> str:
    """PASS, FAIL, LOST (it ended without a reward) or RUNNING (it has not ended)."""
    if "rewards" not in result:
        return "RUNNING"
    if result.get("passed"):
        return "PASS" if trust_of(result) == "trusted" else "PASS, SUSPECT"
    return "FAIL" if result["rewards"] else "LOST"


def rewards_text(rewards: object) -> str:
    """`reward 1, speed 0.5`, or that there is none."""
    found = rewards if isinstance(rewards, dict) else {}
    return ", ".join(f"{name} {number(value)}" for name, value in found.items()) or "no reward"


def number(value: object) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def facts(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Label and text of everything that fits in a line."""
    return [(label, text) for label, text in _facts(result) if text]


def _facts(result: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "agent", str(result.get("agent") or "")
    yield "model", str(result.get("model") or "")
    if sandbox := result.get("sandbox"):
        yield "sandbox", f"{sandbox}, agent user {result.get('sandbox_user') or 'root'}"
    if "rewards" in result:
        yield "verified", _level(result)
        yield "trust", _trust(result)
        yield "usage", usage_text(result.get("usage"))
    yield "limit", limit_text(result.get("limit"))
    yield "opt-outs", ", ".join(map(str, result.get("opt_outs") or ()))
    yield "graded again", _regraded(result.get("regraded"))
    yield "tool calls", str(result.get("n_tool_calls") or "")


def _level(result: Mapping[str, Any]) -> str:
    words = {"fork": "on a fork", "live": "beside the agent's servers", "fresh": "in a fresh sandbox"}
    level = result.get("verify_level")
    return f"{level}: {words[level]}" if level in words else str(level or "not")


def _trust(result: Mapping[str, Any]) -> str:
    counts = result.get("tampering")
    found = ", ".join(f"{count} {name}" for name, count in counts.items()) if isinstance(counts, dict) else ""
    return f"{trust_of(result)}{f' (tampering: {found})' if found else ''}"


def _regraded(regraded: object) -> str:
    if not isinstance(regraded, dict):
        return ""
    return f"{regraded.get('at')}; before: {rewards_text(regraded.get('rewards_before'))}"


def limit_text(limit: object) -> str:
    """Which budget cut the rollout off."""
    if not isinstance(limit, dict):
        return ""
    much = f" of {number(limit['limit'])}" if limit.get("limit") is not None else ""
    return f"cut off by the {limit.get('scope')}'s budget{much} ({limit.get('kind')})"


def usage_text(usage: object) -> str:
    """Tokens, cost and requests; what nobody counted is unknown, not zero."""
    known: Mapping[str, Any] = usage if isinstance(usage, dict) else {}
    parts = [_tokens(known), _cost(known)]
    requests = [
        f"{known[key]:,} {words}"
        for key, words in (
            ("requests", "requests"),
            ("retries", "retries"),
            ("unmetered_requests", "without their usage"),
            ("unpriced_requests", "without a price"),
        )
        if known.get(key)
    ]
    return " · ".join([*parts, *([", ".join(requests)] if requests else [])])


def _tokens(usage: Mapping[str, Any]) -> str:
    if usage.get("input_tokens") is None and usage.get("output_tokens") is None:
        return "tokens unknown"
    cached = [
        f"{usage[key]:,} {words}"
        for key, words in (("cached_tokens", "from cache"), ("cache_write_tokens", "to cache"))
        if usage.get(key)
    ]
    thought = [f"{usage['reasoning_tokens']:,} reasoning"] if usage.get("reasoning_tokens") else []
    sides = [(usage.get("input_tokens"), "in", cached), (usage.get("output_tokens"), "out", thought)]
    return "tokens " + ", ".join(
        f"{'unknown' if count is None else f'{count:,}'} {side}{f' ({", ".join(of)})' if of else ''}"
        for count, side, of in sides
    )


def _cost(usage: Mapping[str, Any]) -> str:
    by = f" by {usage['prices']}" if usage.get("prices") else ""
    if usage.get("cost_usd") is not None:
        return f"cost {_money(usage['cost_usd'])}{by}"
    at_least = f", at least {_money(usage['priced_usd'])}{by}" if usage.get("priced_usd") else ""
    return f"cost unknown{at_least}"


def _money(cost: float) -> str:
    return f"${cost:,.4f}" if cost < 1 else f"${cost:,.2f}"


def phases(result: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Name and seconds of every phase that took any."""
    timing = result.get("timing")
    found: Mapping[str, float] = timing if isinstance(timing, dict) else {}
    return [(_PHASES.get(name, name), float(seconds)) for name, seconds in found.items() if seconds]


def steps(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Name and reward of every step of the task."""
    return [(str(step.get("name")), rewards_text(step.get("rewards"))) for step in _dicts(result.get("steps"))]


def rounds(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Name and outcome of every round that was scored."""
    found = []
    for one in _dicts(result.get("rounds")):
        where = ", ".join(str(one[key]) for key in ("step", "scene") if one.get(key))
        failed = f"; not scored: {one['verifier_error']}" if one.get("verifier_error") else ""
        calls = f", {one['n_tool_calls']} tool calls" if one.get("n_tool_calls") else ""
        name = f"round {one.get('round')}{f' of {where}' if where else ''}"
        found.append((name, f"{rewards_text(one.get('rewards'))}{calls}{failed}"))
    return found


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch as its parent lists it. `path` says which it is: (1, 0) is the first branch of the second."""

    path: tuple[int, ...]
    folder: str
    after_events: int
    text: str

    @property
    def anchor(self) -> str:
        return "branch-" + "-".join(map(str, self.path))


def branches(result: Mapping[str, Any], above: tuple[int, ...] = ()) -> list[Branch]:
    """The tree of a rollout's branches, each before its own ones. `folder` is relative to the rollout's."""
    found: list[Branch] = []
    for place, one in enumerate(_dicts(result.get("branches"))):
        path = (*above, place)
        # Only what lies below is looked at, whatever a document says.
        folder = f"branches/{str(one.get('folder')).rsplit('/', 1)[-1]}"
        began = one.get("after_events")
        found.append(Branch(path, folder, began if isinstance(began, int) else 0, _branch_text(one)))
        below = branches(one, path)
        found += [Branch(b.path, f"{folder}/{b.folder}", b.after_events, b.text) for b in below]
    return found


def _branch_text(one: Mapping[str, Any]) -> str:
    error = one.get("error")
    parts = [
        str(one.get("role") or ""),
        str(one.get("model") or ""),
        rewards_text(one.get("rewards")),
        "kept: the rollout went on as this one" if one.get("kept") else "",
        f"{error.get('boundary')} error: {error.get('kind')}" if isinstance(error, dict) else "",
    ]
    return " · ".join(part for part in parts if part)


def error_head(error: Mapping[str, Any]) -> str:
    """Whose fault it was: boundary, phase and kind."""
    again = ", may be tried again" if error.get("retryable") else ""
    return f"{error.get('boundary')} error in {error.get('phase')}: {error.get('kind')}{again}"


def _dicts(value: object) -> Sequence[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
