"""Changing configuration files on behalf of a client."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import msgspec

from ..config import ConfigSettings
from ..config.source import Source
from ..config.validation import check, unknown_keys
from ..records import as_list, as_object, merged
from ..storage.disk import Disk, read_or_empty
from .config_documents import MASK
from .responses import RequestError

if TYPE_CHECKING:
    from ..records import Document

_NAMES = ("opencode.jsonc", "opencode.json")


def update_config_file(folder: str, changes: Document) -> None:
    """Merge settings into the configuration file of a folder: ``opencode.json``, unless there is another.

    Masked secrets stay as they are. A file with comments is not changed, since they would be lost, and neither is one
    that would become invalid. An unknown setting raises :class:`msgspec.ValidationError`.
    """
    path = next((path for name in _NAMES if os.path.exists(path := os.path.join(folder, name))), None)
    path = path or os.path.join(folder, "opencode.json")
    content = read_or_empty(path)
    try:
        existing = as_object(json.loads(content)) if content.strip() else {}
    except ValueError:
        existing = None
    if existing is None:
        message = f"{path} has comments or is not valid JSON, and was not changed; edit it by hand"
        raise RequestError(409, "ConfigFileError", message)
    document = merged(existing, _without_masks(changes))
    for unknown in unknown_keys(check(document, ConfigSettings, Source(path, "")), document):
        if len(unknown.path) == 1 and unknown.path[0] in changes:
            raise msgspec.ValidationError(f"{unknown.reason} - at `$.{unknown.path[0]}`")
    mode = os.stat(path).st_mode & 0o777 if os.path.exists(path) else 0o644
    Disk().replace(path, json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n")
    os.chmod(path, mode)


def _without_masks(value: Any) -> Any:
    if (members := as_object(value)) is not None:
        return {key: _without_masks(item) for key, item in members.items() if item != MASK}
    if (items := as_list(value)) is not None:
        return [_without_masks(item) for item in items]
    return value
