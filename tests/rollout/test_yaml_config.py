"""A rollout from YAML: the same config as from Python, and every mistake named."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.errors import ConfigError
from benchflow.rollout.scene import Role, Scene, Turn
from benchflow.rollout.yaml_config import rollout_config_from_yaml
from benchflow.trial_yaml import trial_config_from_yaml

if TYPE_CHECKING:
    from pathlib import Path

REVIEW = """
task_path: tasks/x
environment: local
sandbox_user: null
agent_timeout: 60
agent_env: {DEBUG: "1"}
scenes:
  - name: review
    roles:
      - {name: coder, agent: gemini, model: flash}
      - {name: reviewer, agent: claude}
    turns:
      - role: coder
      - role: reviewer
        prompt: look
"""


def write(folder: Path, text: str) -> Path:
    file = folder / "rollout.yaml"
    file.write_text(text)
    return file


def test_scenes(tmp_path: Path) -> None:
    config = trial_config_from_yaml(write(tmp_path, REVIEW))
    assert config.scenes == [
        Scene(
            [Role("coder", "gemini", "flash"), Role("reviewer", "claude")],
            [Turn("coder"), Turn("reviewer", "look")],
            "review",
        )
    ]
    assert (config.environment, config.sandbox_user, config.agent_timeout) == ("local", None, 60)
    assert config.agent_env == {"DEBUG": "1"}
    assert config.task_path == tmp_path / "tasks/x"


LOOP = """
task_path: tasks/x
lockdown_paths: [/secret]
scenes:
  - name: loop
    max_rounds: 3
    stop_when: [reviewer says done, reward >= 1.0]
    verify_rounds: true
    roles:
      - {name: coder, agent: gemini, timeout: 600}
      - {name: reviewer, agent: claude, access: read, oracle_access: true, reads_trajectory: [coder], env: {A: b}}
    turns:
      - {role: coder, again: Go on., best_of: 2}
      - {role: reviewer, prompt: look}
"""


def test_everything_a_scene_can_say(tmp_path: Path) -> None:
    config = rollout_config_from_yaml(write(tmp_path, LOOP))
    reviewer = Role(
        "reviewer", "claude", None, {"A": "b"}, access="read", oracle_access=True, reads_trajectory=["coder"]
    )
    assert config.scenes == [
        Scene(
            [Role("coder", "gemini", timeout=600), reviewer],
            [Turn("coder", again="Go on.", best_of=2), Turn("reviewer", "look")],
            "loop",
            max_rounds=3,
            stop_when=["reviewer says done", "reward >= 1.0"],
            verify_rounds=True,
        )
    ]
    assert list(config.lockdown_paths) == ["/secret"]


def test_every_wrong_key_is_named_at_once(tmp_path: Path) -> None:
    text = """
task: a
scenes:
  - {roles: [{name: a, agent: b, acess: read, tiemout: 3}], turns: [{role: a, promt: x}]}
  - {roles: [{name: a, agent: b, oracle_access: 1}], turns: [{role: a}], max_round: 3}
"""
    with pytest.raises(ConfigError) as caught:
        rollout_config_from_yaml(write(tmp_path, text))
    said = str(caught.value)
    for wanted in ("'acess'", "'access'?", "'tiemout'", "'timeout'?", "'promt'", "'prompt'?", "'max_rounds'?"):
        assert wanted in said, said
    assert "scenes[0].turns[0]" in said


def test_short_form(tmp_path: Path) -> None:
    text = "task: t\nagent: codex\nmodel: gpt\nprompts: [null, check it]\n"
    config = rollout_config_from_yaml(str(write(tmp_path, text)))
    assert config.scenes == [Scene.single("codex", "gpt", prompts=[None, "check it"])]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "a table is expected"),
        ("- 1", "a table is expected"),
        ("a: [", "not valid YAML"),
        ("agent: x", "exactly one of task_path and task"),
        ("task: a\ntask_path: b\nagent: x", "exactly one"),
        ("task: a", "agent: text is expected"),
        ("task: a\nagent: x\nscens: []", "did you mean 'scenes'"),
        ("task: a\nagent: x\nscenes: [{}]", "exclude each other"),
        ("task: a\nscenes: []", "at least one entry"),
        ("task: a\nscenes: [{roles: [{name: a, agent: b, modle: c}], turns: [{role: a}]}]", "did you mean 'model'"),
        ("task: a\nscenes: [{roles: [{name: a}], turns: [{role: a}]}]", r"roles\[0\].agent: text is expected"),
        ("task: a\nscenes: [{roles: [{name: a, agent: b, oracle_access: 1}], turns: [{role: a}]}]", "wrong type"),
        ("task: a\nscenes: [{roles: [{name: a, agent: b}], turns: [{role: a}], max_rounds: many}]", "wrong type"),
        ("task: a\nagent: x\nagent_env: {A: 1}", "put numbers in quotes"),
        ("task: a\nagent: x\nsandbox_setup_timeout: soon", "wrong type"),
        ("task: a\nagent: x\nsandbox_setup_timeout: true", "wrong type"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        rollout_config_from_yaml(write(tmp_path, text))


def test_missing_file_and_wrong_encoding(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        rollout_config_from_yaml(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"task: \xff")
    with pytest.raises(ConfigError, match="cannot be read"):
        rollout_config_from_yaml(tmp_path / "latin.yaml")


@given(text=st.text(max_size=200))
@settings(deadline=None)
def test_any_text_gives_a_config_or_a_config_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.mktemp("fuzz") / "x.yaml"
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    with suppress(ConfigError):
        rollout_config_from_yaml(file)
