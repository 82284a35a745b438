"""How we speak with an agent: the Agent Client Protocol over any duplex stream of a sandbox.

Importing this room loads the protocol's SDK, which takes longer than the rest of us together: import it where an agent
is about to be connected.
"""

from benchflow.acp.choices import ModelWay
from benchflow.acp.connect import connect, connect_with_retry
from benchflow.acp.permission import PermissionPolicy
from benchflow.acp.session import Session, SessionOptions, TurnResult

__all__ = [
    "ModelWay",
    "PermissionPolicy",
    "Session",
    "SessionOptions",
    "TurnResult",
    "connect",
    "connect_with_retry",
]
