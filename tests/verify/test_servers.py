"""Who of an agent's is still there: nobody, somebody, a server. Seen from inside, as root and as the agent."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.rollout.account import make_account
from benchflow.sandbox.base import ImageRef, Network, SandboxSpec
from benchflow.sandbox.registry import close_backends, get_backend
from benchflow.verify.servers import Alive, still_alive, with_descendants

LISTEN = "use Socket; socket(S,AF_INET,SOCK_STREAM,0); bind(S,pack_sockaddr_in(8000,INADDR_ANY)); listen(S,1);"


def background(command: str, name: str) -> str:
    """A script that starts a process and prints its number once it is that program and no longer the shell."""
    return f"{command} > /dev/null 2>&1 & until grep -qx {name} /proc/$!/comm; do sleep 0.01; done; echo $!"


@pytest.mark.parametrize("user", [None, "agent"])
@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("local", marks=pytest.mark.needs("local")),
        pytest.param("docker", marks=pytest.mark.needs("docker")),
    ],
)
async def test_who_is_still_there(backend: str, user: str | None) -> None:
    spec = SandboxSpec(image=ImageRef("debian:bookworm-slim"), network=Network("no-network"))
    try:
        async with get_backend(backend).create(spec) as sandbox:
            await make_account(sandbox, user)
            assert await still_alive(sandbox, user=user) == Alive(), "nothing of the engine's is taken for the agent's"
            started = await sandbox.exec(background("tail -f /dev/null", "tail"), user=user)
            assert await still_alive(sandbox, user=user) == Alive((), ((int(started.text), "tail"),))
            server = await sandbox.exec(
                ["perl", "-e", f"{LISTEN} if ($pid = fork) {{ print $pid; exit }} sleep 1000"], user=user
            )
            alive = await still_alive(sandbox, user=user)
            assert (alive.servers, len(alive.others)) == ((int(server.text),), 1)
    finally:
        await close_backends()


@pytest.mark.needs("local")
async def test_a_name_of_ours_hides_nobody() -> None:
    spec = SandboxSpec(image=ImageRef("debian:bookworm-slim"), network=Network("no-network"))
    disguised = f"cp /bin/sleep /tmp/tini; {background('/tmp/tini 1000', 'tini')}"
    try:
        async with get_backend("local").create(spec) as sandbox:
            await make_account(sandbox, "agent")
            started = await sandbox.exec(disguised, user="agent")
            alive = await still_alive(sandbox, user="agent")
            assert [pid for pid, _ in alive.others] == [int(started.text)]
    finally:
        await close_backends()


@pytest.mark.needs("local")
async def test_what_a_server_has_started_belongs_to_it() -> None:
    spec = SandboxSpec(image=ImageRef("debian:bookworm-slim"), network=Network("no-network"))
    worker = "close S; print W $$; close W; sleep 1000"
    serve = (
        f"pipe R, W; if (fork) {{ close W; print <R>; exit }} {LISTEN} unless (fork) {{ {worker} }} close W; sleep 1000"
    )
    try:
        async with get_backend("local").create(spec) as sandbox:
            await make_account(sandbox, "agent")
            started = await sandbox.exec(["perl", "-e", serve], user="agent")
            alive = await still_alive(sandbox, user="agent")
            assert int(started.text) in alive.servers, "it has no socket, and its parent could not do without it"
            assert (len(alive.servers), alive.others) == (2, ())
    finally:
        await close_backends()


@settings(deadline=None)
@given(st.dictionaries(st.integers(2, 30), st.integers(1, 30)), st.sets(st.integers(2, 30)))
def test_descendants_are_found_however_deep_and_even_in_circles(parents: dict[int, int], pids: set[int]) -> None:
    found = with_descendants(pids, parents)
    assert pids <= set(found)
    assert all((parents[pid] in found) <= (pid in found) for pid in parents)
    assert all(pid in pids or parents[pid] in found for pid in found)
