"""Addresses that a project's configuration gives to models: nothing is sent there before the user has trusted them.

Whoever answers there is told everything that is said, gets the user's key for that provider, and decides what tools are
called. A server on this machine needs no trust. Trust is in the addresses, and in what goes along with each request:
variables that hold the key, the key, headers. Names, limits and prices may change.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..config.foreign import Foreign, stated, whole, why_not
from ..config.ownership import whose
from ..config.trust import digest
from .entries import is_local

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..config import Config, Origin
    from ..config.source import Path


def foreign(config: Config) -> list[Foreign]:
    """The providers that need trust."""
    found = (_foreign(config, name) for name in config.settings.provider)
    return [each for each in found if each is not None]


def doubt(config: Config, provider_id: str) -> str:
    """Why nothing must be sent to this provider, in words; nothing if it may."""
    each = _foreign(config, provider_id) if provider_id in config.settings.provider else None
    why = why_not(config, each)
    if each is None or not why:
        return ""
    return (
        f"{each.named_by} would have everything that is said sent to {each.what}: {why} "
        "('opensesh plugins --trust' has it used)"
    )


def _foreign(config: Config, name: str) -> Foreign | None:
    origin = next(_named(config, name), None)
    if origin is None:
        return None
    every = stated(config, "provider", name)
    said = {path: value for path, value in every.items() if _is_address(path) or _goes_along(path)}
    key = f"{origin.source}#provider.{name}"
    now = digest(json.dumps([*said.items()]).encode())
    return Foreign("provider", whole(name), whole(_what(said)), origin, whole(key), now)


def _named(config: Config, name: str) -> Iterator[Origin]:
    """Where the project names an address elsewhere. What an organisation names, which the user has logged in to, is not
    the project's."""
    for path, origin in config.origins.items():
        if path[:2] != ("provider", name) or not _is_address(path[2:]):
            continue
        if whose(origin, config) == "project" and "://" not in origin.source and not is_local(_value(config, path)):
            yield origin


def _value(config: Config, path: Path) -> str:
    value: Any = config.document
    for step in path:
        value = value[step]
    return str(value)


def _is_address(path: Path) -> bool:
    match path:
        case ("api",) | ("options", "baseURL" | "endpoint") | ("models", _, "provider", "api"):
            return True
        case _:
            return False


def _goes_along(path: Path) -> bool:
    match path:
        case ("env", *_) | ("options", "apiKey") | ("options", "headers", *_) | ("models", _, "headers", *_):
            return True
        case _:
            return False


def _what(said: Mapping[Path, Any]) -> str:
    return ", ".join(dict.fromkeys(str(value) for path, value in said.items() if _is_address(path)))
