"""The OpenAPI document of the server, generated from the declarations of its operations."""

from __future__ import annotations

from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from .. import __version__
from .operations import NoQuery
from .routes import all_operations

if TYPE_CHECKING:
    from ..records import Document
    from .operations import Operation

_SCHEMA_PATH = "#/components/schemas/{name}"


class NamedError(Struct, frozen=True):
    """An error: its name, and what happened."""

    name: str
    data: dict[str, Any]


class InvalidRequest(Struct, frozen=True):
    """A request that does not match its declaration: what was sent, and what is wrong."""

    data: Any
    error: list[dict[str, Any]]
    success: bool


class DirectoryQuery(Struct, frozen=True):
    """The directory that a request is about; the header ``x-opencode-directory`` has the same meaning."""

    directory: str | None = None


@cache
def document() -> Document:
    """Return the document."""
    operations = [operation for operation in all_operations() if operation.path != "/doc"]
    types: list[Any] = [NamedError, InvalidRequest]
    for operation in operations:
        types += [one for one in (operation.body, operation.response) if one is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template=_SCHEMA_PATH)
    by_type = {id(kind): schema for kind, schema in zip(types, schemas, strict=True)}
    paths: dict[str, Document] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, by_type)
    return {
        "openapi": "3.1.1",
        "info": {"title": "opensesh", "description": "OpenCode's API on opensesh", "version": __version__},
        "paths": paths,
        "components": {"schemas": components},
    }


def _operation(operation: Operation, schemas: dict[int, Document]) -> Document:
    parameters = _parameters(operation.parameters, "path")
    if operation.query is not NoQuery:
        parameters += _parameters(operation.query, "query")
    if all(parameter["name"] != "directory" for parameter in parameters):
        parameters += _parameters(DirectoryQuery, "query")
    shown: Document = {"operationId": operation.id, "summary": operation.summary, "parameters": parameters}
    if operation.description:
        shown["description"] = operation.description
    if operation.body is not None:
        content = {"application/json": {"schema": schemas[id(operation.body)]}}
        shown["requestBody"] = {"content": content}
    success: Document = {"description": HTTPStatus(operation.status).phrase}
    if operation.response is not None:
        is_stream = operation.path in ("/event", "/global/event")
        media_type = "text/event-stream" if is_stream else "application/json"
        success["content"] = {media_type: {"schema": schemas[id(operation.response)]}}
    named = schemas[id(NamedError)]
    invalid = {"anyOf": [schemas[id(InvalidRequest)], named]}
    shown["responses"] = {str(operation.status): success} | {
        str(status): {
            "description": HTTPStatus(status).phrase,
            "content": {"application/json": {"schema": invalid if status == 400 else named}},
        }
        for status in operation.errors
    }
    return shown


def _parameters(kind: type[Struct], location: str) -> list[Document]:
    """Return the fields of a type as parameters."""
    definition = msgspec.json.schema(kind)["$defs"][kind.__name__]
    required = definition.get("required", [])
    return [
        {"name": name, "in": location, "required": name in required, "schema": member}
        for name, member in definition.get("properties", {}).items()
    ]
