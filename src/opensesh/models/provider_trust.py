"""Models of a project's own: nothing is sent to an address that its configuration gives to one, and no script is played
that it names in place of one, before the user has trusted them.

Whoever answers at an address is told everything that is said, gets the user's key for that provider, and decides what
tools are called. A server on this machine needs no trust. Trust is in the addresses, and in what goes along with each
request: variables that hold the key, the key, headers. Names, limits and prices may change.

A script decides what tools are called, too: it is a program. Trust is in its text.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from ..config.source import read_limited
from ..config.trust import UntrustedItem, configured_values, digest, owner_of, why_untrusted
from .entries import is_local
from .model import SCRIPTED_PROMPT, SCRIPTED_PROVIDER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..config import Config, Origin
    from ..config.source import SettingPath


def provider_trust_items(config: Config) -> list[UntrustedItem]:
    """The providers and scripts that need trust."""
    providers = (_provider(config, name) for name in config.settings.provider)
    scripts = {each.key: each for each in _scripts(config)}
    return [*(each for each in providers if each is not None), *scripts.values()]


def untrusted_reason(config: Config, provider_id: str, model_id: str = "") -> str:
    """Why nothing must be asked of this provider, or of this model that plays a script, in words; nothing if it may."""
    if provider_id == SCRIPTED_PROVIDER:
        each = next((script for script in _scripts(config) if script.name == model_id), None)
    else:
        each = _provider(config, provider_id) if provider_id in config.settings.provider else None
    why = why_untrusted(config, each)
    if each is None or not why:
        return ""
    wish = "the script {} played" if each.kind == "script" else "everything that is said sent to {}"
    return f"{each.named_by} would have {wish.format(each.what)}: {why} ('opensesh plugins --trust' has it used)"


def _scripts(config: Config) -> Iterator[UntrustedItem]:
    """The scripts that the project has played. One that is not there is nothing to be trusted."""
    for path, origin in config.origins.items():
        if path[-1] not in ("model", "small_model") or owner_of(origin, config) != "project":
            continue
        provider_id, _, name = _value(config, path).partition("/")
        text = _text(name) if provider_id == SCRIPTED_PROVIDER and name != SCRIPTED_PROMPT else None
        if text is not None:
            key = f"{origin.source}#{SCRIPTED_PROVIDER}/{name}"
            yield UntrustedItem("script", name, os.path.abspath(name), path, origin, key, digest(text))


def _text(path: str) -> bytes | None:
    try:
        return read_limited(path)
    except (FileNotFoundError, ValueError):  # ValueError: no file can be called so
        return None
    except OSError:
        return b""


def _provider(config: Config, name: str) -> UntrustedItem | None:
    origin = next(_named(config, name), None)
    if origin is None:
        return None
    every = configured_values(config, "provider", name, files=True)
    said = {path: value for path, value in every.items() if _is_address(path) or _goes_along(path)}
    key = f"{origin.source}#provider.{name}"
    now = digest(json.dumps([*said.items()]).encode())
    what = _what(configured_values(config, "provider", name))
    return UntrustedItem("provider", name, what, ("provider", name), origin, key, now)


def _named(config: Config, name: str) -> Iterator[Origin]:
    """Where the project names an address elsewhere."""
    for path, origin in config.origins.items():
        if path[:2] != ("provider", name) or not _is_address(path[2:]):
            continue
        if owner_of(origin, config) == "project" and not is_local(_value(config, path)):
            yield origin


def _value(config: Config, path: SettingPath) -> str:
    value: Any = config.document
    for step in path:
        value = value[step]
    return str(value)


def _is_address(path: SettingPath) -> bool:
    match path:
        case ("api",) | ("options", "baseURL" | "endpoint") | ("models", _, "provider", "api"):
            return True
        case _:
            return False


def _goes_along(path: SettingPath) -> bool:
    match path:
        case ("env", *_) | ("options", "apiKey") | ("options", "headers", *_) | ("models", _, "headers", *_):
            return True
        case _:
            return False


def _what(said: Mapping[SettingPath, Any]) -> str:
    return ", ".join(dict.fromkeys(str(value) for path, value in said.items() if _is_address(path)))
