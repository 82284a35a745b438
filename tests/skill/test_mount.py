"""Skills in a real sandbox: readable through every link, writable through none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchflow.sandbox.base import HostRoot, Network, SandboxSpec
from benchflow.sandbox.registry import close_backends, get_backend
from benchflow.skill.model import find_skills
from benchflow.skill.mount import link_skills, put_skills, skills_folder

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.needs("local")
async def test_an_agent_finds_its_skills_and_cannot_change_them(tmp_path: Path) -> None:
    for name in ("csv", "pdf"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: About {name}.\n---\n")
        (folder / "run.sh").write_text("echo ran")
        (folder / "run.sh").chmod(0o700)
    skills = find_skills(tmp_path)
    spec = SandboxSpec(image=HostRoot(), network=Network("no-network"))
    try:
        async with get_backend("local").create(spec) as box:
            await put_skills(box, skills, skills_folder(skills))
            places = ["/home/new/.claude/skills", "/home/new/.agents/skills"]
            await link_skills(box, skills, "/skills", places, "nobody")
            await link_skills(box, skills, "/skills", places, "nobody")
            listed = await box.exec(
                "cat /home/new/.claude/skills/*/SKILL.md; sh /home/new/.agents/skills/csv/run.sh", user="nobody"
            )
            changed = await box.exec("echo x >> /home/new/.claude/skills/csv/SKILL.md", user="nobody")
            beside = await box.exec("touch /home/new/.claude/settings.json", user="nobody")
    finally:
        await close_backends()
    assert "name: csv" in listed.text
    assert "name: pdf" in listed.text
    assert listed.text.endswith("ran\n")
    assert not changed.ok
    assert beside.ok


def test_roles_with_different_skills_have_different_folders(tmp_path: Path) -> None:
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv" / "SKILL.md").write_text("---\nname: csv\ndescription: d\n---\n")
    skills = find_skills(tmp_path)
    assert skills_folder(skills) == "/skills"
    assert skills_folder(skills, among=2).startswith("/skills/")
