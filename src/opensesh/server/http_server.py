"""Running the server: its socket, its limits, and how it stops."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING

import uvicorn

from ..asgi.connections import connection_limit, limited_protocol
from ..asgi.listening import accepted_hosts, activated_socket, bracketed, listen
from ..engine.cancellation import run_uncancellable
from ..errors import OpenseshError, UsageError
from ..tools.web_addresses import is_loopback
from .application import application
from .web.server_file import ServerFile, absolute_place, write_server_file

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncGenerator, Callable, Generator

    from .state import ServerOptions
    from .web.browsers import Browsers

log = logging.getLogger("opensesh.server")
DEFAULT_PORT = 4096
_KEEP_ALIVE_SECONDS = 75
_CLOSING_SECONDS = 5
SWITCH_SECONDS = 0.001
"""How long a thread that has read or written a file waits for the event loop; by default up to five milliseconds."""


@asynccontextmanager
async def http_server(options: ServerOptions) -> AsyncGenerator[str]:
    """Run a server until the block ends; yields its URL."""
    server, listener, url = _prepare(options)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(server.serve(sockets=[listener]))
        try:
            while not server.started and not task.done():
                await asyncio.sleep(0.005)
            yield url
        finally:
            server.should_exit = True
            await run_uncancellable(asyncio.wait({task}))


def serve(options: ServerOptions, on_ready: Callable[[str, Browsers], None]) -> None:
    """Run a server until it is interrupted. Once it accepts connections, ``on_ready`` is called with its URL and its
    browsers, which issue tickets for the web pages."""
    server, listener, _ = _prepare(options, on_ready)
    sys.setswitchinterval(SWITCH_SECONDS)
    server.run(sockets=[listener])


def _prepare(
    options: ServerOptions, on_ready: Callable[[str, Browsers], None] | None = None
) -> tuple[uvicorn.Server, socket.socket, str]:
    listener = _listen(options)
    name, port = listener.getsockname()[:2]
    host = options.hostname if options.hostname not in ("", "0.0.0.0", "::") else "127.0.0.1"  # noqa: S104
    url = f"http://{bracketed(host)}:{port}"
    hosts = accepted_hosts(host, port) | {f"{bracketed(name)}:{port}"}
    try:
        app, state = application(options, url, hosts)
    except BaseException:
        listener.close()
        raise
    config = uvicorn.Config(
        app,
        http=limited_protocol(connection_limit(options.max_connections), head_seconds=options.head_seconds),
        ws="websockets-sansio",
        ws_max_size=1 << 20,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        lifespan="on",
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_CLOSING_SECONDS,
    )

    description = ServerFile(url, os.getpid(), absolute_place(options.store), state.browsers.control_token)

    class OpenseshServer(uvicorn.Server):
        server_file = ""

        @contextmanager
        def capture_signals(self) -> Generator[None]:
            if on_ready is None:
                yield
                return
            with super().capture_signals():
                yield

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                try:
                    self.server_file = write_server_file(description)
                except OSError as error:
                    log.warning("'opensesh web' will not find this server: %s", error)
            if on_ready is not None and self.started:
                on_ready(url, state.browsers)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await state.stop(0 if self.force_exit else options.grace_seconds)
            with suppress(OSError):
                os.unlink(self.server_file)
            await super().shutdown(sockets)

    return OpenseshServer(config), listener, url


def _listen(options: ServerOptions) -> socket.socket:
    activated = activated_socket()
    if activated is not None:
        if not is_loopback(activated.getsockname()[0]) and not options.password:
            raise _unsafe(activated.getsockname()[0])
        return activated
    if not is_loopback(options.hostname) and not options.password:
        raise _unsafe(options.hostname)
    if options.port:
        return listen(options.hostname, options.port, host_option="--hostname")
    try:
        return listen(options.hostname, DEFAULT_PORT, host_option="--hostname")
    except OpenseshError:
        return listen(options.hostname, 0, host_option="--hostname")


def _unsafe(host: str) -> UsageError:
    return UsageError(
        f"{host} can be reached from other machines, and every client can execute commands. Set a password with "
        "--password or OPENCODE_SERVER_PASSWORD"
    )
