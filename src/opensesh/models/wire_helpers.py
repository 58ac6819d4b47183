"""What every wire reads and writes alike: a call's arguments and id, a file's bytes, a count of tokens."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

from ..errors import RecordError
from ..records.codec import dumps_compact, loads
from .request import Text
from .stream_events import ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .request import File
    from .stream_events import Metadata


def new_call_id() -> str:
    """An id for a call that the provider gave none."""
    return f"call_{os.urandom(12).hex()}"


def read_arguments(raw: str) -> tuple[dict[str, Any], str | None]:
    """The arguments a model wrote, and what is wrong with them if they are no JSON object.

    Nothing at all, and ``null``, mean that there are none.
    """
    if not raw or raw.isspace():
        return {}, None
    try:
        value = loads(raw.encode("utf-8", "surrogatepass"))
    except RecordError as error:
        at = f" at {error.place}" if error.place else ""
        return {}, f"The arguments are not valid JSON{at}: {error.reason}"
    if value is None:
        return {}, None
    if not isinstance(value, dict):
        return {}, "The arguments are JSON, but not an object"
    return cast("dict[str, Any]", value), None


def write_arguments(arguments: dict[str, Any]) -> str:
    """Arguments as JSON text, as JavaScript would write them."""
    return dumps_compact(arguments).decode()


def tool_call(call_id: str, name: str, raw: str, metadata: Metadata | None = None) -> ToolCall:
    """A complete call from the JSON text of its arguments."""
    arguments, problem = read_arguments(raw)
    return ToolCall(call_id, name, arguments, raw, problem, metadata)


def inline_data(file: File) -> tuple[str, str] | None:
    """Media type and base64 of a file that is carried along; ``None`` for one the provider is to fetch."""
    if not file.url.startswith("data:"):
        return None
    head, _, data = file.url.removeprefix("data:").partition(",")
    return (head.partition(";")[0] if "*" in file.mime else file.mime), data


def joined_text(content: Iterable[Text | File]) -> str:
    """The text in ``content``, without its files."""
    return "\n".join(part.text for part in content if isinstance(part, Text))


def unsupported_file_note(file: File) -> str:
    """What the model is told in place of a file that this wire cannot carry."""
    name = f"{file.filename!r} ({file.mime})" if file.filename else f"A file of type {file.mime}"
    return f"[{name} belongs here, but it cannot be sent to this model. Tell the user so.]"


def nested(metadata: Metadata | None, *keys: str) -> dict[str, Any]:
    """What a provider left in ``metadata`` to be given back, under the first of ``keys`` that is there."""
    found = [object_field(metadata or {}, key) for key in keys]
    return next(filter(None, found), found[-1])


def object_field(document: dict[str, Any], name: str) -> dict[str, Any]:
    """The object under ``name``; an empty one where there is none."""
    value = document.get(name)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def token_count(value: object) -> int:
    """A number of tokens, however a server spells "none"."""
    return max(0, int(value)) if isinstance(value, int | float) else 0
