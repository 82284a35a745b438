"""exec: a command runs to its end, nothing it prints is lost, nothing it starts can hang us."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchflow.testing.contract.world import bounded, fresh_folder, shell, unique, wait_gone, wait_runs

if TYPE_CHECKING:
    from benchflow.sandbox.base import Capabilities, Sandbox

MEGABYTE = 1_000_000

MEMORY_SLACK = 64 * MEGABYTE
"""How much our own process may grow while a flood of output or a huge file passes through it."""

TIME_OUTS = (2.0, 15.0, 60.0)
"""Seconds, tried in turn: on a busy machine a command that is cut off after few of them may not have begun yet."""

ODD_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40) | st.sampled_from(
    [
        "",
        "-",
        "--",
        "-n",
        "$HOME",
        "`id`",
        "$(id)",
        "a b",
        "a\nb\n",
        "\t",
        "\\",
        "\\n",
        "'",
        '"',
        "*",
        "~",
        "!!",
        "\x7f",
        "\x01",
        "é\u2028🦜",
        ";",
        "&",
        "|",
        "%s",
        "=",
        "A=b",
    ]
)
VARIABLE = st.from_regex(r"BF_[A-Z]{1,8}", fullmatch=True)


class PeakMemory:
    """Growth of this process's resident memory at its highest, within the `with`."""

    def __enter__(self) -> Self:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        self._start = _status("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        self.growth = _status("VmHWM") - self._start


def _status(key: str) -> int:
    text = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith(key + ":"))


