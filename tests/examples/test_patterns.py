"""The shipped patterns, run as a user would run them: real agents in the local sandbox, models that follow a script."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchflow.testing.model_server import ModelServer, Run, Say, Use

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchflow.testing.model_server import Step

pytestmark = pytest.mark.needs("local")

EXAMPLES = Path(__file__).parents[2] / "examples"
PATTERNS = EXAMPLES / "patterns"
SOLUTION = (EXAMPLES / "tasks/fix-a-bug/solution/solve.sh").read_text().split("\n", 2)[2]
SOLVE = Run(f"cd /app && {SOLUTION}")
TIMEOUT = 300.0


def write(recipient: str, content: str) -> Run:
    message = json.dumps({"to": recipient, "content": content})
    return Run(f"cat > /app/.outbox/{recipient}.json <<'END'\n{message}\nEND")


async def run(
    argv: Sequence[str], folder: Path, script: Sequence[Step], scripts: Mapping[str, Sequence[Step]] | None = None
) -> tuple[str, list[str]]:
    """What the command prints, and what its agents asked the scripted model."""
    async with ModelServer(script, scripts=scripts) as server:
        keys = {"OPENAI_API_KEY": "key-for-tests", "ANTHROPIC_API_KEY": "key-for-tests"}
        urls = {"OPENAI_BASE_URL": f"{server.url}/v1", "ANTHROPIC_BASE_URL": server.url}
        process = await asyncio.create_subprocess_exec(
            sys.executable, *argv, cwd=folder, env={**os.environ, **keys, **urls, "SANDBOX": "local"},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(TIMEOUT):
            out, err = await process.communicate()
        assert process.returncode == 0, out.decode() + err.decode()
        return out.decode(), [request.text for request in server.turns]


async def pattern(
    name: str, folder: Path, script: Sequence[Step], scripts: Mapping[str, Sequence[Step]] | None = None
) -> tuple[dict[str, Any], Path, list[str]]:
    bench = str(Path(sys.executable).parent / "bench")
    argv = [bench, "eval", "create", "--config", str(PATTERNS / name), "-e", "local", "--json"]
    printed, asked = await run(argv, folder, script, scripts)
    (rollout,) = json.loads(printed)["rollouts"]
    return rollout, folder / rollout["rollout_dir"], asked


def prompts(rollout_dir: Path) -> list[str]:
    return [entry["prompt"] for entry in json.loads((rollout_dir / "prompts.json").read_text())]


async def test_the_reviewers_words_are_in_the_coders_second_prompt(tmp_path: Path) -> None:
    words = "merge must keep the longer end"
    scripts: dict[str, list[Step]] = {
        "You are an expert code reviewer": [
            Run("touch /app/mine 2>&1 || echo not allowed"),
            write("coder", words),
            Say("Reviewed."),
        ]
    }
    script: list[Step] = [Run("ls /app"), Say("Done."), SOLVE, Say("Revised.")]
    rollout, folder, asked = await pattern("review-loop.yaml", tmp_path, script, scripts)
    assert rollout["rewards"] == {"reward": 1.0}, rollout
    first, review, second = prompts(folder)
    assert words not in first + review
    assert words in second
    assert "reviewer" in second
    assert any(words in request for request in asked)
    assert any("not allowed" in request for request in asked)


async def test_a_simulated_user_reads_the_solution_and_the_assistant_does_not(tmp_path: Path) -> None:
    scripts: dict[str, list[Step]] = {
        "You are simulating a user": [
            Run("head -c 20 /solution/solve.sh; cat /app/instruction.md | head -1"),
            write("assistant", "please fix the opening hours"),
            Say("Asked."),
            write("assistant", "the end of a span is not part of it"),
            Say("Hinted."),
        ],
    }
    script: list[Step] = [Run("cat /solution/solve.sh || echo kept out"), Say("Done."), SOLVE, Say("Fixed.")]
    rollout, folder, asked = await pattern("simulated-user.yaml", tmp_path, script, scripts)
    assert rollout["rewards"] == {"reward": 1.0}, rollout
    _, first, _, second = prompts(folder)
    assert "please fix the opening hours" in first
    assert "the end of a span" in second
    assert any("#!/bin/sh" in request for request in asked)
    assert any("kept out" in request for request in asked)


async def test_a_skill_outlives_the_scene_that_wrote_it_and_its_memory_does_not(tmp_path: Path) -> None:
    scripts: dict[str, list[Step]] = {
        "Write a skill document": [Run("echo 'sort first' > /app/generated-skill.md"), Say("xyzzy")]
    }
    script: list[Step] = [Run("cat /app/generated-skill.md"), SOLVE, Say("Solved.")]
    rollout, _, asked = await pattern("skill-generation.yaml", tmp_path, script, scripts)
    assert rollout["rewards"] == {"reward": 1.0}, rollout
    solving = [request for request in asked if "Write a skill document" not in request]
    assert "sort first" in solving[-1]
    assert not any("xyzzy" in request for request in solving)


async def test_several_prompts_in_one_session(tmp_path: Path) -> None:
    script: list[Step] = [SOLVE, Say("plugh"), Say("Reviewed."), Say("Checked.")]
    rollout, folder, asked = await pattern("multi-turn.yaml", tmp_path, script)
    assert rollout["rewards"] == {"reward": 1.0}, rollout
    assert len(prompts(folder)) == 3
    assert "plugh" in asked[-1]


async def test_a_reviewer_of_another_maker(tmp_path: Path) -> None:
    words = "is_open must not include the end"
    scripts: dict[str, list[Step]] = {
        "You are reviewing code written by a different agent": [write("coder", words), Say("Reviewed.")]
    }
    script: list[Step] = [Say("Done."), SOLVE, Say("Revised.")]
    rollout, folder, _ = await pattern("cross-model-review.yaml", tmp_path, script, scripts)
    assert rollout["rewards"] == {"reward": 1.0}, rollout
    assert words in prompts(folder)[2]
    models = {
        json.loads(line)["model"] for line in (folder / "trajectory/llm_trajectory.jsonl").read_text().splitlines()
    }
    assert models >= {"gpt-5-mini", "claude-sonnet-4-6"}


async def test_a_service_beside_the_agent(tmp_path: Path) -> None:
    solution = (PATTERNS / "tasks/reply-to-alice/solution/solve.sh").read_text()
    script: list[Step] = [Run("cat /data/gmail.db || echo kept out"), Run(solution), Say("Answered.")]
    rollout, _, asked = await pattern("services.yaml", tmp_path, script)
    assert rollout["rewards"] == {"reward": 1.0}, rollout
    assert any("kept out" in request for request in asked)


async def test_a_reviewer_as_a_tool(tmp_path: Path) -> None:
    words = "a span that ends before it starts must be refused"
    script: list[Step] = [Say("Done."), Use("review_code"), SOLVE, Say("Fixed.")]
    scripts: dict[str, list[Step]] = {"You are an experienced engineer": [Say(words)]}
    printed, asked = await run([str(PATTERNS / "review_by_tool.py")], tmp_path, script, scripts)
    assert "reward: 1.0" in printed
    assert any(words in request for request in asked if "experienced engineer" not in request)


async def test_progressive_disclosure(tmp_path: Path) -> None:
    script: list[Step] = [Say("Done."), SOLVE, Say("Fixed.")]
    printed, asked = await run([str(PATTERNS / "progressive_disclosure.py")], tmp_path, script)
    assert "reward: 1.0" in printed
    assert not any("closes at 720" in request for request in asked[:1])
    assert "closes at 720" in asked[-1]


async def test_the_ablation_tells_the_conditions_apart(tmp_path: Path) -> None:
    argv = [str(EXAMPLES / "reviewer_ablation.py"), "--scripted", "--sandbox", "local", "--attempts", "1"]
    printed, _ = await run(argv, tmp_path, [])
    rows = {line.split()[0]: line.split()[1:4] for line in printed.splitlines() if line.strip()}
    assert rows["baseline"] == ["0", "1", "0"], printed
    assert rows["reviewer"] == ["0", "1", "0"], printed
    assert rows["reviewer+spec"] == ["1", "1", "0"], printed
