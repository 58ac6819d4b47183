"""What the provider adapters share: tool call arguments, files, metadata, token counts, JSON."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ..errors import RecordError
from ..records.codec import dumps_compact, loads, object_at, without_surrogates
from .request import Text
from .stream_events import ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .request import File
    from .stream_events import Metadata

_encoder = msgspec.json.Encoder()


def new_call_id() -> str:
    """Return an id for a tool call that came without one."""
    return f"call_{os.urandom(12).hex()}"


def read_arguments(raw: str) -> tuple[dict[str, Any], str | None]:
    """Parse the arguments of a tool call; also return what is wrong if they are not a JSON object.

    An empty string and ``null`` are no arguments.
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
    """Return arguments as JSON text, formatted as JavaScript does."""
    return dumps_compact(arguments).decode()


def tool_call(
    call_id: str, name: str, raw: str, metadata: Metadata | None = None, *, executed: bool = False
) -> ToolCall:
    """Return the complete call, given the JSON text of its arguments."""
    arguments, problem = read_arguments(raw)
    return ToolCall(call_id, name, arguments, raw, problem, metadata, executed)


def inline_data(file: File) -> tuple[str, str] | None:
    """Return media type and base64 of a ``data:`` file; ``None`` for one that the provider fetches itself."""
    if not file.url.startswith("data:"):
        return None
    head, _, data = file.url.removeprefix("data:").partition(",")
    return (head.partition(";")[0] if "*" in file.mime else file.mime), data


def joined_text(content: Iterable[Text | File]) -> str:
    """Return the text in ``content``, without its files."""
    return "\n".join(part.text for part in content if isinstance(part, Text))


def unsupported_file_note(file: File) -> str:
    """Return the text that replaces a file which this API cannot carry."""
    name = f"{file.filename!r} ({file.mime})" if file.filename else f"A file of type {file.mime}"
    return f"[{name} belongs here, but it cannot be sent to this model. Tell the user so.]"


def nested(metadata: Metadata | None, *keys: str) -> dict[str, Any]:
    """Return a provider's section of ``metadata``: the first non-empty object under one of ``keys``."""
    for key in keys:
        section = object_at(metadata or {}, key)
        if section:
            return section
    return {}


def token_count(value: object) -> int:
    """Return a number of tokens; anything that is not a positive number is 0."""
    return max(0, int(value)) if isinstance(value, int | float) else 0


def encode_json(value: object) -> bytes:
    """Return ``value`` as JSON. Lone surrogates, which no provider accepts, become U+FFFD."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return without_surrogates(json.dumps(msgspec.to_builtins(value), ensure_ascii=False)).encode()


def lower_names(headers: Mapping[str, str] | None) -> dict[str, str]:
    """Return ``headers`` with lower-case names, so that later ones replace earlier ones."""
    return {name.lower(): value for name, value in (headers or {}).items()}
