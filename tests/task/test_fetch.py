"""Fetching from real repositories: what is fetched, what is kept, what happens when it fails or is interrupted."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from benchflow.errors import ConfigError
from benchflow.task.fetch import cache_folder, fetch, fetch_many
from benchflow.task.git import _hint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.needs("git")

ABSENT = "0" * 40


def git(folder: Path, *args: str) -> str:
    settings = [
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@example.org",
        "-c",
        "commit.gpgsign=false",
        "-c",
        "tag.gpgsign=false",
    ]
    done = subprocess.run(["git", *settings, *args], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder: Path, files: dict[str, str], message: str = "change") -> str:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", message)
    return git(folder, "rev-parse", "HEAD")


def read(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


FILES = {
    "README.md": "about",
    "tasks/one/task.toml": "",
    "tasks/one/instruction.md": "do one",
    "tasks/two/task.toml": "",
    "other/big.bin": "much",
}


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    folder = tmp_path / "origin"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "config", "uploadpack.allowFilter", "true")
    commit(folder, FILES)
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def leftovers(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.suffix == ".tmp" or path.name == ".git"]


def published(cache: Path) -> list[Path]:
    return [path for path in cache.glob("*/*/*") if ".tmp" not in path.parent.name]


def move(folder: Path, target: str) -> Path:
    (folder.parent / target).parent.mkdir(exist_ok=True)
    return folder.rename(folder.parent / target)


def everything_written(folder: Path) -> bytes:
    paths = list(folder.rglob("*"))
    return "".join(map(str, paths)).encode() + b"".join(path.read_bytes() for path in paths if path.is_file())


async def test_a_folder_at_the_default_branch_pinned_to_its_commit(origin: Path, cache: Path) -> None:
    source = await fetch(str(origin), "tasks/one", cache=cache)
    assert read(source.folder) == {"task.toml": "", "instruction.md": "do one"}
    assert source.folder.name == "one"
    assert source.url == origin.as_uri()
    assert source.commit == git(origin, "rev-parse", "HEAD")
    assert not leftovers(cache)
    assert [path.name for path in source.folder.parent.iterdir()] == ["one"]


async def test_content_outside_the_path_is_never_transferred(origin: Path, cache: Path) -> None:
    blob = git(origin, "rev-parse", "HEAD:other/big.bin")
    (origin / ".git/objects" / blob[:2] / blob[2:]).unlink()
    assert (await fetch(origin.as_uri(), "tasks", cache=cache)).folder.is_dir()
    with pytest.raises(ConfigError, match="cannot fetch"):
        await fetch(origin.as_uri(), "other", cache=cache)
    assert not leftovers(cache)


async def test_branches_tags_commits_and_full_names(origin: Path, cache: Path) -> None:
    first = git(origin, "rev-parse", "HEAD")
    git(origin, "tag", "--annotate", "v1", "--message", "one")
    git(origin, "checkout", "--quiet", "-b", "feature/x")
    second = commit(origin, {"tasks/one/instruction.md": "changed"})
    git(origin, "tag", "light")
    git(origin, "checkout", "--quiet", "main")
    third = commit(origin, {"tasks/one/instruction.md": "third"})
    for ref, expected in {
        None: third,
        "main": third,
        "v1": first,
        "feature/x": second,
        "light": second,
        "refs/heads/main": third,
        "HEAD": third,
        first: first,
    }.items():
        assert (await fetch(str(origin), "tasks", ref, cache=cache)).commit == expected, ref
    assert (await fetch(str(origin), "tasks/one", "v1", cache=cache)).folder.joinpath(
        "instruction.md"
    ).read_text() == "do one"


async def test_a_branch_that_moved_is_fetched_again_and_the_old_commit_stays(origin: Path, cache: Path) -> None:
    before = await fetch(str(origin), "tasks", "main", cache=cache)
    commit(origin, {"tasks/one/instruction.md": "new"})
    after = await fetch(str(origin), "tasks", "main", cache=cache)
    assert (after.folder / "one/instruction.md").read_text() == "new"
    assert (before.folder / "one/instruction.md").read_text() == "do one"


async def test_a_commit_in_the_cache_needs_neither_network_nor_git(
    origin: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await fetch(str(origin), "tasks", cache=cache)
    shutil.rmtree(origin)
    monkeypatch.setenv("PATH", "")
    assert await fetch(str(origin), "tasks", source.commit, cache=cache) == source
    inner = await fetch(str(origin), "tasks/one", source.commit, cache=cache)
    assert inner.folder == source.folder / "one"
    with pytest.raises(
        ConfigError, match=r"git is needed to fetch .* and is not installed\n  fix: apt-get install git"
    ):
        await fetch(str(origin), "other", source.commit, cache=cache)


async def test_without_a_path_the_tasks_folder_or_the_whole_repository(origin: Path, cache: Path) -> None:
    source = await fetch(str(origin), cache=cache)
    assert sorted(path.name for path in source.folder.iterdir()) == ["one", "two"]
    assert await fetch(str(origin), ref=source.commit, cache=cache) == source
    everything = await fetch(str(origin), ".", cache=cache)
    assert read(everything.folder) == FILES
    commit(origin, {"task.toml": ""})
    assert (await fetch(str(origin), cache=cache)).folder.joinpath("README.md").is_file()
    git(origin, "rm", "-rq", "tasks", "task.toml")
    commit(origin, {"tasks": "a file"})
    assert (await fetch(str(origin), cache=cache)).folder.joinpath("tasks").is_file()


async def test_several_folders_come_with_one_clone(origin: Path, cache: Path) -> None:
    head = git(origin, "rev-parse", "HEAD")
    sources = await fetch_many(str(origin), ["tasks/two", "tasks", "other", "tasks/one", "other"], head, cache=cache)
    assert [source.folder.name for source in sources] == ["two", "tasks", "other", "one", "other"]
    assert all(source.folder.is_dir() for source in sources)
    assert await fetch_many(str(origin), [], cache=cache) == []
    shutil.rmtree(origin)
    assert await fetch_many(str(origin), ["tasks/two", "other"], head, cache=cache) == [sources[0], sources[2]]


async def test_folders_with_difficult_names(origin: Path, cache: Path) -> None:
    name = "we[i]rd *na!me #1 é"
    commit(origin, {f"{name}/x y/f": "in", "we/x y/f": "out", "weirdest na!me #1 é/x y/f": "out"})
    source = await fetch(str(origin), f"{name}/x y", cache=cache)
    assert read(source.folder) == {"f": "in"}
    assert [path.name for path in source.folder.parents[1].iterdir()] == [name]


async def test_a_repository_whose_path_has_spaces(origin: Path, cache: Path) -> None:
    assert (await fetch(str(move(origin, "a b%20c")), "tasks", cache=cache)).folder.is_dir()


async def test_modes_and_links_are_kept_and_hooks_are_not_run(
    origin: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (origin / "tasks/one/solve.sh").write_text("#!/bin/sh\n")
    (origin / "tasks/one/solve.sh").chmod(0o755)
    (origin / "tasks/one/link").symlink_to("solve.sh")
    commit(origin, {"tasks/one/crlf": "a\n"})
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "post-checkout").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (hooks / "post-checkout").chmod(0o755)
    (tmp_path / ".gitconfig").write_text(f"[core]\n\thooksPath = {hooks}\n\tautocrlf = true\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = (await fetch(str(origin), "tasks/one", cache=cache)).folder
    assert os.access(folder / "solve.sh", os.X_OK)
    assert (folder / "link").readlink() == Path("solve.sh")
    assert (folder / "crlf").read_bytes() == b"a\n"
    assert not (tmp_path / "ran").exists()


async def test_a_call_from_inside_a_git_hook_is_not_led_astray(
    origin: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    assert (await fetch(str(origin), "tasks", cache=cache)).folder.is_dir()


@pytest.mark.parametrize(
    ("path", "ref", "message"),
    [
        ("tasks", "mian", r"has no branch or tag mian\n  fix: did you mean main\?"),
        ("tasks", "abc1234", r"has no branch or tag abc1234\n  fix: a commit is named by its full hash"),
        ("tasks", ABSENT, f"has no commit {ABSENT}"),
        ("task", None, r"has no folder task at \w{12}\n  fix: did you mean tasks\?"),
        ("no/such/folder", None, "has no folder no/such/folder"),
        ("README.md", None, r"README.md in .* is a file, not a folder"),
        ("tasks/../..", None, "is not a folder inside the repository"),
        ("tasks", "--upload-pack=x", "is not a branch, tag or commit"),
    ],
)
async def test_what_is_not_in_the_repository_is_said(
    origin: Path, cache: Path, path: str, ref: str | None, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        await fetch(str(origin), path, ref, cache=cache)
    assert not leftovers(cache)


async def test_a_repository_that_is_not_there(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(ConfigError, match=r"(?s)cannot fetch file://.*\| fatal: .*does not (exist|appear).*fix: check"):
        await fetch(str(tmp_path / "nothing"), cache=cache)
    (tmp_path / "empty").mkdir()
    git(tmp_path / "empty", "init", "--quiet")
    with pytest.raises(ConfigError, match="has no commit yet"):
        await fetch(str(tmp_path / "empty"), cache=cache)


async def test_offline_says_so_and_shows_no_credential(cache: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        await fetch("https://me:hunter2@127.0.0.1:1/o/r", cache=cache)
    assert "Failed to connect" in str(caught.value)
    assert "check the network" in str(caught.value)
    assert "hunter2" not in str(caught.value)


async def test_a_cache_that_cannot_be_written(origin: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="fix: set XDG_CACHE_HOME"):
        await fetch(str(origin), "tasks", cache=tmp_path / "file")


def test_the_cache_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "benchflow/sources"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/me")
    assert cache_folder() == Path("/home/me/.cache/benchflow/sources")


# -- a server ------------------------------------------------------------------------------------------------


class Gate:
    """Lets requests through until `stop_at` of them came; the next one waits, after saying so."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.requests = 0
        self.stop_at = stop_at
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def passed(self) -> None:
        self.requests += 1
        if self.stop_at is not None and self.requests > self.stop_at:
            self.reached.set()
            await self.opened.wait()


