"""Trust in the providers and scripts of a project's configuration.

A server at a URL that a project configures receives the whole conversation and the user's key for that provider, and
decides which tools are called. So nothing is sent to it before the user has trusted it. That includes a server on this
machine: any user of it, or a container, may listen on a port. A key or header of the project's sends the conversation
to another person's account, so these need trust, too; only the name of a variable with the user's own key does not.
Trust covers the URLs and what goes with each request: the key, the variables that contain it, and headers. Names,
limits and prices may change.

A script decides which tools are called, too: it is a program. Trust covers its text.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

from ..config.config import leaf_values
from ..config.source import read_limited
from ..config.trust import UntrustedItem, configured_values, digest, owner_of, why_untrusted
from .model import SCRIPTED_PROMPT, SCRIPTED_PROVIDER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..config import Config
    from ..config.source import SettingPath


_VARIABLE = r'"\{env:[A-Za-z0-9_]+\}"'


def provider_trust_items(config: Config) -> list[UntrustedItem]:
    """Return the providers and scripts that need trust."""
    providers = (_provider_item(config, name) for name in config.settings.provider)
    scripts = {item.key: item for item in _script_items(config)}
    return [*(item for item in providers if item is not None), *scripts.values()]


def untrusted_reason(config: Config, provider_id: str, model_id: str = "") -> str:
    """Return why this provider, or this scripted model, must not be used; empty if it may."""
    if provider_id == SCRIPTED_PROVIDER:
        item = next((script for script in _script_items(config) if script.name == model_id), None)
    else:
        item = _provider_item(config, provider_id) if provider_id in config.settings.provider else None
    if item is None or not (reason := why_untrusted(config, item)):
        return ""
    effect = "would play the script" if item.kind == "script" else "would send the conversation to"
    return f"{item.named_by} {effect} {item.what}: {reason} ('opensesh plugins --trust' allows it)"


def _script_items(config: Config) -> Iterator[UntrustedItem]:
    """Yield the existing scripts that the project names as models."""
    for path, origin in config.origins.items():
        if path[-1] not in ("model", "small_model") or owner_of(origin, config) != "project":
            continue
        value: Any = config.document
        for step in path:
            value = value[step]
        provider_id, _, name = str(value).partition("/")
        if provider_id != SCRIPTED_PROVIDER or name == SCRIPTED_PROMPT:
            continue
        try:
            text = read_limited(name)
        except (FileNotFoundError, ValueError):  # ValueError: an impossible file name
            continue
        except OSError:
            text = b""
        key = f"{origin.source}#{SCRIPTED_PROVIDER}/{name}"
        yield UntrustedItem("script", name, os.path.abspath(name), path, origin, key, digest(text))


def _provider_item(config: Config, name: str) -> UntrustedItem | None:
    """Return the item for a provider if the project gives it a URL, a key or headers."""
    origin = None
    for path, _ in leaf_values(config.document["provider"].get(name), ("provider", name)):
        own = config.origins.get(path)
        # A key that only names the variable with the user's key is the user's own.
        written = (own.written if own is not None else None) or ""
        is_own_key = path[2:] == ("options", "apiKey") and re.fullmatch(_VARIABLE, written) is not None
        is_covered = _is_url(path[2:]) or (_is_sent(path[2:]) and not is_own_key)
        if is_covered and owner_of(own, config) == "project":
            origin = own
            break
    if origin is None:
        return None
    values = configured_values(config, "provider", name, files=True)
    covered = {path: value for path, value in values.items() if _is_url(path) or _is_sent(path)}
    urls = [str(value) for path, value in configured_values(config, "provider", name).items() if _is_url(path)]
    return UntrustedItem(
        kind="provider",
        name=name,
        what=", ".join(dict.fromkeys(urls)),
        setting=("provider", name),
        named_by=origin,
        key=f"{origin.source}#provider.{name}",
        digest=digest(json.dumps([*covered.items()]).encode()),
    )


def _is_url(path: SettingPath) -> bool:
    match path:
        case ("api",) | ("options", "baseURL" | "endpoint") | ("models", _, "provider", "api"):
            return True
        case _:
            return False


def _is_sent(path: SettingPath) -> bool:
    match path:
        case ("env", *_) | ("options", "apiKey") | ("options", "headers", *_) | ("models", _, "headers", *_):
            return True
        case _:
            return False
