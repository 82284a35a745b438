"""The skills of a rollout's roles: a role's own folder, else the config's, beside those that the image brings.

They are put into the sandbox once, and linked where each agent looks as it starts. In its home if it looks there, since
what lies in the workspace is seen by every role and by the verifier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchflow.errors import ConfigError
from benchflow.skill.model import find_skills
from benchflow.skill.mount import link_folder, link_skills, put_skills, skills_folder
from benchflow.skill.nudge import VARIABLE, nudge

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from benchflow.agent.spec import AgentSpec
    from benchflow.rollout.account import Account
    from benchflow.rollout.config import RolloutConfig
    from benchflow.rollout.plan import Player
    from benchflow.rollout.scene import Role
    from benchflow.sandbox.base import Sandbox
    from benchflow.skill.model import Skill
    from benchflow.task.task import Task


class Skills:
    """Which role has which skills. Raises ConfigError for a folder without valid ones."""

    def __init__(
        self, config: RolloutConfig, task: Task, players: Iterable[Player], environ: Mapping[str, str]
    ) -> None:
        self._default = config.skills_dir
        self._image = task.config.environment.skills_dir
        self._kind = environ.get(VARIABLE, "")
        folders = {self._folder_of(player.role) for player in players if player.spec.kind != "builtin"}
        self._sets = {folder: find_skills(folder) for folder in folders if folder}

    async def put(self, sandbox: Sandbox) -> None:
        """Copy every set into the sandbox, where all roles can read it and none can change it."""
        for skills in self._sets.values():
            await put_skills(sandbox, skills, self._place(skills))

    async def link(self, sandbox: Sandbox, player: Player, account: Account) -> None:
        """Show its skills to an agent that is about to start. Raises ConfigError when it looks for skills nowhere."""
        skills = self._of(player.role)
        if not skills and not self._image:
            return
        places = _places(player.spec, account.home, sandbox.workdir)
        owner = str(account.user or "root")
        if self._image:
            await link_folder(sandbox, self._image, places, owner)
        if skills:
            await link_skills(sandbox, skills, self._place(skills), places, owner)

    def preface(self, role: Role) -> str:
        """What is said of its skills before the instruction, if the user wants anything said."""
        skills = self._of(role)
        return nudge(skills, self._kind, self._place(skills)) if skills else ""

    def _of(self, role: Role) -> tuple[Skill, ...]:
        folder = self._folder_of(role)
        return self._sets.get(folder, ()) if folder else ()

    def _folder_of(self, role: Role) -> Path | None:
        return role.skills_dir or self._default

    def _place(self, skills: tuple[Skill, ...]) -> str:
        return skills_folder(skills, len(self._sets))


def _places(spec: AgentSpec, home: str, workspace: str) -> list[str]:
    found = [f"{home}/{path}" for path in spec.skills.home] or [f"{workspace}/{path}" for path in spec.skills.workspace]
    if not found:
        raise ConfigError(
            f"agent {spec.name} is not known to look for skills anywhere", hint="add [skills] to its file"
        )
    return found
