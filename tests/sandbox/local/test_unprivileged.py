"""An ordinary user, with and without subordinate ids: the same sandboxes, less what cannot be had, and it says so."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from tests.sandbox.local.conftest import CACHE

import benchflow

pytestmark = [
    pytest.mark.needs("local", "rootfs"),
    pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, which only root can"),
]

HERE = Path(__file__).parent

PROGRAM = """
import asyncio, json, os, sys
from pathlib import Path
from benchflow.errors import SandboxError
from benchflow.sandbox.base import Limits, Network, RootFolder, SandboxSpec, Mount
from benchflow.sandbox.local.backend import LocalBackend
from benchflow.sandbox.local.engine import BoxSpec

async def main():
    home = Path.home()
    backend = LocalBackend()
    capabilities = await backend.check()
    found = {"users": capabilities.users, "limits": sorted(capabilities.limits), "notes": []}
    root = home / "root"
    root.mkdir()
    await backend.engine.unpack(Path(sys.argv[1]), root)
    (home / "in").mkdir()
    (home / "in" / "file").write_text("mounted")
    spec = SandboxSpec(
        RootFolder(root), network=Network(sys.argv[2]), mounts=(Mount(home / "in", "/mnt"),)
    )
    async with backend.create(spec) as box:
        async def out(script, **options):
            result = await box.exec(script, **options)
            return [result.exit_code, result.text, result.stderr.decode()]
        found["notes"] = box.notes
        found["id"] = await out("id -u; cat /mnt/file; rm -rf /etc/skel; echo x > /etc/skel")
        found["nobody"] = await out("id -u", user="nobody")
        try:
            await box.put({"x": b""}, "/owned", owner="nobody")
            found["owner"] = ""
        except SandboxError as error:
            found["owner"] = str(error)
        found["chown"] = await out("touch /x && chown 33:33 /x && stat -c %u /x")
        tries = f"cat /proc/1/environ; ls /proc/1/root; cat {home}/in/file; mknod /d b 8 0; unshare -U true"
        found["host"] = await out(tries)
        found["caps"] = await out("grep -E 'CapEff|Seccomp:|NoNewPrivs' /proc/self/status | cut -f2")
        found["net"] = await out("sed 1,2d /proc/net/dev | cut -d: -f1")
        await box.put({"a/b": b"data"}, "/srv", owner="nobody" if capabilities.users else None)
        await box.get("/srv", home / "out")
        found["out"] = (home / "out" / "a" / "b").read_text()
        async with await box.open("n=0; while :; do n=$((n + 1)); echo $n >> /log; done"):
            while not (await box.exec("test $(wc -l < /log) -gt 20")).ok:
                pass
            async with await box.fork() as busy:
                lines = (await busy.exec("cat /log")).text.split()
                found["busy"] = lines == [str(n) for n in range(1, len(lines) + 1)] and len(lines) > 20
        if capabilities.users:
            loop = "while :; do ln -s x /tmp/link && rm /tmp/link && s=links || s=refused; echo $s > /tmp/state; done"
            async with await box.open(loop, user="nobody"):
                while not (await box.exec("grep links /tmp/state")).ok:
                    pass
                async with box.restrained():
                    pass
                for _ in range(2):
                    await box.exec("rm -f /tmp/state", user=0)
                    while not (state := (await out("cat /tmp/state"))[1]):
                        pass
                found["restrained"] = state
        await box.kill_processes()
        async with await box.fork() as fork:
            found["fork"] = (await fork.exec("cat /etc/skel; echo y > /etc/skel")).text
            mounts = [await each.exec("cut -d' ' -f5 /proc/self/mountinfo | sort") for each in (box, fork)]
            found["mounts"] = mounts[0].stdout == mounts[1].stdout != b""
            found["frozen"] = len(box._now("test").box.stack.frozen)
        found["after"] = (await box.exec("cat /etc/skel")).text
        found["timeout"] = (await box.exec("setsid sleep 1000 & sleep 1000", timeout=0.3)).timed_out
    seen = set()
    await backend.engine.forget_networks()
    for _ in range(3):
        async with backend.create(spec) as box:
            seen.add((await box.exec("readlink /proc/self/ns/net")).text)
    found["networks"] = len(seen)
    await backend.engine.remove(root)
    await backend.close()
    found["left"] = sorted(str(p.relative_to(home)) for p in home.rglob("*") if p.is_file())
    print(json.dumps(found))

asyncio.run(main())
"""


async def run_as_user(kind: str, network: str) -> dict[str, object]:
    sources = Path(benchflow.__file__).parents[1]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(HERE / "as_user.py"), kind),
        *(sys.executable, "-c", PROGRAM, str(CACHE / "bookworm.tar"), network),
        env={**os.environ, "AS_USER_PATHS": f"{sources}:{CACHE}"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    found: dict[str, object] = json.loads(out)
    return found


@pytest.mark.parametrize("kind", ["ranges", "single"])
@pytest.mark.parametrize("network", ["no-network", "public"])
async def test_an_ordinary_user(kind: str, network: str) -> None:
    found = await run_as_user(kind, network)
    assert found["id"] == [0, "0\nmounted", ""]
    assert found["caps"] == [0, "00000000a80425fb\n1\n2\n", ""]
    assert found["host"][:2] == [1, ""]  # type: ignore[index] # a triple
    assert (found["out"], found["fork"], found["after"]) == ("data", "x\n", "x\n")
    assert (found["busy"], found["timeout"]) == (True, True)
    assert (found["mounts"], found["frozen"]) == (True, 1)
    assert found["networks"] == 1
    assert found["left"] == ["in/file", "out/a/b"]
    interfaces = str(found["net"][1]).split()  # type: ignore[index] # a triple
    assert (interfaces == ["lo"]) == (network == "no-network")
    if kind == "ranges":
        assert found["users"] is True
        assert found["nobody"] == [0, "65534\n", ""]
        assert found["chown"] == [0, "33\n", ""]
        assert found["restrained"] == "refused\n"
    else:
        assert found["users"] is False
        assert "not mapped" in str(found["owner"])
        assert found["nobody"][0] == 126  # type: ignore[index] # a triple
        assert found["chown"][0] != 0  # type: ignore[index] # a triple
        assert any("root inside" in note for note in found["notes"])  # type: ignore[attr-defined] # a list
