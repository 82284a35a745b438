"""Where a verifier runs: the rule as a table."""

from __future__ import annotations

import pytest

from benchflow.verify.level import place_verifier
from benchflow.verify.servers import parse_listeners

FORKABLE = {"separate": False, "can_fork": True, "servers": 0, "agent_is_root": False, "task_wants_live": False}


@pytest.mark.parametrize(
    ("change", "level", "trusted"),
    [
        ({}, "fork", True),
        ({"servers": 2}, "live", True),
        ({"servers": 2, "agent_is_root": True}, "fork", True),
        ({"task_wants_live": True}, "live", True),
        ({"task_wants_live": True, "agent_is_root": True}, "live", False),
        ({"can_fork": False}, "fresh", True),
        ({"can_fork": False, "servers": 1}, "live", True),
        ({"separate": True, "servers": 1}, "fresh", True),
        ({"separate": True, "task_wants_live": True}, "fresh", True),
    ],
)
def test_rule(change: dict[str, bool | int], level: str, trusted: bool) -> None:
    placed = place_verifier(**(FORKABLE | change))  # type: ignore[arg-type]
    assert (placed.level, placed.trusted) == (level, trusted)
    assert placed.reason


PROC = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 5001 1 0 100 0 0 10 0
   1: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 5002 1 0 20 4 30 10 -1
@1
lrwx------ 1 agent agent 64 Nov  1 00:00 3 -> socket:[5001]
@42
lrwx------ 1 agent agent 64 Nov  1 00:00 3 -> socket:[5001]
lrwx------ 1 agent agent 64 Nov  1 00:00 4 -> socket:[5002]
@43
lrwx------ 1 agent agent 64 Nov  1 00:00 4 -> socket:[5002]
@nonsense
lrwx------ 1 agent agent 64 Nov  1 00:00 4 -> socket:[5001]
"""


def test_only_owners_of_listening_sockets_are_servers() -> None:
    assert parse_listeners(PROC) == [42]


def test_no_output_means_no_servers() -> None:
    assert parse_listeners("") == []
