"""Skills inside a sandbox: once at a neutral, read-only place, and a link to it wherever the agent looks."""

from __future__ import annotations

import hashlib
import shlex
from typing import TYPE_CHECKING

from benchflow.errors import SandboxError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchflow.sandbox.base import Sandbox
    from benchflow.skill.model import Skill

SKILLS = "/skills"
MOUNT_TIMEOUT = 120.0
"""Seconds that linking the skills may take."""


def skills_folder(skills: Sequence[Skill], among: int = 1) -> str:
    """Where a set of skills lies inside: `/skills`, or a folder of its own below it when roles have several sets."""
    if among < 2:
        return SKILLS
    named = hashlib.sha256("\n".join(str(skill.folder.resolve()) for skill in skills).encode()).hexdigest()[:12]
    return f"{SKILLS}/{named}"


async def put_skills(sandbox: Sandbox, skills: Sequence[Skill], folder: str) -> None:
    """Copy the skills to `folder`, owned by root and readable by all. Raises SandboxError."""
    for skill in skills:
        await sandbox.put(skill.folder, f"{folder}/{skill.name}")
    await _must(sandbox, f"chown -R 0:0 {shlex.quote(folder)}; chmod -R a+rX,go-w {shlex.quote(folder)}")


async def link_skills(
    sandbox: Sandbox, skills: Sequence[Skill], folder: str, places: Sequence[str], owner: str
) -> None:
    """Link each skill into each of `places` (absolute folders), which `owner` owns. Raises SandboxError."""
    await _link(sandbox, [f"{folder}/{skill.name}" for skill in skills], places, owner)


async def link_folder(sandbox: Sandbox, folder: str, places: Sequence[str], owner: str) -> None:
    """Link every skill that the image brings in `folder`. Raises SandboxError."""
    listed = await sandbox.exec(["/bin/sh", "-c", 'ls -d "$1"/*/', "sh", folder], user=0, cwd="/")
    await _link(sandbox, [line.rstrip("/") for line in listed.text.splitlines()], places, owner)


async def _link(sandbox: Sandbox, skills: Sequence[str], places: Sequence[str], owner: str) -> None:
    lines = [f"owner={shlex.quote(owner)}"]
    for place in places:
        # Folders on the way belong to the agent as well: it may keep more than skills in them.
        lines.append(f'p={shlex.quote(place)}; up=$p; while [ ! -d "$up" ]; do first=$up; up=$(dirname "$up"); done')
        lines.append('mkdir -p "$p"; [ -z "${first:-}" ] || chown -R "$owner" "$first"; first=')
        lines += [f'ln -sfn {shlex.quote(skill)} "$p/"' for skill in skills]
    await _must(sandbox, "\n".join(["set -eu", *lines]))


async def _must(sandbox: Sandbox, script: str) -> None:
    ended = await sandbox.exec(["/bin/sh", "-c", script], user=0, cwd="/", timeout=MOUNT_TIMEOUT)
    if not ended.ok:
        words = ended.stderr.decode("utf-8", "replace").strip() or f"exit code {ended.exit_code}"
        raise SandboxError(
            f"the skills could not be put in place: {words}",
            backend=sandbox.backend,
            sandbox=sandbox.id,
            phase="skills",
        )
