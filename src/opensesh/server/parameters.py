"""Types of identifiers and names in paths, queries and bodies. They are checked before they are used."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

_MAX_COUNT = 1 << 31
_ALPHABET = "[0-9A-Za-z_.-]{0,200}$"

SessionID = Annotated[str, Meta(pattern=f"^ses{_ALPHABET}")]
MessageID = Annotated[str, Meta(pattern=f"^msg{_ALPHABET}")]
ChosenMessageID = Annotated[str, Meta(pattern=f"^$|^msg{_ALPHABET}")]
"""That of a form, in which no message may be chosen."""
PartID = Annotated[str, Meta(pattern=f"^prt{_ALPHABET}")]
PermissionID = Annotated[str, Meta(pattern=f"^per{_ALPHABET}")]
RequestID = Annotated[str, Meta(pattern=f"^(per|que){_ALPHABET}")]
PtyID = Annotated[str, Meta(pattern=f"^pty{_ALPHABET}")]
ProjectID = Annotated[str, Meta(pattern=r"^[0-9A-Za-z_-]{1,200}$")]
ProviderID = Annotated[str, Meta(pattern=r"^[^\\\x00-\x1f]{1,200}$")]
"""It may contain a slash: ``acme/models``."""
Name = Annotated[str, Meta(pattern=r"^[^/\\\x00-\x1f]{1,200}$")]

_PATH_PARAMETERS: dict[str, Any] = {
    "sessionID": SessionID,
    "messageID": MessageID,
    "partID": PartID,
    "permissionID": PermissionID,
    "requestID": RequestID,
    "ptyID": PtyID,
    "projectID": ProjectID,
    "providerID": ProviderID,
    "name": Name,
    "digest": Name,
    "browserID": Name,
}


def path_parameters(path: str) -> type[Struct]:
    """Return the type of the parameters of a path: ``/session/{sessionID}``."""
    names = re.findall(r"\{(\w+)\}", path)
    return msgspec.defstruct("PathParameters", [(name, _PATH_PARAMETERS[name]) for name in names])


def count_of(limit: float) -> int:
    """Return how many records a limit allows, between -1 and a large number; clients may send any number."""
    return -1 if math.isnan(limit) else math.ceil(min(max(limit, -1), _MAX_COUNT))
