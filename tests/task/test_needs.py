"""What a task needs is data, and nothing it needs keeps it from loading."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchflow.task.load import load_task
from benchflow.task.needs import required_capabilities

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STEP = '[[steps]]\nname = "one"\n'


def test_a_plain_task_needs_nothing(write_task: Callable[..., Path]) -> None:
    assert required_capabilities(load_task(write_task())) == []


@pytest.mark.parametrize(
    ("toml", "needs"),
    [
        ("[environment]\ngpus = 0", []),
        ('[environment]\ngpus = 2\ngpu_types = ["T4", "A100"]', ["gpu (2 of type T4 or A100, from environment.gpus)"]),
        ('[environment.tpu]\ntype = "v5e"\ntopology = "2x4"', ["tpu (8 chips of v5e, from environment.tpu)"]),
        ('[environment]\nos = "windows"', ["windows (windows, from environment.os)"]),
        (
            "[environment]\ncpus = 2\nmemory_mb = 5\nstorage_mb = 6",
            [
                "cpus (2, from environment.cpus)",
                "memory (5 MB, from environment.memory_mb)",
                "storage (6 MB, from environment.storage_mb)",
            ],
        ),
        ('[environment]\nnetwork_mode = "no-network"', ["no-network (no network, from environment.network_mode)"]),
        ('[environment]\nnetwork_mode = "allowlist"', ["allowlist (nothing, from environment.network_mode)"]),
        (
            '[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.com"]',
            [
                "network-change (from public to allowlist, from agent.network_mode)",
                "allowlist (a.com, from agent.network_mode)",
            ],
        ),
        ('[agent]\nnetwork_mode = "public"', []),
        ('[[environment.mcp_servers]]\nname = "m"\nurl = "u"', ["mcp (m, from environment.mcp_servers)"]),
        ('[environment]\nskills_dir = "/s"', ["skills (/s, from environment.skills_dir)"]),
        ('[environment.healthcheck]\ncommand = "c"', ["healthcheck (c, from environment.healthcheck)"]),
        ('[[sandbox.setup_commands]]\ncommand = "c"', ["setup-commands (1, from environment.setup_commands)"]),
        ('artifacts = ["/a"]', ["artifacts (1, from artifacts)"]),
        (
            '[verifier]\nenvironment_mode = "separate"',
            ["separate-verifier (environment, from verifier.environment_mode)"],
        ),
        (
            '[verifier.environment]\ndocker_image = "v"\ngpus = 1',
            ["separate-verifier (v, from verifier.environment_mode)", "gpu (1, from verifier.environment.gpus)"],
        ),
        ('[verifier]\ntype = "llm-judge"', ["llm-judge (tests/rubric.toml, from verifier.judge)"]),
        ('[[verifier.collect]]\ncommand = "c"', ["collect-hooks (1, from verifier.collect)"]),
        ("[verifier.memory]\nexpected_skills = []", ["memory-score (0, from verifier.memory)"]),
        (STEP, ["multi-step (1 steps, from steps)"]),
        (
            STEP + '[steps.healthcheck]\ncommand = "c"\n[steps.verifier]\nnetwork_mode = "no-network"',
            [
                "multi-step (1 steps, from steps)",
                "network-change (from public to no-network, from steps[0].verifier.network_mode)",
                "no-network (no network, from steps[0].verifier.network_mode)",
                "healthcheck (c, from steps[0].healthcheck)",
            ],
        ),
    ],
)
def test_declared_needs(write_task: Callable[..., Path], toml: str, needs: list[str]) -> None:
    files: dict[str, str | bytes | None] = {"task.toml": toml, "steps/one/instruction.md": "First."}
    files |= {"tests/test.bat": "", "tests/rubric.toml": ""}
    assert [str(need) for need in required_capabilities(load_task(write_task(files)))] == needs


def test_needs_from_files(write_task: Callable[..., Path]) -> None:
    task = load_task(write_task({"environment/docker-compose.yaml": "services: {}", "trajectory.json": "{}"}))
    assert [(need.capability, need.where) for need in required_capabilities(task)] == [
        ("compose", "environment/docker-compose.yaml"),
        ("prior-context", "trajectory.json"),
    ]
