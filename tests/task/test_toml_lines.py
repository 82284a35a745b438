"""Every key of a TOML document has the line it is written on."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import tomlkit
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.task.toml_lines import key_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchflow.task.problem import KeyPath

DOCUMENT = """\
# a comment with [brackets] and "quotes
version = "1.0"  # x = 1
a . "b c" . 'd' = [1,
  { x = 1.5, "y\\tz" = 1979-05-27 07:32:00.5 }, # ]
  [2, 3],
]
s = \"\"\"
x = 1
[table]
\\\"""\"\"\"
l = '''
[[steps]]'''

[[steps]]
name = 'a'
[steps.agent]
user = 1
[[ steps ]]
name = "b"
[[steps.verifier.collect]]
command = "x"
[[steps.verifier.collect]]
command = "y"
"""

LINES: dict[KeyPath, int] = {
    ("version",): 2,
    ("a",): 3,
    ("a", "b c", "d"): 3,
    ("a", "b c", "d", 0): 3,
    ("a", "b c", "d", 1): 4,
    ("a", "b c", "d", 1, "x"): 4,
    ("a", "b c", "d", 1, "y\tz"): 4,
    ("a", "b c", "d", 2): 5,
    ("a", "b c", "d", 2, 1): 5,
    ("s",): 7,
    ("l",): 11,
    ("steps",): 14,
    ("steps", 0, "name"): 15,
    ("steps", 0, "agent", "user"): 17,
    ("steps", 1): 18,
    ("steps", 1, "name"): 19,
    ("steps", 1, "verifier", "collect", 0, "command"): 21,
    ("steps", 1, "verifier", "collect", 1, "command"): 23,
}


def paths(value: object, path: KeyPath = ()) -> Iterator[KeyPath]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from paths(item, (*path, key))


def test_lines_of_a_document_with_everything() -> None:
    found = key_lines(DOCUMENT)
    assert LINES.items() <= found.items()
    assert set(found) == set(paths(tomllib.loads(DOCUMENT)))


def test_line_ends_of_windows() -> None:
    assert key_lines(DOCUMENT.replace("\n", "\r\n")) == key_lines(DOCUMENT)


SCALARS = st.integers(-9, 9) | st.floats(allow_nan=False) | st.booleans() | st.text(max_size=6) | st.datetimes()
NESTED = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=4), NESTED, max_size=5))
def test_every_key_of_any_document_is_found(data: dict[str, object]) -> None:
    text = tomlkit.dumps(data)
    lines = key_lines(text)
    written = text.split("\n")
    assert set(paths(tomllib.loads(text))) == set(lines)
    assert all(1 <= line <= len(written) for line in lines.values())
    for path, line in lines.items():
        if isinstance(path[-1], str) and path[-1].isascii() and path[-1].isalnum():
            assert path[-1] in written[line - 1]
