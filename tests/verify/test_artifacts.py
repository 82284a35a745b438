"""Collect hooks: they run where the agent has worked, and are not led by what it left there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchflow.errors import VerifierError
from benchflow.rollout.account import make_account
from benchflow.sandbox.base import BuildContext, Network, SandboxSpec
from benchflow.sandbox.registry import backends_in_use, get_backend
from benchflow.task.verifier import CollectHook
from benchflow.verify.artifacts import run_hooks
from benchflow.verify.environment import SCRATCH
from benchflow.verify.script import ScriptCheck, run_script

if TYPE_CHECKING:
    from pathlib import Path

# The first two lines are those of examples/tasks/start-a-server, so that their layer is shared.
DOCKERFILE = """\
FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends python3 && rm -rf /var/lib/apt/lists/*
WORKDIR /app
ENV BASH_ENV=/app/start.sh
"""
LEFT = "echo 'import os; os.system(\"touch /cheated\")' > json.py; echo 'HERE = 1' > mine.py; touch /app/start.sh"
HOOK = "python3 -c 'import json, mine; print(json.dumps(mine.HERE))' > out && echo $HOME${BASH_ENV} >> out"
TWO_REWARDS = b"#!/bin/sh\necho 0 > /logs/verifier/reward.txt\necho '{\"reward\": 1}' > /logs/verifier/reward.json\n"


@pytest.mark.needs("local")
async def test_nothing_the_agent_left_acts_in_a_hook_or_overrules_a_reward(tmp_path: Path) -> None:
    folder = tmp_path / "environment"
    folder.mkdir()
    (folder / "Dockerfile").write_text(DOCKERFILE)
    async with backends_in_use():
        spec = SandboxSpec(BuildContext(folder), name="hooks", network=Network("no-network"))
        async with get_backend("local").create(spec) as sandbox:
            await make_account(sandbox, "agent")
            assert (await sandbox.exec(LEFT, user="agent")).ok
            faults = await run_hooks(sandbox, [CollectHook(command=HOOK), CollectHook(command="exit 3")])
            assert faults == ["the collect hook 'exit 3' exited 3"]
            assert (await sandbox.exec("cat out")).text.split() == ["1", "/root"]
            assert not (await sandbox.exec(f"ls -d /cheated {SCRATCH}")).text
            with pytest.raises(VerifierError, match=r"reward\.json says"):
                await run_script(sandbox, ScriptCheck([{"test.sh": TWO_REWARDS}]), tmp_path / "output")
