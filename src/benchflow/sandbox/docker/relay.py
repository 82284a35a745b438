"""A listening socket inside a container where none can be injected: a small program inside accepts, and carries.

The program runs as an exec of the container's root and speaks frames over its standard streams: one for a new
connection, its bytes, its end, its loss. Nobody may send more than a window beyond what the other side has handed on,
so a slow connection holds back only itself and memory stays bounded. It is written twice, because images have either
Python or Perl (every Debian and Ubuntu has the latter) and hardly ever both.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

from benchflow.sandbox.docker.handlers import Handlers
from benchflow.settle import finished

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchflow.sandbox.base import ConnectionHandler, Stream

WINDOW = 256 * 1024
"""Bytes of one connection and direction that may be under way."""

CHUNK = 64 * 1024
"""Bytes in one frame at most; the programs below read as much at once."""

START_TIMEOUT = 30.0
"""Seconds until the program inside must have said that it listens."""

PORT, OPEN, DATA, END, LOST, TAKEN = b"P", b"O", b"D", b"E", b"L", b"T"
"""Kinds of frames. PORT carries the port as its connection's number; TAKEN carries an amount as its length."""

_HEAD = struct.Struct(">cII")

PYTHON = r"""
import os, select, socket, struct, sys
server = socket.socket(); server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
try: server.bind(("127.0.0.1", int(sys.argv[1]))); server.listen(512)
except OSError as error: sys.exit(error.strerror)
head, live, by_fd, number, got = struct.Struct(">cII"), {}, {}, 0, b""
class Live: pass
def say(kind, which, length=0, data=b""):
    data = head.pack(kind, which, length) + data
    while data: data = data[os.write(1, data):]
def drop(c):
    del live[c.n], by_fd[c.s.fileno()]; c.s.close()
def flush(c):
    try:
        while c.out:
            sent = c.s.send(c.out); c.out = c.out[sent:]; say(b"T", c.n, sent)
        if c.ending and not c.shut: c.shut = True; c.s.shutdown(socket.SHUT_WR)
    except BlockingIOError: return
    except OSError: say(b"L", c.n); return drop(c)
    if c.shut and c.ended: drop(c)
say(b"P", server.getsockname()[1])
while True:
    poll = select.poll(); poll.register(0, select.POLLIN); poll.register(server, select.POLLIN)
    for c in live.values():
        want = (select.POLLIN if c.room and not c.ended else 0) | (select.POLLOUT if c.out else 0)
        if want: poll.register(c.s, want)
    for fd, what in poll.poll():
        if fd == 0:
            data = os.read(0, 65536)
            if not data: sys.exit(0)
            got += data
            while len(got) >= 9:
                kind, which, length = head.unpack_from(got)
                size = length if kind == b"D" else 0
                if len(got) < 9 + size: break
                data, got, c = got[9:9 + size], got[9 + size:], live.get(which)
                if not c: continue
                if kind == b"D": c.out += data; flush(c)
                elif kind == b"E": c.ending = True; flush(c)
                elif kind == b"T": c.room += length
                else: drop(c)
        elif fd == server.fileno():
            number += 1; c = live[number] = Live(); c.s = server.accept()[0]; c.s.setblocking(False)
            by_fd[c.s.fileno()] = c
            c.n, c.out, c.room, c.ended, c.ending, c.shut = number, b"", 262144, False, False, False; say(b"O", number)
        elif fd in by_fd:
            c = by_fd[fd]
            if what & select.POLLOUT: flush(c)
            if c.n in live and what & ~select.POLLOUT:
                try: data = c.s.recv(min(65536, c.room or 1))
                except BlockingIOError: continue
                except OSError: say(b"L", c.n); drop(c); continue
                if data: c.room -= len(data); say(b"D", c.n, len(data), data)
                else:
                    c.ended = True; say(b"E", c.n)
                    if c.shut: drop(c)
"""

