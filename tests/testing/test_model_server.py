"""The scripted model server, asked over HTTP in its four dialects the way agents ask."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.testing.model import wire
from benchflow.testing.model.script import Answer, Reply, answers, position
from benchflow.testing.model.tools import call_for, sample, shell_arguments, write_arguments
from benchflow.testing.model.wire import Tool
from benchflow.testing.model_server import END, Fail, ModelServer, Run, Say, Step, Think, Use, Wait, Write

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SHELL = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
DIALECTS = ["anthropic", "chat", "responses", "gemini"]


@dataclass
class Got:
    """What a client of any dialect makes of an answer."""

    text: str = ""
    thought: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    usage: tuple[int, int] = (0, 0)


class Client:
    """An agent's side of a conversation in one dialect: keeps the history and offers tools."""

    def __init__(self, http: aiohttp.ClientSession, server: ModelServer, dialect: str, stream: bool) -> None:
        self.http, self.server, self.dialect, self.stream = http, server, dialect, stream
        self.history: list[dict[str, Any]] = []
        self.tools: dict[str, dict[str, Any]] = {"bash": SHELL}
        self.key = "k"

    def path(self, verb: str = "") -> str:
        gemini = "streamGenerateContent?alt=sse" if self.stream else "generateContent"
        return {
            "anthropic": "/v1/messages?beta=true",
            "chat": "/v1/chat/completions",
            "responses": "/v1/responses",
            "gemini": f"/v1beta/models/m:{verb or gemini}",
        }[self.dialect]

    def body(self) -> dict[str, Any]:
        extra: dict[str, Any]
        named = [{"name": name, "parameters": schema} for name, schema in self.tools.items()]
        match self.dialect:
            case "anthropic":
                tools = [{"name": tool["name"], "input_schema": tool["parameters"]} for tool in named]
                extra = {"thinking": {"type": "enabled"}}
                return {"model": "m", "stream": self.stream, "messages": self.history, "tools": tools, **extra}
            case "chat":
                tools = [{"type": "function", "function": tool} for tool in named]
                extra = {"stream_options": {"include_usage": True}}
                return {"model": "m", "stream": self.stream, "messages": self.history, "tools": tools, **extra}
            case "responses":
                tools = [{"type": "function", **tool} for tool in named]
                return {"model": "m", "stream": self.stream, "input": self.history, "tools": tools}
            case _:
                return {"contents": self.history, "tools": [{"functionDeclarations": named}] if named else []}

    def prompt(self, text: str) -> None:
        if self.dialect == "gemini":
            self.history.append({"role": "user", "parts": [{"text": text}]})
        else:
            self.history.append({"role": "user", "content": text})

    def result(self, text: str) -> None:
        """Report the result of the last call."""
        match self.dialect:
            case "anthropic":
                use = self.history[-1]["content"][-1]["id"]
                self.history.append(
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use, "content": text}]}
                )
            case "chat":
                use = self.history[-1]["tool_calls"][0]["id"]
                self.history.append({"role": "tool", "tool_call_id": use, "content": text})
            case "responses":
                use = self.history[-1]["call_id"]
                self.history.append({"type": "function_call_output", "call_id": use, "output": text})
            case _:
                name = self.history[-1]["parts"][-1]["functionCall"]["name"]
                part = {"functionResponse": {"name": name, "response": {"output": text}}}
                self.history.append({"role": "user", "parts": [part]})

    async def post(self) -> aiohttp.ClientResponse:
        headers = {"Authorization": f"Bearer {self.key}"}
        return await self.http.post(self.server.url + self.path(), json=self.body(), headers=headers)

    async def ask(self) -> Got:
        """Send the conversation and add the answer to it."""
        async with await self.post() as response:
            assert response.status == 200, await response.text()
            raw = await response.read()
        data = events(raw) if self.stream else [json.loads(raw)]
        return getattr(self, f"take_{self.dialect}")(data)  # type: ignore[no-any-return]

    def take_anthropic(self, data: list[dict[str, Any]]) -> Got:
        if self.stream:
            blocks: list[dict[str, Any]] = []
            for event in data:
                if event["type"] == "content_block_start":
                    blocks.append({**event["content_block"], "partial": ""})
                elif event["type"] == "content_block_delta":
                    delta, block = event["delta"], blocks[event["index"]]
                    for key, into in (("text", "text"), ("thinking", "thinking"), ("partial_json", "partial")):
                        block[into] = block.get(into, "") + delta.get(key, "")
            for block in blocks:
                partial = block.pop("partial")
                if block["type"] == "tool_use":
                    block["input"] = json.loads(partial)
            usage = {**data[0]["message"]["usage"], **data[-2]["usage"]}
            assert data[-1]["type"] == "message_stop"
        else:
            blocks, usage = data[0]["content"], data[0]["usage"]
        self.history.append({"role": "assistant", "content": blocks})
        return Got(
            "".join(block["text"] for block in blocks if block["type"] == "text"),
            "".join(block["thinking"] for block in blocks if block["type"] == "thinking"),
            [(block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"],
            (usage["input_tokens"] + usage["cache_read_input_tokens"], usage["output_tokens"]),
        )

    def take_chat(self, data: list[dict[str, Any]]) -> Got:
        if self.stream:
            message: dict[str, Any] = {"role": "assistant", "content": "", "reasoning_content": ""}
            for chunk in data[:-1]:
                delta = chunk["choices"][0]["delta"]
                for key in ("content", "reasoning_content"):
                    message[key] += delta.get(key, "")
                for call in delta.get("tool_calls", []):
                    if "id" in call:
                        message["tool_calls"] = [call]
                    else:
                        message["tool_calls"][0]["function"]["arguments"] += call["function"]["arguments"]
        else:
            message = data[0]["choices"][0]["message"]
        self.history.append(message)
        calls = [call["function"] for call in message.get("tool_calls", [])]
        usage = data[-1]["usage"]
        return Got(
            message["content"] or "",
            message.get("reasoning_content", ""),
            [(call["name"], json.loads(call["arguments"])) for call in calls],
            (usage["prompt_tokens"], usage["completion_tokens"]),
        )

    def take_responses(self, data: list[dict[str, Any]]) -> Got:
        full = data[0]
        if self.stream:
            full = data[-1]["response"]
            assert [event["sequence_number"] for event in data] == list(range(len(data)))
            done = [event["item"] for event in data if event["type"] == "response.output_item.done"]
            assert done == full["output"]
            deltas = "".join(event["delta"] for event in data if event["type"] == "response.output_text.delta")
            assert deltas == "".join(item["content"][0]["text"] for item in done if item["type"] == "message")
        self.history += full["output"]
        items = full["output"]
        return Got(
            "".join(item["content"][0]["text"] for item in items if item["type"] == "message"),
            "".join(item["summary"][0]["text"] for item in items if item["type"] == "reasoning"),
            [(item["name"], json.loads(item["arguments"])) for item in items if item["type"] == "function_call"],
            (full["usage"]["input_tokens"], full["usage"]["output_tokens"]),
        )

    def take_gemini(self, data: list[dict[str, Any]]) -> Got:
        parts: list[dict[str, Any]] = []
        for part in (part for chunk in data for part in chunk["candidates"][0]["content"]["parts"]):
            if parts and "text" in part and "text" in parts[-1] and part.get("thought") == parts[-1].get("thought"):
                parts[-1]["text"] += part["text"]
            else:
                parts.append(part)
        self.history.append({"role": "model", "parts": parts})
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        usage = data[-1]["usageMetadata"]
        return Got(
            "".join(part["text"] for part in parts if "text" in part and not part.get("thought")),
            "".join(part["text"] for part in parts if part.get("thought")),
            [(call["name"], call["args"]) for call in calls],
            (usage["promptTokenCount"], usage["candidatesTokenCount"]),
        )


def events(raw: bytes) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in raw.decode().splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_script_goes_through_calls_and_prompts(http: aiohttp.ClientSession, dialect: str, stream: bool) -> None:
    first_turn: list[Step] = [Think("let me see"), Run("echo hi", text="Running."), Say("first done")]
    script = [*first_turn, Run("ls"), Say("second done")]
    async with ModelServer(script) as server:
        client = Client(http, server, dialect, stream)
        client.prompt("solve it")
        first = await client.ask()
        assert (first.text, first.thought, first.calls) == (
            "Running.",
            "let me see",
            [("bash", {"command": "echo hi"})],
        )
        assert first.usage == (wire.INPUT_TOKENS, wire.OUTPUT_TOKENS)
        client.result("hi")
        assert (await client.ask()).text == "first done"
        client.prompt("now the rest")
        assert (await client.ask()).calls == [("bash", {"command": "ls"})]
        client.result("a b")
        assert (await client.ask()).text == "second done"
        client.prompt("anything left?")
        assert (await client.ask()).text == END.text
    assert [request.kind for request in server.requests] == ["turn"] * 5
    assert {request.dialect for request in server.requests} == {dialect}
    assert "first done" in server.turns[2].text
    assert "solve it" in server.turns[2].text
    assert server.turns[0].headers["Authorization"] == "Bearer k"


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_request_that_is_repeated_gets_the_same_answer(http: aiohttp.ClientSession, dialect: str) -> None:
    async with ModelServer([Run("one"), Run("two")]) as server:
        client = Client(http, server, dialect, stream=False)
        client.prompt("go")
        first = await client.ask()
        client.history.pop()
        assert (await client.ask()).calls == first.calls


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_replies_that_are_not_ours_do_not_count(http: aiohttp.ClientSession, dialect: str) -> None:
    async with ModelServer([Run("one"), Say("end")]) as server:
        client = Client(http, server, dialect, stream=False)
        client.prompt("context")
        greeting = "Got it. Thanks for the context!"
        if dialect == "gemini":
            client.history.append({"role": "model", "parts": [{"text": greeting}]})
        else:
            client.history.append({"role": "assistant", "content": greeting})
        client.prompt("go")
        assert (await client.ask()).calls == [("bash", {"command": "one"})]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_helper_calls_take_nothing_from_the_script(http: aiohttp.ClientSession, dialect: str) -> None:
    async with ModelServer([Fail(500), Run("one")]) as server:
        helper = Client(http, server, dialect, stream=True)
        helper.tools = {"todo": {"type": "object"}}
        helper.prompt("make a title")
        assert (await helper.ask()).text == "Scripted title"
        client = Client(http, server, dialect, stream=True)
        client.prompt("go")
        async with await client.post() as failed:
            assert failed.status == 500
        assert (await client.ask()).calls
    assert [request.kind for request in server.requests] == ["helper", "turn", "turn"]


async def test_a_helper_that_wants_json_gets_json(http: aiohttp.ClientSession) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    async with ModelServer([Run("one")]) as server:
        for path, body in {
            "/v1beta/models/m:generateContent": {"generationConfig": {"responseJsonSchema": schema}},
            "/v1/chat/completions": {"response_format": {"json_schema": {"schema": schema}}},
        }.items():
            async with http.post(server.url + path, json=body) as response:
                assert '{\\"n\\": 1}' in await response.text()


async def test_a_script_without_tool_calls_answers_requests_without_tools(http: aiohttp.ClientSession) -> None:
    async with ModelServer([Say("score: 1")]) as server:
        judge = Client(http, server, "chat", stream=False)
        judge.tools = {}
        judge.prompt("judge this")
        assert (await judge.ask()).text == "score: 1"


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("status", [401, 429, 500, 529])
async def test_errors_are_the_dialects_own_and_come_once(
    http: aiohttp.ClientSession, dialect: str, status: int
) -> None:
    async with ModelServer([Fail(status, retry_after=2), Run("one")]) as server:
        for key in ("k1", "k2"):
            client = Client(http, server, dialect, stream=True)
            client.key = key
            client.prompt("go")
            async with await client.post() as failed:
                assert failed.status == status
                assert f"scripted error {status}" in (await failed.json())["error"]["message"]
                assert failed.headers.get("Retry-After") == (None if status in (401, 500) else "2")
            assert (await client.ask()).calls


async def test_a_marker_in_the_prompt_chooses_the_script(http: aiohttp.ClientSession) -> None:
    async with ModelServer([Say("default")], scripts={"TASK-A": [Say("a")], "TASK-B": [Say("b")]}) as server:
        for prompt, said in {"x TASK-B y": "b", "TASK-A": "a", "other": "default"}.items():
            client = Client(http, server, "anthropic", stream=False)
            client.prompt(prompt)
            assert (await client.ask()).text == said


async def test_conversations_at_the_same_time_do_not_mix(http: aiohttp.ClientSession) -> None:
    async def converse(server: ModelServer, dialect: str) -> list[Any]:
        client = Client(http, server, dialect, stream=True)
        client.prompt("go")
        seen = []
        for _ in range(3):
            got = await client.ask()
            seen.append(got.calls or got.text)
            if got.calls:
                client.result("ok")
        return seen

    async with ModelServer([Run("one"), Wait(0.01), Run("two"), Say("end")]) as server:
        all_seen = await asyncio.gather(*(converse(server, dialect) for dialect in DIALECTS * 5))
    assert all(seen == [[("bash", {"command": "one"})], [("bash", {"command": "two"})], "end"] for seen in all_seen)


async def test_a_websocket_is_refused_and_counts_and_models_are_there(http: aiohttp.ClientSession) -> None:
    async with ModelServer() as server:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect(server.url + "/v1/responses")
        assert refused.value.status == 426
        async with http.post(server.url + "/v1/messages/count_tokens", json={}) as response:
            assert await response.json() == {"input_tokens": wire.INPUT_TOKENS}
        async with http.post(server.url + "/v1beta/models/m:countTokens", json={}) as response:
            assert await response.json() == {"totalTokens": wire.INPUT_TOKENS}
        async with http.get(server.url + "/v1/models") as response:
            assert (await response.json())["data"][0]["id"] == "scripted-1"
        async with http.get(server.url + "/v1beta/models/x") as response:
            assert (await response.json())["name"] == "models/x"
        async with http.post(server.url + "/v1beta/models/x:embedContent", data=b"not json") as response:
            assert response.status == 404
        async with http.get(server.url + "/health") as response:
            assert response.status == 200
    assert [request.kind for request in server.requests] == [
        "other",
        "count",
        "count",
        "models",
        "models",
        "other",
        "other",
    ]


async def test_gemini_streams_a_list_where_no_events_are_asked_for(http: aiohttp.ClientSession) -> None:
    async with ModelServer([Say("hello")]) as server:
        path = "/v1beta/models/m:streamGenerateContent"
        async with http.post(server.url + path, json={"contents": [{"parts": [{"text": "hi"}]}]}) as response:
            chunks = await response.json()
    assert "".join(chunk["candidates"][0]["content"]["parts"][0]["text"] for chunk in chunks) == "hello"


async def test_a_slow_answer_can_be_left_and_does_not_keep_the_server(http: aiohttp.ClientSession) -> None:
    async with ModelServer([Say("slow " * 20, seconds=1000), Wait(1000), Say("later")]) as server:
        client = Client(http, server, "chat", stream=True)
        client.prompt("go")
        async with await client.post() as response:
            assert await response.content.readline()
        other = Client(http, server, "chat", stream=False)
        other.prompt("go")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await other.ask()


def test_by_hand() -> None:
    argv = [sys.executable, "-m", "benchflow.testing.model_server", "--port", "0", "--run", "ls", "--say", "done"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("scripted model at http://127.0.0.1:")
        process.terminate()


# -- the script --------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.builds(Say, st.text("abc ", min_size=1).filter(str.strip)),
        st.builds(Run, st.text()),
        st.builds(Write, st.text(), st.text()),
        st.builds(Think, st.text()),
        st.builds(Wait, st.floats(0, 1)),
        st.builds(Fail, st.sampled_from([429, 500])),
    )
)


@settings(deadline=None)
@given(steps=STEPS, strangers=st.lists(st.integers(0, 30)))
def test_the_place_in_the_script_is_read_off_the_history(steps: list[Any], strangers: list[int]) -> None:
    script = answers(steps)
    assert script[-1].action == END
    history: list[Reply] = []
    for number, answer in enumerate(script[:-1]):
        assert position(script, history) == number
        history.append(_reply(answer))
        if number in strangers:
            history.append(Reply("??"))
    assert position(script, history) == len(script) - 1


def _reply(answer: Answer) -> Reply:
    if isinstance(answer.action, Say):
        return Reply(f"\n {answer.action.text} \n")
    return Reply("Running.", called=True)


# -- filling in schemas ------------------------------------------------------------------------------------------

LEAVES = st.one_of(
    st.fixed_dictionaries({"type": st.sampled_from(["string", "STRING"])}, optional={"minLength": st.integers(0, 40)}),
    st.fixed_dictionaries({"type": st.just("integer")}, optional={"minimum": st.integers(-9, 9)}),
    st.fixed_dictionaries({"type": st.just("number")}, optional={"exclusiveMinimum": st.integers(-9, 9)}),
    st.just({"type": "boolean"}),
    st.just({"type": ["null", "string"]}),
    st.builds(lambda values: {"enum": values}, st.lists(st.text(), min_size=1)),
    st.builds(lambda value: {"const": value}, st.text() | st.integers()),
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda items, n: {"type": "array", "items": items, "minItems": n}, inner, st.integers(0, 3)),
        st.builds(lambda one: {"anyOf": [{"type": "null"}, one]}, inner),
        st.builds(
            lambda props, keep: {"type": "object", "properties": props, "required": list(props)[:keep]},
            st.dictionaries(st.text(min_size=1), inner, max_size=4),
            st.integers(0, 4),
        ),
    ),
    max_leaves=8,
)


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """A plain reading of JSON schema, as far as the strategies above go."""
    if "anyOf" in schema:
        return any(fits(value, option) for option in schema["anyOf"])
    if "const" in schema or "enum" in schema:
        return value in schema.get("enum", [schema.get("const")])
    kinds = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    return any(fits_type(value, kind.lower(), schema) for kind in kinds)