def run_backend(env: dict[str, str], body: bytes) -> bytes:
    done = subprocess.run(["git", "http-backend"], env=os.environ | env, input=body, stdout=subprocess.PIPE, check=True)
    return done.stdout


@contextlib.asynccontextmanager
async def served(root: Path, *, credential: str = "", gate: Gate | None = None) -> AsyncIterator[str]:
    """git over HTTP by git's own server program, with a password if one is given; yields `http://host:port`."""

    async def answer(request: web.Request) -> web.Response:
        if gate:
            await gate.passed()
        expected = "Basic " + base64.b64encode(credential.encode()).decode()
        if credential and request.headers.get("Authorization") != expected:
            return web.Response(status=401, headers={"WWW-Authenticate": "Basic"})
        env = {
            "GIT_PROJECT_ROOT": str(root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
            "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding", ""),
            "PATH_INFO": request.path,
            "QUERY_STRING": request.query_string,
            "REQUEST_METHOD": request.method,
            "CONTENT_TYPE": request.headers.get("Content-Type", ""),
        }
        done = await asyncio.to_thread(run_backend, env, await request.read())
        head, _, content = done.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().splitlines())
        return web.Response(status=int(headers.pop("Status", "200")[:3]), headers=headers, body=content)

    app = web.Application(client_max_size=1 << 24)
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, auto_decompress=False, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


