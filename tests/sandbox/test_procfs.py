"""A process that is becoming another program is not one without variables or words."""

from __future__ import annotations

import subprocess

import pytest

from benchflow.sandbox.procfs import command_line, environment


@pytest.mark.parametrize("command", [["sleep", "1000"], ["env", "nice", "env", "nice", "sleep", "1000"]])
def test_something_is_seen_as_soon_as_a_process_is_there(command: list[str]) -> None:
    for _ in range(100):
        with subprocess.Popen(command, env={"MARK": "0123", "PATH": "/usr/bin:/bin"}) as process:
            try:
                assert b"MARK=0123" in environment(process.pid).split(b"\0")
                assert command_line(process.pid).endswith(b"sleep\x001000\0")
            finally:
                process.kill()


def test_no_variable_at_all_is_none() -> None:
    with subprocess.Popen(["/usr/bin/sleep", "1000"], env={}) as process:
        try:
            assert environment(process.pid) == b""
        finally:
            process.kill()


def test_a_process_that_is_gone_is_an_error() -> None:
    with subprocess.Popen(["true"]) as process:
        pass
    with pytest.raises(OSError, match=str(process.pid)):
        environment(process.pid)
