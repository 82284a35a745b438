"""Which of the tools an agent offers does what a script wants, and with which arguments.

Every agent names its tools and their parameters differently. A tool is found by its name, the parameters that carry the
command, the path and the text by theirs; whatever else the schema requires gets a plain value that fits it.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from benchflow.testing.model.script import Run, Use, Write
from benchflow.testing.model.wire import Call, Tool, get, get_object, objects

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchflow.testing.model.wire import Json

SHELL_TOOLS = (
    *("bash", "shell", "run_shell_command", "exec_command", "shell_command", "local_shell", "execute_bash", "terminal"),
    *("execute_command", "run_commands", "run_command", "exec", "execute", "run_terminal_cmd", "launch-process"),
    *("developer__shell", "run_in_terminal", "powershell"),
)
WRITE_TOOLS = (
    *("write", "write_file", "writefile", "create_file", "write_to_file", "file_editor", "str_replace_editor"),
    *("editor", "edit_file", "create", "save-file", "developer__text_editor", "str_replace_based_edit_tool"),
    "apply_patch",
)
"""Names under which agents offer a tool, in the order of preference."""

COMMAND_KEYS = ("command", "cmd", "commands", "script", "bash_command", "input")
PATH_KEYS = ("path", "file_path", "filepath", "filename", "absolute_path", "file", "target_file")
TEXT_KEYS = ("content", "contents", "file_text", "text", "file_content", "new_string", "data")
VERB_KEYS = ("command", "action", "operation")
VERBS = ("create", "write")

FILLER = "scripted step"


def call_for(action: Run | Write | Use, tools: Sequence[Tool], call_id: str) -> Call | None:
    """The call that performs an action with the tools that are offered, or None when none of them can."""
    if isinstance(action, Use):
        named = next((tool for tool in tools if action.tool in tool.name), None)
        return Call(named, call_id, dict(action.arguments)) if named is not None else None
    shell, writer = _pick(tools, SHELL_TOOLS), _pick(tools, WRITE_TOOLS)
    if isinstance(action, Write):
        if writer is not None and writer.kind == "function":
            return Call(writer, call_id, write_arguments(writer.schema, action.path, action.content))
        if shell is None and writer is not None:
            return Call(writer, call_id, text=_patch(action))
    command = action.command if isinstance(action, Run) else _write_command(action)
    return Call(shell, call_id, shell_arguments(shell.schema, command)) if shell is not None else None


def is_usable(tools: Sequence[Tool]) -> bool:
    """Whether an agent's own work could be done with these: requests for titles and summaries offer none."""
    return _pick(tools, SHELL_TOOLS) is not None or _pick(tools, WRITE_TOOLS) is not None


def shell_arguments(schema: Json, command: str) -> Json:
    """Arguments that fit `schema` and run `command`."""
    properties = get_object(schema, "properties")
    key = _first(properties, COMMAND_KEYS) or "command"
    value: object = command
    if _type_of(_resolve(get_object(properties, key), schema)) == "array":
        value = [command] if key == "commands" else ["bash", "-lc", command]
    return _filled(schema, {key: value})


def write_arguments(schema: Json, path: str, content: str) -> Json:
    """Arguments that fit `schema` and write `content` to `path`."""
    properties = get_object(schema, "properties")
    given: Json = {
        _first(properties, PATH_KEYS) or "path": path,
        _first(properties, TEXT_KEYS) or "content": content,
    }
    for key in VERB_KEYS:
        offered = get(properties, _first(properties, (key,)) or "", "enum")
        verb = next((word for word in VERBS if isinstance(offered, list) and word in offered), None)
        if verb is not None:
            given[_first(properties, (key,)) or key] = verb
    return _filled(schema, given)


def sample(schema: Json, root: Json | None = None) -> object:
    """A plain value that fits a JSON schema, as far as schemas of tools go."""
    root = schema if root is None else root
    schema = _resolve(schema, root)
    choices = schema.get("enum")
    if "const" in schema:
        return schema["const"]
    if isinstance(choices, list) and choices:
        return "LOW" if "LOW" in choices else choices[0]
    return _sample_of_type(schema, root)


def _sample_of_type(schema: Json, root: Json) -> object:
    value: object
    match _type_of(schema):
        case "integer" | "number":
            value = _number(schema)
        case "boolean":
            value = False
        case "null":
            value = None
        case "array":
            count = schema.get("minItems")
            items = get_object(schema, "items")
            value = [sample(items, root) for _ in range(count if isinstance(count, int) else 0)]
        case "object":
            value = _filled(schema, {}, root)
        case _:
            value = _word(schema)
    return value


def _pick(tools: Sequence[Tool], names: Sequence[str]) -> Tool | None:
    """The tool with the first of these names, plain or behind a prefix (`mcp__x__bash`, `default_api:shell`)."""
    for name in names:
        for tool in tools:
            if tool.name.lower() == name and (tool.kind == "function" or name == "apply_patch"):
                return tool
    for name in names:
        for tool in tools:
            if re.search(rf"(?:__|[.:/]){re.escape(name)}$", tool.name.lower()) and tool.kind == "function":
                return tool
    return None


def _first(properties: Json, keys: Sequence[str]) -> str | None:
    by_name = {name.lower(): name for name in properties}
    return next((by_name[key] for key in keys if key in by_name), None)


def _filled(schema: Json, given: Json, root: Json | None = None) -> Json:
    """`given`, and a sample of everything else that is required."""
    required = schema.get("required")
    names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    properties = get_object(schema, "properties")
    if "security_risk" in properties:
        names.append("security_risk")
    filled = dict(given)
    for name in names:
        if name not in filled:
            filled[name] = sample(get_object(properties, name), schema if root is None else root)
    return filled


def _resolve(schema: Json, root: Json) -> Json:
    """The schema behind references and alternatives: the first that is not null."""
    for _ in range(10):  # deep enough for any tool, and an end for a reference to itself
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/"):
            schema = get_object(root, *reference.removeprefix("#/").split("/"))
            continue
        options = objects(schema.get("anyOf")) or objects(schema.get("oneOf")) or objects(schema.get("allOf"))
        if "type" in schema or "enum" in schema or "const" in schema or not options:
            return schema
        schema = next((option for option in options if option.get("type") != "null"), options[0])
    return schema


def _type_of(schema: Json) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "null")
    if kind is None:
        return "object" if "properties" in schema else "string"
    return str(kind).lower()


def _number(schema: Json) -> int | float:
    low, above, high = schema.get("minimum"), schema.get("exclusiveMinimum"), schema.get("maximum")
    value: int | float = 1
    if isinstance(high, int | float):
        value = min(value, high)
    if isinstance(low, int | float):
        value = max(value, low)
    if isinstance(above, int | float) and not isinstance(above, bool) and value <= above:
        value = above + 1
    return value


def _word(schema: Json) -> str:
    shortest, longest = schema.get("minLength"), schema.get("maxLength")
    word = FILLER[:longest] if isinstance(longest, int) else FILLER
    return word.ljust(shortest, "x") if isinstance(shortest, int) else word


def _write_command(action: Write) -> str:
    folder = action.path.rpartition("/")[0]
    made = f"mkdir -p {shlex.quote(folder)} && " if folder else ""
    return f"{made}printf %s {shlex.quote(action.content)} > {shlex.quote(action.path)}"


def _patch(action: Write) -> str:
    lines = "".join(f"+{line}\n" for line in action.content.splitlines())
    return f"*** Begin Patch\n*** Add File: {action.path}\n{lines}*** End Patch\n"
