"""BenchFlow: run AI agents against benchmark tasks. The names below are the public API, loaded on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchflow.sandbox.base import ExecResult, Sandbox

__version__ = "0.1.0"

_HOME = {
    "ExecResult": "benchflow.sandbox.base",
    "Sandbox": "benchflow.sandbox.base",
}

__all__ = ["ExecResult", "Sandbox", "__version__"]


def __getattr__(name: str) -> Any:
    if home := _HOME.get(name):
        return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'benchflow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
