"""YAML as tasks use it: plain data, with a line for every key, and no surprises.

Refused with a line: aliases (they can hide a document without end), tags other than the plain ones, keys that are
not text, keys said twice, and nesting beyond a limit. An empty value is the same as no value. The tree is built from
parser events instead of by recursion, because a deep document must give a diagnosis and not exhaust the stack.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import yaml

from benchflow.task.model import DEPTH_LIMIT
from benchflow.task.problem import show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchflow.task.problem import KeyPath

_PLAIN = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "timestamp")}
_NUMBERS = {f"tag:yaml.org,2002:{name}" for name in ("int", "float")}
_OCTAL = re.compile(r"[+-]?0[0-7_]+", re.ASCII)
_NULL = "tag:yaml.org,2002:null"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class YamlFault(ValueError):
    """The text is not YAML that a task may use; `line` counts from 1."""

    def __init__(self, line: int, what: str, expected: str, fix: str) -> None:
        super().__init__(what)
        self.line = line
        self.what = what
        self.expected = expected
        self.fix = fix


@dataclass(slots=True)
class _Frame:
    """A mapping or a list that is being read."""

    path: KeyPath
    value: dict[str, object] | list[object]
    key: str | None = None
    taken: set[str] = field(default_factory=set)


def read_yaml(text: str) -> tuple[object, dict[KeyPath, int]]:
    """The data of one YAML document and the line, from 1, of each of its keys. Raises YamlFault, nothing else."""
    return _Reader().read(_events(text))


def check_syntax(text: str) -> None:
    """Whether a text is YAML of any kind, aliases and tags included. Raises YamlFault when it is not."""
    depth = 0
    for event in _events(text):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH_LIMIT:
            raise YamlFault(1, f"nested more than {DEPTH_LIMIT} levels deep", "fewer levels", "flatten it")


def _events(text: str) -> Iterator[yaml.Event]:
    try:
        yield from yaml.parse(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        last = text.rstrip("\n").count("\n") + 1
        line = min(error.problem_mark.line + 1, last) if error.problem_mark else last
        raise YamlFault(line, f"not valid YAML: {error.problem}", "YAML", "correct the syntax") from error
    except yaml.YAMLError as error:
        raise YamlFault(1, f"not valid YAML: {' '.join(str(error).split())}", "YAML", "remove the character") from error


class _Reader:
    def __init__(self) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._stack: list[_Frame] = []
        self._root: object = None
        self._scalars = yaml.SafeLoader("")

    def read(self, events: Iterator[yaml.Event]) -> tuple[object, dict[KeyPath, int]]:
        documents = 0
        for event in events:
            line = event.start_mark.line + 1 if event.start_mark else 1
            match event:
                case yaml.DocumentStartEvent():
                    documents += 1
                    if documents > 1:
                        raise YamlFault(line, "a second document begins", "one document", "remove the '---' line")
                case yaml.AliasEvent():
                    raise YamlFault(line, "an alias is used", "values written out", "repeat the value in full")
                case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                    self._open(event, line)
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    self._add(self._stack.pop().value, line)
                case yaml.ScalarEvent():
                    self._scalar(event, line)
        return self._root, self.lines

    def _open(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent, line: int) -> None:
        if event.tag not in (None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"):
            raise YamlFault(line, f"the tag {show(event.tag)} is used", "plain values", "remove the tag")
        if len(self._stack) >= DEPTH_LIMIT:
            raise YamlFault(line, f"nested more than {DEPTH_LIMIT} levels deep", "fewer levels", "flatten it")
        if self._stack and isinstance(self._stack[-1].value, dict) and self._stack[-1].key is None:
            raise YamlFault(line, "a key is a list or a mapping", "keys that are text", "put it in quotes")
        path = self._next_path()
        self.lines.setdefault(path, line)
        self._stack.append(_Frame(path, {} if isinstance(event, yaml.MappingStartEvent) else []))

    def _next_path(self) -> KeyPath:
        if not self._stack:
            return ()
        frame = self._stack[-1]
        if isinstance(frame.value, list):
            return (*frame.path, len(frame.value))
        return (*frame.path, cast("str", frame.key))

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        value = self._construct(event, line)
        frame = self._stack[-1] if self._stack else None
        if frame is None or isinstance(frame.value, list) or frame.key is not None:
            self._add(value, line)
            return
        if not isinstance(value, str):
            said = f"the key {show(event.value)} is read as {show(value)}"
            raise YamlFault(line, said, "keys that are text", f'put it in quotes: "{event.value}"')
        if value in frame.taken:
            raise YamlFault(line, f"the key {show(value)} is given twice", "each key once", "remove one of them")
        frame.taken.add(value)
        frame.key = value
        self.lines.setdefault((*frame.path, value), line)

    def _construct(self, event: yaml.ScalarEvent, line: int) -> object:
        tag = event.tag
        if tag is None or tag == "!":
            tag = self._scalars.resolve(yaml.ScalarNode, event.value, event.implicit)  # type: ignore[no-untyped-call]
        if tag == _NULL:
            return None
        if tag == "tag:yaml.org,2002:value" or (tag in _NUMBERS and ":" in event.value):
            return event.value  # a lone "=", and 1:30, which only old YAML takes for the number 90
        if tag in _NUMBERS and _OCTAL.fullmatch(event.value):
            said = f"{show(event.value)} begins with 0 and may mean an octal number"
            raise YamlFault(line, said, "a number without a leading 0", "drop the 0, or quote it if it is text")
        if tag not in _PLAIN:
            raise YamlFault(line, f"the tag {show(tag)} is used", "plain values", "remove it, or quote the text")
        node = yaml.ScalarNode(tag, event.value)
        try:
            return self._scalars.construct_object(node)
        except (ValueError, yaml.YAMLError, OverflowError, KeyError, IndexError, AttributeError) as error:
            kind = tag.rpartition(":")[2]
            said = f"{show(event.value)} is not a valid {kind}"
            raise YamlFault(line, said, f"a valid {kind}", "put it in quotes if it is text") from error

    def _add(self, value: object, line: int) -> None:
        if not self._stack:
            self._root = value
            return
        frame = self._stack[-1]
        if isinstance(frame.value, list):
            if value is None:
                raise YamlFault(line, "an entry of a list is empty", "a value", "write one, or remove the entry")
            self.lines.setdefault((*frame.path, len(frame.value)), line)
            frame.value.append(value)
            return
        if value is not None:
            frame.value[cast("str", frame.key)] = value
        frame.key = None
