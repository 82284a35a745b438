"""Which services there are, and how they are named."""

from __future__ import annotations

import pytest

from benchflow.errors import ConfigError
from benchflow.service.registry import REVIEWER, SERVICES, detect_services, find_services


def test_the_five_claws_and_the_reviewer() -> None:
    ports = {name: service.port for name, service in SERVICES.items()}
    assert ports == {"gmail": 9001, "slack": 9002, "gcal": 9003, "gdoc": 9004, "gdrive": 9005, REVIEWER: 8100}
    assert SERVICES["gmail"].command == "claw-gmail"
    assert SERVICES["gmail"].database_file == "gmail.db"


def test_a_name_may_carry_a_port() -> None:
    gmail, reviewer, again = find_services(["gmail", f"{REVIEWER}:8101", SERVICES["slack"]])
    assert (gmail.port, reviewer.port, again) == (9001, 8101, SERVICES["slack"])


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (["gmial"], "did you mean 'gmail'"),
        (["zzz"], "there are: gmail"),
        (["gmail:http"], "port from 1 to 65535"),
        (["gmail:70000"], "port from 1 to 65535"),
        (["gmail", "slack:9001"], "would share port 9001"),
    ],
)
def test_what_cannot_be_is_said(wanted: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        find_services(wanted)


def test_a_dockerfile_tells_its_services() -> None:
    text = "FROM python\n# claw-slack\nRUN pip install claw-gmail && claw-gcal --help\nRUN echo claw-gdoctor\n"
    assert [service.name for service in detect_services(text)] == ["gmail", "gcal"]


def test_what_is_no_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not the name of a service"):
        find_services([{"name": "gmail"}])  # type: ignore[list-item]
