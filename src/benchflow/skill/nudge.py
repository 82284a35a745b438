"""A reminder of the skills in front of a prompt. Pure; which kind is the user's choice (`BENCHFLOW_SKILL_NUDGE`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchflow.skill.model import Skill

VARIABLE = "BENCHFLOW_SKILL_NUDGE"


def nudge(prompt: str, skills: Sequence[Skill], kind: str, folder: str) -> str:
    """`prompt` with the skills in `folder` named before it: `name`, `description` or `full`; else as it is."""
    if not skills:
        return prompt
    if kind == "name":
        head = f"Skills are available in {folder}: {', '.join(skill.name for skill in skills)}."
    elif kind == "description":
        lines = "\n".join(f"- {skill.name}: {skill.description}" for skill in skills)
        head = f"Skills are available in {folder}:\n{lines}"
    elif kind == "full":
        head = "\n\n".join(f'<skill name="{skill.name}">\n{skill.text.strip()}\n</skill>' for skill in skills)
    else:
        return prompt
    return f"{head}\n\n{prompt}"
