"""A job's results as a JUnit file, which is what CI systems show. A lost rollout is an error, never a failure."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from benchflow.job.row import Row
    from benchflow.job.summary import JobResult


def junit_xml(result: JobResult) -> str:
    """One test case for each rollout, in the order of the job."""
    scores = result.scores
    suite = ET.Element(
        "testsuite",
        name=result.job_dir.name,
        tests=str(len(result.rollouts)),
        failures=str(scores.scored - scores.passed),
        errors=str(scores.lost),
        time=f"{sum(row.seconds for row in result.rollouts):.3f}",
    )
    for row in result.rollouts:
        suite.append(_case(row))
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _case(row: Row) -> ET.Element:
    name = _legal(row.task) if row.attempt == 1 else f"{_legal(row.task)} #{row.attempt}"
    player = _legal(" ".join(filter(None, (row.agent, row.model))))
    case = ET.Element("testcase", classname=player, name=name, time=f"{row.seconds:.3f}")
    if not row.scored:
        error = row.error
        what = ET.SubElement(case, "error", message=_legal(f"{error.boundary}: {error.kind}" if error else "no reward"))
        what.text = _legal(error.message if error else "")
    elif not row.passed:
        what = ET.SubElement(case, "failure", message=f"reward {row.reward:g}")
        what.text = _legal(row.error.message if row.error else "")
    return case


def _legal(text: str) -> str:
    """Without the control characters that XML has no way to say."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text)
