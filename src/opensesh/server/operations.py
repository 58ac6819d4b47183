"""Declaring the operations of the API: each once, with its typed parameters, body and response.

::

    routes = Routes()


    @routes.post("/session/{sessionID}/fork", "session.fork", response=Session)
    async def fork_session(call: Call, body: SessionFork) -> object:
        \"\"\"Copy a session, or the part of it before a message.\"\"\"

The annotations of ``query`` and ``body`` are what requests are decoded into, strictly; the path's parameters are
checked by name. The first line of the docstring is the summary. :mod:`opensesh.server.openapi` documents all of this.
"""

from __future__ import annotations

import inspect
import math
import os
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, get_type_hints
from urllib.parse import unquote

import msgspec
from msgspec import Meta, Struct
from starlette.responses import Response
from starlette.routing import Match, Route

from ..asgi.requests import BodyError, read_body
from ..engine.cancellation import run_in_thread_uncancellable
from ..errors import RecordError
from ..records import loads, without_surrogates
from .query_values import as_javascript_reads, query_values
from .responses import RequestError, error_response, json_response, malformed_json, validation_response

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from starlette.requests import Request
    from starlette.types import Scope

    from ..engine.engine import Engine
    from .state import ServerState

T = TypeVar("T")
Handler = Callable[..., Awaitable[object]]
MAX_BODY_BYTES = 64 << 20
"""Attachments are sent in the body, as data URLs."""
BODY_SECONDS = 300.0
_DIRECTORY_HEADER = "x-opencode-directory"

# Identifiers and names in paths, queries and bodies. They are checked before they are used.
_MAX_COUNT = 1 << 31
_ALPHABET = "[0-9A-Za-z_.-]{0,200}$"

SessionID = Annotated[str, Meta(pattern=f"^ses{_ALPHABET}")]
MessageID = Annotated[str, Meta(pattern=f"^msg{_ALPHABET}")]
ChosenMessageID = Annotated[str, Meta(pattern=f"^$|^msg{_ALPHABET}")]
"""The id of a message in a form; empty if none is chosen."""
PartID = Annotated[str, Meta(pattern=f"^prt{_ALPHABET}")]
PermissionID = Annotated[str, Meta(pattern=f"^per{_ALPHABET}")]
RequestID = Annotated[str, Meta(pattern=f"^(per|que){_ALPHABET}")]
PtyID = Annotated[str, Meta(pattern=f"^pty{_ALPHABET}")]
ProjectID = Annotated[str, Meta(pattern=r"^[0-9A-Za-z_-]{1,200}$")]
ProviderID = Annotated[str, Meta(pattern=r"^[^\\\x00-\x1f]{1,200}$")]
"""The id of a provider, which may contain a slash: ``acme/models``."""
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


_PREFIXES = {
    "sessionID": "ses",
    "messageID": "msg",
    "partID": "prt",
    "permissionID": "per",
    "ptyID": "pty",
}


class NoQuery(Struct, frozen=True):
    """The query of an operation without parameters of its own."""


class Call(NamedTuple):
    """One request."""

    state: ServerState
    request: Request
    parameters: dict[str, str]
    """The parameters of the path, checked."""
    document: Any
    """The body as it was sent, with fields that are not declared."""

    @property
    def directory(self) -> str:
        """The directory that the request is about: of the query, the header, or the server itself."""
        query = self.request.query_params
        value = query.get("directory") or query.get("location[directory]")
        value = value or self.request.headers.get(_DIRECTORY_HEADER)
        if not value:
            return self.state.directory
        with suppress(UnicodeDecodeError):
            value = unquote(value, errors="strict")  # clients encode it once more
        if "\0" in value:
            raise RequestError(400, "BadRequest", "the directory must be a path")
        return os.path.join(self.state.directory, value)

    @property
    def session_id(self) -> str:
        """The session that the path names."""
        return self.parameters["sessionID"]

    def engine(self) -> AbstractAsyncContextManager[Engine]:
        """Open or share the engine of the directory."""
        return self.state.pool.use(self.directory)

    async def in_thread(self, work: Callable[[Engine], T]) -> T:
        """Return what ``work`` does with the engine of the directory, in a thread."""
        async with self.engine() as engine:
            return await run_in_thread_uncancellable(work, engine)

    def session_engine(self) -> AbstractAsyncContextManager[Engine]:
        """Open or share the engine of the directory that the session of the path belongs to."""
        return self.state.session_engine(self.session_id, self.directory)


