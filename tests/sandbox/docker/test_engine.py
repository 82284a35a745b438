"""Where the engine is looked for, and what an absent one is said to need."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import aiodocker
import pytest

from benchflow.errors import SandboxError, SandboxGone, SandboxUnavailable
from benchflow.sandbox.docker.backend import DockerBackend
from benchflow.sandbox.docker.engine import in_thread, translate
from benchflow.sandbox.docker.sockets import candidates

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("unix:///run/x.sock", "unix:///run/x.sock"),
        ("tcp://127.0.0.1:2375", "http://127.0.0.1:2375"),
        ("tcp://engine", "http://engine:2375"),
        ("tcp://[::1]:99/", "http://[::1]:99"),
        ("http://engine:1", "http://engine:1"),
    ],
)
def test_docker_host_is_followed(host: str, url: str) -> None:
    assert candidates({"DOCKER_HOST": host}) == [url]


@pytest.mark.parametrize("host", ["ssh://me@there", "npipe://x", "unix://", "nonsense", "unix://relative"])
def test_other_kinds_of_host_are_refused_with_a_fix(host: str) -> None:
    with pytest.raises(SandboxUnavailable) as caught:
        candidates({"DOCKER_HOST": host})
    assert host in caught.value.message
    assert caught.value.hint


def test_tls_is_refused_with_a_fix() -> None:
    with pytest.raises(SandboxUnavailable, match="TLS"):
        candidates({"DOCKER_HOST": "tcp://there:2376", "DOCKER_TLS_VERIFY": "1"})


def test_sockets_of_the_user_are_found(tmp_path: Path) -> None:
    home, runtime = tmp_path / "home", tmp_path / "run"
    for path in (runtime / "docker.sock", runtime / "podman" / "podman.sock", home / ".docker/run/docker.sock"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    (home / ".docker/desktop").mkdir()
    (home / ".docker/desktop/docker.sock").write_text("no socket")
    found = candidates({"HOME": str(home), "XDG_RUNTIME_DIR": str(runtime)})
    own = [url for url in found if str(tmp_path) in url]
    assert own == [
        f"unix://{runtime}/docker.sock",
        f"unix://{home}/.docker/run/docker.sock",
        f"unix://{runtime}/podman/podman.sock",
    ]


async def test_an_engine_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/missing.sock")
    backend = DockerBackend()
    with pytest.raises(SandboxUnavailable, match=r"missing\.sock") as caught:
        await backend.check()
    assert "DOCKER_HOST" in (caught.value.hint or "")
    await backend.close()


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (404, "No such container: x", SandboxGone),
        (409, "Container x is not running", SandboxGone),
        (500, "can only create exec sessions on running containers: container state improper", SandboxGone),
        (409, "conflict: name in use", SandboxError),
        (500, "no space left on device", SandboxError),
    ],
)
def test_errors_say_whether_the_sandbox_is_gone(status: int, text: str, kind: type[SandboxError]) -> None:
    error = translate(aiodocker.DockerError(status, text), "bf-1", "exec")
    assert type(error) is kind
    assert text in str(error)
    assert (error.sandbox, error.phase) == ("bf-1", "exec")


async def test_chunks_come_from_a_thread_in_batches() -> None:
    chunks = [bytes([n]) * 10 for n in range(100)]
    batches = [batch async for batch in in_thread(chunks, batch=95)]
    assert b"".join(batches) == b"".join(chunks)
    assert [len(batch) for batch in batches] == [100] * 10
