"""Scores a finished rollout again with its task's verifier as it is now, without running an agent.

What the agents left was kept (see `keep`). It is put into a new sandbox made from the image, which is then verified as
any other. The new result replaces result.json in one step, and only when there is a score; the one before lies beside
the new verifier's output in `regrades/<n>/`.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from benchflow.agent.catalog import get_agent
from benchflow.agent.credentials import Credentials
from benchflow.errors import ConfigError
from benchflow.rollout.account import Account
from benchflow.rollout.keep import FOLDER, NotKept, is_kept, restore_state
from benchflow.rollout.merge import gate_passed, merge_rewards
from benchflow.rollout.plan import Player
from benchflow.rollout.score import Scorer
from benchflow.rollout.sidecars import Sidecars
from benchflow.rollout.store import write_json
from benchflow.rollout.world import sandbox_spec
from benchflow.sandbox.base import Owner
from benchflow.trajectory.reader import read_events
from benchflow.verify.evidence import count
from benchflow.verify.reward import is_pass, main_reward

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from benchflow.rollout.config import RolloutConfig
    from benchflow.rollout.plan import Act, Plan
    from benchflow.rollout.scene import Role
    from benchflow.sandbox.base import Sandbox
    from benchflow.verify.base import VerifyResult

REGRADES = "regrades"


def idle_cast(role: Role, _: Mapping[str, str]) -> Player:
    """Who played a role, without an account: nobody is going to play."""
    return Player(role, get_agent(role.agent), Credentials())


def why_not(folder: Path, document: Mapping[str, Any]) -> str:
    """Why the rollout in `folder`, whose result is `document`, cannot be scored again; empty when it can."""
    if document.get("verify_level") == "live":
        return "it was scored beside servers that the agent left running, and those are gone"
    kept = is_kept(folder / FOLDER) or any(is_kept(step / FOLDER) for step in (folder / "steps").glob("*"))
    return "" if kept else "what its agent left was not kept (run with --keep-workspace)"


async def regrade(
    folder: Path, config: RolloutConfig, plan: Plan, *, job: str, labels: Mapping[str, str | int]
) -> dict[str, Any]:
    """Score the rollout in `folder` with the task of `plan`, write the result and return it.

    `labels` replace those of the same name. Raises ConfigError when it cannot be scored again, VerifierError or
    SandboxError when it could not be; then nothing was replaced.
    """
    before: dict[str, Any] = json.loads((folder / "result.json").read_bytes())
    if reason := why_not(folder, before):
        raise ConfigError(f"{folder}: {reason}")
    output = _new_folder(folder)
    began = time.monotonic()
    scored, remarks = await _score_acts(folder, output, before, config, plan, job)
    rewards = merge_rewards(plan.task.config.multi_step_reward_strategy, [one.rewards for _, one in scored])
    last = scored[-1][1]
    timing = dict(before.get("timing") or {})
    timing["total"] = timing.get("total", 0.0) - timing.get("verifier", 0.0) + time.monotonic() - began
    timing["verifier"] = time.monotonic() - began
    error = before["error"]
    # What made it suspect then, such as a process, may not be there to be seen again.
    trusted = before.get("trust", "trusted") == "trusted" and all(one.trusted for _, one in scored)
    document = {
        **before,
        "rewards": rewards,
        "reward": main_reward(rewards),
        "passed": is_pass(rewards),
        # An error of the scoring that this one replaces is over; one of the agent's remains.
        "error": None if error and error["phase"] == "verifier" else error,
        "timing": {name: round(seconds, 4) for name, seconds in timing.items()},
        "verify_level": last.level,
        "trust": "trusted" if trusted else "suspect",
        "tampering": count([finding for _, one in scored for finding in one.findings]),
        "opt_outs": list(dict.fromkeys(name for _, one in scored for name in one.opt_outs)),
        "notes": [*(before.get("notes") or ()), *remarks],
        "steps": [{"name": act.name, "rewards": one.rewards, "level": one.level} for act, one in scored if act.step],
        "labels": {**(before.get("labels") or {}), **labels},
        "regraded": {"at": _now(), "folder": f"{REGRADES}/{output.name}", "rewards_before": before["rewards"]},
    }
    write_json(output / "replaced.json", before)
    write_json(folder / "result.json", document)
    return document


async def _score_acts(
    folder: Path, output: Path, before: Mapping[str, Any], config: RolloutConfig, plan: Plan, job: str
) -> tuple[list[tuple[Act, VerifyResult]], list[str]]:
    scored: list[tuple[Act, VerifyResult]] = []
    remarks: list[str] = []
    events = list(read_events(folder / "trajectory" / "acp_trajectory.jsonl"))
    account = Account(before.get("sandbox_user"), "/")
    owner = Owner(job, folder.name)
    ours = all(player.spec.kind == "builtin" for player in plan.players.values())
    for act in plan.acts:
        place = f"steps/{act.name}" if act.step else "."
        if scored and not gate_passed(*_gate(scored[-1])):
            break
        if not is_kept(folder / place / FOLDER):
            raise ConfigError(f"{folder}: the step {act.name} was not run, and would be with the verifier as it is now")
        async with _sandbox(folder, plan, job) as sandbox:
            sidecars = Sidecars(config, plan.task, plan.environ)
            await sidecars.start(sandbox)
            # They were to put their first state in place; what is scored is the state that they had at the end.
            await sandbox.kill_processes()
            try:
                await restore_state(sandbox, folder / place / FOLDER)
            except NotKept as reason:
                raise ConfigError(f"{folder}: {reason}") from None
            scorer = Scorer(plan, sandbox, account, owner, ours, sidecars, config.rubric, config.fresh_verifier)
            result, said = await scorer.final(act, output / place, events)
        scored.append((act, result))
        remarks += [f"graded again: {remark}" for remark in said]
    return scored, remarks


def _sandbox(folder: Path, plan: Plan, job: str) -> Sandbox:
    name = f"{folder.name}-again"
    return plan.backend.create(sandbox_spec(plan.task, name=name, job=job, environ=plan.environ, has=plan.capabilities))


def _gate(scored: tuple[Act, VerifyResult]) -> tuple[Act, Mapping[str, float]]:
    act, result = scored
    return act, result.rewards


def _new_folder(folder: Path) -> Path:
    number = 1
    while True:
        made = folder / REGRADES / str(number)
        try:
            made.mkdir(parents=True)
        except FileExistsError:
            number += 1
        else:
            return made


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
