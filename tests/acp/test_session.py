"""A session with real processes: the good agent, and every bad habit an agent may have."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from benchflow.acp import Session, SessionOptions, connect, connect_with_retry, session, transport
from benchflow.errors import ACPError, AgentGone, AgentTimeout, BenchflowError
from benchflow.testing.agents import BIG, command
from benchflow.testing.host import HostSandbox, HostStream
from benchflow.trajectory import TrajectoryWriter, read_events, tool_calls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from benchflow.trajectory import Event


class Run:
    """What a session left behind."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.spoke = asyncio.Event()
        self.log: list[str] = []
        self.sandbox = HostSandbox()

    def record(self, one: Event) -> None:
        self.events.append(one)
        if one["type"] == "message":
            self.spoke.set()

    def types(self) -> list[object]:
        return [one["type"] for one in self.events]

    def text(self) -> str:
        return "".join(str(one["text"]) for one in self.events if one["type"] == "message")

    @asynccontextmanager
    async def agent(self, *habit: str, cwd: str = "/", **options: Any) -> AsyncIterator[Session]:
        stream = await HostStream.start(command(*habit))
        opened = await connect(
            stream,
            self.sandbox.as_sandbox(),
            SessionOptions(cwd=cwd, **options),
            on_event=self.record,
            log=self.log.append,
        )
        async with opened:
            yield opened


