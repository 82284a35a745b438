"""From what an agent reports over ACP (`session/update`, the call in a permission request) to events.

The translator never raises for what an agent sends: a shape it does not know becomes a `note`, so nothing is lost.
It keeps two promises that readers rely on. The first event of a tool call's id is a `tool_call` and every later one a
`tool_call_update`, whichever of the two the agent sent. A file edit is one `diff` event however often it is repeated.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Literal

from benchflow.trajectory.events import event

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchflow.trajectory.events import Event

TRACKED_CALLS = 50_000
"""Tool calls, and file edits, that are remembered as seen. Beyond it the oldest may be reported as new again."""

_CALL_FIELDS = (
    ("title", "title"),
    ("kind", "kind"),
    ("status", "status"),
    ("rawInput", "arguments"),
    ("rawOutput", "output"),
    ("locations", "locations"),
    ("_meta", "meta"),
)


class _Seen:
    """The last `limit` keys."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._keys: OrderedDict[int, None] = OrderedDict()

    def is_new(self, key: int) -> bool:
        """Whether `key` is met for the first time; from now on it is not."""
        if key in self._keys:
            return False
        self._keys[key] = None
        if len(self._keys) > self._limit:
            self._keys.popitem(last=False)
        return True


class UpdateTranslator:
    """Turns the updates of one session, in their order, into events."""

    def __init__(self) -> None:
        self._calls = _Seen(TRACKED_CALLS)
        self._diffs = _Seen(TRACKED_CALLS)

    def translate(self, update: object) -> list[Event]:
        """The events of one `update` object of a `session/update` notification."""
        kind = update.get("sessionUpdate") if isinstance(update, dict) else None
        if not isinstance(update, dict) or not isinstance(kind, str):
            return [event("note", about="malformed update", data=update)]
        made: list[Event]
        match kind:
            case "agent_message_chunk":
                made = [_chunk("message", update)]
            case "agent_thought_chunk":
                made = [_chunk("thought", update)]
            case "user_message_chunk":
                made = [_chunk("message", update, role="user")]
            case "tool_call" | "tool_call_update":
                made = self.tool_call(update)
            case "plan" | "plan_update" | "plan_removed":
                made = [event("plan") | _rest(update)]
            case "usage_update":
                made = [event("usage", source="update") | _rest(update)]
            case "current_mode_update":
                made = [event("mode", mode=update.get("currentModeId"))]
            case _:
                made = [event("note", about=kind, data=_rest(update))]
        return made

    def tool_call(self, call: Mapping[str, object]) -> list[Event]:
        """The events of a `ToolCall` or `ToolCallUpdate` object, wherever it was found."""
        call_id = call.get("toolCallId")
        if not isinstance(call_id, str):
            return [event("note", about="tool call without id", data=dict(call))]
        # Of a key of any length, only the hash is remembered.
        made = event("tool_call" if self._calls.is_new(hash(call_id)) else "tool_call_update", tool_call_id=call_id)
        for theirs, ours in _CALL_FIELDS:
            value = call.get(theirs)
            if value is not None:
                made[ours] = value
        content = call.get("content")
        if not isinstance(content, list):
            return [made]
        made["content"] = [
            {"type": "diff", "path": block.get("path")} if _is_diff(block) else block for block in content
        ]
        edits = [self._edit(block, call_id) for block in content if _is_diff(block)]
        return [made, *(edit for edit in edits if edit is not None)]

    def _edit(self, block: Mapping[str, object], call_id: str) -> Event | None:
        path, old, new = block.get("path"), block.get("oldText"), block.get("newText")
        if not self._diffs.is_new(hash((call_id, str(path), str(old), str(new)))):
            return None
        return event("diff", tool_call_id=call_id, path=path, old_text=old, new_text=new)


def _rest(update: Mapping[str, object]) -> dict[str, object]:
    """The update without its kind, and without what would overwrite an event's own fields."""
    return {key: value for key, value in update.items() if key not in ("sessionUpdate", "type", "ts", "source")}


def _is_diff(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") == "diff" and isinstance(block.get("newText"), str)


def _chunk(type_: Literal["message", "thought"], update: Mapping[str, object], role: str | None = None) -> Event:
    content = update.get("content")
    made = event(type_, role=role, message_id=update.get("messageId"))
    if isinstance(content, dict) and content.get("type") == "text" and isinstance(content.get("text"), str):
        made["text"] = content["text"]
    else:
        made["content"] = content
    return made
