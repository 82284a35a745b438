"""What goes on around each turn when roles share a sandbox: mail, the solution, others' trajectories.

Before a role's turn its outbox is laid out, with what it alone may read, and the messages for it are taken into its
prompt; after the turn all of it is taken away again. Between turns nothing of it is in the sandbox, so nothing of it is
forked or scored, and nobody finds what is another's.
"""

from __future__ import annotations

import copy
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from benchflow.rollout.cast import TRAJECTORIES, make_room, remove, share_workspace
from benchflow.rollout.mail import Mail, Part
from benchflow.rollout.oracle import SOLUTION
from benchflow.rollout.outbox import NAME, Outbox
from benchflow.rollout.world import contents
from benchflow.sandbox.base import FileData

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from benchflow.rollout.cast import Cast
    from benchflow.rollout.plan import Act, Plan
    from benchflow.rollout.record import Record
    from benchflow.rollout.scene import Role, Scene, Step
    from benchflow.rollout.stop import Stop
    from benchflow.sandbox.base import Sandbox


class Backstage:
    """Prepares and clears away for the roles of one sandbox. Its methods raise SandboxError when the sandbox fails.

    What roles write to each other is told to `record`.
    """

    def __init__(self, sandbox: Sandbox, cast: Cast, plan: Plan, record: Record) -> None:
        self._sandbox = sandbox
        self._cast = cast
        self._plan = plan
        self.record = record
        self._outbox = Outbox(sandbox, cast)
        # Whoever calls the phases one by one opens no scene: all roles that meet may write to each other.
        roles = _meeting(plan.acts[0].turns)
        self._mail = Mail(roles) if roles else None

    async def open_act(self, act: Act) -> None:
        """Share what a step of the task has put into the workspace."""
        if act.step:
            await share_workspace(self._sandbox, self._cast)

    def open_scene(self, scene: Scene, steps: Sequence[Step], stop: Stop) -> None:
        """From now on the roles of this scene write to each other, if they are several."""
        roles = [role.name for role in scene.roles]
        self._mail = Mail(roles, [step.role.name for step in steps], stop.speakers) if len(roles) > 1 else None

    def close_scene(self) -> None:
        """What is still on its way reaches nobody."""
        for made in self._mail.close() if self._mail else ():
            self.record.event(made)
        self._mail = None

    @property
    def said_done(self) -> Sequence[str]:
        """The roles of this scene that say it is done."""
        return self._mail.done if self._mail else ()

    @asynccontextmanager
    async def turn(self, act: Act, role: Role, prompt: str, source: str) -> AsyncIterator[list[Part]]:
        """A turn of `role`, around whom all is ready; gives the prompt with all that goes with it."""
        laid = [*await self._lay_solution(act, role), *await self._lay_trajectories(role)]
        parts = [Part(source, prompt)]
        if self._mail is not None:
            await self._outbox.lay(role.name)
            how = [Part("notice", self._mail.how(role.name))] if NAME in prompt and '"content"' not in prompt else []
            parts = [*self._mail.open_turn(role.name), *parts, *how]
        try:
            yield parts
        except Exception:
            await self._clear(role, laid)
            raise
        await self._clear(role, laid)

    @asynccontextmanager
    async def hidden_solution(self) -> AsyncIterator[None]:
        """While the oracle works among agents, they cannot read its solution; then they may change what it made."""
        await make_room(self._sandbox, SOLUTION, self._cast.oracle_gid)
        try:
            yield
        finally:
            await remove(self._sandbox, SOLUTION)
            await share_workspace(self._sandbox, self._cast)

    def branched(self, sandbox: Sandbox, record: Record) -> Backstage:
        """The same in a fork of the sandbox, with the same mail on its way."""
        other = Backstage(sandbox, self._cast, self._plan, record)
        other._mail = copy.deepcopy(self._mail)
        return other

    async def _lay_solution(self, act: Act, role: Role) -> list[str]:
        if not role.oracle_access:
            return []
        await make_room(self._sandbox, SOLUTION, self._cast.oracle_gid)
        await self._sandbox.put(contents(self._plan.task.upload_files("solution", act.step)), SOLUTION)
        return [SOLUTION]

    async def _lay_trajectories(self, role: Role) -> list[str]:
        if not role.reads_trajectory:
            return []
        folder = f"{TRAJECTORIES}/{role.name}"
        await make_room(self._sandbox, folder, self._cast.gids.get(role.name, 0))
        events = self.record.events()
        files = {
            f"{other}.jsonl": "".join(json.dumps(event) + "\n" for event in events if event.get("actor") == other)
            for other in role.reads_trajectory
        }
        await self._sandbox.put({name: FileData(text.encode()) for name, text in files.items()}, folder)
        return [TRAJECTORIES]

    async def _clear(self, role: Role, laid: Sequence[str]) -> None:
        if self._mail is not None:
            for made in self._mail.take(await self._outbox.take(role.name)):
                self.record.event(made)
        if laid:
            await remove(self._sandbox, *laid)


def _meeting(steps: Sequence[Step]) -> list[str]:
    """The roles that act in a scene together with others."""
    scenes: dict[str, dict[str, None]] = {}
    for step in steps:
        scenes.setdefault(step.scene, {})[step.role.name] = None
    return list(dict.fromkeys(role for roles in scenes.values() if len(roles) > 1 for role in roles))
