"""Remote control of terminal clients: events that they act upon."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from ...records.view import js_name
from ..operations import Call, Routes, SessionID
from ..responses import json_response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

routes = Routes()
_TOAST_MS = 5000
_COMMANDS = {
    "session_new": "session.new",
    "session_share": "session.share",
    "session_interrupt": "session.interrupt",
    "session_compact": "session.compact",
    "messages_page_up": "session.page.up",
    "messages_page_down": "session.page.down",
    "messages_line_up": "session.line.up",
    "messages_line_down": "session.line.down",
    "messages_half_page_up": "session.half.page.up",
    "messages_half_page_down": "session.half.page.down",
    "messages_first": "session.first",
    "messages_last": "session.last",
    "agent_cycle": "agent.cycle",
}
"""The names of key bindings, which older scripts send, and the commands that clients know."""


class PromptText(Struct, frozen=True):
    """Text to add to the prompt."""

    text: str


class CommandName(Struct, frozen=True):
    """A command of the terminal client, such as ``session.new``, or the name of its key binding."""

    command: str


class Toast(Struct, frozen=True):
    """A short message on the screen."""

    message: str
    variant: Literal["info", "success", "warning", "error"]
    title: str | None = None
    duration: float = _TOAST_MS
    """Milliseconds."""


class SessionSelection(Struct, frozen=True, rename=js_name):
    """The session to show."""

    session_id: SessionID


class PromptAppend(Struct, frozen=True, tag_field="type", tag="tui.prompt.append"):
    """Add text to the prompt."""

    properties: PromptText


class CommandExecute(Struct, frozen=True, tag_field="type", tag="tui.command.execute"):
    """Execute a command."""

    properties: CommandName


class ToastShow(Struct, frozen=True, tag_field="type", tag="tui.toast.show"):
    """Show a message."""

    properties: Toast


class SessionSelect(Struct, frozen=True, tag_field="type", tag="tui.session.select"):
    """Show a session."""

    properties: SessionSelection


TuiEvent = PromptAppend | CommandExecute | ToastShow | SessionSelect


class ControlRequest(Struct, frozen=True):
    """A request that a program which embeds a client takes and answers."""

    path: str
    body: Any


@routes.post("/tui/append-prompt", "tui.appendPrompt", response=bool, errors=(400,))
async def append_prompt(call: Call, body: PromptText) -> object:
    """Add text to the prompt of the terminal clients."""
    return await _publish(call, "tui.prompt.append", {"text": body.text})


def _command_route(path: str, operation_id: str, command: str, summary: str) -> None:
    async def execute(call: Call) -> object:
        return await _publish(call, "tui.command.execute", {"command": command})

    execute.__doc__ = summary
    declare: Callable[[Callable[..., Awaitable[object]]], object] = routes.post(path, operation_id, response=bool)
    declare(execute)


_command_route("/tui/open-help", "tui.openHelp", "help.show", "Open the help of the terminal clients.")
_command_route("/tui/open-sessions", "tui.openSessions", "session.list", "Open the list of sessions.")
_command_route("/tui/open-themes", "tui.openThemes", "theme.switch", "Open the list of themes.")
_command_route("/tui/open-models", "tui.openModels", "model.list", "Open the list of models.")
_command_route("/tui/submit-prompt", "tui.submitPrompt", "prompt.submit", "Send the prompt that has been typed.")
_command_route("/tui/clear-prompt", "tui.clearPrompt", "prompt.clear", "Clear the prompt.")


@routes.post("/tui/execute-command", "tui.executeCommand", response=bool, errors=(400,))
async def execute_command(call: Call, body: CommandName) -> object:
    """Execute a command in the terminal clients."""
    command = _COMMANDS.get(body.command)
    return await _publish(call, "tui.command.execute", {"command": command} if command else {})


@routes.post("/tui/show-toast", "tui.showToast", response=bool)
async def show_toast(call: Call, body: Toast) -> object:
    """Show a short message in the terminal clients."""
    return await _publish(call, "tui.toast.show", {"duration": _TOAST_MS} | call.document)


@routes.post("/tui/publish", "tui.publish", response=bool, errors=(400,))
async def publish_event(call: Call, body: TuiEvent) -> object:
    """Publish an event for the terminal clients."""
    properties = call.document["properties"]
    if isinstance(body, ToastShow):
        properties = {"duration": _TOAST_MS} | properties
    return await _publish(call, call.document["type"], properties)


@routes.post("/tui/select-session", "tui.selectSession", response=bool, errors=(400, 404))
async def select_session(call: Call, body: SessionSelection) -> object:
    """Show a session in the terminal clients."""
    await call.in_thread(lambda engine: engine.sessions.get(body.session_id))  # raises if it does not exist
    return await _publish(call, "tui.session.select", {"sessionID": body.session_id})


@routes.get("/tui/control/next", "tui.control.next", response=ControlRequest)
async def next_control_request(call: Call) -> object:
    """Wait for the next request to a program that embeds a client.

    Nothing makes such requests here, so that this waits until the client disconnects.
    """
    while not await call.request.is_disconnected():
        await asyncio.sleep(1)
    return json_response({"path": "", "body": None})


@routes.post("/tui/control/response", "tui.control.response", response=bool)
async def answer_control_request(call: Call) -> object:
    """Answer a request to a program that embeds a client."""
    return True


async def _publish(call: Call, kind: str, properties: dict[str, Any]) -> bool:
    async with call.engine() as engine:
        call.state.publish(kind, properties, engine.location.directory)
    return True