PERL = r"""
use strict; use Socket; use Errno qw(EAGAIN EINTR); use Fcntl; $SIG{PIPE} = 'IGNORE';
socket(my $server, AF_INET, SOCK_STREAM, 0) or die "$!\n"; setsockopt($server, SOL_SOCKET, SO_REUSEADDR, 1);
bind($server, sockaddr_in($ARGV[0], INADDR_LOOPBACK)) && listen($server, 512) or die "$!\n";
my (%live, $number, $got); $number = 0; $got = '';
sub say_frame { my ($kind, $n, $length, $data) = @_; $data = pack('aNN', $kind, $n, $length || 0) . ($data // '');
  while (length $data) { my $sent = syswrite STDOUT, $data; exit 0 unless defined $sent; substr($data, 0, $sent, '') } }
sub drop { close $_[0]{s}; delete $live{$_[0]{n}} }
sub flush { my $c = shift;
  while (length $c->{out}) { my $sent = syswrite $c->{s}, $c->{out};
    if (!defined $sent) { return if $! == EAGAIN; say_frame('L', $c->{n}); return drop($c) }
    substr($c->{out}, 0, $sent, ''); say_frame('T', $c->{n}, $sent) }
  if ($c->{ending} && !$c->{shut}) { $c->{shut} = 1; shutdown($c->{s}, 1) }
  drop($c) if $c->{shut} && $c->{ended} }
sub take { my ($kind, $n, $length, $data) = @_; my $c = $live{$n} or return;
  if ($kind eq 'D') { $c->{out} .= $data; flush($c) } elsif ($kind eq 'E') { $c->{ending} = 1; flush($c) }
  elsif ($kind eq 'T') { $c->{room} += $length } else { drop($c) } }
say_frame('P', (sockaddr_in(getsockname $server))[0]);
while (1) {
  my ($r, $w) = ('', ''); vec($r, 0, 1) = 1; vec($r, fileno $server, 1) = 1;
  for my $c (values %live) { vec($r, fileno $c->{s}, 1) = 1 if $c->{room} && !$c->{ended};
    vec($w, fileno $c->{s}, 1) = 1 if length $c->{out} }
  next if select($r, $w, undef, undef) < 0;
  if (vec($r, 0, 1)) {
    my $n = sysread STDIN, $got, 65536, length $got; exit 0 unless $n;
    while (length $got >= 9) { my ($kind, $which, $length) = unpack 'aNN', $got; my $size = $kind eq 'D' ? $length : 0;
      last if length $got < 9 + $size; my $data = substr $got, 9, $size; substr($got, 0, 9 + $size, '');
      take($kind, $which, $length, $data) } }
  if (vec($r, fileno $server, 1) && accept(my $s, $server)) { $number++;
    fcntl($s, F_SETFL, fcntl($s, F_GETFL, 0) | O_NONBLOCK); say_frame('O', $number);
    $live{$number} = {s => $s, n => $number, out => '', room => 262144, ended => 0, ending => 0, shut => 0} ; next }
  for my $c (values %live) { my $fd = fileno $c->{s};
    if (vec($w, $fd, 1)) { flush($c); next unless $live{$c->{n}} }
    if (vec($r, $fd, 1)) { my $n = sysread $c->{s}, my $data, $c->{room} < 65536 ? $c->{room} : 65536;
      if (!defined $n) { next if $! == EAGAIN || $! == EINTR; say_frame('L', $c->{n}); drop($c) }
      elsif ($n) { $c->{room} -= $n; say_frame('D', $c->{n}, $n, $data) }
      else { $c->{ended} = 1; say_frame('E', $c->{n}); drop($c) if $c->{shut} } } } }
"""

CHOICE = 'if command -v python3 >/dev/null; then exec python3 -I -c "$0" "$2"; else exec perl -e "$1" "$2"; fi'


def program(port: int) -> list[str]:
    """The command that listens inside on `port`; exits 127 where the image has neither Python nor Perl."""
    return ["sh", "-c", CHOICE, PYTHON, PERL, str(port)]


