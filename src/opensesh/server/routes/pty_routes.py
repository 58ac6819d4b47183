"""Pseudo-terminals. A client of the server may run any program, as with the shell commands of a session."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocketDisconnect

from ...errors import NotFoundError
from ...flags import SERVER_LOGIN_VARIABLES
from ...records import dumps_compact
from ...tools.shell.execution import user_shell
from ..operations import Call, Routes
from ..responses import RequestError, error_response

if TYPE_CHECKING:
    from starlette.websockets import WebSocket

    from ..state import ServerState
    from ..terminals import Terminal

routes = Routes()
_LOGIN_SHELLS = ("sh", "bash", "zsh", "fish", "dash", "ksh")
Cells = Annotated[float, Meta(ge=1, le=1000)]


class Pty(Struct, frozen=True):
    """A program in a pseudo-terminal."""

    id: str
    title: str
    command: str
    args: list[str]
    cwd: str
    status: Literal["running", "exited"]
    pid: int


class PtyCreate(Struct, frozen=True):
    """The program; the user's shell if there is none."""

    command: str | None = None
    args: list[str] | None = None
    cwd: str | None = None
    title: str | None = None
    env: dict[str, str] | None = None


class PtySize(Struct, frozen=True):
    """The size of a terminal, in characters."""

    rows: Cells
    cols: Cells


class PtyUpdate(Struct, frozen=True):
    """Changes to a terminal; absent fields stay as they are."""

    title: str | None = None
    size: PtySize | None = None


@routes.get("/pty", "pty.list", response=list[Pty])
async def list_terminals(call: Call) -> object:
    """List the terminals of the directory."""
    async with call.engine() as engine:
        return [terminal.info for terminal in call.state.terminals.list(engine.location.directory)]


@routes.post("/pty", "pty.create", response=Pty, errors=(400,))
async def create_terminal(call: Call, body: PtyCreate) -> object:
    """Start a program in a new terminal."""
    async with call.engine() as engine:
        directory = engine.location.directory
    environment = {**os.environ, "TERM": "xterm-256color", "OPENCODE_TERMINAL": "1", **(body.env or {})}
    for name in SERVER_LOGIN_VARIABLES:
        environment.pop(name, None)
    command = body.command or user_shell(environment).path
    arguments = list(body.args or ())
    if os.path.basename(command) in _LOGIN_SHELLS:
        arguments.append("-l")
    cwd = body.cwd or directory
    return call.state.terminals.create(directory, [command, *arguments], cwd, body.title, environment).info


@routes.get("/pty/{ptyID}", "pty.get", response=Pty, errors=(404,))
async def get_terminal(call: Call) -> object:
    """Get a terminal."""
    return _terminal(call).info


@routes.put("/pty/{ptyID}", "pty.update", response=Pty, errors=(400, 404))
async def update_terminal(call: Call, body: PtyUpdate) -> object:
    """Change the title or the size of a terminal."""
    terminal = _terminal(call)
    size = None if body.size is None else (int(body.size.rows), int(body.size.cols))
    call.state.terminals.update(terminal, body.title, size)
    return terminal.info


@routes.delete("/pty/{ptyID}", "pty.remove", response=bool, errors=(400,))
async def remove_terminal(call: Call) -> object:
    """End the program of a terminal, and remove the terminal. One that has ended is gone already."""
    with suppress(NotFoundError):
        await call.state.terminals.remove(_terminal(call))
    return True


@routes.get("/pty/{ptyID}/connect", "pty.connect", response=bool, errors=(400, 404))
async def connect_terminal(call: Call) -> object:
    """Connect to a terminal through a websocket: text in both directions.

    It begins with the output so far, or what follows the ``cursor`` of the query; -1 leaves all of it out. Then comes
    one binary message, a null byte and ``{"cursor": N}``, from which the client can continue when it connects again.
    """
    _terminal(call)
    raise RequestError(400, "BadRequest", "this address is for websockets")


def websocket_route(state: ServerState) -> WebSocketRoute:
    """Return the route of the terminals' websockets."""

    async def connect(websocket: WebSocket) -> None:
        try:
            terminal = state.terminals.get(websocket.path_params["ptyID"])
        except NotFoundError as error:
            await websocket.send_denial_response(error_response(error))
            return
        await websocket.accept()
        output, cursor, queue = terminal.connect(_cursor(websocket.query_params.get("cursor", "")))

        async def read_input() -> None:
            while (message := await websocket.receive())["type"] != "websocket.disconnect":
                text = message.get("text")
                await terminal.write((message.get("bytes") or b"") if text is None else text.encode(errors="replace"))
            raise WebSocketDisconnect

        try:
            for piece in output:
                await websocket.send_text(piece)
            await websocket.send_bytes(b"\0" + dumps_compact({"cursor": cursor}))
            async with asyncio.TaskGroup() as group:
                reader = group.create_task(read_input())
                while (text := await queue.get()) is not None:
                    await websocket.send_text(text)
                reader.cancel()
            await websocket.close()
        except* (WebSocketDisconnect, RuntimeError):
            pass
        finally:
            terminal.disconnect(queue)

    return WebSocketRoute("/pty/{ptyID}/connect", connect)


def _cursor(text: str) -> int:
    """Return where a client continues to read the output; from the beginning if it does not say so."""
    try:
        cursor = int(text)
    except ValueError:
        return 0
    return cursor if cursor >= -1 else 0


def _terminal(call: Call) -> Terminal:
    return call.state.terminals.get(call.parameters["ptyID"])
