"""What was found of an agent's tampering, and whether a pass can be trusted in spite of it. Plain data, pure rules.

Every finding is a fact told from outside the sandbox: a path that differs from the image, a process that was there.
Nothing is guessed from what somebody wrote.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Severity = Literal["info", "warning", "critical"]
Trust = Literal["trusted", "suspect"]
Action = Literal["restored", "edited", "ended", "ignored", "left"]
"""What was done before scoring: the image's state put back (what it lacks removed); the part of a file that acts taken
out; a process killed; nothing, because the verifier does not look there; nothing, although it might."""

SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that could have influenced a verifier. `count` says how many like it there are below `path`."""

    path: str
    family: str
    severity: Severity
    action: Action
    detail: str = ""
    count: int = 1


def trust_of(findings: Iterable[Finding]) -> Trust:
    """Suspect as soon as something that a verifier stands on was changed and could not be put back."""
    left = any(finding.severity == "critical" and finding.action == "left" for finding in findings)
    return "suspect" if left else "trusted"


def count(findings: Iterable[Finding]) -> dict[str, int]:
    """How many findings there are of each severity; severities without any are left out."""
    counted = Counter(finding.severity for finding in findings)
    return {severity: counted[severity] for severity in SEVERITIES if counted[severity]}


def tampering_document(
    findings: Sequence[Finding], *, trust: Trust, level: str, opt_outs: Sequence[str]
) -> dict[str, object]:
    """`tampering.json`: the gravest first."""
    ordered = sorted(findings, key=lambda finding: (-SEVERITIES.index(finding.severity), finding.family, finding.path))
    return {
        "trust": trust,
        "level": level,
        "counts": count(findings),
        "opt_outs": list(opt_outs),
        "findings": [asdict(finding) for finding in ordered],
    }
