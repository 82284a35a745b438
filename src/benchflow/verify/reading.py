"""Looking at single files of a sandbox that an agent had: whatever is there, it is an answer and never a failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchflow.errors import SandboxError, SandboxGone
from benchflow.sandbox.base import OUTPUT_LIMIT

if TYPE_CHECKING:
    from benchflow.sandbox.base import Sandbox


async def content(box: Sandbox, path: str, limit: int = OUTPUT_LIMIT) -> bytes | None:
    """What a regular file of at most `limit` bytes holds; None for anything else. Raises SandboxGone."""
    try:
        return await box.read(path, limit=limit)
    except SandboxGone:
        raise
    except (FileNotFoundError, SandboxError):
        return None


async def exists(box: Sandbox, path: str) -> bool:
    """Whether there is anything at a path. Raises SandboxGone."""
    try:
        await box.read(path, limit=0)
    except FileNotFoundError:
        return False
    except SandboxGone:
        raise
    except SandboxError:
        return True
    return True
