"""Owners: the living are spared, the dead are known, and of those that cannot be judged nothing is assumed."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from benchflow.sandbox.base import Owner
from benchflow.sandbox.docker import labels


def test_labels_say_whose_a_sandbox_is() -> None:
    info = labels.read(labels.of_sandbox("bf-x", Owner("job", "rollout")), "running")
    assert (info.id, info.job, info.rollout, info.state) == ("bf-x", "job", "rollout", "running")
    assert (info.owner_pid, info.owner_alive) == (os.getpid(), True)
    assert abs(info.created - time.time()) < 60


def of_another_process() -> dict[str, str]:
    code = "from benchflow.sandbox.docker import labels; from benchflow.sandbox.base import Owner; "
    code += "print(repr(labels.of_sandbox('x', Owner())))"
    text = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return dict(eval(text))


def test_a_process_that_ended_is_dead() -> None:
    assert not labels.owner_alive(of_another_process())


def test_a_recycled_number_is_not_the_owner() -> None:
    marks = labels.of_sandbox("x", Owner()) | {labels.OWNER_START: "1"}
    assert not labels.owner_alive(marks)


def test_an_earlier_boot_is_dead() -> None:
    marks = labels.of_sandbox("x", Owner()) | {labels.BOOT: "another"}
    assert not labels.owner_alive(marks)


def test_another_machine_and_another_pid_namespace_are_not_judged() -> None:
    dead = of_another_process()
    assert labels.owner_alive(dead | {labels.MACHINE: "another", labels.BOOT: "another"})
    assert labels.owner_alive(dead | {labels.OWNER_SPACE: "pid:[1]"})


def test_labels_that_make_no_sense_are_read() -> None:
    info = labels.read({labels.ID: "x", labels.OWNER_PID: "?", labels.CREATED: ""}, "dead")
    assert (info.owner_pid, info.created) == (0, 0.0)
