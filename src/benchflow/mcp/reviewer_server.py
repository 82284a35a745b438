"""The MCP reviewer under its public name; `benchflow.service.reviewer` is where it lives."""

from benchflow.service.reviewer import Reviewer, make_server, serve_reviewer

__all__ = ["Reviewer", "make_server", "serve_reviewer"]