def fits_type(value: Any, kind: str, schema: dict[str, Any]) -> bool:
    match kind:
        case "null" | "boolean":
            fit = value is None if kind == "null" else isinstance(value, bool)
        case "string":
            fit = isinstance(value, str) and len(value) >= schema.get("minLength", 0)
        case "integer" | "number":
            number = isinstance(value, int | float) and not isinstance(value, bool)
            fit = number and value >= schema.get("minimum", value) and value > schema.get("exclusiveMinimum", value - 1)
        case "array":
            enough = isinstance(value, list) and len(value) >= schema["minItems"]
            fit = enough and all(fits(item, schema["items"]) for item in value)
        case _:
            whole = isinstance(value, dict) and set(schema["required"]) <= set(value)
            fit = whole and all(fits(value[key], schema["properties"][key]) for key in value)
    return bool(fit)


@settings(deadline=None)
@given(SCHEMAS)
def test_a_sample_fits_its_schema(schema: dict[str, Any]) -> None:
    assert fits(sample(schema), schema)


@settings(deadline=None)
@given(others=st.dictionaries(st.text("xyz", min_size=1), SCHEMAS, max_size=4))
def test_the_arguments_of_a_tool_fit_and_carry_the_command(others: dict[str, Any]) -> None:
    properties = {**others, "cmd": {"type": "string"}}
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": list(others)}
    filled = shell_arguments(schema, "ls")
    assert filled["cmd"] == "ls"
    assert fits(filled, schema)


