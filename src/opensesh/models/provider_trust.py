"""Trust in the providers and scripts of a project's configuration.

A server at a URL that a project configures receives the whole conversation and the user's key for that provider, and
decides which tools are called. So nothing is sent to it before the user has trusted it. That includes a server on this
machine: any user of it, or a container, may listen on a port. A key or header of the project's sends the conversation
to another person's account, so these need trust, too; only the name of a variable with the user's own key does not.
Trust covers every setting that is not known to leave the server, the account and the way to it as they are: names,
limits, prices and what a model can do may change.

A script decides which tools are called, too: it is a program. Trust covers its text.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

from ..config.config import leaf_values
from ..config.source import MAX_FILE_BYTES
from ..config.trust import UntrustedItem, configured_values, digest, owner_of, why_untrusted
from ..storage.disk import read_file
from .model import SCRIPTED_PROMPT, SCRIPTED_PROVIDER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..config import Config
    from ..config.config import Origin
    from ..config.source import SettingPath


_VARIABLE = r'"\{env:[A-Za-z0-9_]+\}"'
_OPTIONS = frozenset(("chunkTimeout", "includeUsage", "setCacheKey", "timeout"))
"""Options of a provider that only change how it is waited for or counted."""


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
            text = read_file(name, limit=MAX_FILE_BYTES)
        except (FileNotFoundError, ValueError):  # ValueError: an impossible file name
            continue
        except OSError:
            text = b""
        key = f"{origin.source}#{SCRIPTED_PROVIDER}/{name}"
        yield UntrustedItem("script", name, os.path.abspath(name), path, origin, key, digest(text))


def _provider_item(config: Config, name: str) -> UntrustedItem | None:
    """Return the item for a provider if the project gives it a URL, a key or headers."""
    by_project: list[tuple[bool, Origin]] = []
    for path, _ in leaf_values(config.document["provider"].get(name), ("provider", name)):
        own = config.origins.get(path)
        # A key that only names the variable with the user's key is the user's own.
        written = (own.written if own is not None else None) or ""
        is_own_key = path[2:] == ("options", "apiKey") and re.fullmatch(_VARIABLE, written) is not None
        if own is not None and _is_covered(path[2:]) and not is_own_key and owner_of(own, config) == "project":
            by_project.append((_is_url(path[2:]), own))
    if not by_project:
        return None
    origin = max(by_project, key=lambda item: item[0])[1]  # the address, which is what is shown
    values = configured_values(config, "provider", name, files=True)
    covered = {path: value for path, value in values.items() if _is_covered(path)}
    urls = [str(value) for path, value in configured_values(config, "provider", name).items() if _is_url(path)]
    settings = dict.fromkeys(".".join(map(str, path[:2])) for path in covered)
    return UntrustedItem(
        kind="provider",
        name=name,
        what=", ".join(dict.fromkeys(urls)) or f"an account or server of its choice ({', '.join(settings)})",
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


def _is_covered(path: SettingPath) -> bool:
    """Return whether trust covers a setting of a provider: all but those that choose neither server nor account."""
    match path:
        case ("name",) | ("whitelist" | "blacklist", *_):
            return False
        case ("options", name):
            return name not in _OPTIONS
        case ("models", _, name, *_):
            return name in ("headers", "provider")
        case ("models", *_):
            return False
        case _:
            return True
