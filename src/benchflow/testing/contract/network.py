"""listen and the network policy: connections arrive on the host where they should, and nothing passes elsewhere."""

from __future__ import annotations

import asyncio
import hashlib
import random
import secrets
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from benchflow.errors import SandboxError
from benchflow.sandbox.base import Network
from benchflow.testing.contract.execs import MEGABYTE
from benchflow.testing.contract.world import bounded, shell

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter

    from benchflow.sandbox.base import Capabilities, ExecResult, Sandbox
    from benchflow.testing.contract.world import World

CLIENT = r"""
use IO::Socket::INET; $SIG{PIPE} = 'IGNORE'; binmode STDIN; binmode STDOUT;
my $s = IO::Socket::INET->new(PeerAddr => $ARGV[0], PeerPort => $ARGV[1], Timeout => 5) or die "connect: $@\n";
binmode $s;
my $p = fork; if (!$p) { while (sysread(STDIN, my $b, 65536)) { print $s $b or last } $s->flush; shutdown($s, 1); exit }
while (sysread($s, my $b, 65536)) { print $b } waitpid $p, 0;
"""
"""Sends its input, closes its sending side, prints what comes back until the end."""

MANY_CLIENTS = r"""
use IO::Socket::INET;
my @where = (PeerAddr => '127.0.0.1', PeerPort => $ARGV[0], Timeout => 30);
my @s = map { IO::Socket::INET->new(@where) or die "$_: $@" } 1..$ARGV[1];
for (0..$#s) { print {$s[$_]} "$_\n"; $s[$_]->flush; shutdown($s[$_], 1) }
for (0..$#s) { my $f = $s[$_]; print scalar <$f> }
"""

ABSTRACT = r"""use Socket; socket(S, AF_UNIX, SOCK_STREAM, 0) or die;
connect(S, pack('S a*', AF_UNIX, "\0$ARGV[0]")) or die "refused: $!\n"; print 'connected'"""


async def talk(box: Sandbox, port: int, data: bytes, *, host: str = "127.0.0.1", limit: int = MEGABYTE) -> ExecResult:
    """Connect from inside, send `data`, half-close, and return what came back as stdout."""
    return await box.exec(["perl", "-e", CLIENT, host, str(port)], stdin=data, output_limit=limit, timeout=120)


async def connects(box: Sandbox, host: str, port: int) -> bool:
    return (await talk(box, port, b"", host=host)).ok


async def echo(reader: StreamReader, writer: StreamWriter) -> None:
    """Everything back, after its end was seen."""
    writer.write(await reader.read())
    await writer.drain()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


