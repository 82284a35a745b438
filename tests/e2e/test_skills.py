"""Skills in a rollout: a real agent finds them where it looks, and the prompt names them when asked to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import benchflow as bf
from benchflow.errors import ConfigError
from benchflow.testing.model_server import ModelServer, Run, Say

TASK = Path(__file__).parents[2] / "examples/tasks/write-a-file"
MODEL = "anthropic/claude-sonnet-4-6"


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    folder = tmp_path / "skills" / "greeting"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(
        "---\nname: greeting\ndescription: How to greet from a sandbox.\n---\nSay hello.\n"
    )
    return folder.parent


@pytest.mark.needs("local")
async def test_an_agent_is_shown_its_skills(tmp_path: Path, skills: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = "cat ~/.claude/skills/greeting/SKILL.md; touch ~/.claude/skills/greeting/mine || echo kept out"
    solve = "printf 'Hello from the sandbox!\\n' > /app/greeting.txt"
    async with ModelServer([Run(look), Run(solve), Say("Done.")]) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "key-for-tests")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("BENCHFLOW_SKILL_NUDGE", "name")
        config = bf.RolloutConfig(
            task_path=TASK,
            scenes=[bf.Scene.single("claude", MODEL)],
            environment="local",
            skills_dir=skills,
            jobs_dir=tmp_path / "jobs",
        )
        result = await bf.run(config)
        asked = [request.text for request in server.turns]
    assert result.passed, (result.error, result.notes)
    assert "Say hello." in asked[-1]
    assert "kept out" in asked[-1]
    # The agent itself lists what it found in its own system prompt or tools.
    assert "How to greet from a sandbox." in asked[0]
    (prompt,) = json.loads((result.rollout_dir / "prompts.json").read_text())
    assert prompt["prompt"].startswith("Skills are available in /skills: greeting.")


async def test_a_folder_without_skills_is_said_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-for-tests")
    config = bf.RolloutConfig(
        task_path=TASK, scenes=[bf.Scene.single("claude", MODEL)], environment="local", skills_dir=tmp_path
    )
    with pytest.raises(ConfigError, match="holds no skill"):
        await bf.run(config)


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("local", marks=pytest.mark.needs("local")),
        pytest.param("docker", marks=pytest.mark.needs("docker")),
    ],
)
async def test_roles_may_have_different_skills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    for name in ("writing", "reviewing"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: About {name}.\n---\n")
    look = Run("ls ~/.claude/skills; touch ~/.claude/skills/*/mine || echo kept out")
    async with ModelServer([look, Say("Done.")]) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "key-for-tests")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        roles = [bf.Role(name, "claude", MODEL, skills_dir=tmp_path / name) for name in ("writing", "reviewing")]
        turns = [bf.Turn("writing", "You write."), bf.Turn("reviewing", "You review.")]
        config = bf.RolloutConfig(
            task_path=TASK,
            scenes=[bf.Scene(roles=roles, turns=turns)],
            environment=backend,
            jobs_dir=tmp_path / "jobs",
        )
        result = await bf.run(config)
    assert result.error is None, result.error
    seen = [event for event in result.trajectory if event["type"].startswith("tool_call")]
    for name, other in (("writing", "reviewing"), ("reviewing", "writing")):
        own = json.dumps([event for event in seen if event.get("actor") == name])
        assert name in own
        assert "kept out" in own.replace("echo kept out", "")
        assert other not in own.replace(f'"actor": "{name}"', "")