class Operation(NamedTuple):
    """One method of one path."""

    method: str
    path: str
    id: str
    handler: Handler
    parameters: type[Struct]
    """The type of the path's parameters."""
    query: type[Struct]
    body: Any
    """The type of the body; ``None`` for an operation without one."""
    response: Any
    status: int
    errors: tuple[int, ...]
    summary: str
    description: str


class Routes:
    """The operations of one subject, in order."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def get(self, path: str, operation_id: str, **options: Any) -> Callable[[Handler], Handler]:
        """Declare an operation that reads."""
        return self._declare("GET", path, operation_id, **options)

    def post(self, path: str, operation_id: str, **options: Any) -> Callable[[Handler], Handler]:
        """Declare an operation that does something."""
        return self._declare("POST", path, operation_id, **options)

    def put(self, path: str, operation_id: str, **options: Any) -> Callable[[Handler], Handler]:
        """Declare an operation that replaces something."""
        return self._declare("PUT", path, operation_id, **options)

    def patch(self, path: str, operation_id: str, **options: Any) -> Callable[[Handler], Handler]:
        """Declare an operation that changes something."""
        return self._declare("PATCH", path, operation_id, **options)

    def delete(self, path: str, operation_id: str, **options: Any) -> Callable[[Handler], Handler]:
        """Declare an operation that removes something."""
        return self._declare("DELETE", path, operation_id, **options)

    def _declare(
        self,
        method: str,
        path: str,
        operation_id: str,
        *,
        response: Any,
        status: int = 200,
        errors: tuple[int, ...] = (),
    ) -> Callable[[Handler], Handler]:
        def declare(handler: Handler) -> Handler:
            hints = get_type_hints(handler, include_extras=True)
            summary, _, description = inspect.cleandoc(handler.__doc__ or "").partition("\n\n")
            self.operations.append(
                Operation(
                    method,
                    path,
                    operation_id,
                    handler,
                    path_parameters(path),
                    hints.get("query", NoQuery),
                    hints.get("body"),
                    response,
                    status,
                    errors,
                    " ".join(summary.split()).rstrip("."),
                    " ".join(description.split()),
                )
            )
            return handler

        return declare


def starlette_route(operation: Operation, state: ServerState) -> Route:
    """Return the route that serves an operation."""

    async def endpoint(request: Request) -> Response:
        try:
            return await respond(operation, state, request)
        except Exception as error:  # every failure becomes a JSON response
            return error_response(error)

    methods = [operation.method]
    route_type = _ProviderRoute if "{providerID}" in operation.path else Route
    return route_type(operation.path, endpoint, methods=methods, name=operation.id)


class _ProviderRoute(Route):
    """A route that matches the path as it was sent, in which the slash of a provider's id is encoded."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches({**scope, "path": scope["raw_path"].decode("latin-1")})
        if match is not Match.NONE:
            child["path_params"] = {name: unquote(value) for name, value in child["path_params"].items()}
        return match, child


