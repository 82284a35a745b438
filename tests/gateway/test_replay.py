"""A recorded conversation, answered again without a provider."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from benchflow.errors import ConfigError
from benchflow.gateway.ledger import Ledger
from benchflow.gateway.replay import Replayer
from benchflow.testing.model_server import ModelServer, Run, Say, Step, Think

if TYPE_CHECKING:
    from pathlib import Path

    from aiohttp import web
    from tests.gateway.conftest import Bench

    from benchflow.agent.spec import Dialect
    from benchflow.gateway.admission import Pass

SCRIPT: list[Step] = [Think("First I look."), Run("ls", text="Looking."), Say("All done.")]
LATER = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime())
"""What a clock says in the replay: in another form than in the recording."""
SHELL = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
DIALECTS: list[Dialect] = ["anthropic", "openai-chat", "openai-responses", "gemini"]


class Agent:
    """A tiny agent: asks, answers a tool call, asks again. `now` is what its tool's output says of the time."""

    def __init__(self, bench: Bench, pass_: Pass, root: str, dialect: Dialect, *, stream: bool) -> None:
        self.bench, self.pass_, self.root, self.dialect, self.stream = bench, pass_, root, dialect, stream
        self.model = "m-1"

    async def run(self, prompt: str, now: str, result: str = "a.txt") -> list[bytes]:
        first = self.ask(self.first(prompt, now))
        raw, status = await first
        assert status == 200
        second, _ = await self.ask(self.second(prompt, now, result))
        return [raw, second]

    async def ask(self, body: dict[str, Any]) -> tuple[bytes, int]:
        verb = "streamGenerateContent?alt=sse" if self.stream else "generateContent"
        path = {
            "anthropic": "/v1/messages",
            "openai-chat": "/v1/chat/completions",
            "openai-responses": "/v1/responses",
            "gemini": f"/v1beta/models/{self.model}:{verb}",
        }[self.dialect]
        headers = {"Authorization": f"Bearer {self.pass_.token}"}
        async with self.bench.http.post(f"{self.root}{path}", json=body, headers=headers) as reply:
            return await reply.read(), reply.status

    def first(self, prompt: str, now: str) -> dict[str, Any]:
        text = f"It is {now}. {prompt}"
        base: dict[str, Any] = {"model": self.model, "stream": self.stream}
        tool = {"name": "bash", "parameters": SHELL}
        tools: list[dict[str, Any]]
        match self.dialect:
            case "anthropic":
                tools = [{"name": "bash", "input_schema": SHELL}]
                return {**base, "max_tokens": 5, "tools": tools, "messages": [{"role": "user", "content": text}]}
            case "openai-chat":
                tools = [{"type": "function", "function": tool}]
                options = {"stream_options": {"include_usage": True}} if self.stream else {}
                return {**base, **options, "tools": tools, "messages": [{"role": "user", "content": text}]}
            case "openai-responses":
                return {**base, "tools": [{"type": "function", **tool}], "input": [{"role": "user", "content": text}]}
            case "gemini":
                tools = [{"functionDeclarations": [tool]}]
                return {"tools": tools, "contents": [{"role": "user", "parts": [{"text": text}]}]}

    def second(self, prompt: str, now: str, result: str) -> dict[str, Any]:
        body = self.first(prompt, now)
        output = f"{result}\n(took {len(now)} ms)"
        arguments = {"command": "ls"}
        match self.dialect:
            case "anthropic":
                call: Any = {"type": "tool_use", "id": "t", "name": "bash", "input": arguments}
                body["messages"] += [
                    {"role": "assistant", "content": [call]},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": output}]},
                ]
            case "openai-chat":
                function = {"name": "bash", "arguments": json.dumps(arguments)}
                body["messages"] += [
                    {"role": "assistant", "tool_calls": [{"id": "t", "type": "function", "function": function}]},
                    {"role": "tool", "tool_call_id": "t", "content": output},
                ]
            case "openai-responses":
                body["input"] += [
                    {"type": "function_call", "call_id": "t", "name": "bash", "arguments": json.dumps(arguments)},
                    {"type": "function_call_output", "call_id": "t", "output": output},
                ]
            case "gemini":
                body["contents"] += [
                    {"role": "model", "parts": [{"functionCall": {"name": "bash", "args": arguments}}]},
                    {"role": "user", "parts": [{"functionResponse": {"name": "bash", "response": {"o": output}}}]},
                ]
        return body


def said(raw: bytes, *, stream: bool) -> list[Any]:
    """The documents of an answer, streamed or not."""
    if not stream:
        return [json.loads(raw)]
    lines = [line.removeprefix(b"data: ") for line in raw.splitlines() if line.startswith(b"data: {")]
    return [json.loads(line) for line in lines]


async def record(bench: Bench, dialect: Dialect, *, stream: bool) -> list[bytes]:
    async with ModelServer(SCRIPT) as model:
        gateway = await bench.gateway()
        pass_ = gateway.admit(bench.account(model.url, dialect), bench.ledger)
        agent = Agent(bench, pass_, await bench.open(pass_), dialect, stream=stream)
        answers = await agent.run("List the files.", time.strftime("%Y-%m-%d %H:%M", time.gmtime()))
        assert len(model.turns) == 2
        await pass_.close()
    return answers


