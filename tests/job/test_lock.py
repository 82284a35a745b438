"""The lock keeps everything but secrets, and gives the same settings back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchflow.errors import ConfigError
from benchflow.job.config import JobConfig, RetryConfig
from benchflow.job.lock import config_json, config_of, make_lock, read_lock, write_lock
from benchflow.job.plan import measure_all
from benchflow.rollout.scene import Role, Scene, Turn

if TYPE_CHECKING:
    from tests.job.conftest import MakeTask

CONFIGS = [
    JobConfig(),
    JobConfig(agent=["a", "b"], model=["m", None], prompts=[None, "x"], retry=RetryConfig(max_retries=5)),
    JobConfig(include=["a*"], n_tasks=3, shuffle=True, seed=4, sandbox_user=None, agent_timeout=3.5, attempts=2),
    JobConfig(scenes=[Scene([Role("r", "a", "m", {"TOKEN": "1"})], [Turn("r"), Turn("r", "x")], "s")]),
    JobConfig(agent_env={"TOKEN": "1", "B": "2"}),
]


@pytest.mark.parametrize("config", CONFIGS, ids=range(len(CONFIGS)))
def test_settings_come_back(config: JobConfig) -> None:
    document = json.loads(json.dumps(config_json(config)))
    back = config_of(document, {"TOKEN": "1", "B": "2"}, "here")
    assert json.dumps(config_json(back)) == json.dumps(config_json(config))
    assert [list(cast) for cast in back.casts] == [list(cast) for cast in config.casts]
    assert back.agent_env == config.agent_env


def test_folders_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    roles = [Role("r", "a", skills_dir=Path("theirs"))]
    config = JobConfig(skills_dir=Path("ours"), scenes=[Scene(roles, [Turn("r")])])
    document = json.loads(json.dumps(config_json(config)))
    monkeypatch.chdir("/")
    back = config_of(document, {}, "here")
    assert str(back.skills_dir) == str(tmp_path / "ours")
    assert back.scenes[0].roles[0].skills_dir == tmp_path / "theirs"


def test_values_of_variables_are_not_kept() -> None:
    config = JobConfig(
        agent_env={"A_KEY": "sk-secret"}, scenes=[Scene([Role("r", "a", env={"B": "hidden"})], [Turn("r")])]
    )
    text = json.dumps(config_json(config))
    assert "secret" not in text
    assert "hidden" not in text
    with pytest.raises(ConfigError) as caught:
        config_of(json.loads(text), {}, "jobs/x")
    assert "--agent-env A_KEY=... --agent-env B=..." in str(caught.value)


@pytest.mark.needs("local")
async def test_a_lock_is_read_as_it_was_written(make_task: MakeTask, tmp_path: Path, local: str) -> None:
    config = JobConfig(agent=["oracle", "nop"], environment=local, attempts=3)
    measurements = await measure_all(config, [make_task("a", tag="x"), make_task("b")])
    lock = make_lock("mine", {"path": "tasks"}, None, config, measurements)
    write_lock(tmp_path, lock)
    back = read_lock(tmp_path)
    assert back is not None
    assert back == replace(lock, tasks=back.tasks, config=back.config)
    assert back.tasks["demo/a"].tags == ["x"]
    assert back.tasks["demo/a"].digest == measurements[0].digest
    assert [one.cast for one in back.measurements] == [0, 0, 1, 1]
    assert back.casts[1]["agent"]["agent"] == "nop"
    assert back.total == 12
    keys = list(back.keys)
    assert len(set(keys)) == 12
    assert [attempt for _, attempt in keys] == [1] * 4 + [2] * 4 + [3] * 4


def test_what_is_not_a_lock(tmp_path: Path) -> None:
    assert read_lock(tmp_path) is None
    plain = dict.fromkeys(("name", "created_at", "source", "commit", "sandbox", "reason", "config", "casts"))
    one = {"id": "m", "task": "gone", "agent": "a", "model": None, "attempts": 1, "cast": 0}
    half = json.dumps({"format": 1, **plain, "tasks": {}, "measurements": [one]})
    for text, word in (
        *(("{", "read"), ("[]", "lock"), ('{"format": 99}', "99"), ('{"format": 1}', "name")),
        (half, "measures gone, which is not among its tasks"),
    ):
        (tmp_path / "job.json").write_text(text)
        with pytest.raises(ConfigError, match=word):
            read_lock(tmp_path)