async def test_a_private_repository_over_http_leaves_no_credential_behind(origin: Path, cache: Path) -> None:
    async with served(origin.parent, credential="me:s3cr3t/x") as place:
        private = place.replace("http://", "http://me:s3cr3t%2Fx@")
        source = await fetch(f"{private}/origin", "tasks", cache=cache)
        assert source.url == f"{place}/origin"
        assert sorted(path.name for path in source.folder.iterdir()) == ["one", "two"]
        with pytest.raises(ConfigError, match="log git in") as caught:
            await fetch(f"{place.replace('http://', 'http://me:wr0ng@')}/origin", cache=cache)
        assert "wr0ng" not in str(caught.value)
        with pytest.raises(ConfigError, match="terminal prompts disabled"):
            await fetch(f"{place}/origin", "other", cache=cache)
        with pytest.raises(ConfigError, match=r"not found[\s\S]*check the spelling"):
            await fetch(f"{private}/none", cache=cache)
    assert b"s3cr3t" not in everything_written(cache)


def test_a_number_in_an_address_is_not_taken_for_a_refusal() -> None:
    assert "spelling" in (_hint("fatal: repository 'http://127.0.0.1:40339/none/' not found") or "")
    refused = "fatal: unable to access 'http://127.0.0.1:1/x/': the requested url returned error: 403"
    assert "log git in" in (_hint(refused) or "")