async def replaying(
    bench: Bench,
    dialect: Dialect,
    path: Path,
    *,
    stream: bool,
    turns: int | None = None,
    other_model: bool = False,
    url: str = "http://127.0.0.1:9",
) -> tuple[Agent, Replayer, Ledger]:
    """An agent whose provider is the recording; the provider itself is at a closed port, unless given."""
    gateway = await bench.gateway()
    replayer = Replayer.from_file(bench.path, turns=turns, other_model=other_model)
    ledger = Ledger(path)
    pass_ = gateway.admit(bench.account(url, dialect), ledger, substitute=replayer)
    return Agent(bench, pass_, await bench.open(pass_), dialect, stream=stream), replayer, ledger


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_same_agent_gets_the_same_answers(
    bench: Bench, tmp_path: Path, dialect: Dialect, stream: bool
) -> None:
    recorded = await record(bench, dialect, stream=stream)
    agent, replayer, ledger = await replaying(bench, dialect, tmp_path / "again.jsonl", stream=stream)
    answers = await agent.run("List the\n files.", LATER)
    assert replayer.unused == 0
    assert agent.pass_.tripped is None
    for before, after in zip(recorded, answers, strict=True):
        assert said(after, stream=stream)[-1] == said(before, stream=stream)[-1] or stream
        for word in (b"Looking.", b"All done.", b"ls", b"bash"):
            assert (word in before.replace(b'\\"', b"")) <= (word in after)
    await agent.pass_.close()
    ledger.close()
    first = [(one["tokens"], one["response"]["body"]) for one in bench.exchanges()]  # type: ignore[index]
    again: list[Any] = [json.loads(line) for line in ledger.path.read_text().splitlines()]
    assert [(one["tokens"], one["response"]["body"]) for one in again] == first
    assert [(one["provider"], one["replayed"], one["cost"]) for one in again] == [("replay", True, 0.0)] * 2


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_first_request_that_differs_ends_it_with_the_difference(
    bench: Bench, tmp_path: Path, dialect: Dialect
) -> None:
    await record(bench, dialect, stream=False)
    agent, replayer, ledger = await replaying(bench, dialect, tmp_path / "again.jsonl", stream=False)
    await agent.run("List the files.", LATER, result="b.txt")
    trip = agent.pass_.tripped
    assert trip is not None
    assert trip.kind == "replay"
    assert "the replay ends at turn 2" in trip.message
    assert "a.txt" in trip.message
    assert "b.txt" in trip.message
    raw, status = await agent.ask(agent.first("List the files.", LATER))
    assert status == 400
    assert b"the replay ends at turn 2" in raw
    assert replayer.unused == 1
    ledger.close()


async def test_an_agent_that_wants_more_than_was_recorded_is_told(bench: Bench, tmp_path: Path) -> None:
    await record(bench, "anthropic", stream=False)
    agent, _, ledger = await replaying(bench, "anthropic", tmp_path / "again.jsonl", stream=False)
    await agent.run("List the files.", LATER)
    raw, status = await agent.ask(agent.first("List the files.", LATER))
    assert (status, b"more answers than were recorded" in raw) == (400, True)
    ledger.close()


async def test_a_look_at_something_else_is_no_difference(bench: Bench, tmp_path: Path) -> None:
    await record(bench, "anthropic", stream=False)
    agent, _, ledger = await replaying(bench, "anthropic", tmp_path / "again.jsonl", stream=False)
    async with bench.http.get(f"{agent.root}/v1/models", headers={"x-api-key": agent.pass_.token}) as reply:
        assert reply.status == 404
    assert agent.pass_.tripped is None
    ledger.close()


async def test_a_request_that_was_given_up_is_given_up_again(bench: Bench, tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def silent(request: web.BaseRequest) -> web.StreamResponse:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    gateway = await bench.gateway()
    pass_ = gateway.admit(bench.account(await bench.provider(silent), "anthropic"), bench.ledger)
    agent = Agent(bench, pass_, await bench.open(pass_), "anthropic", stream=True)
    given_up = asyncio.create_task(agent.ask(agent.second("Never mind.", LATER, "x")))
    await asked.wait()
    given_up.cancel()
    await asyncio.wait({given_up})
    await pass_.close()
    await record(bench, "anthropic", stream=True)
    agent, _, ledger = await replaying(bench, "anthropic", tmp_path / "again.jsonl", stream=True)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(agent.ask(agent.second("Never mind.", LATER, "x")), 0.2)
    await agent.run("List the files.", LATER)
    assert agent.pass_.tripped is None
    ledger.close()


async def test_after_some_turns_another_model_goes_on(bench: Bench, tmp_path: Path) -> None:
    await record(bench, "anthropic", stream=True)
    async with ModelServer([Run("ls"), Say("I took over.")]) as live:
        agent, _, ledger = await replaying(
            bench, "anthropic", tmp_path / "again.jsonl", stream=True, turns=1, other_model=True, url=live.url
        )
        agent.model = "another-model"
        _, second = await agent.run("List the files.", LATER, result="something else")
        texts = "".join(
            event["delta"].get("text", "") for event in said(second, stream=True) if "text" in str(event.get("delta"))
        )
        assert texts == "I took over."
        assert len(live.turns) == 1
    assert agent.pass_.tripped is None
    ledger.close()


def test_what_cannot_be_replayed_is_said_before(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text('{"type": "exchange", "ended": "broken"}\n{"torn')
    for name in ("empty.jsonl", "none.jsonl"):
        with pytest.raises(ConfigError, match="no recorded answers"):
            Replayer.from_file(tmp_path / name)
