"""A container seen only through its engine: for users other than root, and engines in another machine.

Files travel as tars through the engine's archive calls. Processes are killed from inside, by scripts that need
nothing but a POSIX shell's own commands (no ps, no pkill): they read /proc and follow the rules of `near`. One rule
is weaker: a process of another user does not show its environment, so marks are looked for as the exec's own user.
"""

from __future__ import annotations

import asyncio
import io
import socket
import tarfile
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from benchflow.sandbox.archive import ArchiveError, Item, pack, unpack
from benchflow.sandbox.docker.engine import PathStat, in_thread
from benchflow.sandbox.docker.near import KILL_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    import aiohttp

    from benchflow.sandbox.base import ExecResult
    from benchflow.sandbox.docker.engine import Engine

LINKS = 20
"""Symbolic links that are followed one after another at most."""

DEATH_NEWS = 1.0
"""Seconds that the engine may take to notice that a container has ended after its processes were killed."""

PASSES = 200
"""Times that a script looks for processes to kill before it gives up. It starts none itself: there may be no room."""

NO_SHELL = 127
"""Exit code where there is no shell."""

NO_ROOM = b"temporarily unavailable"
"""What is said where no further process can be started."""

KILL_PAUSE = 0.1
"""Seconds before a script that did not get to its end is run again."""

_SNAPSHOT = """
look() { # look PID: sets parent, session and started; fails for a process that is gone or waits to be reaped
  read -r line 2>/dev/null </proc/$1/stat || return 1
  rest=${line##*) }
  set -- $rest
  [ "$1" != Z ] && [ "$1" != X ] || return 1
  parent=$2 session=$4
  shift 19
  started=$1
}
place() { # place PID: sets where its program is in memory; begins with 0 while it is becoming another program
  read -r line 2>/dev/null </proc/$1/stat || return 1
  rest=${line##*) }
  set -- $rest
  [ "$1" != Z ] && [ "$1" != X ] && [ $(($7 & 4)) = 0 ] || return 1
  place="${25} ${46} ${47} ${48} ${49}"
}
has_mark() { # has_mark PID MARK: as far as this user may read the environment, which is cut off by such a change
  while place "$1"; do
    before=$place
    while IFS= read -r line || [ -n "$line" ]; do
      case $line in *"$2"*) return 0 ;; esac
    done 2>/dev/null </proc/$1/environ
    place "$1" || return 1
    case $place in "0 "*) ;; "$before") return 1 ;; esac
  done
  return 1
}
in_list() { case " $2 " in *" $1 "*) ;; *) return 1 ;; esac; }
"""

FIND_MARKED = (
    _SNAPSHOT
    + """
for pid in /proc/[0-9]*; do pid=${pid#/proc/}; [ "$pid" != $$ ] && has_mark "$pid" "$0" && echo "$pid"; done
exit 0
"""
)
"""Prints the processes that have the mark, given as $0, in an environment that this user may read."""

INPUT_ABANDONED = (
    _SNAPSHOT
    + """
for pid in /proc/[0-9]*; do
  pid=${pid#/proc/}
  if look "$pid" && [ "$parent" = 0 ] && [ "$pid" != $$ ] && has_mark "$pid" "$0"; then adopter=$pid own=$session; fi
done
[ -p "/proc/${adopter:-none}/fd/0" ] || exit 1
for pid in /proc/[0-9]*; do
  pid=${pid#/proc/}
  [ "$pid" != $adopter ] && [ "$pid" != $$ ] && look "$pid" || continue
  for file in /proc/$pid/fd/*; do
    if [ -e "$file" ]; then
      if [ "$file" -ef /proc/$adopter/fd/0 ]; then exit 1; fi
    elif [ "$session" = "$own" ] || [ "$parent" = $adopter ]; then exit 1; fi
  done
done
exit 0
"""
)
"""Succeeds if nobody but the init of the exec with the mark $0 holds its input, as far as this user can see."""

SIGNAL = (
    _SNAPSHOT
    + """
for pid in /proc/[0-9]*; do
  pid=${pid#/proc/}
  if look "$pid" && [ "$parent" = 0 ] && [ "$pid" != $$ ] && has_mark "$pid" "$0"; then chosen=$pid; fi
done
[ -n "${chosen:-}" ] || exit 0
if [ "$2" = adopted ]; then
  adopter=$chosen chosen= oldest=
  for pid in /proc/[0-9]*; do
    pid=${pid#/proc/}
    look "$pid" && [ "$parent" = "$adopter" ] || continue
    if [ -z "$oldest" ] || [ "$started" -lt "$oldest" ]; then oldest=$started chosen=$pid; fi
  done
fi
[ -z "$chosen" ] || kill "-$1" "$chosen" 2>/dev/null
exit 0
"""
)
"""Sends the signal $1 to the command of the exec with the mark $0; `adopted` as $2 says that an init is above it."""

