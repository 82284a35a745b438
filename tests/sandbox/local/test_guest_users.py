"""Who a command runs as, whatever the box has in /etc/passwd and /etc/group."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchflow.sandbox.local.guest.users import Account, UnknownUser, choose, parse_group, parse_passwd

PASSWD = b"""root:x:0:0:root:/root:/bin/bash
www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin
homeless:x:40:41:::
again:x:33:99::/again:/bin/sh
"""
GROUP = b"""root:x:0:
sudo:x:27:homeless,www-data
www-data:x:33:
docker:x:999:homeless
"""


@pytest.mark.parametrize(
    ("user", "account"),
    [
        ("root", Account(0, 0, [], "/root")),
        ("0", Account(0, 0, [], "/root")),
        ("www-data", Account(33, 33, [27], "/var/www")),
        ("33", Account(33, 33, [27], "/var/www")),
        ("homeless", Account(40, 41, [27, 999], "/")),
        ("4321", Account(4321, 0, [], "/")),
        ("4321:7", Account(4321, 7, [], "/")),
        ("www-data:docker", Account(33, 999, [], "/var/www")),
        ("homeless:0", Account(40, 0, [], "/")),
    ],
)
def test_known(user: str, account: Account) -> None:
    assert choose(user, PASSWD, GROUP) == account


@pytest.mark.parametrize(
    "user", ["nobody", "", "-1", "4294967295", "99999999999", "root:", "root:nogroup", "²", "\udcff"]
)
def test_unknown(user: str) -> None:
    with pytest.raises(UnknownUser):
        choose(user, PASSWD, GROUP)


@settings(deadline=None)
@given(passwd=st.binary(max_size=300), group=st.binary(max_size=300), user=st.text(max_size=10))
@example(passwd=b"a:b:1:2:c:/d:/e", group=b"g:x:3:a", user="a")
def test_any_content_gives_an_account_or_a_refusal(passwd: bytes, group: bytes, user: str) -> None:
    try:
        account = choose(user, passwd, group)
    except (UnknownUser, UnicodeEncodeError):
        return
    assert 0 <= account.uid < 2**32 - 1
    assert 0 <= account.gid < 2**32 - 1
    assert "\0" not in account.home


@settings(deadline=None)
@given(
    names=st.lists(st.from_regex(rb"[a-z][a-z0-9-]{0,8}", fullmatch=True), min_size=1, max_size=8, unique=True),
    noise=st.lists(st.binary(max_size=40).filter(lambda line: b"\n" not in line and line.count(b":") != 6), max_size=5),
)
def test_entries_are_found_between_noise(names: list[bytes], noise: list[bytes]) -> None:
    lines = [b"%s:x:%d:%d::/home/%s:/bin/sh" % (name, 100 + n, 200 + n, name) for n, name in enumerate(names)]
    data = b"\n".join([*noise, *lines, *noise])
    assert [entry.name for entry in parse_passwd(data)] == names
    for number, name in enumerate(names):
        assert choose(name.decode(), data, b"").uid == 100 + number


def test_groups_with_odd_lines() -> None:
    data = b"a:x:1:me\nb:x:two:me\nc:x:3\nme:x:4:\n:x:5:me\nd:x:6:not-me,me,\n"
    assert [entry.gid for entry in parse_group(data, b"me")] == [1, 4, 6]
