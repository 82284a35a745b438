"""The test-script protocol, run in a given sandbox as if nobody had prepared it.

Nothing is taken over from what the agent could reach: the folders are made anew, HOME and TMPDIR are fresh, the
environment is the image's and the task's, and every process the script left is dead before the reward is read.
The script's exit code says nothing; the reward file says all. Failing to score is a VerifierError, never a zero.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchflow.errors import SandboxError, SandboxGone, VerifierError, VerifierTimeout
from benchflow.verify.reward import REWARD_LIMIT, check_range, parse_reward_json, parse_reward_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchflow.sandbox.base import FileData, Sandbox

TESTS = "/tests"
LOGS = "/logs/verifier"
SCRATCH = "/run/benchflow-verifier"
PREPARE_TIMEOUT = 120.0
"""Seconds that making the verifier's folders may take."""


@dataclass(frozen=True, slots=True)
class ScriptCheck:
    """What to run: the files of /tests in the order they are laid over each other, and how to run them.

    Without any files the image is expected to bring its own /tests, which is then left as it is. `private` keeps /tests
    and the reward folder from every user but root, for a verifier that shares its sandbox with living processes of the
    agent; their pids are in `keep`.
    """

    files: Sequence[Path | Mapping[str, FileData | bytes]]
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | int | None = None
    cwd: str | None = None
    timeout: float | None = 600.0
    reward_range: tuple[float, float] | None = None
    private: bool = False
    keep: tuple[int, ...] = ()


async def run_script(box: Sandbox, check: ScriptCheck, output: Path) -> dict[str, float]:
    """Run /tests/test.sh in `box`, copy /logs/verifier to `output` and return the rewards.

    Raises VerifierTimeout, or VerifierError when there is no valid reward; SandboxError when the sandbox fails.
    """
    await _prepare(box, check)
    for files in check.files:
        await box.put(files, TESTS)
    environment = {"HOME": f"{SCRATCH}/home", "TMPDIR": f"{SCRATCH}/scratch", **check.env}
    command = f"chmod +x {TESTS}/test.sh; ({TESTS}/test.sh) > {LOGS}/test-stdout.txt 2>&1 < /dev/null"
    ended = await box.exec(
        ["/bin/sh", "-c", command], user=check.user or 0, env=environment, cwd=check.cwd, timeout=check.timeout
    )
    await box.kill_processes(keep=check.keep)
    await box.get(LOGS, output)
    if ended.timed_out:
        raise VerifierTimeout(f"the verifier did not end within {check.timeout:g} s")
    rewards = await _read_reward(box)
    check_range(rewards, check.reward_range)
    return rewards


async def _prepare(box: Sandbox, check: ScriptCheck) -> None:
    mode = "0700" if check.private else "0755"
    tests = TESTS if check.files else ""
    owner = "0:0" if check.user is None else shlex.quote(str(check.user))
    # A link where a folder belongs is removed, not followed: root must not be led out of its own folders.
    script = f"""
set -eu
[ ! -L /logs ] || rm -f /logs
mkdir -p /logs /run
rm -rf {tests} {LOGS} {SCRATCH}
mkdir -m {mode} {tests} {LOGS}
mkdir -m 0711 {SCRATCH}
mkdir -m 0700 {SCRATCH}/home {SCRATCH}/scratch
chown {owner} {LOGS} {SCRATCH}/home {SCRATCH}/scratch
"""
    made = await box.exec(["/bin/sh", "-c", script], user=0, cwd="/", timeout=PREPARE_TIMEOUT)
    if not made.ok:
        words = made.stderr.decode("utf-8", "replace").strip() or f"exit code {made.exit_code}"
        raise VerifierError(f"the verifier's folders could not be made: {words}")


async def _read_reward(box: Sandbox) -> dict[str, float]:
    for name, parse in (("reward.json", parse_reward_json), ("reward.txt", parse_reward_text)):
        try:
            return parse(await box.read(f"{LOGS}/{name}", limit=REWARD_LIMIT))
        except FileNotFoundError:
            continue
        except SandboxGone:
            raise
        except SandboxError as error:
            raise VerifierError(f"{name} cannot be read: {error.message}") from None
    raise VerifierError(
        f"the verifier wrote neither {LOGS}/reward.json nor {LOGS}/reward.txt",
        hint="its output is in verifier/test-stdout.txt",
    )