async def test_a_page_of_a_branch_with_a_slash(origin: Path, cache: Path) -> None:
    git(origin, "branch", "feature/x")
    async with served(move(origin, "org/repo").parents[1]) as place:
        source = await fetch(f"{place}/org/repo/tree/feature/x/tasks/one", cache=cache)
        assert source.folder.name == "one"
        with pytest.raises(ConfigError, match="has no branch or tag nope/tasks"):
            await fetch(f"{place}/org/repo/tree/nope/tasks", cache=cache)


async def test_a_server_that_gives_no_bare_commits_is_asked_for_its_branches(
    origin: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = git(origin, "rev-parse", "HEAD")
    commit(origin, {"tasks/one/instruction.md": "newer"})
    for name, value in {"COUNT": "1", "KEY_0": "protocol.version", "VALUE_0": "0"}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    async with served(origin.parent) as place:
        source = await fetch(f"{place}/origin", "tasks", old, cache=cache)
    assert (source.folder / "one/instruction.md").read_text() == "do one"


async def test_a_server_that_does_not_answer_is_given_up(origin: Path, cache: Path) -> None:
    gate = Gate(stop_at=2)
    async with served(origin.parent, gate=gate) as place:
        with pytest.raises(ConfigError, match=r"took longer than 1 s"):
            await fetch(f"{place}/origin", "tasks", cache=cache, timeout=1)
        gate.opened.set()
    assert not leftovers(cache)


# -- many at once, and interrupted ---------------------------------------------------------------------------

FETCH = """
import asyncio, sys
from pathlib import Path
from benchflow.task.fetch import fetch
print(asyncio.run(fetch(sys.argv[1], "tasks", cache=Path(sys.argv[2]))).folder)
"""


async def start(url: str, cache: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", FETCH, url, str(cache), stdout=asyncio.subprocess.PIPE
    )


async def test_processes_that_want_the_same_clone_it_once(origin: Path, cache: Path, tmp_path: Path) -> None:
    alone, together = Gate(), Gate()
    async with served(origin.parent, gate=alone) as place:
        await fetch(f"{place}/origin", "tasks", git(origin, "rev-parse", "HEAD"), cache=tmp_path / "alone")
    async with served(origin.parent, gate=together) as place:
        processes = [await start(f"{place}/origin", cache) for _ in range(3)]
        outputs = {(await process.communicate())[0] for process in processes}
    assert len(outputs) == 1
    assert [process.returncode for process in processes] == [0] * 3
    asked_for_refs = 2 * len(processes)
    assert together.requests - asked_for_refs == alone.requests
    assert not leftovers(cache)


async def test_a_killed_clone_leaves_nothing_half_and_the_next_one_works(origin: Path, cache: Path) -> None:
    gate = Gate()
    async with served(origin.parent, gate=gate) as place:
        await fetch(f"{place}/origin", "tasks", cache=cache)
        shutil.rmtree(cache)
        for stop_at in range(gate.requests):
            gate.requests, gate.stop_at = 0, stop_at
            gate.reached.clear()
            process = await start(f"{place}/origin", cache)
            await gate.reached.wait()
            process.send_signal(signal.SIGKILL)
            await process.communicate()
            assert not published(cache)
        gate.stop_at = None
        source = await fetch(f"{place}/origin", "tasks", cache=cache)
        assert read(source.folder) == {name[6:]: text for name, text in FILES.items() if name.startswith("tasks/")}
        assert not leftovers(cache)
        gate.opened.set()


async def test_a_cancelled_clone_stops_git_and_leaves_nothing(origin: Path, cache: Path) -> None:
    gate = Gate(stop_at=3)
    async with served(origin.parent, gate=gate) as place:
        task = asyncio.create_task(fetch(f"{place}/origin", "tasks", cache=cache))
        await gate.reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.opened.set()
    assert not leftovers(cache)
    assert not published(cache)
