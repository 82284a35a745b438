"""A reminder of the skills in front of a prompt. Pure; which kind is the user's choice (`BENCHFLOW_SKILL_NUDGE`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchflow.skill.model import Skill

VARIABLE = "BENCHFLOW_SKILL_NUDGE"


def nudge(skills: Sequence[Skill], kind: str, folder: str) -> str:
    """What is said of the skills in `folder`: their names, descriptions or full texts; nothing for any other kind."""
    if kind == "name":
        return f"Skills are available in {folder}: {', '.join(skill.name for skill in skills)}."
    if kind == "description":
        lines = "\n".join(f"- {skill.name}: {skill.description}" for skill in skills)
        return f"Skills are available in {folder}:\n{lines}"
    if kind == "full":
        return "\n\n".join(f'<skill name="{skill.name}">\n{skill.text.strip()}\n</skill>' for skill in skills)
    return ""
