"""One event is one JSON object with a `type`, a `ts` and the fields of its type. A trajectory is a list of them.

- prompt: `text`, what the agent was asked.
- message, thought: `text` or, for anything else than text, `content`; `role` is `user` for what the agent echoes of us;
  `message_id` where the agent gives one; `continues` on a piece that goes on where the one before it stopped.
- tool_call: `tool_call_id`, `title`, `kind`, `status`, `arguments`, `output`, `content`, `locations`, `meta`;
  exactly one per id. tool_call_update: the same fields, those that changed.
- diff: `path`, `old_text` (absent for a new file), `new_text`, and `tool_call_id` where a tool call showed it.
- permission: `tool_call_id`, `options`, `outcome`, `option_id`.
- plan: `entries`, or what the agent sent instead.
- usage: `source` (`update` or `reply`) and the numbers the agent reports.
- mode: `mode`.
- error: `kind`, `message`.
- note: `about`, `data`; everything else worth keeping.
- stop: `reason`.

Events hold whatever an agent sent, so their values are `object`: whoever reads one checks what it finds.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

EventType = Literal[
    "prompt",
    "message",
    "thought",
    "tool_call",
    "tool_call_update",
    "diff",
    "permission",
    "plan",
    "usage",
    "mode",
    "error",
    "note",
    "stop",
]

type Event = dict[str, object]


def event(type_: EventType, /, **fields: object) -> Event:
    """A new event of now, without the fields that are None."""
    made: Event = {"type": type_, "ts": datetime.now(UTC).isoformat(timespec="milliseconds")}
    for name, value in fields.items():
        if value is not None:
            made[name] = value
    return made
