"""docs/tasks.md names every key of a task with its default, and everything that a run refuses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchflow.rollout.plan import _NEVER
from benchflow.task.agent import AgentConfig
from benchflow.task.artifacts import Artifact
from benchflow.task.environment import EnvironmentConfig, Healthcheck, SetupCommand, Tpu
from benchflow.task.legacy import DEPRECATED, TABLE_ALIASES
from benchflow.task.mcp import McpServer
from benchflow.task.model import PackageInfo, SolutionConfig, TaskConfig
from benchflow.task.steps import StepConfig
from benchflow.task.verifier import CollectHook, Hardening, Judge, MemoryScore, VerifierConfig

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from benchflow.task.values import Table

PAGE = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8")
TABLES: dict[str, type[Table]] = {
    "top level": TaskConfig,
    "`[task]`": PackageInfo,
    "`[agent]`": AgentConfig,
    "`[verifier]`": VerifierConfig,
    "`[verifier.hardening]`": Hardening,
    "`[[verifier.collect]]`": CollectHook,
    "`[verifier.judge]`": Judge,
    "`[verifier.memory]`": MemoryScore,
    "`[environment]`": EnvironmentConfig,
    "`[environment.healthcheck]`": Healthcheck,
    "`[[environment.mcp_servers]]`": McpServer,
    "`[[environment.setup_commands]]`": SetupCommand,
    "`[environment.tpu]`": Tpu,
    "`[solution]`": SolutionConfig,
    "`[[steps]]`": StepConfig,
    "`artifacts`": Artifact,
}


def section(title: str) -> str:
    return re.split(r"^##+ ", PAGE.partition(f"### {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def written(title: str) -> dict[str, str]:
    """Key -> default, as the table of a section has them."""
    rows = re.findall(r"^\| (`[^|]*) \| ([^|]*) \|", section(title), re.MULTILINE)
    return {key: default.strip("`") for keys, default in rows for key in re.findall(r"`(\w+)`", keys)}


def told(field: FieldInfo) -> str:
    """How the page writes a default: nothing, an empty list and a table of defaults are a dash."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, int | float) else value if value and isinstance(value, str) else "-"


@pytest.mark.parametrize("title", TABLES)
def test_every_key_is_there_with_its_default(title: str) -> None:
    assert written(title) == {name: told(field) for name, field in TABLES[title].model_fields.items()}


def test_every_table_is_there() -> None:
    assert re.findall(r"^### (.*)$", PAGE, re.MULTILINE) == list(TABLES)


def test_old_and_second_names_are_there() -> None:
    said = section("`[environment]`")
    assert all(f"`{old}" in said for old in (*DEPRECATED, "version"))
    assert "`sandbox`" in PAGE
    assert set(TABLE_ALIASES) == {"sandbox", "oracle"}


REFUSED = {
    "windows": "Windows",
    "tpu": "TPUs",
    "compose": "compose services",
    "llm-judge": "`llm-judge`",
    "prior-context": "`trajectory.json`",
    "memory-score": "`[verifier.memory]`",
}


def test_what_no_sandbox_can_run_is_there() -> None:
    assert set(REFUSED) == _NEVER
    said = " ".join(PAGE.partition("## What this release cannot run")[2].split())
    assert all(words in said for words in REFUSED.values())