async def respond(operation: Operation, state: ServerState, request: Request) -> Response:
    """Check a request by the declaration of its operation, and return what the handler returns as a response."""
    if state.is_stopping and operation.method != "GET":
        raise RequestError(503, "UnknownError", "the server is stopping")
    parameters: dict[str, str] = request.path_params
    arguments: dict[str, Any] = {}
    document: Any = {}
    echoed: Any = parameters
    try:
        _check_parameters(parameters, operation.parameters)
        if operation.query is not NoQuery:
            echoed = query_values(request.query_params)
            arguments["query"] = msgspec.convert(as_javascript_reads(operation.query, echoed), operation.query)
        if operation.body is not None:
            content = await read_body(request, MAX_BODY_BYTES, seconds=BODY_SECONDS)
            if _is_json(request) and (content or "x-stainless-lang" not in request.headers):
                # OpenCode's Python SDK always sends the type of JSON, also without a body.
                document = loads(content)
            echoed = document
            arguments["body"] = _body(operation, document)
            _refuse_untyped(request, content)
    except msgspec.ValidationError as error:
        return validation_response(error, echoed)
    except RecordError:
        return malformed_json()
    except BodyError as error:
        raise RequestError(error.status, "BadRequest", error.reason) from None
    value = await _handled(operation, Call(state, request, parameters, document), arguments)
    if isinstance(value, Response):
        return value
    if operation.status == 204:
        return Response(status_code=204, headers={"content-type": "application/json"})
    return json_response(value, operation.status)


async def _handled(operation: Operation, call: Call, arguments: dict[str, Any]) -> object:
    try:
        return await operation.handler(call, **arguments)
    except UnicodeEncodeError:
        if call.document == without_surrogates(call.document):
            raise
        reason = "a text in the body has half a character, a lone surrogate, where that is not possible"
        raise RequestError(400, "BadRequest", reason) from None
    finally:
        call.state.changes += int(operation.method != "GET")


def _is_json(request: Request) -> bool:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return media_type == "application/json" or media_type.endswith("+json")


def _refuse_untyped(request: Request, content: bytes) -> None:
    """Refuse a body of another type: a page of another origin can send one without asking, but not one of JSON."""
    if content and not _is_json(request):
        raise RequestError(415, "BadRequest", "the body must be JSON, with the content type application/json")


def _check_parameters(parameters: dict[str, str], declared: type[Struct]) -> None:
    """Check the parameters of the path. An invalid id with the right prefix is answered as one that does not exist."""
    try:
        msgspec.convert(parameters, declared)
    except msgspec.ValidationError:
        if all(value.startswith(_PREFIXES.get(name, "\0")) for name, value in parameters.items()):
            raise RequestError(404, "NotFoundError", "there is nothing with this id") from None
        raise


def _body(operation: Operation, document: Any) -> Any:
    """Return the body as its operation declares it.

    ``null`` for a field that could be omitted is refused, as in OpenCode 1.1, except in settings and in the fields that
    the type of the body lists in ``NULLABLE``.
    """
    try:
        body = msgspec.convert(document, operation.body)
    except UnicodeEncodeError:  # msgspec cannot describe what is wrong with half a character
        body = msgspec.convert(without_surrogates(document), operation.body)
    if not operation.path.startswith("/history/") and not operation.path.endswith("/config"):
        _refuse_nulls(body, document, "$")
    return body


def _refuse_nulls(body: Any, document: Any, path: str) -> None:
    if not isinstance(body, Struct) or not isinstance(document, dict):
        return
    for field, name in zip(body.__struct_fields__, body.__struct_encode_fields__, strict=True):
        if name not in document or (document[name] is None and name in getattr(body, "NULLABLE", ())):
            continue
        if document[name] is None:
            raise msgspec.ValidationError(f"Expected a value, got `null` - at `{path}.{name}`")
        _refuse_nulls(getattr(body, field), document[name], f"{path}.{name}")


def path_parameters(path: str) -> type[Struct]:
    """Return the type of the parameters of a path: ``/session/{sessionID}``."""
    names = re.findall(r"\{(\w+)\}", path)
    return msgspec.defstruct("PathParameters", [(name, _PATH_PARAMETERS[name]) for name in names])


def count_of(limit: float) -> int:
    """Return how many records a limit allows, between -1 and a large number; clients may send any number."""
    return -1 if math.isnan(limit) else math.ceil(min(max(limit, -1), _MAX_COUNT))
