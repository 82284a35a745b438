"""LiteLLM without its books, and with its errors.

It counts what it streams in modules of its proxy server, which want a dozen packages that translating does not: sound
is among them. The gateway does the counting, so what counts nothing stands in for those modules. An error of a provider
that it meets in an Anthropic stream becomes an event without the provider's status; here it is raised as it was.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_COUNTING = {
    "litellm.proxy.pass_through_endpoints.success_handler": "PassThroughEndpointLogging",
    "litellm.proxy.pass_through_endpoints.streaming_handler": "PassThroughStreamingHandler",
}
"""Modules of LiteLLM, and what it wants of them."""


class _NoBooks:
    """Has what LiteLLM calls while a stream passes, and when it has ended, well or not."""

    @staticmethod
    def chunk_processor(response: Any, **_: object) -> AsyncIterator[bytes]:
        chunks: AsyncIterator[bytes] = response.aiter_bytes()
        return chunks

    @staticmethod
    async def route_streaming_logging_to_handler(**_: object) -> None:
        pass

    @staticmethod
    async def schedule_stream_failure_logging(**_: object) -> None:
        pass


def keep_no_books() -> None:
    """Before LiteLLM streams anything."""
    for name, wanted in _COUNTING.items():
        module = ModuleType(name)
        setattr(module, wanted, _NoBooks)
        sys.modules[name] = module


def raise_errors() -> None:
    """When LiteLLM is loaded."""
    adapter: Any = importlib.import_module("litellm.llms.anthropic.pass_through.adapters.streaming_iterator")
    setattr(adapter, "_mid_stream_error_sse_event", _raise)  # noqa: B010 - it is theirs


def _raise(error: Exception) -> NoReturn:
    raise getattr(error, "original_exception", None) or error
