"""Words of a Dockerfile: splitting with quotes, and the substitution of variables.

The rules are Docker's, which are a small part of the shell's: quotes group, the escape character (a backslash
unless the file says otherwise) takes away meaning, `$x`, `${x}`, `${x:-default}`, `${x:+other}`, `${x:?message}`
and the forms without a colon are replaced. Everything here is pure; a malformed word raises ValueError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_ESCAPE = "\\"

MAX_NESTING = 50
"""How deep `${a:-${b:-...}}` may go."""

_SPECIAL_PARAMETERS = "@*#?-$!0"


def split_words(text: str, escape: str = DEFAULT_ESCAPE) -> list[str]:
    """The words of `text`, which spaces part; quotes group and are kept, so that `expand` can read them."""
    words: list[str] = []
    word: list[str] | None = None
    quote = ""
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if not quote and char.isspace():
            if word:
                words.append("".join(word))
            word = None
            continue
        if word is None:
            word = []
        if char == escape and quote != "'":
            if position == len(text):
                break
            word.append(char)
            char = text[position]
            position += 1
        elif char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote = char
        word.append(char)
    if word:
        words.append("".join(word))
    return words


def expand(text: str, variables: Mapping[str, str], escape: str = DEFAULT_ESCAPE) -> str:
    """`text` with variables replaced and quotes and escapes taken away. Raises ValueError when it is malformed."""
    return _Reader(text, variables, escape).until("")


class _Reader:
    """Reads one text from left to right."""

    def __init__(self, text: str, variables: Mapping[str, str], escape: str) -> None:
        self._text = text
        self._variables = variables
        self._escape = escape
        self._at = 0
        self._depth = 0

    def until(self, stop: str) -> str:
        """What stands before the next bare `stop`, or the end where `stop` is empty; reads over the stop itself."""
        out: list[str] = []
        while char := self._next():
            if char == stop:
                return "".join(out)
            if char == "'":
                out.append(self._single_quoted())
            elif char == '"':
                out.append(self._double_quoted())
            elif char == "$":
                out.append(self._variable())
            elif char == self._escape:
                out.append(self._next())
            else:
                out.append(char)
        if stop:
            raise ValueError(f"'{stop}' is missing")
        return "".join(out)

    def _next(self) -> str:
        char = self._peek()
        self._at += 1
        return char

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _single_quoted(self) -> str:
        end = self._text.find("'", self._at)
        if end < 0:
            raise ValueError("a single quote is not closed")
        value = self._text[self._at : end]
        self._at = end + 1
        return value

    def _double_quoted(self) -> str:
        out: list[str] = []
        while char := self._next():
            if char == '"':
                return "".join(out)
            if char == "$":
                out.append(self._variable())
                continue
            if char == self._escape and self._peek() in {'"', "$", self._escape}:
                char = self._next()
            out.append(char)
        raise ValueError("a double quote is not closed")

    def _variable(self) -> str:
        """The value of the variable whose `$` was just read."""
        if self._peek() != "{":
            name = self._name()
            return self._variables.get(name, "") if name else "$"
        self._at += 1
        name = self._name()
        if not name:
            raise ValueError("${ needs the name of a variable")
        operator = self._next()
        if operator == "}":
            return self._variables.get(name, "")
        empty_counts_as_unset = operator == ":"
        if empty_counts_as_unset:
            operator = self._next()
        if operator not in {"-", "+", "?"}:
            raise ValueError(f"${{{name}...}} is closed by '}}' or goes on with :-, :+ or :?, not {operator!r}")
        word = self._nested_word()
        value = self._variables.get(name)
        is_set = bool(value) if empty_counts_as_unset else value is not None
        if operator == "+":
            return word if is_set else ""
        if operator == "?" and not is_set:
            raise ValueError(f"{name}: {word or 'must be set'}")
        return (value or "") if is_set else word

    def _nested_word(self) -> str:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise ValueError("variables are nested too deeply")
        word = self.until("}")
        self._depth -= 1
        return word

    def _name(self) -> str:
        start = self._at
        first = self._peek()
        if first and first in _SPECIAL_PARAMETERS:
            self._at += 1
        elif first.isdigit():
            while self._peek().isdigit():
                self._at += 1
        else:
            while self._peek().isalnum() or self._peek() == "_":
                self._at += 1
        return self._text[start : self._at]
