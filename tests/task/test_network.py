"""Allowlist entries and the policy of each phase."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from benchflow.task.agent import AgentConfig
from benchflow.task.network import NetworkPolicy, effective, normal_host
from benchflow.task.verifier import VerifierConfig


@pytest.mark.parametrize(
    ("entry", "normal"),
    [
        ("Example.COM.", "example.com"),
        (" a.com ", "a.com"),
        ("*.Example.com", "*.example.com"),
        ("*.com", "*.com"),
        ("localhost", "localhost"),
        ("xn--9ca.com", "xn--9ca.com"),
        ("1.2.3.4", "1.2.3.4"),
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("1.2.3.4/32", "1.2.3.4/32"),
        ("::1", "::1"),
        ("2001:DB8::/32", "2001:db8::/32"),
    ],
)
def test_good_hosts(entry: str, normal: str) -> None:
    assert normal_host(entry) == normal


BAD = """
    . * *. a.*.com *.*.com *a.com *.1.2.3.4 10.0.0.1/8 2001:db8::1/32 [::1] fe80::1%eth0 a.com:80 http://a.com a.com/x
    -a.com a-.com a_b.com é.com a..com .a.com
"""


@pytest.mark.parametrize(
    "entry", [*BAD.split(), "", "a" * 64 + ".com", ".".join(["a" * 60] * 5), "a b.com", "a.com\n.b"]
)
def test_bad_hosts(entry: str) -> None:
    with pytest.raises(PydanticCustomError):
        normal_host(entry)


@settings(deadline=None)
@given(st.text(max_size=40))
def test_any_entry_is_normal_or_refused(entry: str) -> None:
    try:
        host = normal_host(entry)
    except PydanticCustomError:
        return
    assert host
    assert normal_host(host) == host


def test_a_phase_has_its_override_or_the_baseline() -> None:
    baseline = NetworkPolicy("public")
    step = AgentConfig()
    task = AgentConfig.model_validate({"network_mode": "allowlist", "allowed_hosts": ["a.com"]})
    assert effective(baseline, step) == baseline
    assert effective(baseline, step, task) == NetworkPolicy("allowlist", ("a.com",))
    assert effective(baseline, VerifierConfig(network_mode="no-network"), task).mode == "no-network"
