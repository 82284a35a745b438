"""The test-script protocol, run in a given sandbox as if nobody had prepared it.

Nothing is taken over from what the agent could reach: the folders are made anew, HOME and TMPDIR are fresh, the
environment is the image's and the task's, and every process the script left is dead before the reward is read.
The script's exit code says nothing; the reward file says all, and two that disagree say nothing. Failing to score is a
VerifierError, never a zero.
"""

from __future__ import annotations

import asyncio
import posixpath
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchflow.errors import SandboxError, SandboxGone, VerifierError, VerifierTimeout
from benchflow.trajectory.redact import mask_files, secrets_of
from benchflow.verify.environment import (
    HELPERS,
    OPEN_TO_ALL,
    PYTHON_GUARD,
    SCRATCH,
    Modules,
    bare_environment,
    git_config,
    guard_files,
    verifier_environment,
)
from benchflow.verify.reward import REWARD_LIMIT, check_range, is_pass, parse_reward_json, parse_reward_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchflow.sandbox.base import FileData, Sandbox

TESTS = "/tests"
LOGS = "/logs/verifier"
PREPARE_TIMEOUT = 120.0
"""Seconds that making the verifier's folders may take."""

ROUNDING = 0.01
"""How far two files of one reward may lie apart."""


@dataclass(frozen=True, slots=True)
class ScriptCheck:
    """What to run: the files of /tests in the order they are laid over each other, and how to run them.

    Without any files the image is expected to bring its own /tests, which is then left as it is. `private` keeps /tests
    and the reward folder from every user but root, for a verifier that shares its sandbox with living processes of the
    agent; their pids are in `keep`. `clean_env` and `git_hooks` are the task's choice; `new_loader_cache` has the list
    of shared libraries made anew, because the one that is there is not the image's; `modules` are what
    Python has to know. None of `secrets` is in what is kept
    of the output.
    """

    files: Sequence[Path | Mapping[str, FileData | bytes]]
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | int | None = None
    cwd: str | None = None
    timeout: float | None = 600.0
    reward_range: tuple[float, float] | None = None
    private: bool = False
    keep: tuple[int, ...] = ()
    clean_env: bool = True
    git_hooks: bool = False
    new_loader_cache: bool = False
    modules: Modules = field(default_factory=Modules)
    secrets: Sequence[str] = field(default=(), repr=False)

    def environment(self, box: Sandbox) -> dict[str, str]:
        """All that is laid over the image's environment; the task's own word is the last."""
        if not self.clean_env:
            return {**bare_environment(), **self.env}
        writable = (box.workdir, *OPEN_TO_ALL)
        ours = verifier_environment(box.env, writable=writable, beside_agent=self.private, git_hooks=self.git_hooks)
        return {**ours, **self.env}


async def run_script(box: Sandbox, check: ScriptCheck, output: Path) -> dict[str, float]:
    """Run /tests/test.sh in `box`, copy /logs/verifier to `output` and return the rewards.

    Raises VerifierTimeout, or VerifierError when there is no valid reward; SandboxError when the sandbox fails.
    """
    await _prepare(box, check)
    for files in check.files:
        await box.put(files, TESTS)
    script = f"{TESTS}/test.sh"
    command = f"[ -x {script} ] || chmod +x {script}; ({script}) > {LOGS}/test-stdout.txt 2>&1 < /dev/null"
    ended = await box.exec(
        ["/bin/sh", "-c", command],
        user=check.user or 0,
        env=check.environment(box),
        cwd=check.cwd,
        timeout=check.timeout,
    )
    await box.kill_processes(keep=check.keep)
    await box.get(LOGS, output)
    # What the script ran may have printed what only the script was told.
    await asyncio.to_thread(mask_files, output, [*check.secrets, *secrets_of(check.env)])
    if ended.timed_out:
        raise VerifierTimeout(f"the verifier did not end within {check.timeout:g} s")
    rewards = await _read_reward(box)
    check_range(rewards, check.reward_range)
    return rewards


async def _prepare(box: Sandbox, check: ScriptCheck) -> None:
    mode = "0700" if check.private else "0755"
    tests = TESTS if check.files else ""
    # A link where a folder belongs is removed, not followed: root must not be led out of its own folders.
    script = f"""
set -eu
[ ! -L /logs ] || rm -f /logs
[ -d /logs ] && [ -d /run ] || mkdir -p /logs /run
set --
for path in {tests} {LOGS} {SCRATCH}; do
  if [ -e "$path" ] || [ -L "$path" ]; then set -- "$@" "$path"; fi
done
[ $# = 0 ] || rm -rf "$@"
umask 022
mkdir -m {mode} {tests} {LOGS}
mkdir -p -m 0700 {SCRATCH}/home {SCRATCH}/scratch
"""
    if check.private:
        # Who owns the folder above could exchange the one with the reward.
        script += "chown 0:0 /logs && chmod go-w /logs\n"
    if check.user is not None:
        private = tests if check.private else ""
        script += f"chown {shlex.quote(str(check.user))} {private} {LOGS} {SCRATCH}/home {SCRATCH}/scratch\n"
    if check.new_loader_cache:
        script += "[ ! -x /sbin/ldconfig ] || /sbin/ldconfig -X\n"
    made = await box.exec(["/bin/sh", "-c", script], user=0, env=HELPERS, cwd="/", timeout=PREPARE_TIMEOUT)
    if not made.ok:
        words = made.stderr.decode("utf-8", "replace").strip() or f"exit code {made.exit_code}"
        raise VerifierError(f"the verifier's folders could not be made: {words}")
    if check.clean_env:
        guard = guard_files(check.modules, beside_agent=check.private)
        files = {f"{posixpath.basename(PYTHON_GUARD)}/{name}": content for name, content in guard.items()}
        await box.put({**files, "home/.gitconfig": git_config(keep_hooks=check.git_hooks)}, SCRATCH)


async def _read_reward(box: Sandbox) -> dict[str, float]:
    json, text = await _read(box, "reward.json"), await _read(box, "reward.txt")
    if json is not None:
        rewards = parse_reward_json(json)
        check_agreement(rewards, text)
        return rewards
    if text is not None:
        return parse_reward_text(text)
    raise VerifierError(
        f"the verifier wrote neither {LOGS}/reward.json nor {LOGS}/reward.txt",
        hint="its output is in verifier/test-stdout.txt",
    )


async def _read(box: Sandbox, name: str) -> bytes | None:
    try:
        return await box.read(f"{LOGS}/{name}", limit=REWARD_LIMIT)
    except FileNotFoundError:
        return None
    except SandboxGone:
        raise
    except SandboxError as error:
        raise VerifierError(f"{name} cannot be read: {error.message}") from None


def check_agreement(rewards: Mapping[str, float], text: bytes | None) -> None:
    """Raises VerifierError when reward.json says `rewards` and reward.txt says something else: who wrote which?

    Numbers may be rounded, but not to a pass. A reward.txt that holds no number says nothing.
    """
    try:
        other = parse_reward_text(text or b"")
    except VerifierError:
        return
    main = rewards.get("reward", other["reward"])
    if abs(main - other["reward"]) > ROUNDING or (is_pass(rewards) and not is_pass(other)):
        raise VerifierError(
            f"reward.json says {dict(rewards)} and reward.txt {other['reward']}",
            hint="let test.sh write one of them, or the same reward into both",
        )
