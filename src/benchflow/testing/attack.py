"""The catalogue of cheats, and running one against a task the way an agent would.

A cheat is a small shell script that an agent might run instead of solving its task. It knows nothing about the task; it
goes for the verifier: what that starts with, what it runs, where it writes. A verifier that pays for one of them pays
for nothing.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from benchflow.errors import BenchflowError, VerifierError
from benchflow.rollout.config import RolloutConfig
from benchflow.rollout.lifecycle import Rollout
from benchflow.rollout.scene import Scene
from benchflow.rollout.world import contents
from benchflow.task.env import resolve_env
from benchflow.verify.reward import REWARD_LIMIT, is_pass, main_reward, parse_reward_json, parse_reward_text

if TYPE_CHECKING:
    from benchflow.rollout.plan import Plan
    from benchflow.sandbox.base import Sandbox

Level = Literal["fork", "fresh", "in-place"]
"""Where a task is scored: two levels of ours, and in the agent's sandbox as it is, as a harness without any would."""

CHEATS = Path(__file__).parent / "cheats"
PREAMBLE = "preamble.sh"
CHEAT_TIMEOUT = 120.0
"""Seconds that a cheat may take to set its trap."""

_AGENT = "/bin/false never-started"
_HEAD = re.compile(r"# family: (?P<family>.+)\n# what: (?P<what>.+)\n# user: (?P<user>any|root)\n")


@dataclass(frozen=True, slots=True)
class Cheat:
    """One way of getting a reward that was not earned. `needs_root` ones can only be tried by an agent that is root."""

    name: str
    family: str
    what: str
    script: str
    needs_root: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it. Without rewards the verifier failed, which pays nobody."""

    cheat: Cheat
    rewards: dict[str, float] | None
    trusted: bool
    level: str | None
    error: str = ""

    @property
    def paid(self) -> bool:
        """Whether the task passed, and the result calls that pass trusted."""
        return self.trusted and is_pass(self.rewards)

    @property
    def word(self) -> str:
        """The reward in a few characters; a pass that is not trusted has a question mark."""
        if self.rewards is None:
            return "-"
        return f"{main_reward(self.rewards):g}" + ("?" if is_pass(self.rewards) and not self.trusted else "")


@cache
def catalogue() -> tuple[Cheat, ...]:
    """Every cheat, by family and name."""
    found = [read_cheat(file) for file in CHEATS.glob("*.sh") if file.name != PREAMBLE]
    return tuple(sorted(found, key=lambda cheat: (cheat.family, cheat.name)))


def read_cheat(file: Path) -> Cheat:
    text = file.read_text()
    head = _HEAD.match(text)
    assert head, f"{file}: does not begin with its family, what it does and who can"
    return Cheat(file.stem, head["family"], head["what"], text, head["user"] == "root")


async def attack(cheat: Cheat, task: Path, *, backend: str, user: str | None, level: Level = "fork") -> Outcome:
    """Run the cheat in the agent's place, as `user` (None: root), and score what it leaves.

    Raises ConfigError or TaskError when the task cannot be run at all.
    """
    with tempfile.TemporaryDirectory(prefix="benchflow-") as scratch:
        config = RolloutConfig(
            task_path=task,
            scenes=[Scene.single(_AGENT)],
            environment=backend,
            sandbox_user=user,
            jobs_dir=Path(scratch),
            fresh_verifier=level == "fresh",
        )
        rollout = Rollout(config)
        await rollout.setup()
        try:
            await rollout.start()
            await rollout.install_agent()
            await _run(rollout, cheat)
            if level == "in-place":
                return Outcome(cheat, await _in_place(rollout.sandbox, rollout.plan), trusted=True, level=level)
            await rollout.disconnect()
            scored = await rollout.verify()
            return Outcome(cheat, scored.rewards, scored.trust == "trusted", scored.level)
        except BenchflowError as error:
            return Outcome(cheat, None, trusted=True, level=None, error=error.message)
        finally:
            await rollout.cleanup()


async def _run(rollout: Rollout, cheat: Cheat) -> None:
    script = (CHEATS / PREAMBLE).read_text() + cheat.script
    await rollout.sandbox.exec(
        ["/bin/sh", "-c", script],
        user=rollout.account.user,
        env={"HOME": rollout.account.home},
        cwd=rollout.sandbox.workdir,
        timeout=CHEAT_TIMEOUT,
    )


async def _in_place(box: Sandbox, plan: Plan) -> dict[str, float]:
    """Score in the agent's own sandbox, beside its processes, with nothing cleaned. Raises VerifierError."""
    config = plan.task.config.verifier
    step = plan.task.steps[0] if plan.task.steps else None
    await box.put(contents(plan.task.upload_files("tests", step)), "/tests")
    env = resolve_env(config.env, plan.environ, where="verifier.env")
    command = "mkdir -p /logs/verifier; chmod +x /tests/test.sh; /tests/test.sh"
    await box.exec(["/bin/sh", "-c", command], user=0, env={"HOME": "/root", **env}, timeout=config.timeout_sec)
    for name, parse in (("reward.json", parse_reward_json), ("reward.txt", parse_reward_text)):
        try:
            return parse(await box.read(f"/logs/verifier/{name}", limit=REWARD_LIMIT))
        except FileNotFoundError:
            continue
    raise VerifierError("the verifier wrote no reward")
