"""A kept survey is only used while the walk that it spares would find the same."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import pytest

from benchflow.sandbox.local import hostcache, hostsurvey
from benchflow.sandbox.local.hostcache import kept_survey

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchflow.sandbox.local.hostsurvey import Entry

FILES = {
    "etc/profile": "plain",
    "etc/app/conf": "plain",
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
    "usr/share/doc/readme": "plain",
    "usr/local/etc/npmrc": "plain",
    "usr/local/lib/tool": "plain",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for name, content in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    _await_another_time(tmp_path / "clock")
    return root


def _await_another_time(probe: Path) -> None:
    """Until the file system's clock, which may be coarse, has moved on: what is changed from now on shows it."""
    probe.touch()
    made = probe.stat().st_mtime_ns
    while probe.stat().st_mtime_ns == made:
        probe.touch()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # The small root was made just now; a test about this sets it again.
    monkeypatch.setattr(hostcache, "UNSETTLED", -60.0)
    return tmp_path / "kept"


def walks(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The surveys that are really made from now on."""
    made: list[Path] = []
    real = hostsurvey.survey

    def noted(root: Path, **options: object) -> list[Entry]:
        made.append(root)
        return real(root, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(hostcache, "survey", noted)
    return made


def test_the_second_process_does_not_walk(root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = kept_survey(root, folder)
    made = walks(monkeypatch)
    assert kept_survey(root, folder) == first
    assert made == []
    assert [path.stat().st_mode & 0o777 for path in folder.iterdir()] == [0o600]


CHANGES: dict[str, Callable[[Path], object]] = {
    "a private file appears": lambda root: os.open(root / "usr/share/doc/key", os.O_CREAT | os.O_CLOEXEC, 0o600),
    "a private folder appears": lambda root: (root / "usr/share/secrets").mkdir(0o700),
    "a folder becomes private": lambda root: (root / "usr/share/doc").chmod(0o700),
    "a file is replaced": lambda root: (root / "usr/local/lib/tool").replace(root / "usr/share/doc/readme"),
    "a file of etc becomes private": lambda root: (root / "etc/app/conf").chmod(0o600),
    "a file of etc gets a secret": lambda root: (root / "etc/app/conf").write_text("-----BEGIN PRIVATE KEY-----"),
    "a local file becomes private": lambda root: (root / "usr/local/lib/tool").chmod(0o600),
    "a local file gets a secret": lambda root: (root / "usr/local/etc/npmrc").write_text("_authToken=secret"),
    "a file goes": lambda root: (root / "usr/share/doc/readme").unlink(),
    "a local file changes hands": lambda root: os.chown(root / "usr/local/lib/tool", 12345, 12345),
    "an account comes": lambda root: (root / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\nx:x:5:5::/:/bin/sh\n"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen_at_once(change: str, root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "hands" in change and os.geteuid() != 0:
        pytest.skip("only root gives files away")
    kept_survey(root, folder)
    made = walks(monkeypatch)
    opened = CHANGES[change](root)
    if change == "a private file appears":
        assert isinstance(opened, int)
        os.close(opened)
    seen = kept_survey(root, folder)
    assert made == [root]
    assert seen == kept_survey(root, folder)


def test_a_mount_in_what_is_seen_is_noticed_and_others_are_not(
    root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = {"/"}
    monkeypatch.setattr(hostcache, "mount_points", lambda: points)
    kept_survey(root, folder)
    made = walks(monkeypatch)
    points.add(str(root / "var/lib/containers/merged"))
    kept_survey(root, folder)
    assert made == []
    points.add(str(root / "usr/share/doc"))
    hidden = [entry.path for entry in kept_survey(root, folder) if entry.kind == "hidden"]
    assert hidden == ["usr/share/doc"]


@pytest.mark.parametrize("age", [-5.0, hostcache.MAX_AGE + 1])
def test_an_old_survey_and_one_from_the_future_are_not_used(
    age: float, root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_survey(root, folder)
    made, now = walks(monkeypatch), time.time()
    monkeypatch.setattr(time, "time", lambda: now + age)
    kept_survey(root, folder)
    assert made == [root]


def test_what_changed_a_moment_ago_is_not_kept(root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostcache, "UNSETTLED", 60.0)
    kept_survey(root, folder)
    assert not folder.exists()


def test_other_rules_are_another_survey(root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept_survey(root, folder)
    made = walks(monkeypatch)
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    kept_survey(root, folder)
    assert made == [root]
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("damage", ["", "{}", "[1, 2]", '{"made": 1e12}', '{"made": "x"}'])
def test_a_damaged_file_costs_a_walk(damage: str, root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = kept_survey(root, folder)
    (kept,) = folder.iterdir()
    kept.write_text(damage)
    made = walks(monkeypatch)
    assert kept_survey(root, folder) == first
    assert made == [root]
    assert "entries" in json.loads(kept.read_text())


def test_a_folder_that_cannot_be_written_costs_a_walk(root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert kept_survey(root, tmp_path / "file" / "kept")
