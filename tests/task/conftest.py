"""What the tests of tasks share: writing a task's folder in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from pathlib import Path

TEST_SCRIPT = "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n"

PARTS: dict[str, dict[str, str | bytes]] = {
    "toml": {
        "task.toml": "",
        "instruction.md": "Do it.\n",
        "environment/Dockerfile": "FROM debian:bookworm-slim\n",
        "tests/test.sh": TEST_SCRIPT,
        "solution/solve.sh": "#!/bin/sh\n",
    },
    "md": {
        "task.md": "---\n---\n\nDo it.\n",
        "environment/Dockerfile": "FROM debian:bookworm-slim\n",
        "verifier/test.sh": TEST_SCRIPT,
        "oracle/solve.sh": "#!/bin/sh\n",
    },
}


class WriteTask(Protocol):
    def __call__(
        self, files: dict[str, str | bytes | None] | None = None, *, form: str = "toml", name: str = "task"
    ) -> Path: ...


@pytest.fixture
def write_task(tmp_path: Path) -> WriteTask:
    """Writes a valid task with `files` laid over it; None leaves a file out."""

    def write(files: dict[str, str | bytes | None] | None = None, *, form: str = "toml", name: str = "task") -> Path:
        folder = tmp_path / name
        folder.mkdir(parents=True)
        for relative, content in {**PARTS[form], **(files or {})}.items():
            if content is None:
                continue
            file = folder / relative
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return folder

    return write
