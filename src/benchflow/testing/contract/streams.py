"""open: a process we talk to, with lines of any length, and an end that is always an end."""

from __future__ import annotations

import asyncio
import hashlib
import random
from typing import TYPE_CHECKING

import pytest

from benchflow.testing.contract.execs import MEGABYTE, MEMORY_SLACK, PeakMemory
from benchflow.testing.contract.world import bounded, unique, wait_gone, wait_runs

if TYPE_CHECKING:
    from benchflow.sandbox.base import Sandbox, Stream

LONG_LINE = 10 * MEGABYTE


async def read_all(stream: Stream) -> tuple[bytes, bytes]:
    async with asyncio.TaskGroup() as group:
        out = group.create_task(stream.stdout.read())
        err = group.create_task(stream.stderr.read())
    return out.result(), err.result()


@bounded
class StreamContract:
    async def test_conversation(self, box: Sandbox) -> None:
        async with await box.open(["cat"]) as stream:
            for number in range(200):
                line = b"line %d\n" % number
                await stream.write(line)
                assert await stream.stdout.readexactly(len(line)) == line

    async def test_ten_megabytes_in_one_line_both_ways(self, box: Sandbox) -> None:
        line = random.Random(7).randbytes(LONG_LINE // 2).hex().encode() + b"\n"
        async with await box.open(["cat"]) as stream, asyncio.TaskGroup() as group:
            group.create_task(stream.write(line))
            echoed = await stream.stdout.readexactly(len(line))
        assert hashlib.sha256(echoed).digest() == hashlib.sha256(line).digest()

    async def test_binary_both_ways(self, box: Sandbox) -> None:
        every = bytes(range(256))
        async with await box.open(["cat"]) as stream:
            await stream.write(every)
            assert await stream.stdout.readexactly(256) == every

    async def test_half_close_keeps_the_output_and_the_exit_code(self, box: Sandbox) -> None:
        async with await box.open("cat; echo and-more; echo apart >&2; exit 7") as stream:
            await stream.write(b"some\n")
            await stream.close_stdin()
            await stream.close_stdin()
            assert await read_all(stream) == (b"some\nand-more\n", b"apart\n")
            assert await stream.wait() == 7
            assert await stream.wait() == 7

    async def test_writing_after_half_close_is_a_broken_pipe(self, box: Sandbox) -> None:
        async with await box.open(["cat"]) as stream:
            await stream.close_stdin()
            with pytest.raises(BrokenPipeError):
                await stream.write(b"late")

    async def test_half_close_of_a_long_input(self, box: Sandbox) -> None:
        async with await box.open(["sha256sum"]) as stream:
            data = b"0123456789" * MEGABYTE
            await stream.write(data)
            await stream.close_stdin()
            assert (await stream.stdout.read()).split()[0].decode() == hashlib.sha256(data).hexdigest()
            assert await stream.wait() == 0

    async def test_many_small_writes(self, box: Sandbox) -> None:
        lines = [b"%d\n" % number for number in range(5000)]
        async with await box.open(["cat"]) as stream:

            async def write() -> None:
                for line in lines:
                    await stream.write(line)
                await stream.close_stdin()

            async with asyncio.TaskGroup() as group:
                group.create_task(write())
                assert await stream.stdout.read() == b"".join(lines)
            assert await stream.wait() == 0

    async def test_exit_without_reading_output_to_its_end(self, box: Sandbox) -> None:
        async with await box.open("echo some; exit 5") as stream:
            assert await stream.wait() == 5
            assert await stream.stdout.read() == b"some\n"

    async def test_wait_does_not_wait_for_children_that_hold_the_output(self, box: Sandbox) -> None:
        number = unique()
        async with await box.open(f"sleep {number} & echo started; exit 4") as stream:
            assert await stream.stdout.readexactly(8) == b"started\n"
            assert await stream.wait() == 4
        await wait_gone(box, number)

    async def test_the_peer_dies(self, box: Sandbox) -> None:
        async with await box.open("kill -9 $$") as stream:
            assert await stream.wait() == 137
            with pytest.raises(BrokenPipeError):
                for _ in range(1000):
                    await stream.write(b"x" * 65536)
            assert await read_all(stream) == (b"", b"")

    async def test_the_peer_dies_while_we_write(self, box: Sandbox) -> None:
        async with await box.open("head -c 100000 >/dev/null; exit 9") as stream:
            with pytest.raises(BrokenPipeError):
                await stream.write(b"x" * (50 * MEGABYTE))
            assert await stream.wait() == 9

    async def test_the_peer_closes_its_input_and_lives(self, box: Sandbox) -> None:
        async with await box.open("exec 0<&-; echo closed; exec sleep 1000") as stream:
            assert await stream.stdout.readexactly(7) == b"closed\n"
            with pytest.raises(BrokenPipeError):
                for _ in range(1000):
                    await stream.write(b"x" * 65536)

    async def test_a_peer_that_does_not_read_holds_us_back(self, box: Sandbox) -> None:
        async with await box.open(["sleep", "1000"]) as stream:
            task = asyncio.create_task(stream.write(b"x" * (64 * MEGABYTE)))
            done, _ = await asyncio.wait({task}, timeout=1)
            assert not done
            await stream.kill()
            with pytest.raises(BrokenPipeError):
                await task

    async def test_a_peer_that_is_not_read_is_held_back(self, box: Sandbox) -> None:
        with PeakMemory() as memory:
            async with await box.open(["cat", "/dev/zero"]) as stream:
                assert await stream.stdout.readexactly(10) == bytes(10)
                await asyncio.sleep(1)
        assert memory.growth < MEMORY_SLACK

    async def test_a_signal_reaches_the_process_and_nothing_it_started(self, box: Sandbox) -> None:
        child = unique()
        async with await box.open(f"trap 'echo told; exit 6' TERM; sleep {child} & echo ready; wait") as stream:
            assert await stream.stdout.readexactly(6) == b"ready\n"
            await stream.signal(15)
            assert await stream.wait() == 6
            await stream.signal(15)
            assert await stream.stdout.readexactly(5) == b"told\n"
            await wait_runs(box, child)
        await wait_gone(box, child)

    async def test_a_killing_signal_spares_what_the_process_started(self, box: Sandbox) -> None:
        child = unique()
        async with await box.open(f"setsid sleep {child} & echo ready; exec sleep 1000") as stream:
            assert await stream.stdout.readexactly(6) == b"ready\n"
            await stream.signal(9)
            assert await stream.wait() == 137
            await wait_runs(box, child)
        await wait_gone(box, child)

    async def test_leaving_kills_the_process_and_what_it_started(self, box: Sandbox) -> None:
        first, session, orphan = unique(), unique(), unique()
        async with await box.open(f"setsid sleep {session} & (sh -c 'setsid sleep {orphan} &' &); sleep {first}"):
            await wait_runs(box, first, session, orphan)
        await wait_gone(box, first, session, orphan)

    async def test_a_cancelled_conversation_kills_the_process(self, box: Sandbox) -> None:
        number = unique()

        async def converse() -> None:
            async with await box.open(f"sleep {number}") as stream:
                await stream.stdout.read()

        task = asyncio.create_task(converse())
        await wait_runs(box, number)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await wait_gone(box, number)

    @pytest.mark.parametrize("steps", range(0, 40, 5))
    async def test_a_cancelled_open_leaves_no_process(self, box: Sandbox, steps: int) -> None:
        number = unique()
        task = asyncio.create_task(box.open(["sleep", str(number)]))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        try:
            stream = await task
        except asyncio.CancelledError:
            pass
        else:
            await stream.kill()
        await wait_gone(box, number)

    async def test_kill_is_idempotent(self, box: Sandbox) -> None:
        number = unique()
        stream = await box.open(["sleep", str(number)])
        await asyncio.gather(stream.kill(), stream.kill())
        await stream.kill()
        assert await stream.wait() == 137
        await wait_gone(box, number)

    async def test_kill_after_exit_keeps_the_exit_code(self, box: Sandbox) -> None:
        stream = await box.open("exit 7")
        assert await stream.wait() == 7
        await stream.kill()
        await stream.kill()
        assert await stream.wait() == 7

    async def test_errors_are_those_of_exec(self, box: Sandbox) -> None:
        for argv, user, cwd, code in (
            (["no-such-command-at-all"], None, None, 127),
            (["/etc/passwd"], None, None, 126),
            (["true"], "nobody-by-that-name", None, 126),
            (["true"], None, "/no/such/folder", 126),
        ):
            async with await box.open(argv, user=user, cwd=cwd) as stream:
                assert await stream.wait() == code
                assert await stream.stderr.read()

    async def test_user_environment_and_folder(self, box: Sandbox) -> None:
        async with await box.open("id -u; echo $BF_X; pwd", user=0, env={"BF_X": "y z"}, cwd="/usr") as stream:
            assert await stream.stdout.read() == b"0\ny z\n/usr\n"

    async def test_many_streams_at_once(self, box: Sandbox) -> None:
        async def talk(number: int) -> None:
            async with await box.open(["cat"]) as stream:
                for turn in range(10):
                    line = b"%d %d\n" % (number, turn)
                    await stream.write(line)
                    assert await stream.stdout.readexactly(len(line)) == line
                await stream.close_stdin()
                assert await stream.wait() == 0

        async with asyncio.TaskGroup() as group:
            for number in range(16):
                group.create_task(talk(number))
