"""The files an agent asks its client for (`fs/*`), served inside the sandbox as the agent's own user.

Everything goes through a shell in the sandbox that runs as that user, so an agent gets what it could get by itself and
no more: the host is out of reach, and so is what root keeps from it. One command per request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp.exceptions import RequestError

from benchflow.trajectory.events import event

if TYPE_CHECKING:
    from collections.abc import Callable

    from acp.schema import ReadTextFileRequest, WriteTextFileRequest

    from benchflow.sandbox.base import ExecResult, Sandbox
    from benchflow.trajectory.events import Event

FILE_LIMIT = 16 * 1024 * 1024
"""Bytes of the largest file, or part of one, that is handed to an agent, and of the old text kept for a diff."""

FILE_TIMEOUT = 60.0
"""Seconds that reading or writing one file may take."""

_NOT_FOUND, _NEW_FILE, _OLD_UNREADABLE = 44, 40, 41

_READ = f"""
[ -e "$1" ] || exit {_NOT_FOUND}
[ -d "$1" ] && {{ echo "$1 is a directory" >&2; exit 1; }}
exec <"$1" || exit 1
if [ -n "$3" ]; then tail -n "+$2" | head -n "$3"; else exec tail -n "+$2"; fi
"""

_WRITE = f"""
case "$1" in */*) mkdir -p -- "${{1%/*}}/" || exit 1;; esac
[ -d "$1" ] && {{ echo "$1 is a directory" >&2; exit 1; }}
code=0
if [ -f "$1" ]; then cat <"$1" 2>/dev/null || code={_OLD_UNREADABLE}; else code={_NEW_FILE}; fi
cat >"$1" || exit 1
exit $code
"""


class Files:
    """Reads and writes text files as `user`; relative paths start at `cwd`. Each write is recorded as a `diff`."""

    def __init__(self, sandbox: Sandbox, record: Callable[[Event], None], *, user: str | int | None, cwd: str) -> None:
        self._sandbox = sandbox
        self._record = record
        self._user = user
        self._cwd = cwd

    async def read(self, request: ReadTextFileRequest) -> dict[str, object]:
        """Answers `fs/read_text_file`. Raises RequestError with the reason, as the agent shall see it."""
        first = max(request.line or 1, 1)
        count = "" if request.limit is None else str(request.limit)
        done = await self._run(_READ, request.path, str(first), count)
        if done.exit_code == _NOT_FOUND:
            raise RequestError.resource_not_found(request.path)
        _check(done, request.path)
        if done.dropped:
            reason = f"{request.path} is larger than {FILE_LIMIT} bytes: read it in parts, with line and limit"
            raise RequestError.invalid_params({"details": reason})
        return {"content": done.text}

    async def write(self, request: WriteTextFileRequest) -> dict[str, object]:
        """Answers `fs/write_text_file`; missing folders are made. Raises RequestError with the reason."""
        done = await self._run(_WRITE, request.path, stdin=request.content.encode("utf-8", "replace"))
        if done.exit_code not in (_NEW_FILE, _OLD_UNREADABLE):
            _check(done, request.path)
        old = done.text if done.exit_code == 0 and not done.dropped else None
        self._record(event("diff", path=request.path, old_text=old, new_text=request.content))
        return {}

    async def _run(self, script: str, path: str, *args: str, stdin: bytes | None = None) -> ExecResult:
        return await self._sandbox.exec(
            ["sh", "-c", script, "sh", path, *args],
            user=self._user,
            cwd=self._cwd,
            stdin=stdin,
            timeout=FILE_TIMEOUT,
            output_limit=FILE_LIMIT,
        )


def _check(done: ExecResult, path: str) -> None:
    if done.timed_out:
        raise RequestError.internal_error({"details": f"{path}: no answer within {FILE_TIMEOUT:g} s"})
    if done.exit_code != 0:
        reason = done.stderr.decode("utf-8", "replace").strip() or f"{path}: exit code {done.exit_code}"
        raise RequestError.internal_error({"details": reason})
