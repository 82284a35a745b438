"""What the gateway adds to the way to a model: time to the first byte, and requests per second.

    python benchmarks/gateway.py [--n 300] [--clients 16]

The same requests go directly to a scripted model on loopback, and to it through a pass: a listening socket, the tunnel,
the gateway with its checks and its ledger. Both are measured in turns in the same run, so that the ratio and the
difference travel between machines; the rates do not. The model, the gateway and the clients share one process, and with
it one core.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
from pydantic import SecretStr

from benchflow.gateway.account import Account
from benchflow.gateway.ledger import Ledger
from benchflow.gateway.price import load_prices
from benchflow.gateway.server import Gateway
from benchflow.testing.model_server import ModelServer, Say

if TYPE_CHECKING:
    from benchflow.gateway.admission import Pass

TARGET_MS = 5.0
"""What the gateway may add to the first byte."""

BODY = {
    "model": "claude-sonnet-4-6",
    "max_tokens": 100,
    "stream": True,
    "system": "You are a careful agent. " * 400,
    "messages": [{"role": "user", "content": "Write the file. " * 500}],
}
"""About 18 kB, as a small agent sends."""


async def first_byte(http: aiohttp.ClientSession, url: str, token: str) -> float:
    """Seconds from the request to the first byte of its answer; the rest is read, too."""
    began = time.perf_counter()
    async with http.post(f"{url}/v1/messages", json=BODY, headers={"x-api-key": token}) as reply:
        await reply.content.readany()
        took = time.perf_counter() - began
        await reply.read()
    return took


async def rate(http: aiohttp.ClientSession, url: str, token: str, n: int, clients: int) -> float:
    """Requests per second of so many clients at the same time."""

    async def run() -> None:
        for _ in range(n // clients):
            await first_byte(http, url, token)

    began = time.perf_counter()
    await asyncio.gather(*(run() for _ in range(clients)))
    return (n // clients) * clients / (time.perf_counter() - began)


def milliseconds(times: list[float]) -> str:
    ordered = sorted(times)
    return f"median {statistics.median(ordered) * 1000:.2f} ms, p95 {ordered[int(len(ordered) * 0.95)] * 1000:.2f} ms"


async def compare(http: aiohttp.ClientSession, model: ModelServer, pass_: Pass, n: int, clients: int) -> None:
    server = await asyncio.start_server(pass_.serve, "127.0.0.1", 0)
    through = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    direct_times, through_times = [], []
    for _ in range(10):
        await first_byte(http, model.url, pass_.token)
        await first_byte(http, through, pass_.token)
    for _ in range(n):
        direct_times.append(await first_byte(http, model.url, pass_.token))
        through_times.append(await first_byte(http, through, pass_.token))
    direct_rate = await rate(http, model.url, pass_.token, n, clients)
    through_rate = await rate(http, through, pass_.token, n, clients)
    added = (statistics.median(through_times) - statistics.median(direct_times)) * 1000
    ratio = statistics.median(through_times) / statistics.median(direct_times)
    print(f"first byte, direct:   {milliseconds(direct_times)}")
    print(f"first byte, gateway:  {milliseconds(through_times)}")
    print(f"added:                {added:.2f} ms (target below {TARGET_MS:g} ms), ratio {ratio:.2f}")
    print(f"requests/s, direct:   {direct_rate:.0f}")
    print(f"requests/s, gateway:  {through_rate:.0f}, ratio {direct_rate / through_rate:.2f}")
    server.close()


async def main(n: int, clients: int) -> None:
    load_prices()
    with tempfile.TemporaryDirectory() as folder:
        async with ModelServer([Say("Some words of an answer. " * 20)]) as model, Gateway() as gateway:
            ledger = Ledger(Path(folder) / "llm_trajectory.jsonl")
            account = Account("anthropic", model.url, SecretStr("sk-benchmark"), ("anthropic",))
            pass_ = gateway.admit(account, ledger)
            async with aiohttp.ClientSession() as http:
                await compare(http, model, pass_, n, clients)
            await pass_.close()
            ledger.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--n", type=int, default=300)
    parser.add_argument("--clients", type=int, default=16)
    given = parser.parse_args()
    asyncio.run(main(given.n, given.clients))
