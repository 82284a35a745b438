"""How permission requests are answered. A benchmark has nobody to ask, so a policy decides.

Agents name their options as they like; only the kind of an option says what it means, so that is all a policy sees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

PermissionPolicy = Literal["allow", "deny"]

_PREFERRED: dict[PermissionPolicy, tuple[str, ...]] = {
    # Once, because some agents write an answer for always into the workspace, which is what is being scored.
    "allow": ("allow_once", "allow_always"),
    "deny": ("reject_once", "reject_always"),
}


def choose(policy: PermissionPolicy, options: Sequence[object]) -> str | None:
    """The id of the option to take, or None when none of those offered is what the policy wants."""
    offered = [option for option in options if isinstance(option, dict) and isinstance(option.get("optionId"), str)]
    for kind in _PREFERRED[policy]:
        for option in offered:
            if option.get("kind") == kind:
                return str(option["optionId"])
    return None
