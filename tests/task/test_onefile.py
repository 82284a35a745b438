"""Conversion loses nothing: there and back again is the same task, whatever is in it."""

from __future__ import annotations

import datetime as dt
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import tomlkit
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from benchflow.errors import TaskError
from benchflow.task.document import find_document, read_document
from benchflow.task.load import load_task, read_task
from benchflow.task.onefile import canonical, export, migrate

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchflow.task.task import Task

PLAIN = """yes no on null ~ 012 1:30 1e3 0x1F 2024-01-01 --- ... - # ' " & * ! % @ ` | > << = [ { 🦀 .nan"""
TEXT = st.text(max_size=20) | st.sampled_from(
    [*PLAIN.split(), "- a", "a: b", "a\nb", "a\n\n", "\n---\n", " x ", "\t", "\r\n", "\x85\u2028\ufeff", "\x00\x7f"]
)
WORDS = TEXT.map(lambda text: text.replace("\0", "") + "w")
SECONDS = st.floats(0.001, 1e12) | st.integers(1, 10**9)
ENV = st.dictionaries(
    WORDS.map(lambda text: text.replace("=", "")), TEXT.map(lambda text: text.replace("\0", "")), max_size=3
)
NETWORK = st.sampled_from(
    [{}, {"network_mode": "public"}, {"network_mode": "allowlist", "allowed_hosts": ["*.a.com", "::1"]}]
)
ZONES = st.sampled_from(
    [None, dt.UTC, dt.timezone(dt.timedelta(hours=5, minutes=30)), dt.timezone(dt.timedelta(hours=-7))]
)
FREE = st.recursive(
    TEXT | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.dates() | st.datetimes(timezones=ZONES),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=12,
)
HEALTH = st.fixed_dictionaries({"command": WORDS}, optional={"interval_sec": SECONDS, "retries": st.integers(0, 9)})
BOX = st.builds(
    lambda keys, network: keys | network,
    st.fixed_dictionaries(
        {},
        optional={
            "docker_image": TEXT,
            "os": st.just("linux"),
            "cpus": st.integers(1, 64) | st.floats(0.1, 64),
            "memory": st.sampled_from(["2G", "512M"]),
            "storage_mb": st.integers(1, 10**6),
            "gpus": st.integers(0, 8),
            "gpu_types": st.lists(TEXT, max_size=2),
            "tpu": st.fixed_dictionaries({"type": WORDS, "topology": st.just("2x4")}),
            "env": ENV,
            "workdir": TEXT,
            "skills_dir": TEXT,
            "healthcheck": HEALTH,
            "mcp_servers": st.lists(
                st.fixed_dictionaries({"name": TEXT, "url": WORDS}, optional={"args": st.lists(TEXT, max_size=2)}),
                max_size=2,
            ),
            "setup_commands": st.lists(st.fixed_dictionaries({"command": WORDS}), max_size=2),
        },
    ),
    NETWORK,
)
AGENT = st.builds(
    lambda keys, network: keys | network,
    st.fixed_dictionaries(
        {}, optional={"timeout_sec": SECONDS, "user": WORDS | st.integers(0, 9), "prompt_prefix": WORDS}
    ),
    NETWORK,
)
VERIFIER = st.fixed_dictionaries(
    {},
    optional={
        "timeout_sec": SECONDS,
        "env": ENV,
        "user": st.integers(0, 9),
        "collect": st.lists(st.fixed_dictionaries({"command": WORDS}), max_size=2),
        "hardening": st.fixed_dictionaries({"cleanup_conftests": st.booleans()}),
        "pytest_plugins": st.lists(WORDS, max_size=2),
        "reward_range": st.just([-1.0, 1.0]),
        "judge": st.fixed_dictionaries({"context": TEXT}),
        "environment": BOX.map(lambda box: {key: box[key] for key in box if key != "docker_image"}),
    },
)
SOURCES = WORDS.filter(lambda text: ".." not in text)
ARTIFACTS = st.lists(
    SOURCES | st.fixed_dictionaries({"source": SOURCES}, optional={"exclude": st.lists(TEXT)}), max_size=2
)
STEPS = st.lists(st.sampled_from(["one", "two", "é", "a b"]), unique=True, max_size=3).flatmap(
    lambda names: st.tuples(
        *(
            st.fixed_dictionaries(
                {"name": st.just(name)},
                optional={
                    "agent": AGENT,
                    "verifier": VERIFIER,
                    "min_reward": st.floats(-1, 1) | st.dictionaries(TEXT, st.floats(-1, 1), max_size=2),
                    "healthcheck": HEALTH,
                    "artifacts": ARTIFACTS,
                },
            )
            for name in names
        )
    ).map(list)
)
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "version": TEXT,
        "source": TEXT,
        "multi_step_reward_strategy": st.sampled_from(["mean", "final"]),
        "artifacts": ARTIFACTS,
        "task": st.fixed_dictionaries(
            {"name": st.just("org/name")},
            optional={
                "version": WORDS,
                "description": TEXT,
                "authors": st.lists(st.fixed_dictionaries({"name": TEXT})),
            },
        ),
        "metadata": st.dictionaries(TEXT, FREE, max_size=4),
        "agent": AGENT,
        "verifier": VERIFIER,
        "environment": BOX,
        "solution": st.fixed_dictionaries({}, optional={"env": ENV, "timeout_sec": SECONDS}),
        "steps": STEPS,
        "future_key": FREE,
    },
)
PROMPTS = st.lists(TEXT | st.sampled_from(["<!-- canary -->", "# canary", "---", "", "\r"]), max_size=6).map(
    lambda lines: "\n".join(lines) + "\nDo it"
)


