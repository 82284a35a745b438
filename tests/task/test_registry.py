"""Datasets by name: which one is meant, where its tasks are, and that they are what was promised."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.errors import ConfigError, TaskError
from benchflow.task.digest import dataset_digest, file_sha256, task_digest
from benchflow.task.registry import RegistryDataset, choose, read_manifest, read_registry, resolve_dataset

if TYPE_CHECKING:
    from collections.abc import Sequence

ZERO = "sha256:" + "0" * 64


def task(folder: Path, name: str = "") -> Path:
    for part, text in {
        "task.toml": f'[task]\nname = "{name}"\n' if name else "",
        "instruction.md": f"Do {folder.name}.\n",
        "environment/Dockerfile": "FROM debian:bookworm-slim\n",
        "tests/test.sh": "#!/bin/sh\n",
    }.items():
        (folder / part).parent.mkdir(parents=True, exist_ok=True)
        (folder / part).write_text(text)
    return folder


def registry(file: Path, *datasets: dict[str, Any]) -> Path:
    file.write_text(json.dumps([{"description": "", "metrics": [], **dataset} for dataset in datasets]))
    return file


def manifest(file: Path, tasks: dict[str, str], head: str = 'name = "org/set"\nversion = "2"', rest: str = "") -> Path:
    rows = "".join(f'[[tasks]]\nname = "{name}"\ndigest = "{digest}"\n' for name, digest in tasks.items())
    file.write_text(f"[dataset]\n{head}\n{rows}{rest}")
    return file


def commit_all(folder: Path) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "all"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True)
    return head.stdout.strip()


# -- which dataset -------------------------------------------------------------------------------------------


def versions(*names: str) -> Sequence[RegistryDataset]:
    return [RegistryDataset(name="set", version=name, tasks=[]) for name in names]


@pytest.mark.parametrize(
    ("ref", "known", "chosen"),
    [
        ("set", ["1.9", "1.10", "1.2"], "1.10"),
        ("set", ["1.0", "head", "2.0"], "head"),
        ("set", ["alpha", "beta"], "beta"),
        ("set", ["beta", "1.0"], "1.0"),
        ("set@1.2", ["1.9", "1.2"], "1.2"),
        (None, ["1.0"], "1.0"),
    ],
)
def test_the_version_that_is_meant(ref: str | None, known: list[str], chosen: str) -> None:
    assert choose(versions(*known), ref, Path("registry.json")).version == chosen


def test_a_dataset_that_is_not_there_is_said_with_what_is() -> None:
    known = [*versions("1.0", "2.0"), RegistryDataset(name="other", version="1", tasks=[])]
    file = Path("registry.json")
    with pytest.raises(ConfigError, match=r"registry.json: has no dataset sett\n  fix: name one of set"):
        choose(known, "sett", file)
    with pytest.raises(ConfigError, match=r"set has no version 3.0\n  fix: there is 1.0, 2.0"):
        choose(known, "set@3.0", file)
    with pytest.raises(ConfigError, match=r"which dataset\?\n  fix: name one of other, set"):
        choose(known, None, file)
    with pytest.raises(ConfigError, match="lists no dataset"):
        choose([], None, file)


# -- registry.json -------------------------------------------------------------------------------------------


async def test_local_tasks_are_relative_to_the_file_and_their_digests_checked(tmp_path: Path) -> None:
    one = task(tmp_path / "tasks/one")
    rows = [{"name": "one", "path": "tasks/one", "digest": task_digest(one)}]
    file = registry(tmp_path / "registry.json", {"name": "set", "version": "1.0", "tasks": rows})
    for where in (file, tmp_path):
        (found,) = await resolve_dataset(where, "set@1.0")
        assert (found.name, found.folder, found.url) == ("one", one, None)
    (one / "instruction.md").write_text("changed")
    with pytest.raises(TaskError, match=rf"one .*expected {rows[0]['digest']}, found {task_digest(one)}"):
        await resolve_dataset(file, "set")
    rows[0]["path"] = "nowhere"
    with pytest.raises(ConfigError, match=r"task one: there is no folder .*nowhere"):
        await resolve_dataset(registry(file, {"name": "set", "version": "1.0", "tasks": rows}))


@pytest.mark.needs("git")
async def test_tasks_from_git_are_pinned_and_only_the_chosen_are_fetched(tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    for name in ("a", "b", "c"):
        task(origin / "tasks" / name)
    commit = commit_all(origin)
    rows = [
        {"name": f"org/{name}", "git_url": origin.as_uri(), "git_commit_id": commit, "path": f"tasks/{name}"}
        for name in ("b", "a", "c")
    ]
    rows[0]["digest"] = task_digest(origin / "tasks/b")
    local = task(tmp_path / "local")
    file = registry(
        tmp_path / "registry.json",
        {"name": "set", "version": "1", "tasks": [*rows, {"name": "local", "path": "local"}]},
    )
    found = await resolve_dataset(file, "set", exclude=["c"], cache=tmp_path / "cache")
    assert [one.name for one in found] == ["org/b", "org/a", "local"]
    assert found[0].commit == commit
    assert found[1].url == origin.as_uri()
    assert found[2].folder == local
    assert (found[1].folder / "instruction.md").read_text() == "Do a.\n"
    assert not list((tmp_path / "cache").rglob("c"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("{}", "the file: Input should be a valid list"),
        ('[{"name": "x", "version": "1", "tasks": [{"name": "a"}]}]', r"\[0\].tasks\[0\].path: Field required"),
        ('[{"name": "x", "version": "1", "tasks": [{"name": "a", "path": "p", "digest": "md5:x"}]}]', r"\.digest: "),
    ],
)
def test_a_wrong_registry_is_diagnosed(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "registry.json").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_registry(tmp_path / "registry.json")


async def test_what_is_no_registry_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has neither dataset.toml nor registry.json"):
        await resolve_dataset(tmp_path)
    with pytest.raises(ConfigError, match="is no registry"):
        await resolve_dataset(tmp_path / "x.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        await resolve_dataset(tmp_path / "registry.json")


# -- dataset.toml --------------------------------------------------------------------------------------------


async def test_a_manifest_finds_tasks_beside_it_and_checks_every_digest(tmp_path: Path) -> None:
    one, two = task(tmp_path / "one"), task(tmp_path / "tasks/renamed", "org/two")
    digests = {"org/one": task_digest(one), "org/two": task_digest(two)}
    file = manifest(tmp_path / "dataset.toml", digests)
    found = await resolve_dataset(file, "org/set@2")
    assert [(item.name, item.folder, item.digest) for item in found] == [
        ("org/one", one, digests["org/one"]),
        ("org/two", two, digests["org/two"]),
    ]
    (two / "tests/test.sh").write_text("cheat")
    with pytest.raises(TaskError) as caught:
        await resolve_dataset(tmp_path)
    assert f"org/two ({two}): expected {digests['org/two']}, found {task_digest(two)}" in str(caught.value)
    assert "1 of its tasks" in str(caught.value)
    assert [item.name for item in await resolve_dataset(file, include=["one"])] == ["org/one"]


async def test_names_that_differ_only_in_their_organisation(tmp_path: Path) -> None:
    ours, theirs = task(tmp_path / "same", "a/same"), task(tmp_path / "other", "b/same")
    file = manifest(tmp_path / "dataset.toml", {"a/same": task_digest(ours), "b/same": task_digest(theirs)})
    assert [item.folder for item in await resolve_dataset(file)] == [ours, theirs]


async def test_a_manifest_answers_to_its_name_version_and_digest(tmp_path: Path) -> None:
    digest = task_digest(task(tmp_path / "one"))
    file = manifest(tmp_path / "dataset.toml", {"org/one": digest})
    assert read_manifest(file).digest == dataset_digest([digest])
    for ref in (None, "org/set", "org/set@2", f"org/set@{dataset_digest([digest])}"):
        assert len(await resolve_dataset(file, ref)) == 1
    for ref in ("org/other", "org/set@3", f"org/set@{ZERO}"):
        with pytest.raises(ConfigError, match=f"is not {ref}\n  fix: it is org/set@2"):
            await resolve_dataset(file, ref)


async def test_a_task_that_is_missing_and_a_file_that_changed(tmp_path: Path) -> None:
    file = manifest(tmp_path / "dataset.toml", {"org/one": ZERO})
    with pytest.raises(ConfigError, match=r"no folder here for org/one"):
        await resolve_dataset(file)
    (tmp_path / "metric.py").write_text("x")
    good = f"sha256:{file_sha256(tmp_path / 'metric.py')}"
    rest = f'[[files]]\npath = "metric.py"\ndigest = "{good}"\n'
    assert await resolve_dataset(manifest(file, {}, rest=rest)) == []
    (tmp_path / "metric.py").write_text("y")
    with pytest.raises(TaskError, match=rf"metric.py: dataset.toml promises {good}, found sha256:"):
        await resolve_dataset(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = ", "is not TOML"),
        ("", "dataset: Field required"),
        ('[dataset]\nname = "x"\n[[tasks]]\nname = "a"\ndigest = "nope"\n', r"tasks\[0\].digest: "),
        ('[dataset]\nname = "x"\n[[files]]\npath = "../x"\n', r"files\[0\].path: "),
    ],
)
def test_a_wrong_manifest_is_diagnosed(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "dataset.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_manifest(tmp_path / "dataset.toml")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "version", "tasks", "path", "git_url", "digest"]), inner, max_size=6)
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(_JSON)
def test_any_json_is_a_registry_or_a_diagnosis(document: object) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "registry.json"
        file.write_text(json.dumps(document))
        try:
            datasets = read_registry(file)
        except ConfigError:
            return
        assert len(datasets) == len(document) if isinstance(document, list) else False
