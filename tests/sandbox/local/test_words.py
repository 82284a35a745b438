from __future__ import annotations

import shlex
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.sandbox.local.words import expand, split_words

VARIABLES = {"A": "1", "EMPTY": "", "path": "/x y", "été": "summer"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ("", ""),
        ("$A", "1"),
        ("${A}", "1"),
        ("x$A-$A.y", "x1-1.y"),
        ("$AB", ""),
        ("${A}B", "1B"),
        ("$NONE", ""),
        ("$été", "summer"),
        ("$path", "/x y"),
        ("${A:-d}", "1"),
        ("${EMPTY:-d}", "d"),
        ("${EMPTY-d}", ""),
        ("${NONE-d}", "d"),
        ("${NONE:-${A:-x}}", "1"),
        ("${NONE:-'a b'}", "a b"),
        ("${NONE:-}", ""),
        ("${A:+d}", "d"),
        ("${EMPTY:+d}", ""),
        ("${EMPTY+d}", "d"),
        ("${NONE+d}", ""),
        ("${A:?no}", "1"),
        ("${EMPTY?no}", ""),
        (r"\$A", "$A"),
        (r"\\$A", r"\1"),
        (r"a\ b", "a b"),
        ("a\\", "a"),
        ("'$A'", "$A"),
        ('"$A"', "1"),
        (r'"\$A"', "$A"),
        (r'"\x\""', r'\x"'),
        ("""'"'""", '"'),
        ("a'b'\"c\"d", "abcd"),
        ("$", "$"),
        ("$.", "$."),
        ("$$", ""),
        ("$1x", "x"),
        ('"a b"', "a b"),
    ],
)
def test_expand(text: str, value: str) -> None:
    assert expand(text, VARIABLES) == value


@pytest.mark.parametrize(
    "text",
    [
        "${",
        "${}",
        "${A",
        "${A:",
        "${A:-x",
        "${A:=x}",
        "${A%x}",
        "'a",
        '"a',
        "${NONE:?why}",
        "${NONE?}",
        "${" + "A:-${" * 200,
    ],
)
def test_a_malformed_word_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        expand(text, VARIABLES)


def test_the_message_of_a_required_variable_is_shown() -> None:
    with pytest.raises(ValueError, match="TOKEN: give it"):
        expand("${TOKEN:?give it}", {})


def test_another_escape_character() -> None:
    assert expand(r"C:\dir`$A", VARIABLES, "`") == r"C:\dir$A"
    assert split_words(r"a\ b c` d", "`") == ["a\\", "b", "c` d"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("  a  b\tc ", ["a", "b", "c"]),
        ("a='b c' d", ["a='b c'", "d"]),
        ('a="b \\" c" d', ['a="b \\" c"', "d"]),
        (r"a\ b c", [r"a\ b", "c"]),
        ("'' a", ["''", "a"]),
        ("a 'b c", ["a", "'b c"]),
        ("a\\", ["a"]),
    ],
)
def test_split_words(text: str, words: list[str]) -> None:
    assert split_words(text) == words


@settings(deadline=None)
@given(st.lists(st.text(alphabet="ab '\"$\\{}:-+?", min_size=1)))
def test_what_the_shell_quotes_is_read_back(words: list[str]) -> None:
    line = " ".join(shlex.quote(word) for word in words)
    assert [expand(word, {}) for word in split_words(line)] == words


@settings(deadline=None)
@given(st.text(alphabet="A$ {}:-+?'\"\\\n"))
def test_any_text_expands_or_is_refused(text: str) -> None:
    with suppress(ValueError):
        assert isinstance(expand(text, VARIABLES), str)