@pytest.fixture
def run() -> Run:
    return Run()


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The SDK reports what it did not expect as tracebacks in the log: nothing an agent does may lead to one."""
    yield
    assert caplog.records == []


async def test_turns_share_a_session_and_their_events_are_complete(run: Run) -> None:
    async with run.agent("echo") as agent:
        assert agent.id == "session-1"
        assert agent.agent_info["name"] == "test-echo"
        first = await agent.prompt("hello")
        second = await agent.prompt([{"type": "text", "text": "again"}])
    assert (first.stop_reason, second.stop_reason) == ("end_turn", "end_turn")
    assert run.types() == ["prompt", "message", "stop"] * 2
    assert [one.get("text") for one in run.events] == ["hello", "1: hello", None, "again", "2: again", None]


async def test_noise_is_kept_in_the_log_and_disturbs_nothing(run: Run) -> None:
    async with run.agent("noisy") as agent:
        await agent.prompt("hello")
    assert run.text() == "1: hello"
    for line in (
        "Welcome!",
        '{"level":"info","id":7}',
        "[1,2]",
        "12",
        "progress 50%",
        '{"broken":',
        "warning: something",
    ):
        assert line in run.log
    assert any("answer to no question" in line for line in run.log)


async def test_messages_that_arrive_in_pieces(run: Run) -> None:
    async with run.agent("pieces") as agent:
        await agent.prompt("hello")
    assert run.text() == "1: hello"


async def test_a_line_of_ten_megabytes(run: Run) -> None:
    async with run.agent("big") as agent:
        await agent.prompt("hello")
    assert len(run.text()) == BIG


async def test_forged_and_repeated_answers_are_ignored(run: Run) -> None:
    async with run.agent("forging") as agent:
        assert agent.id == "session-1"
        assert (await agent.prompt("hello")).stop_reason == "end_turn"
        assert (await agent.prompt("again")).stop_reason == "end_turn"


async def test_a_dead_agent_is_named_with_its_last_words(run: Run) -> None:
    async with run.agent("dying") as agent:
        with pytest.raises(AgentGone, match="exit code 7") as caught:
            await agent.prompt("hello")
    assert isinstance(caught.value, ConnectionError)
    assert caught.value.exit_code == 7
    assert "out of cheese" in str(caught.value)
    assert run.types() == ["prompt", "message", "error"]


async def test_a_dead_agent_whose_child_keeps_the_pipe_is_dead_all_the_same(run: Run) -> None:
    async with run.agent("dying", "child") as agent:
        with pytest.raises(AgentGone, match="exit code 7"):
            await agent.prompt("hello")


async def test_an_agent_that_closes_its_output_is_gone(run: Run) -> None:
    async with run.agent("closing") as agent:
        with pytest.raises(AgentGone, match="closed its output"):
            await agent.prompt("hello")


async def test_calls_after_the_end_fail_the_same_way(run: Run) -> None:
    async with run.agent("dying") as agent:
        for _ in range(2):
            with pytest.raises(AgentGone):
                await agent.prompt("hello")
        with pytest.raises(AgentGone):
            await agent.cancel()


async def test_a_turn_that_never_ends_is_cancelled_and_the_agent_killed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "CANCEL_GRACE", 0.2)
    async with run.agent("hanging") as agent:
        with pytest.raises(AgentTimeout, match="did not end its turn within 2 s") as caught:
            await agent.prompt("hello", timeout=2)
        assert isinstance(caught.value, TimeoutError)
        with pytest.raises(AgentGone):
            await agent.prompt("more")
    assert run.types() == ["prompt", "message", "note", "error", "prompt", "error"]


async def test_a_polite_agent_survives_its_time_out(run: Run) -> None:
    async with run.agent("hanging", "polite") as agent:
        for _ in range(2):
            with pytest.raises(AgentTimeout):
                await agent.prompt("hello", timeout=0.3)
    assert run.types() == ["prompt", "message", "message", "stop", "error"] * 2
    assert [one["reason"] for one in run.events if one["type"] == "stop"] == ["cancelled"] * 2


async def test_a_silent_agent_is_given_up(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "CANCEL_GRACE", 0.1)
    async with run.agent("hanging") as agent:
        with pytest.raises(AgentTimeout, match=r"sent nothing for 0\.2 s"):
            await agent.prompt("hello", timeout=100, idle_timeout=0.2)


async def test_a_turn_can_be_ended_for_another_reason(run: Run) -> None:
    async def until() -> str:
        return "it is enough"

    async with run.agent("hanging", "polite") as agent:
        with pytest.raises(AgentTimeout, match="it is enough"):
            await agent.prompt("hello", until=until)
    async with run.agent("echo") as agent:
        assert (await agent.prompt("hello", until=asyncio.Event().wait)).stop_reason == "end_turn"  # type: ignore[arg-type]


async def test_an_agent_that_waits_for_us_is_not_silent(run: Run) -> None:
    calls = [
        ["terminal/create", {"command": "sleep 3; echo done"}],
        ["terminal/wait_for_exit", {"terminalId": "$terminal"}],
    ]
    async with run.agent("requesting") as agent:
        result = await agent.prompt(json.dumps(calls), idle_timeout=2)
    assert result.stop_reason == "end_turn"


async def test_a_turn_can_be_cancelled(run: Run) -> None:
    async with run.agent("hanging", "polite") as agent, asyncio.TaskGroup() as group:
        turn = group.create_task(agent.prompt("hello"))
        await run.spoke.wait()
        await agent.cancel()
        assert (await turn).stop_reason == "cancelled"


async def test_cancelling_the_task_leaves_nothing_behind(run: Run) -> None:
    async with run.agent("hanging") as agent:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await agent.prompt("hello")


async def test_an_agent_that_never_reads_is_given_up(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "CANCEL_GRACE", 0.1)
    async with run.agent("deaf") as agent:
        with pytest.raises(AgentTimeout):
            await agent.prompt("x" * 1_000_000, timeout=0.3)


async def test_an_agent_that_never_answers_does_not_connect(run: Run) -> None:
    stream = await HostStream.start(command("mute"))
    with pytest.raises(AgentTimeout, match="did not open a session within 4 s") as caught:
        await connect(stream, run.sandbox.as_sandbox(), SessionOptions(cwd="/"), on_event=run.events.append, timeout=4)
    assert "still loading" in str(caught.value)


async def test_another_protocol_version_is_refused(run: Run) -> None:
    with pytest.raises(ACPError, match=r"version 7 .* we speak 1"):
        async with run.agent("other-version"):
            pass


async def test_an_error_reply_speaks_with_the_agents_words(run: Run) -> None:
    async with run.agent("refusing") as agent:
        with pytest.raises(ACPError, match="Internal error: model said no") as caught:
            await agent.prompt("hello")
        assert caught.value.code == -32603
        assert "quota is used up" in str(caught.value)
    async with run.agent("refusing", "odd") as agent:
        with pytest.raises(ACPError, match="just a string"):
            await agent.prompt("hello")
    with pytest.raises(ACPError, match="Authentication required: no key") as refused:
        async with run.agent("refusing", "new"):
            pass
    assert refused.value.hint


@pytest.mark.parametrize(("policy", "option"), [("allow", "y"), ("deny", "n")])
async def test_permission_is_answered_by_policy_and_recorded(run: Run, policy: str, option: str) -> None:
    async with run.agent("asking", permission=policy) as agent:
        await agent.prompt("hello")
    assert json.loads(run.text()) == {"outcome": {"outcome": "selected", "optionId": option}}
    assert run.types() == ["prompt", "tool_call", "permission", "tool_call_update", "message", "stop"]
    [call] = tool_calls(run.events)
    assert (call.title, call.arguments, call.output) == ("rm -rf build", {"command": "rm"}, "gone")
    permission = run.events[2]
    assert (permission["tool_call_id"], permission["option_id"]) == ("call-1", option)


@pytest.mark.parametrize("habit", [["choosing", "config"], ["choosing"]])
async def test_model_and_mode_are_chosen_the_way_the_agent_offers(run: Run, habit: list[str]) -> None:
    async with run.agent(*habit) as agent:
        assert await agent.set_model("big") in ("big", "big[low]")
        await agent.set_mode("yolo")
        result = await agent.prompt("which?")
    chosen = json.loads(run.text())
    assert chosen["model"].startswith("big")
    assert chosen["mode"] == "yolo"
    assert result.usage == {"total_tokens": 12, "input_tokens": 10, "output_tokens": 2}
    assert [one["input_tokens"] for one in run.events if one["type"] == "usage"] == [10]


async def test_a_model_the_agent_does_not_know_is_an_error_that_lists_its_own(run: Run) -> None:
    async with run.agent("choosing") as agent:
        with pytest.raises(ACPError, match=r"cannot choose the model 'huge'.*[\s\S]*it offers: small, big"):
            await agent.set_model("huge")
    async with run.agent("choosing", "config", "stubborn") as agent:
        with pytest.raises(ACPError, match=r"asked for the model 'big\[low\]' and uses 'small'"):
            await agent.set_model("big")
    async with run.agent("echo") as agent:
        assert await agent.set_model("huge") is None


async def test_files_are_served_as_the_agents_user(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\nfour\n")
    path, new = str(tmp_path / "a.txt"), str(tmp_path / "made/here/b.txt")
    calls = [
        ["fs/read_text_file", {"path": path}],
        ["fs/read_text_file", {"path": "a.txt", "line": 2, "limit": 2}],
        ["fs/read_text_file", {"path": path, "line": 4}],
        ["fs/write_text_file", {"path": new, "content": "héllo"}],
        ["fs/write_text_file", {"path": new, "content": "bye"}],
        ["fs/read_text_file", {"path": str(tmp_path / "none")}],
        ["fs/read_text_file", {"path": str(tmp_path)}],
        ["fs/read_text_file", {}],
        ["fs/delete", {"path": path}],
    ]
    async with run.agent("requesting", cwd=str(tmp_path), user="someone") as agent:
        await agent.prompt(json.dumps(calls))
    whole, middle, last, *written, missing, folder, bad, unknown = json.loads(run.text())
    assert whole["content"] == "one\ntwo\nthree\nfour\n"
    assert middle["content"] == "two\nthree\n"
    assert last["content"] == "four\n"
    assert written == [{}, {}]
    assert (tmp_path / "made/here/b.txt").read_text() == "bye"
    assert missing["code"] == -32002
    assert "is a directory" in folder["data"]["details"]
    assert bad["code"] == -32602
    assert unknown["code"] == -32601
    assert set(run.sandbox.users) == {"someone"}
    diffs = [(one.get("old_text"), one["new_text"]) for one in run.events if one["type"] == "diff"]
    assert diffs == [(None, "héllo"), ("héllo", "bye")]


async def test_terminals_run_and_are_recorded(run: Run, tmp_path: Path) -> None:
    calls = [
        ["terminal/create", {"command": "echo out; echo err >&2; echo $WHO; exit 3"}],
        ["terminal/wait_for_exit", {"terminalId": "$terminal"}],
        ["terminal/output", {"terminalId": "$terminal"}],
        ["terminal/release", {"terminalId": "$terminal"}],
        ["terminal/output", {"terminalId": "$terminal"}],
        ["terminal/create", {"command": "printf", "args": ["%s", "a b€€"], "outputByteLimit": 4}],
        ["terminal/wait_for_exit", {"terminalId": "$terminal"}],
        ["terminal/output", {"terminalId": "$terminal"}],
        ["terminal/create", {"command": "pwd; sleep 100", "env": [{"name": "X", "value": "1"}]}],
        ["terminal/kill", {"terminalId": "$terminal"}],
        ["terminal/wait_for_exit", {"terminalId": "$terminal"}],
        ["terminal/create", {"command": "sleep 100"}],
    ]
    async with run.agent("requesting", cwd=str(tmp_path), env={"WHO": "me"}) as agent:
        await agent.prompt(json.dumps(calls))
    answers = json.loads(run.text())
    assert answers[1] == {"exitCode": 3}
    assert answers[2] == {"output": "out\nerr\nme\n", "truncated": False, "exitStatus": {"exitCode": 3}}
    assert answers[4]["code"] == -32602
    assert answers[7]["output"] == "€"
    assert answers[7]["truncated"] is True
    assert answers[10] == {"exitCode": 137}
    notes = [one["data"] for one in run.events if one.get("about") == "terminal"]
    assert str(notes[0]).startswith("{'terminal_id': 'term-1', 'command': 'echo out")
    assert len(notes) == 4


async def test_requests_beyond_the_limit_are_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "REQUESTS_LIMIT", 0)
    async with run.agent("requesting") as agent:
        await agent.prompt(json.dumps([["fs/read_text_file", {"path": "/x"}]]))
    [answer] = json.loads(run.text())
    assert answer["code"] == transport.BUSY


async def test_a_flood_is_written_completely(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "acp_trajectory.jsonl"
    stream = await HostStream.start(command("flooding"))
    with TrajectoryWriter(path) as writer:
        options = SessionOptions(cwd="/")
        opened = await connect(stream, run.sandbox.as_sandbox(), options, on_event=writer.append)
        async with opened:
            await opened.prompt("5000")
        assert writer.n_tool_calls == 1
        assert writer.n_events == 5002
    assert sum(one["type"] == "tool_call_update" for one in read_events(path)) == 4999


async def test_an_event_that_cannot_be_kept_ends_the_turn_with_that_error(run: Run) -> None:
    def full(one: Event) -> None:
        if one["type"] == "tool_call_update":
            raise BenchflowError("disk full")

    stream = await HostStream.start(command("flooding"))
    options = SessionOptions(cwd="/")
    async with await connect(stream, run.sandbox.as_sandbox(), options, on_event=full) as agent:
        with pytest.raises(BenchflowError, match="disk full"):
            await agent.prompt("5000")


async def test_a_broken_pipe_while_connecting_is_tried_again(run: Run, tmp_path: Path) -> None:
    async def open_stream() -> HostStream:
        return await HostStream.start(command("dying", "first", str(tmp_path / "mark")))

    opened = await connect_with_retry(
        open_stream, run.sandbox.as_sandbox(), SessionOptions(cwd="/"), on_event=run.events.append, backoff=0.01
    )
    await opened.close()
    assert [one["about"] for one in run.events] == ["connecting again"]


async def test_the_tries_are_used_up(run: Run) -> None:
    async def open_stream() -> HostStream:
        return await HostStream.start(command("dying", "at-once"))

    with pytest.raises(AgentGone, match="exit code 7"):
        await connect_with_retry(
            open_stream, run.sandbox.as_sandbox(), SessionOptions(cwd="/"), on_event=run.events.append, backoff=0.01
        )
    waits = [one["data"]["after_seconds"] for one in run.events if isinstance(one["data"], dict)]
    assert waits == [0.01, 0.02, 0.04]


async def test_a_command_that_is_not_there_is_not_tried_again(run: Run) -> None:
    async def open_stream() -> HostStream:
        return await HostStream.start(["sh", "-c", "no-such-agent --acp"])

    with pytest.raises(AgentGone, match="exit code 127") as caught:
        await connect_with_retry(
            open_stream, run.sandbox.as_sandbox(), SessionOptions(cwd="/"), on_event=run.events.append
        )
    assert "not found" in str(caught.value)
    assert "must be in the task's image" in str(caught.value)
    assert not caught.value.retryable
    assert run.events == []
