"""`bench view`: the page as a file and served, and mistakes without a traceback."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

BENCH = [sys.executable, "-m", "benchflow.cli.app", "view"]


@pytest.fixture
def rollout(tmp_path: Path) -> Path:
    folder = tmp_path / "job" / "demo__1"
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps({"task": "demo/task", "rewards": {"reward": 1.0}}))
    return folder


def view(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*BENCH, *words], capture_output=True, text=True, check=False, timeout=60)


def test_written(rollout: Path, tmp_path: Path) -> None:
    done = view(str(rollout), "-o", str(tmp_path / "page.html"))
    assert done.returncode == 0, done.stderr
    assert "demo/task" in (tmp_path / "page.html").read_text()


def test_served_until_interrupted(rollout: Path) -> None:
    with subprocess.Popen([*BENCH, str(rollout)], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        said = ""
        while "http://" not in said or "(Ctrl-C" not in said:  # the console may break the line
            line = process.stderr.readline()
            assert line, said
            said += line
        url = said[said.index("http://") :].split()[0]
        with urllib.request.urlopen(url, timeout=30) as page:
            assert b"demo/task" in page.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert "Traceback" not in process.stderr.read()


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["-o", "/nonexistent/page.html"], 1, "cannot be written: No such file"),
        (["--port", "99999"], 2, "--port"),
    ],
)
def test_mistakes_are_explained(rollout: Path, words: list[str], code: int, says: str) -> None:
    done = view(str(rollout), *words)
    assert done.returncode == code
    assert says in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