KILL_FAMILY = (
    _SNAPSHOT
    + """
marked=$* stopped= sessions= pass=0
for pid in $marked; do look "$pid" && sessions="$sessions $session"; done
while [ $pass -lt PASSES ]; do
  pass=$((pass + 1)) family= fresh=
  grew=1
  while [ $grew = 1 ]; do
    grew=0
    for pid in /proc/[0-9]*; do
      pid=${pid#/proc/}
      [ "$pid" != $$ ] && [ "$pid" != 1 ] && look "$pid" || continue
      in_list "$pid" "$family" && continue
      if in_list "$pid" "$marked" || in_list "$session" "$sessions" || in_list "$parent" "$family"; then
        family="$family $pid" grew=1
        in_list "$pid" "$stopped" || fresh="$fresh $pid"
      fi
    done
  done
  [ -n "$family" ] || exit 0
  if [ -n "$fresh" ]; then kill -STOP $fresh 2>/dev/null; stopped="$stopped $fresh"
  else kill -KILL $family 2>/dev/null; fi
done
exit 1
""".replace("PASSES", str(PASSES))
)
"""Kills the processes given, those that share a session with one, and everything that descends from these."""

KILL_ALL = (
    _SNAPSHOT
    + """
keep=$* stopped= pass=0 keeper= oldest=
for pid in /proc/[0-9]*; do
  pid=${pid#/proc/}
  [ "$pid" != 1 ] && look "$pid" || continue
  if [ -z "$oldest" ] || [ "$started" -lt "$oldest" ]; then oldest=$started keeper=$pid; fi
done
while [ $pass -lt PASSES ]; do
  pass=$((pass + 1)) doomed= fresh=
  for pid in /proc/[0-9]*; do
    pid=${pid#/proc/}
    [ "$pid" != 1 ] && [ "$pid" != $$ ] && [ "$pid" != "$keeper" ] && look "$pid" || continue
    [ "$parent" != "$keeper" ] && [ "$parent" != $$ ] && ! in_list "$pid" "$keep" || continue
    doomed="$doomed $pid"
    in_list "$pid" "$stopped" || fresh="$fresh $pid"
  done
  [ -n "$doomed" ] || exit 0
  if [ -n "$fresh" ]; then kill -STOP $fresh 2>/dev/null; stopped="$stopped $fresh"
  else kill -KILL $doomed 2>/dev/null; fi
done
exit 1
""".replace("PASSES", str(PASSES))
)
"""Kills everything but the container's own processes, this script and the numbers given."""