class Relayed:
    """One connection: what the handler is given is the other end of a pair of sockets."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.arrived: asyncio.Queue[bytes | None] = asyncio.Queue()
        """What the client sent: bytes, nothing at its end, None when the connection is lost."""
        self.room = WINDOW
        self.has_room = asyncio.Event()
        self.has_room.set()

    def taken(self, amount: int) -> None:
        self.room += amount
        self.has_room.set()


class RelayListener:
    """See `benchflow.sandbox.base.Listener`. `on_close` is called once."""

    def __init__(self, process: Stream, handler: ConnectionHandler, on_close: Callable[[RelayListener], None]) -> None:
        self.port = 0
        self._process = process
        self._on_close = on_close
        self._handlers = Handlers(handler)
        self._live: dict[int, Relayed] = {}
        self._bridges: set[asyncio.Task[None]] = set()
        self._receiving: asyncio.Task[None] | None = None
        self._closed = False

    async def serve(self) -> str:
        """Wait until it listens inside; why it does not, or nothing. Then the program has ended."""
        with suppress(asyncio.IncompleteReadError, TimeoutError):
            async with asyncio.timeout(START_TIMEOUT):
                kind, number, _ = await self._head()
                if kind == PORT:
                    self.port = number
                    self._receiving = asyncio.create_task(self._receive())
                    return ""
        await self._process.kill()
        reason = (await self._process.stderr.read()).decode("utf-8", "replace").strip()
        return reason or "the program inside did not start"

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await finished(self._close())

    async def _close(self) -> None:
        tasks = [task for task in (self._receiving, *self._bridges) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._handlers.close()
        await self._process.kill()
        self._on_close(self)

    async def _head(self) -> tuple[bytes, int, int]:
        kind, number, length = _HEAD.unpack(await self._process.stdout.readexactly(_HEAD.size))
        return kind, number, length

    async def _send(self, kind: bytes, number: int, length: int = 0, data: bytes = b"") -> None:
        # A program that is gone takes its connections with it; that is noticed where they are received.
        with suppress(BrokenPipeError):
            await self._process.write(_HEAD.pack(kind, number, length) + data)

    async def _receive(self) -> None:
        try:
            while True:
                kind, number, length = await self._head()
                if kind == OPEN:
                    self._open(number)
                    continue
                data = await self._process.stdout.readexactly(length) if kind == DATA else b""
                relayed = self._live.get(number)
                if relayed is None:
                    continue
                if kind == TAKEN:
                    relayed.taken(length)
                else:
                    relayed.arrived.put_nowait(None if kind == LOST else data)
        except asyncio.IncompleteReadError:
            for relayed in self._live.values():
                relayed.arrived.put_nowait(None)

    def _open(self, number: int) -> None:
        relayed = self._live[number] = Relayed(number)
        bridge = asyncio.create_task(self._bridge(relayed))
        self._bridges.add(bridge)
        bridge.add_done_callback(self._bridges.discard)

    async def _bridge(self, relayed: Relayed) -> None:
        try:
            reader, writer = await asyncio.open_connection(sock=relayed.theirs)
            self._handlers.start(reader, writer)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._outwards(relayed))
                group.create_task(self._inwards(relayed))
        except* OSError:
            await self._send(LOST, relayed.number)
        finally:
            relayed.ours.close()
            self._live.pop(relayed.number, None)

    async def _inwards(self, relayed: Relayed) -> None:
        """From the connection to the handler."""
        loop = asyncio.get_running_loop()
        while data := await relayed.arrived.get():
            await loop.sock_sendall(relayed.ours, data)
            await self._send(TAKEN, relayed.number, len(data))
        if data is None:
            raise ConnectionResetError("the connection inside was lost")
        relayed.ours.shutdown(socket.SHUT_WR)

    async def _outwards(self, relayed: Relayed) -> None:
        """From the handler to the connection."""
        loop = asyncio.get_running_loop()
        while True:
            await relayed.has_room.wait()
            data = await loop.sock_recv(relayed.ours, min(CHUNK, relayed.room))
            if not data:
                await self._send(END, relayed.number)
                return
            relayed.room -= len(data)
            if not relayed.room:
                relayed.has_room.clear()
            await self._send(DATA, relayed.number, len(data), data)
