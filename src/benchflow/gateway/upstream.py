"""Where requests go: one provider over HTTP, or whatever stands in for it.

The host is fixed by the account. Nothing a client says can lead to another one: the URL is made of the account's
address and a path from our own table, redirects are not followed, and cookies are not kept.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import aiohttp
from yarl import URL

from benchflow.gateway.headers import query_to_provider, to_provider
from benchflow.gateway.tunnel import is_loopback

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from benchflow.gateway.account import Account
    from benchflow.gateway.body import Question
    from benchflow.gateway.dialects.base import Route
    from benchflow.gateway.headers import Header

CONNECT_TIMEOUT = 30.0
"""Seconds to reach a provider."""

SILENCE_TIMEOUT = 1800.0
"""Seconds that a provider may send nothing in the middle of an answer, or before it: long thoughts are silent."""

HEADER_LIMIT = 64 * 1024
"""Bytes of one header line of a provider's answer."""


class UpstreamError(Exception):
    """The provider could not be asked, or its answer broke off.

    `unsent` says that the provider did not see the request, or hung up on it without a word. `status` is what to say to
    the client, when an answer has not begun.
    """

    def __init__(self, message: str, *, unsent: bool = False, status: int = 502) -> None:
        super().__init__(message)
        self.unsent = unsent
        self.status = status


@dataclass(frozen=True, slots=True)
class Call:
    """A request, ready to be sent."""

    route: Route
    method: str
    query: str
    headers: Sequence[Header]
    question: Question


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that has begun. `chunks` raises UpstreamError when it breaks off."""

    status: int
    chunks: AsyncIterator[bytes]
    headers: Sequence[Header] = field(default_factory=tuple)


class Upstream(Protocol):
    """Answers requests. What a `free` one answers costs nothing."""

    @property
    def name(self) -> str: ...

    @property
    def free(self) -> bool: ...

    def send(self, call: Call) -> AbstractAsyncContextManager[Reply]:
        """Ask. Leaving the context gives the answer up if it has not ended. Raises UpstreamError, or Refusal."""
        ...


class Substitute(Upstream, Protocol):
    """Answers in the place of a provider, until it is finished."""

    @property
    def finished(self) -> bool:
        """Whether the provider itself goes on from here."""
        ...


class HttpUpstream:
    """A provider on its account."""

    free = False

    def __init__(self, account: Account, session: aiohttp.ClientSession, *, extra: Sequence[Header] = ()) -> None:
        self.name = account.provider
        self._account = account
        self._session = session
        self._extra = tuple(extra)

    @asynccontextmanager
    async def send(self, call: Call) -> AsyncIterator[Reply]:
        key = self._account.api_key.get_secret_value()
        credential = ("authorization", f"Bearer {key}") if self._account.bearer else call.route.dialect.credential(key)
        own = {name.lower() for name in self._account.headers}
        given = [(name, value) for name, value in call.headers if name.lower() not in own]
        headers = [*to_provider(given, credential), *self._account.headers.items(), *self._extra]
        try:
            async with self._session.request(
                call.method,
                _url(self._account.base_url, call.route.tail, query_to_provider(call.query)),
                headers=headers,
                data=call.question.raw or None,
                allow_redirects=False,
            ) as response:
                given = [(name, value) for name, value in response.headers.items()]
                yield Reply(response.status, _chunks(response), given)
        except (aiohttp.ClientConnectorError, aiohttp.ServerDisconnectedError) as error:
            raise UpstreamError(f"{self.name} cannot be reached: {error}", unsent=True) from None
        except TimeoutError:
            raise UpstreamError(f"{self.name} did not answer in time", status=504) from None
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamError(f"{self.name} failed: {error}") from None


async def _chunks(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.content.iter_any():
            yield chunk
    except TimeoutError:
        raise UpstreamError("the answer stopped: nothing came for too long", status=504) from None
    except (aiohttp.ClientError, OSError) as error:
        raise UpstreamError(f"the answer broke off: {error}") from None


def _url(base: str, tail: str, query: str) -> URL:
    return URL(f"{base.rstrip('/')}/{tail}" + (f"?{query}" if query else ""), encoded=True)


class Sessions:
    """The HTTP clients of a gateway: one for providers outside, through the proxies that the environment names, and
    one for servers on this machine, without any. Opened on demand, closed together."""

    def __init__(self) -> None:
        self._open: dict[bool, aiohttp.ClientSession] = {}

    def to(self, url: str) -> aiohttp.ClientSession:
        local = is_loopback(url)
        if local not in self._open:
            self._open[local] = open_session(aiohttp.TCPConnector(limit=0), trust_env=not local)
        return self._open[local]

    async def close(self) -> None:
        sessions, self._open = list(self._open.values()), {}
        for session in sessions:
            await session.close()


def open_session(connector: aiohttp.BaseConnector, *, trust_env: bool = False) -> aiohttp.ClientSession:
    """A client that adds nothing of its own to a request and changes nothing in an answer."""
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=SILENCE_TIMEOUT),
        max_line_size=HEADER_LIMIT,
        max_field_size=HEADER_LIMIT,
        trust_env=trust_env,
    )
