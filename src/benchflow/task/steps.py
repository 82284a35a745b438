"""`[[steps]]`: a task in several acts, each with its own folder, prompt and score.

A step's name is the name of its folder on every system, so it must be portable, and two names that some system
takes for the same (by case or by Unicode form) are one name too many.
"""

import re
import unicodedata
from typing import Annotated, cast

from pydantic import AfterValidator, BeforeValidator

from benchflow.task.agent import AgentConfig
from benchflow.task.artifacts import Artifacts
from benchflow.task.environment import Healthcheck
from benchflow.task.problem import Issue, show
from benchflow.task.values import Table, Text, as_number, bad
from benchflow.task.verifier import VerifierConfig

NAME_LIMIT = 255
"""Bytes of a folder name in UTF-8."""

_RESERVED = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?", re.IGNORECASE)
_FORBIDDEN = frozenset('/\\<>:"|?*')


def name_fault(name: str) -> str:
    """Why `name` cannot be a folder everywhere, or nothing."""
    if not name.strip(". "):
        return "is empty, or only dots and spaces"
    if _FORBIDDEN & set(name) or any(unicodedata.category(char) in ("Cc", "Cs") for char in name):
        return 'has a separator, a control character or one of < > : " | ? *'
    if name[-1] in ". ":
        return "ends in a dot or a space"
    if _RESERVED.fullmatch(name):
        return "is a device name on Windows"
    if len(name.encode()) > NAME_LIMIT:
        return f"is longer than {NAME_LIMIT} bytes"
    return ""


def _portable(name: str) -> str:
    if fault := name_fault(name):
        raise bad(f"{show(name)} {fault}", "a portable folder name", 'write a name such as "build"')
    return name


def same_name(name: str) -> str:
    """Names with the same value here are one name to some file system."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def duplicate_names(raw: object) -> list[Issue]:
    """An issue for each step of the raw list whose name an earlier one has taken."""
    issues: list[Issue] = []
    seen: dict[str, str] = {}
    for index, step in enumerate(raw if isinstance(raw, list) else []):
        name = cast("dict[str, object]", step).get("name") if isinstance(step, dict) else None
        if not isinstance(name, str):
            continue
        if (earlier := seen.get(same_name(name))) is not None:
            issues.append(
                Issue(
                    ("steps", index, "name"),
                    f"{show(name)} is taken by an earlier step, {show(earlier)}",
                    "names that differ by more than case or Unicode form",
                    "rename one of them and its folder",
                    code="duplicate-step",
                )
            )
        seen.setdefault(same_name(name), name)
    return issues


def _threshold(value: object) -> float | dict[str, float]:
    expected = "a number, or a table of numbers by metric"
    if isinstance(value, dict):
        table = {str(key): as_number(item) for key, item in value.items()}
        if wrong := [key for key, number in table.items() if number is None]:
            raise bad(f"{show(wrong[0])} is {show(value[wrong[0]])}", expected, "write { correctness = 1.0 }")
        return {key: float(number) for key, number in table.items() if number is not None}
    number = as_number(value)
    if number is None:
        raise bad(f"{show(value)} is not a threshold", expected, "write min_reward = 1.0")
    return float(number)


class StepConfig(Table):
    """One act. `min_reward` is what must be reached for the next one to begin; a number is about `reward`."""

    name: Annotated[Text, AfterValidator(_portable)]
    agent: AgentConfig = AgentConfig()
    verifier: VerifierConfig = VerifierConfig()
    min_reward: Annotated[float | dict[str, float], BeforeValidator(_threshold)] | None = None
    healthcheck: Healthcheck | None = None
    artifacts: Artifacts = ()
