"""Run a share server: as a command, or inside of another program."""

from __future__ import annotations

import asyncio
import ipaddress
import os
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from ..asgi.listening import accepted_hosts, bracketed, is_loopback, listen
from ..errors import UsageError
from ..storage import paths
from .server_app import share_app
from .share_settings import DEFAULT_PORTS, normalize_server_url
from .share_store import ShareStore

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncGenerator, Callable, Generator

    import uvicorn

    from .server_app import RateLimits
    from .share_store import ShareLimits

PORT = 4097
_MAX_CONNECTIONS = 200


class ShareServerOptions(NamedTuple):
    """The options of a share server."""

    folder: str
    host: str = "127.0.0.1"
    port: int = PORT
    """0 for any free port."""
    public_url: str = ""
    """The URL under which clients reach the server; links begin with it."""
    remote: bool = False
    """Whether to accept connections from other machines; otherwise ``host`` must be a loopback address."""
    proxies: tuple[str, ...] = ()
    """Addresses and networks of reverse proxies whose X-Forwarded-For header is trusted."""
    limits: ShareLimits | None = None
    rates: RateLimits | None = None


def default_folder() -> str:
    """Return the folder for shares that is used unless another is given."""
    return os.path.join(os.path.dirname(paths.data()), "opensesh", "shares")


@asynccontextmanager
async def share_server(options: ShareServerOptions) -> AsyncGenerator[str]:
    """Run a server until the block ends; yields the URL to configure as ``enterprise.url``."""
    server, listener, url = _prepare(options)
    async with asyncio.TaskGroup() as group:
        group.create_task(server.serve(sockets=[listener]))
        try:
            while not server.started:
                await asyncio.sleep(0.005)
            yield url
        finally:
            server.should_exit = True


def serve(options: ShareServerOptions, on_ready: Callable[[str], None]) -> None:
    """Run a server until interrupted; ``on_ready`` is called with its URL once it accepts connections."""
    server, listener, _ = _prepare(options, on_ready)
    server.run(sockets=[listener])


def _prepare(
    options: ShareServerOptions, on_ready: Callable[[str], None] | None = None
) -> tuple[uvicorn.Server, socket.socket, str]:
    import uvicorn  # and starlette: only the server needs them

    from ..asgi.connections import connection_limit, limited_protocol

    public_url = normalize_server_url(options.public_url) if options.public_url else ""
    proxies = [network for proxy in options.proxies for network in _proxy_networks(proxy)]
    if not options.remote and not is_loopback(options.host):
        raise UsageError(
            f"{options.host} can be reached from other machines, and every client may store data here. Use "
            "--allow-remote if that is intended, behind a reverse proxy with TLS"
        )
    listener = listen(options.host, options.port)
    port = listener.getsockname()[1]
    url = public_url or f"http://{bracketed(options.host)}:{port}"
    try:
        shares = ShareStore(options.folder, options.limits)
    except BaseException:
        listener.close()
        raise
    hosts = _accepted_hosts(options.host, port, public_url)
    config = uvicorn.Config(
        share_app(shares, hosts=hosts, public_url=public_url, rates=options.rates),
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies,
        lifespan="off",
        ws="none",
        http=limited_protocol(connection_limit(_MAX_CONNECTIONS)),
        timeout_keep_alive=30,
        timeout_graceful_shutdown=5,
    )

    class UvicornServer(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Generator[None]:
            if on_ready is None:
                yield
                return
            with super().capture_signals():
                on_ready(url)  # the socket is listening, so a client that connects now is served in a moment
                yield

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await super().shutdown(sockets)
            shares.close()

    return UvicornServer(config), listener, url


def _accepted_hosts(host: str, port: int, public_url: str) -> frozenset[str]:
    """Return the accepted values of the Host header."""
    hosts = set(accepted_hosts(host, port))
    if public_url:
        parts = urlsplit(public_url)
        name = bracketed(parts.hostname or "")
        # Clients leave out the default port.
        hosts |= {f"{name}:{parts.port}"} if parts.port else {name, f"{name}:{DEFAULT_PORTS[parts.scheme]}"}
    return frozenset(hosts)


def _proxy_networks(proxy: str) -> list[str]:
    """Return an address or a network as IPv4 and IPv6 listeners see it."""
    try:
        network = ipaddress.ip_network(proxy)
    except ValueError as error:
        raise UsageError(f"a trusted proxy must be an address or a network: {error}") from None
    if network.version == 6:
        return [str(network)]
    return [str(network), f"::ffff:{network.network_address}/{96 + network.prefixlen}"]
