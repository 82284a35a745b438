"""Where each key of a TOML document stands. Runs only when a problem needs a line, so that loading stays fast.

The document has been parsed by `tomllib` before: the scan relies on it being valid and only keeps count. Tables
have the line of their header, keys that of the key, entries of a list that of the entry.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchflow.task.problem import KeyPath

_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r]+|\#[^\n]*)
  | (?P<newline>\n)
  | (?P<string>\"\"\"(?:[^\\]|\\.)*?\"{3,5} | '''.*?'{3,5} | "(?:[^"\\\n]|\\.)*" | '[^'\n]*')
  | (?P<mark>[\[\]{},=.])
  | (?P<bare>[^\s\[\]{},=.\#"']+)
    """,
    re.VERBOSE | re.DOTALL,
)


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def key_lines(text: str) -> dict[KeyPath, int]:
    """The line, from 1, of every key path of a valid TOML document."""
    scan = _Scan(text)
    scan.document()
    return scan.lines


def _tokens(text: str) -> Iterator[_Token]:
    line = 1
    for match in _TOKEN.finditer(text):
        kind = str(match.lastgroup)
        if kind != "space":
            yield _Token(kind, match[0], line)
        line += match[0].count("\n")
    yield _Token("end", "", line)


class _Scan:
    def __init__(self, text: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._lists: dict[KeyPath, int] = {}
        """How many `[[headers]]` each list of tables has had."""
        self._tokens = _tokens(text)
        self._token = next(self._tokens)

    def document(self) -> None:
        table: KeyPath = ()
        while self._token.kind != "end":
            if self._token.kind == "newline":
                self._next()
            elif self._token.text == "[":
                table = self._header()
            else:
                self._pair(table)

    def _next(self) -> _Token:
        token, self._token = self._token, next(self._tokens, self._token)
        return token

    def _skip_newlines(self) -> None:
        while self._token.kind == "newline":
            self._next()

    def _header(self) -> KeyPath:
        line = self._next().line
        is_list = self._token.text == "["
        if is_list:
            self._next()
        path: KeyPath = ()
        parts = self._key()
        for index, part in enumerate(parts):
            path = (*path, part)
            last = index == len(parts) - 1
            if is_list and last:
                self._lists[path] = self._lists.get(path, -1) + 1
            self.lines.setdefault(path, line)
            if path in self._lists:
                path = (*path, self._lists[path])
                self.lines.setdefault(path, line)
        while self._token.text == "]":
            self._next()
        return path

    def _key(self) -> list[str]:
        parts = [_name(self._next())]
        while self._token.text == ".":
            self._next()
            parts.append(_name(self._next()))
        return parts

    def _pair(self, table: KeyPath) -> None:
        line = self._token.line
        path = table
        for part in self._key():
            path = (*path, part)
            self.lines.setdefault(path, line)
        self._next()  # the equals sign
        self._value(path)

    def _value(self, path: KeyPath) -> None:
        if self._token.text == "[":
            self._next()
            self._skip_newlines()
            index = 0
            while self._token.text != "]" and self._token.kind != "end":
                self.lines.setdefault((*path, index), self._token.line)
                self._value((*path, index))
                self._separator()
                index += 1
            self._next()
        elif self._token.text == "{":
            self._next()
            self._skip_newlines()
            while self._token.text != "}" and self._token.kind != "end":
                self._pair(path)
                self._separator()
            self._next()
        else:
            self._next()
            while self._token.text == "." or self._token.kind == "bare":  # 1.5, 1979-05-27 07:32:00.25
                self._next()

    def _separator(self) -> None:
        self._skip_newlines()
        if self._token.text == ",":
            self._next()
        self._skip_newlines()


def _name(token: _Token) -> str:
    if token.kind != "string":
        return token.text
    inner = token.text[1:-1]
    if token.text[0] == "'" or "\\" not in inner:
        return inner
    import tomllib

    return str(next(iter(tomllib.loads(f"{token.text} = 0"))))
