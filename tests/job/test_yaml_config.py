"""Jobs from YAML: the documents load as they are written, and every mistake is named."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.errors import ConfigError
from benchflow.job.config import RetryConfig
from benchflow.job.source import TaskSource
from benchflow.job.yaml_config import job_from_yaml
from benchflow.rollout.scene import Scene

DOCUMENTS = sorted((Path(__file__).parent / "documents").glob("*.yaml"))


def write(folder: Path, text: str) -> Path:
    file = folder / "job.yaml"
    file.write_text(text)
    return file


def test_the_six_documents_are_there() -> None:
    assert len(DOCUMENTS) == 6


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: file.stem)
def test_a_document_loads_unchanged(file: Path) -> None:
    raw = yaml.safe_load(file.read_text())
    job = job_from_yaml(file)
    assert job.source == TaskSource(path=file.parent / raw["task_dir"])
    assert job.config.environment == "daytona"
    assert job.config.concurrency == raw["concurrency"]
    assert list(job.config.services) == raw.get("services", [])
    assert [scene.name for scene in job.config.scenes] == [scene["name"] for scene in raw.get("scenes", [])]
    turns = [turn for scene in raw.get("scenes", []) for turn in scene["turns"]]
    loaded = [turn for scene in job.config.scenes for turn in scene.turns]
    assert [(turn.role, turn.prompt) for turn in loaded] == [(turn["role"], turn.get("prompt")) for turn in turns]


FULL = """
source: {repo: owner/tasks, path: easy, ref: v2}
environment: local
concurrency: 8
attempts: 3
agent: [claude, codex]
model: sonnet
prompts: [null, check it]
include: [git-*]
exclude: [git-slow]
n_tasks: 5
shuffle: true
seed: 7
max_disk_mb: 5000
remove_images: true
keep_workspace: true
retry: {max_retries: 1, wait_multiplier: 3, min_wait_sec: 0.5, max_wait_sec: 9}
sandbox_user: null
sandbox_setup_timeout: 300
agent_timeout: 60
agent_env: {DEBUG: "1"}
jobs_dir: out
job_name: mine
"""


def test_every_key(tmp_path: Path) -> None:
    job = job_from_yaml(write(tmp_path, FULL))
    config = job.config
    assert job.source == TaskSource(repo="owner/tasks", repo_path="easy", ref="v2")
    assert (job.jobs_dir, job.job_name) == (Path("out"), "mine")
    assert config.casts == [
        [Scene.single(agent, "sonnet", prompts=[None, "check it"])] for agent in ("claude", "codex")
    ]
    assert config.retry == RetryConfig(max_retries=1, wait_multiplier=3, min_wait_sec=0.5, max_wait_sec=9)
    assert (config.concurrency, config.attempts, config.n_tasks, config.shuffle, config.seed) == (8, 3, 5, True, 7)
    assert (config.include, config.exclude) == (["git-*"], ["git-slow"])
    assert (config.sandbox_user, config.sandbox_setup_timeout, config.agent_timeout) == (None, 300, 60)
    assert config.agent_env == {"DEBUG": "1"}
    assert (config.max_disk_mb, config.remove_images, config.keep_workspace) == (5000, True, True)


def test_a_rollout_is_a_job_of_one(tmp_path: Path) -> None:
    job = job_from_yaml(write(tmp_path, "task: t\nagent: codex\nenvironment: local\nagent_timeout: 5\n"))
    assert job.source == TaskSource(path=tmp_path / "t")
    assert job.config.casts == [[Scene.single("codex")]]
    assert (job.config.environment, job.config.agent_timeout) == ("local", 5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("task_dir: t\nconcurency: 4\n", ("concurency", "concurrency")),
        ("task_dir: t\nretry: {max_retry: 4}\n", ("max_retry", "max_retries")),
        ("task_dir: t\nretry: {max_retries: two}\n", ("job.yaml", "max_retries", "two")),
        ("source: {repo: a/b, pth: x}\n", ("source", "pth", "path")),
        ("source: {path: x}\n", ("source.repo",)),
        ("task_dir: t\nsource: {repo: a/b}\n", ("task_dir", "source")),
        ("agent: oracle\n", ("task_dir", "source")),
        ("task_dir: t\nconcurrency: 0\n", ("job.yaml", "concurrency", "0")),
        ("task_dir: t\nconcurrency: '4'\n", ("concurrency", "'4'")),
        ("task_dir: t\nshuffle: 1\n", ("shuffle",)),
        ("task_dir: t\ninclude: git-*\n", ("include", "list")),
        ("task_dir: t\nagent: claude\nscenes: []\n", ("agent", "scenes")),
        ("- task_dir: t\n", ("table",)),
        ("task_dir: [\n", ("YAML",)),
    ],
)
def test_mistakes(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        job_from_yaml(write(tmp_path, text))
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    wrong = {
        "concurency: 4": "'concurrency'",
        "attempts: many": "attempts",
        "agent_timeout: long": "agent_timeout",
        "keep_workspace: maybe": "keep_workspace",
        "include: git-*": "include",
        "retry: {max_retries: two}": "max_retries",
        "prompts: []": "prompts",
        "source: {}": "source",
    }
    with pytest.raises(ConfigError) as caught:
        job_from_yaml(write(tmp_path, "\n".join(("task_dir: t", *wrong))))
    assert all(said in str(caught.value) for said in wrong.values()), str(caught.value)


keys = st.sampled_from(
    ["task_dir", "source", "agent", "model", "scenes", "retry", "include", "concurrency", "services", "prompts", "x"]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys | st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(keys, values, max_size=6))
@settings(deadline=None)
def test_any_document_is_a_job_or_a_mistake(
    tmp_path_factory: pytest.TempPathFactory, document: dict[str, object]
) -> None:
    file = write(tmp_path_factory.getbasetemp(), yaml.safe_dump(document))
    with suppress(ConfigError):
        assert job_from_yaml(file).config.casts
