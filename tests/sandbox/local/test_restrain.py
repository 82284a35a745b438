"""Processes that are bound while they run go on as if nothing had happened, but for the links."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchflow.sandbox.local.guest import restrain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [
    pytest.mark.needs("local"),
    pytest.mark.skipif(os.geteuid() != 0, reason="traces another user's processes, which only root can"),
    pytest.mark.skipif(not restrain.SUPPORTED, reason="not an x86_64"),
]

BUSY = """
import os, signal, socket, sys, threading, time
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
answers = {}
asked = threading.Event()
listening = socket.create_server(("127.0.0.1", 0))
inner, outer = os.pipe()
got = []
signal.signal(signal.SIGALRM, lambda *_: got.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
def accepts(): answers["accepted"] = listening.accept()[0].recv(9).decode()
def reads(): answers["read"] = os.read(inner, 9).decode()
def waits(): answers["waited"] = asked.wait(60)
def sleeps():
    before = time.monotonic()
    time.sleep(0.5)
    answers["slept"] = time.monotonic() - before >= 0.5
def counts():
    total = 0
    while not asked.is_set(): total = (total * 31 + 7) % 1000003
    answers["counted"] = total >= 0
threads = [threading.Thread(target=one) for one in (accepts, reads, waits, sleeps, counts)]
for one in threads: one.start()
print("up", flush=True)
sys.stdin.readline()
client = socket.socket(); client.connect(listening.getsockname()); client.sendall(b"hello")
os.write(outer, b"word")
asked.set()
for one in threads: one.join()
for place in ("here", "below"):
    if place == "below" and os.fork():
        os.wait()
        break
    try:
        os.symlink("x", "link")
        answers["linked"] = True
    except PermissionError:
        answers["linked"] = False
    os.rename("file", "file") if os.path.exists("file") else open("file", "w").close()
    if place == "below":
        print(answers["linked"], flush=True)
        os._exit(0)
    print(sorted(answers.items()), len(got) > 3, flush=True)
"""


@contextmanager
def started(program: str) -> Iterator[subprocess.Popen[str]]:
    """A program that, as everything in a sandbox, gets no new privileges; it and all of its group end."""
    folder = tempfile.mkdtemp()
    Path(folder).chmod(0o777)
    process = subprocess.Popen(
        ["setpriv", "--no-new-privs", sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        start_new_session=True,
    )
    with process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "up\n"
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            shutil.rmtree(folder)


def in_a_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_waiting_sleeping_counting_and_interrupted_threads_go_on() -> None:
    killed: list[int] = []
    with started(BUSY) as process:

        def bind() -> None:
            with restrain.restrained(lambda: {process.pid}, killed.append):
                pass

        for _ in range(5):
            in_a_thread(bind)
        out, _ = process.communicate("go\n", timeout=60)
    assert killed == []
    first, below = out.splitlines()
    assert first == (
        "[('accepted', 'hello'), ('counted', True), ('linked', False), ('read', 'word'), ('slept', True), "
        "('waited', True)] True"
    )
    assert below == "False"


def test_the_filter_is_one_the_kernel_takes() -> None:
    program = restrain.program()
    assert len(program) % 8 == 0
    assert len(program) // 8 < 64
