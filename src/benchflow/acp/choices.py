"""Which request selects a model or a mode, read off what the agent offered in its reply to `session/new`.

Agents differ: some offer a config option, older ones a list of models or modes, some neither. The functions here decide
and leave the sending to the session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ModelWay = Literal["auto", "config_option", "set_model", "none"]
"""How a model is chosen. `auto` takes what the agent offers; `none` is for agents told before they start."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A request that makes a choice; `value` is what the agent will then call the current one."""

    method: str
    params: dict[str, object]
    value: str
    offered: tuple[str, ...] = ()


def choose_model(offer: Mapping[str, object], model: str, way: ModelWay = "auto") -> Choice | None:
    """The request that selects `model`, or None when there is none to send.

    A model that is not on the agent's list is asked for as it was written: the agent may know it and, if not, says so.
    """
    option = _config_option(offer, "model")
    if option is not None and way in ("auto", "config_option"):
        return _set_option(option, model)
    models = offer.get("models")
    if way == "set_model" or (way == "auto" and isinstance(models, dict)):
        listed, current = _ids(models, "availableModels", "modelId"), _text(models, "currentModelId")
        value = match_model(model, listed, current) or model
        return Choice("session/set_model", {"modelId": value}, value, listed)
    if way == "config_option":
        return Choice("session/set_config_option", {"configId": "model", "value": model}, model)
    return None


def choose_mode(offer: Mapping[str, object], mode: str) -> Choice:
    """The request that selects a mode, by config option where only that is offered."""
    modes = offer.get("modes")
    option = _config_option(offer, "mode")
    if isinstance(modes, dict) or option is None:
        return Choice("session/set_mode", {"modeId": mode}, mode, _ids(modes, "availableModes", "id"))
    return _set_option(option, mode)


def kept_another(reply: object, choice: Choice) -> str | None:
    """The value an agent says it has instead of the one chosen, when its reply says so."""
    config_id = choice.params.get("configId")
    for option in _dicts(reply, "configOptions"):
        current = option.get("currentValue")
        if option.get("id") == config_id and isinstance(current, str) and current != choice.value:
            return current
    return None


def match_model(wanted: str, offered: tuple[str, ...], current: str = "") -> str | None:
    """The offered id that means the wanted model.

    Ids match exactly, else without regard to case, else without their provider (`openai/gpt-5` is `gpt-5`), else
    without the effort some agents put in brackets (`gpt-5[low]`); then the effort of the current model is preferred.
    """
    if wanted in offered:
        return wanted
    for simplify in (str.lower, _bare, _effortless):
        found = [name for name in offered if simplify(name) == simplify(wanted)]
        if found:
            return next((name for name in found if _effort(name) == _effort(current)), found[0])
    return None


def _bare(name: str) -> str:
    return name.lower().rsplit("/", 1)[-1]


def _effortless(name: str) -> str:
    return _bare(name).split("[", 1)[0]


def _effort(name: str) -> str:
    return name.partition("[")[2]


def _set_option(option: Mapping[str, object], wanted: str) -> Choice:
    offered = tuple(_option_values(option))
    value = match_model(wanted, offered, _text(option, "currentValue")) or wanted
    return Choice("session/set_config_option", {"configId": option["id"], "value": value}, value, offered)


def _config_option(offer: Mapping[str, object], category: str) -> Mapping[str, object] | None:
    """The select option of a category; an agent that gives no categories is taken by the option's id."""
    options = [option for option in _dicts(offer, "configOptions") if isinstance(option.get("id"), str)]
    for key in ("category", "id"):
        for option in options:
            if option.get(key) == category and isinstance(option.get("options"), list):
                return option
    return None


def _option_values(option: Mapping[str, object]) -> Iterator[str]:
    for entry in _dicts(option, "options"):
        if isinstance(entry.get("value"), str):
            yield str(entry["value"])
        yield from _option_values(entry)


def _ids(holder: object, list_key: str, id_key: str) -> tuple[str, ...]:
    return tuple(str(item[id_key]) for item in _dicts(holder, list_key) if isinstance(item.get(id_key), str))


def _dicts(holder: object, key: str) -> list[dict[str, object]]:
    items = holder.get(key) if isinstance(holder, dict) else None
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _text(holder: object, key: str) -> str:
    value = holder.get(key) if isinstance(holder, dict) else None
    return value if isinstance(value, str) else ""
