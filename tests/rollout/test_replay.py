"""Reading a rollout's folder to run it again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchflow.errors import ConfigError
from benchflow.rollout.config import RolloutConfig
from benchflow.rollout.recipe import recipe
from benchflow.rollout.replay import read_recording, replay
from benchflow.rollout.scene import Scene
from benchflow.rollout.user import FunctionUser

TASK = Path(__file__).parents[2] / "examples" / "tasks" / "write-a-file"
PLAYERS = {"agent": {"version": "1.2", "provider": "openai"}}


def write(folder: Path, config: RolloutConfig, **more: Any) -> Path:
    document = {**recipe(config), "players": PLAYERS, "task_digest": "sha256:0", **more}
    (folder / "config.json").write_text(json.dumps(document))
    (folder / "result.json").write_text(json.dumps({"rewards": {"reward": 0.5}}))
    return folder


def config(**settings: Any) -> RolloutConfig:
    return RolloutConfig(task_path=TASK, scenes=[Scene.single("goose", "openai/m")], **settings)


def test_a_folder_says_what_was_run(tmp_path: Path) -> None:
    found = read_recording(write(tmp_path, config(max_tokens=7)), given={"environment": "docker"})
    assert recipe(found.config) == recipe(config(max_tokens=7, environment="docker"))
    assert (found.versions, found.providers, found.rewards) == ({"agent": "1.2"}, {"agent": "openai"}, {"reward": 0.5})
    assert found.folder == tmp_path


async def test_a_user_in_python_is_stood_in_for_by_what_it_said(tmp_path: Path) -> None:
    said = [
        {"source": "user", "prompt": "first"},
        {"source": "scene", "prompt": "no"},
        {"source": "user", "prompt": "second"},
    ]
    (tmp_path / "prompts.json").write_text(json.dumps(said))
    user = FunctionUser(lambda round_, instruction, result: "something else")
    found = read_recording(write(tmp_path, config(user=user)))
    assert found.config.user
    assert [await found.config.user.run(number, "") for number in range(3)] == ["first", "second", None]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "it has no config.json"),
        ({"config.json": "{"}, "cannot be read"),
        ({"config.json": "[]"}, "is not an object"),
        ({"config.json": "{}"}, "does not say what is needed"),
        ({"config.json": '{"players": {"a": 1}, "task_digest": ""}'}, "does not say what is needed"),
        (
            {"config.json": '{"players": {}, "task_digest": "", "user": {"python": "f"}}'},
            "prompts.json: cannot be read",
        ),
    ],
)
def test_what_is_no_recording_is_said_to_be_none(tmp_path: Path, files: dict[str, str], words: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=words):
        read_recording(tmp_path)


async def test_what_cannot_be_replayed_is_refused_before_anything_starts(tmp_path: Path) -> None:
    recording = read_recording(write(tmp_path, config()))
    with pytest.raises(ConfigError, match="the task has changed since then"):
        await replay(recording)
    with pytest.raises(ConfigError, match="recorded answers are those of the recorded model"):
        await replay(recording, changed_task=True, model="openai/other")
    with pytest.raises(ConfigError, match="no recorded answers of a model"):
        await replay(recording, changed_task=True)
    moved = read_recording(tmp_path, given={"task_path": tmp_path / "gone"})
    with pytest.raises(ConfigError, match="not there any more"):
        await replay(moved)
