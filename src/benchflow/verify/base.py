"""What a verifier gets and gives: the protocol that scripts, rubrics and judges share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from benchflow.verify.reward import is_pass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchflow.sandbox.base import Sandbox
    from benchflow.verify.evidence import Finding, Trust
    from benchflow.verify.level import Level
    from benchflow.verify.script import ScriptCheck


@dataclass(frozen=True, slots=True)
class RewardEvent:
    """One part of a score: which function gave it, how much it counts, and what it says about why."""

    name: str
    value: float
    weight: float = 1.0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """A score and where it comes from. There is none without rewards: failing to score raises VerifierError.

    `findings` is what could have influenced it, and `trust` whether it holds all the same; `opt_outs` names the
    safeguards that the task did without.
    """

    rewards: dict[str, float]
    events: Sequence[RewardEvent] = ()
    output: str = ""
    level: Level = "fork"
    trust: Trust = "trusted"
    findings: Sequence[Finding] = ()
    opt_outs: Sequence[str] = ()

    @property
    def trusted(self) -> bool:
        return self.trust == "trusted"

    @property
    def passed(self) -> bool:
        return is_pass(self.rewards)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a reward function may look at.

    `sandbox` is where the verifier runs, never where the agent lives. `script` is the task's own test script.
    `events` is the trajectory so far and `answer` the agent's last message. Output goes below `folder`.
    """

    sandbox: Sandbox
    script: ScriptCheck
    folder: Path
    instruction: str = ""
    answer: str = ""
    events: Sequence[Mapping[str, object]] = field(default_factory=tuple)


class RewardFunc(Protocol):
    """Gives one number for the evidence. Raises VerifierError when it cannot; it never guesses a zero."""

    @property
    def name(self) -> str: ...

    async def score(self, evidence: Evidence) -> RewardEvent: ...
