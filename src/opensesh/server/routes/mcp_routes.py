"""MCP servers."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct, field

from ...config import McpConfig
from ...errors import ToolFailedError
from ...tools.mcp.conversion import sanitize
from ..operations import Call, Name, Routes
from ..responses import RequestError, json_response, validation_response

if TYPE_CHECKING:
    from collections.abc import Generator

    from starlette.responses import Response

    from ...engine.engine import Engine
    from ...records import Document
    from ...tools.mcp.server import McpServerState

routes = Routes()


class NewServer(Struct, frozen=True):
    """A server to add until the directory is closed."""

    name: Name
    config: McpConfig


class McpStatus(Struct, frozen=True):
    """The state of a server."""

    status: Literal["connected", "disabled", "failed", "needs_auth", "needs_client_registration"]
    error: str | None = None


class McpAuthorization(Struct, frozen=True):
    """The address for a login, and its OAuth state."""

    authorization_url: str = field(name="authorizationUrl")
    oauth_state: str = field(name="oauthState")


class McpLoginCode(Struct, frozen=True):
    """The code that an authorization server gave."""

    code: str


@routes.get("/mcp", "mcp.status", response=dict[str, McpStatus])
async def mcp_status(call: Call) -> object:
    """Get the state of every MCP server. Those that are enabled and trusted are connected."""
    async with call.engine() as engine:
        return await _states(engine)


@routes.post("/mcp", "mcp.add", response=dict[str, McpStatus], errors=(400,))
async def add_server(call: Call, body: NewServer) -> object:
    """Add an MCP server, until the directory is closed."""
    name = {"local": "command", "remote": "url"}.get(body.config.type or "", "type")
    if getattr(body.config, name) is None:
        missing = msgspec.ValidationError(f"Object missing required field `{name}` - at `$.config`")
        return validation_response(missing, call.document)
    async with call.engine() as engine:
        engine.components.mcp.add(body.name, body.config)
        return await _states(engine)


@routes.post("/mcp/{name}/connect", "mcp.connect", response=bool)
async def connect(call: Call) -> object:
    """Connect an MCP server, also one that is disabled."""
    async with call.engine() as engine:
        await engine.components.mcp.connect(call.parameters["name"])
    return True


@routes.post("/mcp/{name}/disconnect", "mcp.disconnect", response=bool)
async def disconnect(call: Call) -> object:
    """Disconnect an MCP server until it is connected again."""
    async with call.engine() as engine:
        await engine.components.mcp.disconnect(call.parameters["name"])
    return True


@routes.post("/mcp/{name}/auth", "mcp.auth.start", response=McpAuthorization, errors=(400, 404))
async def start_login(call: Call) -> object:
    """Begin to log in to a remote MCP server. The address is empty if the server requires no login."""
    async with call.engine() as engine:
        with _login_errors():
            logins = engine.components.mcp.logins
            if not logins.supports(call.parameters["name"]):
                return _unsupported(call)
            grant = await logins.begin(call.parameters["name"])
    return McpAuthorization(grant.url if grant else "", grant.state if grant else "")


@routes.delete("/mcp/{name}/auth", "mcp.auth.remove", response=dict[str, bool], errors=(404,))
async def remove_login(call: Call) -> object:
    """Forget the login to a remote MCP server."""
    async with call.engine() as engine:
        await engine.components.mcp.logins.remove(call.parameters["name"])
    return {"success": True}


@routes.post("/mcp/{name}/auth/callback", "mcp.auth.callback", response=McpStatus, errors=(400, 404))
async def finish_login(call: Call, body: McpLoginCode) -> object:
    """Finish logging in to a remote MCP server with the code that its authorization server gave."""
    async with call.engine() as engine:
        with _login_errors():
            return _shown(await engine.components.mcp.logins.finish(call.parameters["name"], body.code))


@routes.post("/mcp/{name}/auth/authenticate", "mcp.auth.authenticate", response=McpStatus, errors=(400, 404))
async def login(call: Call) -> object:
    """Log in to a remote MCP server with a browser on the machine of the server, and wait for it."""
    async with call.engine() as engine:
        with _login_errors():
            logins = engine.components.mcp.logins
            if not logins.supports(call.parameters["name"]):
                return _unsupported(call)
            return _shown(await logins.run(call.parameters["name"]))


@routes.get("/experimental/resource", "experimental.resource.list", response=dict[str, dict[str, Any]])
async def list_resources(call: Call) -> object:
    """List the resources of the MCP servers that are connected."""
    async with call.engine() as engine:
        resources = await engine.components.mcp.resources()
    return {
        f"{sanitize(server)}:{sanitize(resource['name'])}": resource | {"client": server}
        for server, resource in resources
    }


async def _states(engine: Engine) -> Document:
    servers = engine.components.mcp
    await servers.tools()  # connects; every server has its own time limit, as in OpenCode
    return {name: _shown(state) for name, state in servers.states.items()}


def _shown(state: McpServerState) -> Document:
    """Return a state in the words that clients know."""
    match state.status:
        case "connected" | "disabled" | "needs_auth":
            return {"status": state.status}
        case "needs_client_registration":
            return {"status": state.status, "error": state.error}
        case "idle" | "connecting":  # connecting again, for another client
            return {"status": "disabled"}
        case "failed" | "untrusted":
            return {"status": "failed", "error": state.error or state.status}


def _unsupported(call: Call) -> Response:
    return json_response({"error": f"MCP server {call.parameters['name']} does not support OAuth"}, 400)


@contextmanager
def _login_errors() -> Generator[None]:
    try:
        yield
    except ToolFailedError as error:
        raise RequestError(400, "McpAuthError", error.message) from error
