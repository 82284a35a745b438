"""Where a verifier runs, so that the agent cannot reach it. Pure rules; which one was used is part of the result.

- `fork`: a copy-on-write fork of the agent's sandbox, with none of its processes. The default.
- `live`: in place, beside servers that the agent left running, for tasks whose solution is a running server.
- `fresh`: a new sandbox that gets the workspace or the declared artifacts; separate verifiers, and backends that
  cannot fork.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["fork", "live", "fresh"]


@dataclass(frozen=True, slots=True)
class Placement:
    """The level that was chosen, why, and whether a pass at that level can be trusted."""

    level: Level
    reason: str
    trusted: bool = True


def place_verifier(
    *, separate: bool, can_fork: bool, servers: int, agent_is_root: bool, task_wants_live: bool, fresh: bool = False
) -> Placement:
    """Choose the level.

    A root agent could replace anything a verifier in its own sandbox uses, so it is never verified live unless the task
    asks for it, and then the result is not trusted.
    """
    if separate:
        return Placement("fresh", "the task has a separate verifier")
    if fresh:
        return Placement("fresh", "it was asked for")
    if task_wants_live:
        return Placement("live", "the task asks for it", trusted=not agent_is_root)
    if servers and not agent_is_root:
        return Placement("live", f"{servers} of the agent's processes listen on a socket")
    if can_fork:
        return Placement("fork", "the default")
    return Placement("fresh", "the sandbox cannot fork")