def write(folder: Path, raw: dict[str, object], prompt: str) -> None:
    folder.mkdir()
    (folder / "task.toml").write_bytes(tomlkit.dumps(raw).encode())
    (folder / "instruction.md").write_bytes(prompt.encode())
    for name in ("environment/Dockerfile", "tests/test.sh", "tests/data/é.txt", "solution/solve.sh", "README.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    steps = raw.get("steps", [])
    assert isinstance(steps, list)
    for step in steps:
        path = folder / "steps" / step["name"]
        (path / "tests").mkdir(parents=True)
        (path / "tests/own.txt").touch()
        (path / "instruction.md").write_text(f"# canary\n\nStep {step['name']}")


def content(task: Task) -> object:
    """All of a task that does not depend on its place and form."""
    uploads = [
        (relative, file.read_bytes())
        for step in (None, *task.steps)
        for kind in ("tests", "solution")
        for file, relative in task.upload_files(kind, step)
    ]
    steps = [(step.name, step.instruction, canonical(step.config.model_dump())) for step in task.steps]
    return canonical(task.config.model_dump()), task.instruction, steps, uploads


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def listing(folder: Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if path.name != "task.toml"
    }


@settings(deadline=None, max_examples=150)
@given(CONFIGS, PROMPTS)
def test_there_and_back_is_the_same_task(raw: dict[str, object], prompt: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        source, one_file, back = (Path(scratch) / name for name in ("source", "one", "back"))
        write(source, raw, prompt)
        before, problems = read_task(source)
        assume(canonical(tomllib.loads((source / "task.toml").read_bytes().decode())) == canonical(raw))
        assert before is not None, problems
        migrate(source, one_file)
        assert content(load_task(one_file)) == content(before)
        assert not (one_file / "instruction.md").exists()
        export(one_file, back)
        assert content(load_task(back)) == content(before)
        assert listing(back) == listing(source)
        document = read_document(back / "task.toml", back.resolve())
        assert canonical(document.raw) == canonical(raw)
        assert names(Path(scratch)) == ["back", "one", "source"]


def test_the_one_file_form_uses_its_own_names(write_task: Callable[..., Path], tmp_path: Path) -> None:
    source = write_task({"task.toml": "[environment]\ncpus = 2\n[verifier.environment]\ncpus = 1\n"})
    target = migrate(source, tmp_path / "new" / "one")
    text = (target / "task.md").read_text()
    assert text == "---\nsandbox:\n  cpus: 2\nverifier:\n  environment:\n    cpus: 1\n---\n\nDo it.\n"
    assert names(Path(target)) == ["environment", "oracle", "task.md", "verifier"]


def test_a_one_file_task_written_by_hand(write_task: Callable[..., Path], tmp_path: Path) -> None:
    front = "---\n# a comment\nsandbox: {cpus: 2}\nmetadata:\n  empty:\n  day: 2024-01-01\n---\nDo it.\n"
    target = export(write_task({"task.md": front}, form="md"), tmp_path / "out")
    text = (target / "task.toml").read_text()
    assert tomllib.loads(text) == {"environment": {"cpus": 2}, "metadata": {"day": dt.date(2024, 1, 1)}}
    assert (target / "instruction.md").read_text() == "Do it.\n"
    assert names(Path(target)) == ["environment", "instruction.md", "solution", "task.toml", "tests"]


def test_steps_keep_their_folders_and_an_empty_target_is_used(write_task: Callable[..., Path], tmp_path: Path) -> None:
    front = "---\nsteps: [{name: one}]\n---\n"
    files: dict[str, str | bytes | None] = {
        "task.md": front,
        "steps/one/instruction.md": "First.",
        "steps/one/verifier/test.sh": "#!/bin/sh\n",
    }
    target = tmp_path / "out"
    target.mkdir()
    export(write_task(files, form="md"), target)
    assert not (target / "instruction.md").exists()
    assert (target / "steps/one/tests/test.sh").is_file()
    assert load_task(target).steps[0].tests_dir == target / "steps/one/tests"


def refused(call: object, source: Path, target: Path) -> str:
    assert callable(call)
    before = sorted(str(path) for path in target.parent.rglob("*"))
    with pytest.raises(TaskError) as caught:
        call(source, target)
    assert sorted(str(path) for path in target.parent.rglob("*")) == before
    return str(caught.value)


def test_refusals_leave_nothing(write_task: Callable[..., Path], tmp_path: Path) -> None:
    toml, md = write_task(name="toml"), write_task(form="md", name="md")
    new = tmp_path / "new"
    assert "has no task.toml" in refused(migrate, md, new)
    assert "has no task.md" in refused(export, toml, new)
    assert "not an empty folder" in refused(migrate, toml, md)
    assert "not an empty folder" in refused(migrate, toml, toml / "../toml/../md")
    assert "inside the task" in refused(migrate, toml, toml / "sub")
    assert "does not exist" in refused(migrate, tmp_path / "nothing", new)
    assert "cannot be converted" in refused(migrate, toml, md / "task.md" / "x")
    assert "cannot be converted" in refused(migrate, toml, tmp_path / "a\0b")


def test_what_cannot_cross_is_refused(write_task: Callable[..., Path], tmp_path: Path) -> None:
    new = tmp_path / "new"
    clock = write_task({"task.toml": "[metadata]\na = [{ b = 07:32:00 }]\n"}, name="clock")
    assert "metadata.a[0].b" in refused(migrate, clock, new)
    link = write_task(name="link")
    (link / "solution/data").symlink_to("../tests")
    assert "unchanged" in refused(migrate, link, new)
    absolute = write_task(name="absolute")
    (absolute / "tests/data").symlink_to(absolute / "environment")
    assert "would not load any more" in refused(migrate, absolute, new)
    both = write_task({"verifier/x": ""}, name="both")
    assert "has both tests/ and verifier/" in refused(migrate, both, new)
    ignored = write_task({"task.md": "x"}, name="ignored")
    assert "has both forms" in refused(migrate, ignored, new)
    second = write_task({"instruction.md": "x"}, form="md", name="second")
    assert "in the way" in refused(export, second, new)


def test_find_document_prefers_toml(write_task: Callable[..., Path]) -> None:
    folder = write_task({"task.md": "x"})
    assert find_document(folder) == folder / "task.toml"
