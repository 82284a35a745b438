from __future__ import annotations

import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchflow.errors import SandboxUnavailable
from benchflow.sandbox.local import hostsurvey
from benchflow.sandbox.local.hostsurvey import Entry, mount_points, survey

SECRETS = {
    "etc/shadow": 0o640,
    "etc/passwd-": 0o644,
    "etc/sudoers.d/me": 0o644,
    "etc/ssl/private/server.pem": 0o644,
    "etc/app/server.key": 0o644,
    "etc/app/api-token": 0o644,
    "etc/app/closed.conf": 0o600,
    "etc/NetworkManager/home.nmconnection": 0o644,
    "etc/kubernetes/admin.conf": 0o644,
    "etc/docker/daemon.json": 0o644,
    "etc/apt/auth.conf.d/me.conf": 0o644,
    "etc/ssh/ssh_host_rsa_key": 0o644,
    "etc/machine-id": 0o644,
    "usr/share/closed": 0o640,
    "usr/share/group-only/file": 0o644,
    "root/.ssh/id_rsa": 0o644,
    "home/me/file": 0o644,
    "opt/app/file": 0o644,
    "srv/data": 0o644,
    "data/file": 0o644,
    "tmp/file": 0o644,
    "var/log/syslog": 0o644,
    "var/lib/docker/x": 0o644,
    "var/lib/dpkg/lock": 0o640,
    "var/cache/debconf/passwords.dat": 0o600,
}
"""Files that must not be seen: path -> mode."""

VISIBLE = ["etc/profile", "etc/apt/sources.list", "etc/ssl/certs/ca.crt", "etc/pam.d/passwd"]
"""Files that are copied."""


def fake_root(root: Path) -> Path:
    """A host's root in small: a file at every path above, a few that are seen, and accounts."""
    for path, mode in (*SECRETS.items(), *((path, 0o644) for path in VISIBLE)):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)
        (root / path).chmod(mode)
    (root / "usr/share/group-only").chmod(0o750)
    (root / "usr/bin").mkdir()
    (root / "usr/bin/tool").write_text("tool")
    (root / "bin").symlink_to("usr/bin")
    (root / "lib").mkdir()
    (root / "etc/localtime").symlink_to("/usr/share/zoneinfo/UTC")
    (root / "etc/pip.conf").write_text("[global]\nindex-url = https://me:secret@example.org/simple\n")
    (root / "etc/key.pem").write_text("-----BEGIN RSA PRIVATE KEY-----\n")
    (root / "usr/local/etc").mkdir(parents=True)
    (root / "usr/local/etc/npmrc").write_text("//example.org/:_authToken=secret\n")
    (root / "usr/local/etc/plain").write_text("registry=https://example.org\n")
    (root / "etc/passwd").write_text(
        "root:x:0:0:root:/root:/bin/bash\nme:x:1000:1000::/home/me:/bin/sh\nnobody:x:65534:65534::/:/bin/false\nbroken\n"
    )
    (root / "etc/group").write_text("root:x:0:\nsudo:x:27:me\nme:x:1000:\n")
    os.mkfifo(root / "usr/share/pipe")
    return root


@pytest.fixture
def entries(tmp_path: Path) -> dict[str, Entry]:
    found = survey(fake_root(tmp_path), mount_points=())
    assert len(found) == len({entry.path for entry in found})
    return {entry.path: entry for entry in found}


def _is_seen(path: str, entries: dict[str, Entry]) -> bool:
    """Whether a sandbox can see the host's file at `path`."""
    parts = path.split("/")
    above = ["/".join(parts[:n]) for n in range(1, len(parts) + 1)]
    if any(entries[name].kind == "hidden" for name in above if name in entries):
        return False
    if any(entries[name].kind == "through" for name in above if name in entries):
        return True
    return path in entries and entries[path].kind == "copy"


@pytest.mark.parametrize("path", [*SECRETS, "etc/pip.conf", "etc/key.pem", "usr/local/etc/npmrc", "usr/share/pipe"])
def test_what_is_private_is_not_seen(path: str, entries: dict[str, Entry]) -> None:
    assert not _is_seen(path, entries)


@pytest.mark.parametrize("path", [*VISIBLE, "usr/bin/tool", "usr/local/etc/plain"])
def test_what_programs_need_is_seen(path: str, entries: dict[str, Entry]) -> None:
    assert _is_seen(path, entries)


def test_accounts_are_the_systems_and_locked(entries: dict[str, Entry]) -> None:
    assert entries["etc/passwd"].text == "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n"
    assert entries["etc/group"].text == "root:x:0:\nsudo:x:27:\n"
    assert entries["etc/shadow"].text.splitlines()[0].startswith("root:*:")
    assert entries["etc/shadow"].mode == 0o600


def test_links_are_kept_and_folders_have_their_modes(entries: dict[str, Entry]) -> None:
    assert entries["bin"] == Entry("link", "bin", text="usr/bin")
    assert entries["lib"].kind == "through"
    assert entries["etc/localtime"].text == "/usr/share/zoneinfo/UTC"
    assert (entries["root"].mode, entries["tmp"].mode, entries["home"].mode) == (0o700, 0o1777, 0o755)


def test_mount_points_below_are_hidden(tmp_path: Path) -> None:
    root = fake_root(tmp_path)
    place = root / "usr/share/mounted"
    place.mkdir()
    found = survey(root, mount_points={str(place)})
    assert Entry("hidden", "usr/share/mounted") in found


def test_what_goes_away_meanwhile_is_not_missed(tmp_path: Path) -> None:
    root, over = fake_root(tmp_path), threading.Event()

    def churn() -> None:
        while not over.is_set():
            for place in ("etc", "usr/share"):
                folder = root / place / "passing"
                folder.mkdir()
                (folder / "file").touch()
                (folder / "link").symlink_to("file")
                shutil.rmtree(folder)

    with ThreadPoolExecutor() as pool:
        churning = pool.submit(churn)
        try:
            for _ in range(200):
                assert {"etc/profile", "usr"} <= {entry.path for entry in survey(root, mount_points=())}
        finally:
            over.set()
        churning.result()


def test_a_root_without_anything_gives_a_bare_one(tmp_path: Path) -> None:
    found = {entry.path: entry for entry in survey(tmp_path, mount_points=())}
    assert found["etc/passwd"].text == "root:x:0:0:root:/root:/bin/sh\n"
    assert "usr" not in found


def test_a_system_folder_on_a_file_system_of_its_own_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostsurvey, "SYSTEM_FOLDERS", ("proc",))
    with pytest.raises(SandboxUnavailable, match="file system of its own"):
        survey(Path("/"), mount_points=())


def test_mount_points_of_this_machine() -> None:
    assert "/" in mount_points()
    assert "/proc" in mount_points()