def test_the_parameters_of_known_agents() -> None:
    assert shell_arguments({"properties": {"command": {"type": "array"}}}, "ls") == {"command": ["bash", "-lc", "ls"]}
    assert shell_arguments({"properties": {"commands": {"type": "array"}}}, "ls") == {"commands": ["ls"]}
    assert shell_arguments({}, "ls") == {"command": "ls"}
    risky = {"command": {"type": "string"}, "security_risk": {"enum": ["UNKNOWN", "LOW"]}}
    assert shell_arguments({"properties": risky}, "ls") == {"command": "ls", "security_risk": "LOW"}
    editor = {"command": {"enum": ["view", "create"]}, "path": {}, "file_text": {}}
    schema: dict[str, object] = {"properties": editor, "required": ["command", "path"]}
    assert write_arguments(schema, "/a", "x") == {"command": "create", "path": "/a", "file_text": "x"}
    referred: dict[str, object] = {
        "properties": {"command": {"type": "string"}, "how": {"$ref": "#/$defs/How"}},
        "required": ["how"],
        "$defs": {"How": {"enum": ["fast"]}},
    }
    assert shell_arguments(referred, "ls") == {"command": "ls", "how": "fast"}


def test_a_tool_is_picked_by_name_also_behind_a_prefix() -> None:
    call = call_for(Run("ls"), [Tool("todo"), Tool("mcp__x__Bash"), Tool("write")], "1")
    assert call is not None
    assert call.tool.name == "mcp__x__Bash"
    write = call_for(Write("/d/f", "it's"), [Tool("shell")], "1")
    assert write is not None
    assert write.arguments == {"command": "mkdir -p /d && printf %s 'it'\"'\"'s' > /d/f"}
    patch = call_for(Write("f", "a\nb"), [Tool("apply_patch", kind="custom")], "1")
    assert patch is not None
    assert patch.text == "*** Begin Patch\n*** Add File: f\n+a\n+b\n*** End Patch\n"
    assert call_for(Run("ls"), [Tool("write"), Tool("todo")], "1") is None
    used = call_for(Use("review", {"code": "x"}), [Tool("bash"), Tool("mcp__reviewer__review_code")], "1")
    assert used is not None
    assert (used.tool.name, used.arguments) == ("mcp__reviewer__review_code", {"code": "x"})
    assert call_for(Use("review"), [Tool("bash")], "1") is None