@bounded
class NetworkContract:
    @pytest.fixture(autouse=True)
    def _only_with_listen(self, request: pytest.FixtureRequest, capabilities: Capabilities) -> None:
        if request.node.name.startswith("test_listen") and not capabilities.listen:
            pytest.skip("this backend does not listen")

    async def test_listen(self, box: Sandbox) -> None:
        listener = await box.listen(echo)
        try:
            assert listener.port > 0
            for turn in (b"hello", b"", b"\0\xff" * 100):
                result = await talk(box, listener.port, turn)
                assert (result.exit_code, result.stdout) == (0, turn), result
        finally:
            await listener.close()

    async def test_listen_on_a_given_port(self, box: Sandbox) -> None:
        listener = await box.listen(echo, port=28_123)
        assert listener.port == 28_123
        assert (await talk(box, 28_123, b"here")).stdout == b"here"
        with pytest.raises(SandboxError):
            await box.listen(echo, port=28_123)
        await listener.close()
        again = await box.listen(echo, port=28_123)
        assert (await talk(box, 28_123, b"again")).stdout == b"again"
        await again.close()

    async def test_listen_closed(self, box: Sandbox) -> None:
        listener = await box.listen(echo)
        await listener.close()
        await listener.close()
        assert not await connects(box, "127.0.0.1", listener.port)

    async def test_listen_much_data_both_ways(self, box: Sandbox) -> None:
        async def relay(reader: StreamReader, writer: StreamWriter) -> None:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            writer.close()
            await writer.wait_closed()

        data = random.Random(3).randbytes(20 * MEGABYTE)
        listener = await box.listen(relay)
        result = await talk(box, listener.port, data, limit=len(data))
        await listener.close()
        assert result.exit_code == 0, result.stderr
        assert hashlib.sha256(result.stdout).digest() == hashlib.sha256(data).digest()

    async def test_listen_half_close_from_our_side(self, box: Sandbox) -> None:
        received = asyncio.get_running_loop().create_future()

        async def speak_first(reader: StreamReader, writer: StreamWriter) -> None:
            writer.write(b"last words")
            writer.write_eof()
            received.set_result(await reader.read())
            writer.close()
            await writer.wait_closed()

        listener = await box.listen(speak_first)
        result = await talk(box, listener.port, b"and mine")
        assert result.stdout == b"last words"
        assert await received == b"and mine"
        await listener.close()

    async def test_listen_to_many(self, box: Sandbox) -> None:
        listener = await box.listen(echo)
        result = await box.exec(["perl", "-e", MANY_CLIENTS, str(listener.port), "60"], timeout=120)
        await listener.close()
        assert result.stdout.split() == [b"%d" % n for n in range(60)], result

    async def test_listen_twice(self, box: Sandbox) -> None:
        async def greet(reader: StreamReader, writer: StreamWriter) -> None:
            writer.write(b"other")
            writer.close()
            await writer.wait_closed()

        first, second = await box.listen(echo), await box.listen(greet)
        assert first.port != second.port
        assert (await talk(box, first.port, b"one")).stdout == b"one"
        assert (await talk(box, second.port, b"")).stdout == b"other"
        await first.close()
        assert (await talk(box, second.port, b"")).stdout == b"other"
        await second.close()

    async def test_listen_close_drops_open_connections(self, box: Sandbox) -> None:
        arrived = asyncio.Event()

        async def hold(reader: StreamReader, writer: StreamWriter) -> None:
            arrived.set()
            try:
                await reader.read()
            finally:
                writer.close()

        listener = await box.listen(hold)
        script = 'use IO::Socket::INET; my $s = IO::Socket::INET->new("127.0.0.1:$ARGV[0]") or die; sysread($s, $b, 1)'
        task = asyncio.create_task(box.exec(["perl", "-e", script, str(listener.port)]))
        await arrived.wait()
        await listener.close()
        assert (await task).exit_code == 0

    async def test_listen_survives_a_handler_that_fails(self, box: Sandbox) -> None:
        async def fail_once(reader: StreamReader, writer: StreamWriter) -> None:
            if not failed:
                failed.append(True)
                raise ConnectionResetError("the far side went away")
            await echo(reader, writer)

        failed: list[bool] = []
        listener = await box.listen(fail_once)
        await talk(box, listener.port, b"one")
        assert (await talk(box, listener.port, b"two")).stdout == b"two"
        await listener.close()

    async def test_listen_beside_a_network(self, world: World, capabilities: Capabilities) -> None:
        if "public" not in capabilities.network:
            pytest.skip("no network")
        async with world.create(network=Network("public")) as box:
            listener = await box.listen(echo)
            assert (await talk(box, listener.port, b"x")).stdout == b"x"
            await listener.close()

    async def test_listen_for_every_user(self, box: Sandbox, capabilities: Capabilities) -> None:
        listener = await box.listen(echo)
        for user in ("root", "nobody") if capabilities.users else ("root",):
            client = ["perl", "-e", CLIENT, "localhost", str(listener.port)]
            assert (await box.exec(client, user=user, stdin=b"by name")).stdout == b"by name"
        await listener.close()

    async def test_listen_ends_with_the_sandbox(self, world: World) -> None:
        async with world.create() as box:
            listener = await box.listen(echo)
            assert (await talk(box, listener.port, b"x")).stdout == b"x"
        await listener.close()

    async def test_no_network_is_loopback_only(self, box: Sandbox, capabilities: Capabilities) -> None:
        if "no-network" not in capabilities.network:
            pytest.skip("always has a network")
        assert (await shell(box, "sed 1,2d /proc/net/dev | cut -d: -f1")).split() == ["lo"]
        server = await asyncio.start_server(echo, "0.0.0.0", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            for address in ("127.0.0.1", *_addresses()):
                assert not await connects(box, address, port), address
        for address in ("192.0.2.1", "8.8.8.8", "169.254.169.254"):
            assert not await connects(box, address, 80)

    async def test_no_network_reaches_no_socket_without_a_path(self, box: Sandbox, capabilities: Capabilities) -> None:
        if "no-network" not in capabilities.network:
            pytest.skip("always has a network")
        name = f"benchflow-{secrets.token_hex(8)}"
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(f"\0{name}")
            server.listen()
            result = await box.exec(["perl", "-e", ABSTRACT, name])
        assert b"refused" in result.stderr, result


def _addresses() -> set[str]:
    """Addresses of this machine, as far as its own routing knows them."""
    found: set[str] = set()
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        found.add(str(probe.getsockname()[0]))
    with suppress(OSError):
        found |= {str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    return found
