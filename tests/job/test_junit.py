"""The JUnit file: what failed, what was lost, and nothing that breaks the XML."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchflow.job.junit import junit_xml
from benchflow.job.summary import JobResult

if TYPE_CHECKING:
    from tests.job.conftest import MakeRow


def test_every_rollout_is_a_case(make_row: MakeRow, make_error: Any) -> None:
    rows = [
        make_row("a", 1.0, model="m", timing={"total": 1.5}),
        make_row("a", 0.5, attempt=2),
        make_row("b", None, error=make_error(message="gone\x1b[31m")),
    ]
    suite = ET.fromstring(junit_xml(JobResult(Path("jobs/x"), "finished", rows, 3)))
    assert suite.attrib == {"name": "x", "tests": "3", "failures": "1", "errors": "1", "time": "1.500"}
    passed, failed, lost = suite
    assert (passed.get("classname"), passed.get("name"), len(passed)) == ("a m", "a", 0)
    assert (failed.get("name"), failed[0].tag, failed[0].get("message")) == ("a #2", "failure", "reward 0.5")
    assert (lost[0].tag, lost[0].get("message")) == ("error", "sandbox: SandboxError")
    assert lost[0].text == "gone\ufffd[31m"


@given(st.text(), st.text())
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_valid_xml(make_row: MakeRow, make_error: Any, task: str, message: str) -> None:
    row = make_row(task, None, error=make_error(message=message), rollout_dir=Path("x"))
    assert len(ET.fromstring(junit_xml(JobResult(Path("x"), "finished", [row], 1)))) == 1