@bounded
class ExecContract:
    @pytest.mark.parametrize("code", [0, 1, 2, 42, 125, 255])
    async def test_exit_code(self, box: Sandbox, code: int) -> None:
        result = await box.exec(["sh", "-c", f"exit {code}"])
        assert (result.exit_code, result.ok, result.timed_out) == (code, code == 0, False)

    @pytest.mark.parametrize("name", ["SIGHUP", "SIGKILL", "SIGTERM"])
    async def test_a_signal_is_128_and_its_number(self, box: Sandbox, name: str) -> None:
        number = signal.Signals[name].value
        result = await box.exec(["sh", "-c", f"kill -{number} $$"])
        assert result.exit_code == 128 + number

    async def test_a_string_is_a_shell_script(self, box: Sandbox) -> None:
        result = await box.exec("echo a | cat; echo $((1 + 1))")
        assert result.stdout == b"a\n2\n"
        assert result.text == "a\n2\n"

    async def test_streams_are_kept_apart(self, box: Sandbox) -> None:
        result = await box.exec("echo out; echo err >&2; echo out; echo err >&2")
        assert (result.stdout, result.stderr) == (b"out\nout\n", b"err\nerr\n")

    async def test_binary_output(self, box: Sandbox) -> None:
        every = bytes(range(256)) * 4
        assert (await box.exec(["cat"], stdin=every)).stdout == every

    async def test_no_output(self, box: Sandbox) -> None:
        result = await box.exec(["true"])
        assert (result.stdout, result.stderr, result.dropped) == (b"", b"", 0)

    async def test_output_that_fits_is_whole(self, box: Sandbox) -> None:
        script = "head -c 3000000 /dev/zero; head -c 3000000 /dev/zero | tr '\\0' e >&2"
        result = await box.exec(script)
        assert (len(result.stdout), len(result.stderr), result.dropped) == (3 * MEGABYTE, 3 * MEGABYTE, 0)
        assert result.stderr == b"e" * (3 * MEGABYTE)

    async def test_a_flood_is_bounded_and_its_head_and_tail_are_kept(self, box: Sandbox) -> None:
        script = "printf the-head; head -c 100000000 /dev/zero | tr '\\0' x; printf the-tail"
        with PeakMemory() as memory:
            result = await box.exec(script, output_limit=MEGABYTE)
        assert result.ok
        assert result.stdout.startswith(b"the-headx")
        assert result.stdout.endswith(b"xthe-tail")
        assert len(result.stdout) + result.dropped == 100 * MEGABYTE + len("the-headthe-tail")
        assert len(result.stdout) <= MEGABYTE
        assert memory.growth < MEMORY_SLACK

    @pytest.mark.parametrize("limit", [0, 1, 7])
    async def test_a_small_limit_keeps_that_much(self, box: Sandbox, limit: int) -> None:
        result = await box.exec("printf 0123456789", output_limit=limit)
        assert len(result.stdout) == limit
        assert result.dropped == 10 - limit
        assert result.ok

    async def test_a_background_child_that_holds_the_pipe_neither_hangs_us_nor_dies(self, box: Sandbox) -> None:
        number = unique()
        result = await box.exec(f"sleep {number} & head -c 2000000 /dev/zero; exit 3")
        assert (result.exit_code, len(result.stdout), result.timed_out) == (3, 2 * MEGABYTE, False)
        await wait_runs(box, number)
        await box.kill_processes()
        await wait_gone(box, number)

    async def test_a_background_child_that_goes_on_printing_does_not_hang_us(self, box: Sandbox) -> None:
        number = unique()
        result = await box.exec(f"(while :; do echo x; sleep 0.05; done; sleep {number}) & echo mine; exit 3")
        assert result.exit_code == 3
        assert b"mine\n" in result.stdout
        await box.kill_processes()

    async def test_a_time_out_in_a_flood(self, box: Sandbox) -> None:
        for seconds in TIME_OUTS:
            with PeakMemory() as memory:
                result = await box.exec(["yes"], timeout=seconds, output_limit=1000)
            assert result.timed_out
            if result.stdout:
                break
        assert len(result.stdout) == 1000
        assert result.dropped > 0
        assert memory.growth < MEMORY_SLACK

    async def test_a_time_out_kills_the_whole_tree(self, box: Sandbox) -> None:
        plain, session, orphan, stubborn, command = (unique() for _ in range(5))
        folder = await fresh_folder(box)
        script = f"""
            sleep {plain} &
            setsid sleep {session} &
            (sh -c 'setsid sh -c "sleep {orphan} & wait" >/dev/null 2>&1 &' &)
            (trap '' TERM INT HUP; sleep {stubborn}; :) &
            echo before
            touch {folder}/ready
            sleep {command}
        """
        for seconds in TIME_OUTS:
            result = await box.exec(script, timeout=seconds)
            assert (result.timed_out, result.ok) == (True, False)
            await wait_gone(box, plain, session, orphan, stubborn, command)
            if begun := (await box.exec(["test", "-e", f"{folder}/ready"])).ok:
                break
        assert begun
        assert result.stdout == b"before\n"

    async def test_a_time_out_spares_other_commands(self, box: Sandbox) -> None:
        mine, other = unique(), unique()
        async with await box.open(["sleep", str(other)]):
            await wait_runs(box, other)
            assert (await box.exec(["sleep", str(mine)], timeout=1)).timed_out
            await wait_gone(box, mine)
            await wait_runs(box, other)
        await wait_gone(box, other)

    async def test_a_command_in_time_is_not_timed_out(self, box: Sandbox) -> None:
        result = await box.exec("echo done", timeout=60)
        assert (result.stdout, result.exit_code, result.timed_out) == (b"done\n", 0, False)

    async def test_a_cancelled_command_is_killed(self, box: Sandbox) -> None:
        number, child = unique(), unique()
        task = asyncio.create_task(box.exec(f"setsid sleep {child} & sleep {number}"))
        await wait_runs(box, number, child)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await wait_gone(box, number, child)

    @pytest.mark.parametrize(
        ("argv", "code"),
        [
            (["no-such-command-at-all"], 127),
            (["/no/such/file"], 127),
            (["/etc/passwd"], 126),
            (["/etc"], 126),
        ],
    )
    async def test_what_cannot_be_started(self, box: Sandbox, argv: list[str], code: int) -> None:
        result = await box.exec(argv)
        assert result.exit_code == code
        assert result.stderr

    async def test_unknown_user(self, box: Sandbox) -> None:
        result = await box.exec(["true"], user="nobody-by-that-name")
        assert result.exit_code == 126
        assert b"nobody-by-that-name" in result.stderr

    async def test_missing_folder(self, box: Sandbox) -> None:
        result = await box.exec(["true"], cwd="/no/such/folder")
        assert result.exit_code == 126
        assert b"/no/such/folder" in result.stderr

    async def test_users(self, box: Sandbox, capabilities: Capabilities) -> None:
        if not capabilities.users:
            pytest.skip("one uid only")
        assert (await box.exec("id -u; id -un", user="nobody")).text.split() == ["65534", "nobody"]
        assert (await box.exec(["id", "-u"], user=4321)).text == "4321\n"
        assert (await box.exec(["id", "-u"], user="0")).text == "0\n"
        refused = await box.exec("echo x > /etc/not-for-everyone", user="nobody")
        assert not refused.ok

    async def test_groups_are_those_of_the_user(self, box: Sandbox, capabilities: Capabilities) -> None:
        if not capabilities.users:
            pytest.skip("one uid only")
        assert (await box.exec(["id", "-G"], user="nobody")).text == "65534\n"
        await shell(box, "grep -q ^contract: /etc/group || echo contract:x:7654:nobody >> /etc/group")
        assert (await box.exec(["id", "-G"], user="nobody")).text == "65534 7654\n"

    async def test_home_is_that_of_the_user(self, box: Sandbox, capabilities: Capabilities) -> None:
        assert await shell(box, "echo $HOME", user="root") == "/root\n"
        if capabilities.users:
            assert await shell(box, "echo $HOME", user="nobody") == "/nonexistent\n"
        assert (await box.exec("echo $HOME", env={"HOME": "/elsewhere"})).text == "/elsewhere\n"

    async def test_a_command_starts_with_a_clean_slate(self, box: Sandbox) -> None:
        """Nothing of the machinery is inherited: descriptors, blocked or ignored signals, an odd umask."""
        assert (await shell(box, "ls /proc/self/fd")).split() == ["0", "1", "2", "3"]
        status = await shell(box, "grep -E '^Sig(Blk|Ign)' /proc/self/status; umask")
        assert [line.split()[-1].strip("0") for line in status.splitlines()] == ["", "", "22"]
        async with await box.open("ls /proc/self/fd; grep -E '^Sig(Blk|Ign)' /proc/self/status") as stream:
            *descriptors, blocked, ignored = (await stream.stdout.read()).decode().splitlines()
        assert descriptors == ["0", "1", "2", "3"]
        assert [line.split()[-1].strip("0") for line in (blocked, ignored)] == ["", ""]

    async def test_the_usual_places_are_there(self, box: Sandbox, capabilities: Capabilities) -> None:
        script = """set -e
            for place in /tmp /var/tmp /dev/shm; do echo x > $place/contract; rm $place/contract; done
            echo gone > /dev/null; head -c 8 /dev/urandom > /dev/null; exec 3<>/dev/ptmx; test -e /proc/self/exe"""
        for user in ("root", "nobody") if capabilities.users else ("root",):
            result = await box.exec(script, user=user)
            assert result.ok, (user, result)

    async def test_folder(self, box: Sandbox) -> None:
        assert (await box.exec(["pwd"], cwd="/usr/bin")).text == "/usr/bin\n"
        assert (await box.exec(["pwd"])).text == f"{box.workdir}\n"

    async def test_environment_is_the_sandboxes_with_ours_over_it(self, box: Sandbox) -> None:
        result = await box.exec(["env"], env={"BF_ONE": "1 = one", "BF_EMPTY": ""})
        seen = dict(line.partition("=")[::2] for line in result.text.splitlines())
        assert (seen["BF_ONE"], seen["BF_EMPTY"]) == ("1 = one", "")
        assert {key: seen.get(key) for key in box.env} == dict(box.env)
        assert seen["PATH"]
        assert "BF_ONE" not in (await box.exec(["env"])).text

    @pytest.mark.parametrize("size", [0, 1, 20 * MEGABYTE])
    async def test_stdin(self, box: Sandbox, size: int) -> None:
        data = (b"0123456789abcde\n" * (size // 16 + 1))[:size]
        result = await box.exec(["cat"], stdin=data, output_limit=size + 1)
        assert result.ok
        assert result.stdout == data

    async def test_no_stdin_is_an_empty_one(self, box: Sandbox) -> None:
        assert (await box.exec(["cat"])).stdout == b""

    async def test_stdin_that_is_not_read_is_no_failure(self, box: Sandbox) -> None:
        assert (await box.exec(["true"], stdin=b"x" * (5 * MEGABYTE))).exit_code == 0
        assert (await box.exec(["head", "-c", "3"], stdin=b"x" * (5 * MEGABYTE))).stdout == b"xxx"

    async def test_many_at_once_do_not_mix(self, box: Sandbox) -> None:
        results = await asyncio.gather(*(box.exec(f"echo {n}; cat; exit {n}", stdin=b"%d" % n) for n in range(24)))
        assert [(r.exit_code, r.stdout) for r in results] == [(n, b"%d\n%d" % (n, n)) for n in range(24)]

    @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
    @given(words=st.lists(ODD_TEXT, min_size=1, max_size=30), variables=st.dictionaries(VARIABLE, ODD_TEXT, max_size=5))
    async def test_every_odd_character_arrives(self, box: Sandbox, words: list[str], variables: dict[str, str]) -> None:
        script = 'printf "%s\\0" "$@"; env -0'
        result = await box.exec(["sh", "-c", script, "sh", *words], env=variables)
        assert result.ok
        seen = [part.decode() for part in result.stdout.split(b"\0")][:-1]
        assert seen[: len(words)] == words
        assert {f"{key}={value}" for key, value in variables.items()} <= set(seen[len(words) :])

    async def test_a_long_argument(self, box: Sandbox) -> None:
        word = "ä" * 50_000
        assert (await box.exec(["printf", "%s", word])).text == word

    async def test_kill_processes_spares_what_it_is_told_to(self, box: Sandbox) -> None:
        kept, killed = unique(), unique()
        started = await box.exec(f"sleep {killed} >/dev/null 2>&1 & sleep {kept} >/dev/null 2>&1 & echo $!")
        await wait_runs(box, kept, killed)
        await box.kill_processes(keep=[int(started.text)])
        await wait_gone(box, killed)
        await wait_runs(box, kept)
        await box.kill_processes()
        await wait_gone(box, kept)
        assert (await box.exec(["true"])).ok