class Far:
    """One running container. `run` executes a command in it, without the wrapping that commands of users get."""

    def __init__(
        self, engine: Engine, container: str, run: Callable[[Sequence[str], str], Awaitable[ExecResult]]
    ) -> None:
        self.near = None
        self._engine = engine
        self._container = container
        self._run = run

    # -- processes -----------------------------------------------------------------------------------------

    async def lives(self) -> bool:
        """Whether the container runs, asked twice, because the engine may hear of its end last."""
        if not await self._engine.runs(self._container):
            return False
        await asyncio.sleep(DEATH_NEWS)
        return await self._engine.runs(self._container)

    async def kill_marked(self, mark: str, user: str) -> None:
        """Kill everything that the exec with this mark, which ran as `user`, started. Raises TimeoutError."""
        found = await self._finish([FIND_MARKED, mark], user)
        if pids := found.text.split():
            await self._finish([KILL_FAMILY, "sh", *pids], "0")

    async def input_abandoned(self, pid: int, mark: str, user: str) -> bool:  # noqa: ARG002  a number of the host
        """Whether nobody reads the input of the exec with this mark, which runs as `user`, any more."""
        return (await self._run(["sh", "-c", INPUT_ABANDONED, mark], user)).ok

    async def signal(self, number: int, pid: int, mark: str, user: str, *, adopted: bool) -> None:  # noqa: ARG002
        """Send a signal to the command of the exec with this mark, which runs as `user`."""
        await self._run(["sh", "-c", SIGNAL, mark, str(number), "adopted" if adopted else "bare"], user)

    async def kill_all(self, keep: Collection[int]) -> None:
        """Kill everything but the container's own processes and those in `keep`. Raises TimeoutError."""
        await self._finish([KILL_ALL, "sh", *map(str, keep)], "0")

    async def _finish(self, script: Sequence[str], user: str) -> ExecResult:
        """Run a script until it could be run and, as root, until it succeeds. Raises TimeoutError."""
        deadline = time.monotonic() + KILL_TIMEOUT
        while True:
            done = await self._run(["sh", "-c", *script], user)
            crowded = any(NO_ROOM in said.lower() for said in (done.stdout, done.stderr))
            if done.ok or not (crowded or user == "0"):
                return done
            if done.exit_code == NO_SHELL or time.monotonic() > deadline:
                raise TimeoutError(f"processes survived {KILL_TIMEOUT:g} s of killing, or there is no shell to do it")
            await asyncio.sleep(KILL_PAUSE)

    # -- files: these raise aiodocker.DockerError for an engine that fails -----------------------------------

    async def read(self, path: str, limit: int) -> bytes:
        """The content of a regular file. Raises FileNotFoundError; ArchiveError for another kind or a longer one."""
        status = await self._engine.stat(self._container, path)
        if status is None:
            raise FileNotFoundError(path)
        if not status.is_file:
            raise ArchiveError(f"{path} is not a regular file")
        if status.size > limit:
            raise ArchiveError(f"{path} is longer than {limit} bytes")
        most = limit + 64 * tarfile.BLOCKSIZE
        async with self._get(path) as response:
            data = b""
            async for chunk in response.content.iter_any():
                data += chunk
                if len(data) > most:
                    raise ArchiveError(f"{path} is longer than {limit} bytes")
        return _only_file(data, path)

    async def get(self, path: str, target: Path) -> None:
        """Copy a file or folder to the host. Raises FileNotFoundError, ArchiveError and OSError."""
        where, status = await self._resolve(path)
        if status is None:
            raise FileNotFoundError(path)
        if not (status.is_file or status.is_folder):
            raise ArchiveError(f"{path} is not a file or a folder")
        async with self._get(where) as response:
            ours, theirs = socket.socketpair()
            unpacking = asyncio.create_task(asyncio.to_thread(_unpack, theirs, target))
            try:
                with ours:
                    ours.setblocking(False)
                    # A far side that fails closes its end; its own error says more than the broken pipe.
                    with suppress(ConnectionError):
                        async for chunk in response.content.iter_any():
                            await asyncio.get_running_loop().sock_sendall(ours, chunk)
            finally:
                await asyncio.wait({unpacking})
            unpacking.result()

    async def put(self, items: Sequence[Item], target: str, owner: tuple[int, int]) -> None:
        """Write `items` below `target`, or as `target`; folders that exist are left as they are."""
        where, status = await self._resolve(target)
        wanted = [item for item in items if status is None or item.name or item.kind != "folder"]
        if status is not None:
            present = await self._present(where, wanted)
            wanted = [item for item in wanted if item.name not in present]
        body = in_thread(pack(wanted, prefix=where.strip("/"), uid=owner[0], gid=owner[1]))
        query = {"path": "/", "noOverwriteDirNonDir": "true"}
        async with self._engine.request("PUT", f"containers/{self._container}/archive", params=query, data=body):
            pass

    async def _present(self, target: str, items: Sequence[Item]) -> set[str]:
        """The folders among `items` that exist already, as folders or as links to them."""
        present = {""}
        for item in items:
            if item.kind == "folder" and item.name.rpartition("/")[0] in present:
                _, status = await self._resolve(f"{target}/{item.name}")
                if status is not None and status.is_folder:
                    present.add(item.name)
        return present - {""}

    async def _resolve(self, path: str) -> tuple[str, PathStat | None]:
        """Where a path ends, inside, and what is there."""
        for _ in range(LINKS):
            status = await self._engine.stat(self._container, path)
            if status is None or not status.is_link or not status.link:
                return path, status
            path = status.link
        raise ArchiveError(f"too many symbolic links at {path}")

    def _get(self, path: str) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        return self._engine.request("GET", f"containers/{self._container}/archive", params={"path": path})


def _unpack(source: socket.socket, target: Path) -> None:
    with source, source.makefile("rb") as stream:
        unpack(stream, target)


def _only_file(data: bytes, path: str) -> bytes:
    """The content of the one file in a tar."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            member = archive.next()
            content = archive.extractfile(member) if member is not None and member.isreg() else None
            if content is None:
                raise ArchiveError(f"{path} is not a regular file")
            return content.read()
    except tarfile.TarError as error:
        raise ArchiveError(f"malformed archive: {error}") from error
