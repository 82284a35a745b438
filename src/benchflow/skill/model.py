"""A skill is a folder with a SKILL.md: YAML front matter with `name` and `description`, then Markdown."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml

from benchflow.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MANIFEST = "SKILL.md"
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_NAME_LIMIT, _DESCRIPTION_LIMIT = 64, 1024
_FRONT = re.compile(r"\A---[ \t]*\r?\n(?P<head>.*?)(?:\r?\n)---[ \t]*(?:\r?\n|\Z)(?P<body>.*)\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Skill:
    """One skill on the host. `text` is the whole SKILL.md."""

    name: str
    description: str
    folder: Path
    text: str


def load_skill(folder: Path) -> Skill:
    """Read one skill. Raises ConfigError that names the file and what is wrong with it."""
    file = folder / MANIFEST
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from None
    head = parse_front_matter(text, str(file))
    name, description = head.get("name"), head.get("description")
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > _NAME_LIMIT:
        raise ConfigError(f"{file}: name must be 1 to {_NAME_LIMIT} of a-z, 0-9 and single hyphens, not {name!r}")
    if name != folder.resolve().name:
        raise ConfigError(f"{file}: name is {name!r}, but the folder is {folder.resolve().name!r}; they must be equal")
    if not isinstance(description, str) or not 1 <= len(description.strip()) <= _DESCRIPTION_LIMIT:
        raise ConfigError(f"{file}: description must be a text of 1 to {_DESCRIPTION_LIMIT} characters")
    return Skill(name, description.strip(), folder, text)


def find_skills(folder: Path) -> tuple[Skill, ...]:
    """The skills of a folder: itself if it is one, else those right below it. Raises ConfigError for none."""
    if (folder / MANIFEST).is_file():
        return (load_skill(folder),)
    if not folder.is_dir():
        raise ConfigError(f"skills_dir: {folder} is not a folder")
    found = tuple(load_skill(child) for child in sorted(folder.iterdir()) if (child / MANIFEST).is_file())
    if not found:
        raise ConfigError(f"skills_dir: {folder} holds no skill", hint=f"a skill is a folder with a {MANIFEST}")
    return found


def skills_digest(skills: Sequence[Skill]) -> str:
    """A digest of everything the skills consist of, file by file."""
    total = hashlib.sha256()
    for skill in skills:
        for file in sorted(path for path in skill.folder.rglob("*") if path.is_file()):
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            total.update(f"{skill.name}/{file.relative_to(skill.folder)}\0{content}\n".encode())
    return total.hexdigest()


def parse_front_matter(text: str, where: str) -> dict[str, object]:
    """The table at the head of a SKILL.md. Raises ConfigError."""
    match = _FRONT.match(text)
    if not match:
        raise ConfigError(f"{where}: must begin with YAML front matter between two lines of ---")
    try:
        head = yaml.safe_load(match["head"])
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{where}: the front matter is not valid YAML: {error}") from None
    if not isinstance(head, dict):
        raise ConfigError(f"{where}: the front matter must be a table with name and description")
    return {str(key): value for key, value in head.items()}
