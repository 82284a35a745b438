"""What happened in a rollout, in the order it happened: events and prompts become items that are ready to be shown.

Pure, and without a word about how it is shown: the page and the terminal tell the same story. Whatever an agent sent
is taken as it is found; a field of a wrong type is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from benchflow.trajectory.reader import tool_calls

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from benchflow.trajectory.events import Event
    from benchflow.trajectory.reader import ToolCall

Kind = Literal["prompt", "message", "thought", "tool", "diff", "mail", "plan", "error", "stop", "round", "remark"]

_SILENT = ("usage", "mode", "tool_call_update")
_WORDS = {"message": "Agent", "thought": "Thought", "error": "Error", "plan": "Plan"}


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that happened. `actor` is the role; but for prompts it is known only where there are several.

    `at` is the number of its event. `label` says what it is in one line (of a prompt, where it comes from), `content`
    is the text or data of it. A prompt that was put together has `parts`, each with where that comes from; a tool call
    has `call`.
    """

    kind: Kind
    at: int
    label: str
    content: object = ""
    actor: str = ""
    parts: tuple[tuple[str, str], ...] = ()
    call: ToolCall | None = None


def tell(events: Sequence[Event], prompts: Sequence[object] = ()) -> list[Item]:
    """The items of a trajectory. `prompts` is prompts.json, which knows where prompts come from."""
    calls = _calls(events)
    asked = _Asked(prompts)
    return [item for at, event in enumerate(events) if (item := _item(at, event, calls, asked)) is not None]


def roles_of(items: Iterable[Item]) -> list[str]:
    """The roles that acted, in the order they did; none where nobody tells them apart."""
    return list(dict.fromkeys(item.actor for item in items if item.actor))


def one_line(value: object) -> str:
    """The first line of a text that says something."""
    return next((line.strip() for line in str(value or "").splitlines() if line.strip()), "")


def _item(at: int, event: Event, calls: Mapping[int, ToolCall], asked: _Asked) -> Item | None:
    kind, actor = event["type"], _text(event.get("actor"))
    made: Item | None = None
    if at in calls:
        made = Item("tool", at, calls[at].title or calls[at].kind, actor=actor, call=calls[at])
    elif kind == "prompt":
        role, source, parts = asked.find(_text(event.get("text")))
        made = Item("prompt", at, source, event.get("text"), actor or role, parts)
    elif kind in ("message", "thought", "error", "plan"):
        made = _said(at, kind, event, actor)
    elif kind == "diff":
        made = Item("diff", at, f"Edit {_text(event.get('path'))}", _text(event.get("new_text")), actor)
    elif kind == "stop":
        made = Item("stop", at, f"turn ended: {_text(event.get('reason'))}", actor=actor)
    elif kind == "permission":
        made = Item("remark", at, f"permission: {_text(event.get('outcome'))}", actor=actor)
    elif kind == "note":
        made = _note(at, event, actor)
    elif kind not in _SILENT:
        made = Item("remark", at, _text(kind), event, actor)
    return made


def _said(at: int, kind: Literal["message", "thought", "error", "plan"], event: Event, actor: str) -> Item | None:
    said = next((event[key] for key in ("text", "content", "message", "entries") if event.get(key)), None)
    echo = kind == "message" and event.get("role") == "user"
    return Item(kind, at, "Echo" if echo else _WORDS[kind], said, actor) if said is not None else None


def _note(at: int, event: Event, actor: str) -> Item:
    about, data = _text(event.get("about")), event.get("data")
    known: Mapping[str, object] = data if isinstance(data, dict) else {}
    sender, to, reason = (_text(known.get(key)) for key in ("from", "to", "reason"))
    match about:
        case "message" | "scene done":
            return Item("mail", at, f"{sender} → {to}", known.get("content"), sender)
        case "message not delivered":
            return Item("mail", at, f"{sender} → {to}, not delivered: {reason}", known.get("content"), sender)
        case "message refused":
            return Item("mail", at, f"{sender or 'somebody'}: {_text(known.get('file'))} refused: {reason}", "", sender)
        case "round":
            scene = f" of {known['scene']}" if known.get("scene") else ""
            return Item("round", at, f"round {known.get('round')}{scene}", known)
        case "scene over":
            return Item("remark", at, f"scene {_text(known.get('scene'))} is over: {reason}")
    return Item("remark", at, about, data, actor)


def _calls(events: Sequence[Event]) -> dict[int, ToolCall]:
    """The tool calls by the number of the event that began each. An id is one session's: others may use it again."""
    begun: dict[tuple[object, str], int] = {}
    reports: dict[int, list[Event]] = {}
    for at, event in enumerate(events):
        call_id = event.get("tool_call_id")
        if event["type"] not in ("tool_call", "tool_call_update") or not isinstance(call_id, str):
            continue
        key = _text(event.get("actor")), call_id
        if event["type"] == "tool_call" or key not in begun:
            begun[key] = at
        reports.setdefault(begun[key], []).append(event)
    return {at: tool_calls(found)[0] for at, found in reports.items()}


class _Asked:
    """prompts.json, looked through once from its beginning: a prompt that was never sent is passed over."""

    def __init__(self, prompts: Sequence[object]) -> None:
        self._left = [one for one in prompts if isinstance(one, dict)]

    def find(self, text: str) -> tuple[str, str, tuple[tuple[str, str], ...]]:
        """Whom a prompt is for, where it comes from, and its parts."""
        for number, one in enumerate(self._left):
            if one.get("prompt") == text:
                del self._left[: number + 1]
                return _text(one.get("scene_role")), _text(one.get("source")), tuple(_parts(one.get("parts")))
        return "", "", ()


def _parts(parts: object) -> Iterator[tuple[str, str]]:
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict):
            role = f" from {part['role']}" if part.get("role") else ""
            yield f"{_text(part.get('source'))}{role}", _text(part.get("text"))


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)
