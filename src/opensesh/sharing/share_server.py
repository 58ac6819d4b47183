"""Running a share server, by itself or inside of another program."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from ..errors import OpenseshError, UsageError
from ..storage import paths
from .share_settings import PORTS, address

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

    import uvicorn

    from .rates import RateLimits
    from .share_store import ShareLimits

PORT = 4097


class ShareServerOptions(NamedTuple):
    """How to serve."""

    folder: str
    host: str = "127.0.0.1"
    port: int = PORT
    """0 for any that is free."""
    public: str = ""
    """The address under which others reach it, which links then begin with."""
    remote: bool = False
    """Whether others than this machine may reach it; without, only a loopback address will do."""
    proxies: tuple[str, ...] = ()
    """Addresses and networks of proxies in front of it, who are believed when they say for whom they ask."""
    limits: ShareLimits | None = None
    rates: RateLimits | None = None


def default_folder() -> str:
    """Where shares are kept unless the user says otherwise."""
    return os.path.join(os.path.dirname(paths.data()), "opensesh", "shares")


@asynccontextmanager
async def share_server(how: ShareServerOptions) -> AsyncGenerator[str]:
    """Serve until the block ends; the address to configure as ``enterprise.url``."""
    server, listener, url = _prepare(how)
    async with asyncio.TaskGroup() as group:
        group.create_task(server.serve(sockets=[listener]))
        try:
            while not server.started:
                await asyncio.sleep(0.005)
            yield url
        finally:
            server.should_exit = True


def serve(how: ShareServerOptions, ready: Callable[[str], None]) -> None:
    """Serve until interrupted; ``ready`` is called with the address once connections are taken."""
    server, listener, _ = _prepare(how, ready)
    server.run(sockets=[listener])


def _prepare(
    how: ShareServerOptions, ready: Callable[[str], None] | None = None
) -> tuple[uvicorn.Server, socket.socket, str]:
    import uvicorn

    from .server_app import share_app
    from .share_store import ShareStore

    public = address(how.public) if how.public else ""
    proxies = [network for given in how.proxies for network in _networks(given)]
    listener = _listen(how)
    port = listener.getsockname()[1]
    url = f"http://{_bracketed(how.host)}:{port}"
    try:
        shares = ShareStore(how.folder, how.limits)
    except BaseException:
        listener.close()
        raise
    app = share_app(shares, hosts=_hosts(how.host, port, public), public=public, rates=how.rates)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies,
        lifespan="off",
        ws="none",
        limit_concurrency=200,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=5,
    )

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Generator[None]:
            if ready is None:
                yield
                return
            with super().capture_signals():
                ready(public or url)  # the socket listens already: whoever connects now is served in a moment
                yield

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await super().shutdown(sockets)
            shares.close()

    return Server(config), listener, public or url


def _listen(how: ShareServerOptions) -> socket.socket:
    if not how.remote and not _is_loopback(how.host):
        raise UsageError(
            f"{how.host} can be reached by others, who could then store what they like here. If that is meant, say "
            "--allow-remote, and put a server with TLS in front of it"
        )
    family = socket.AF_INET6 if ":" in how.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((how.host, how.port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        reason = error.strerror or error
        option = "--host" if isinstance(error, socket.gaierror) else "--port"
        raise OpenseshError(f"cannot listen at {how.host} port {how.port}: {reason}; {option} takes another") from None
    return listener


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _hosts(host: str, port: int, public: str) -> frozenset[str]:
    """The names that requests may ask for."""
    names = {"127.0.0.1", "localhost", "[::1]", _bracketed(host).lower()}
    asked = {f"{name}:{port}" for name in names}
    if port == 80:
        asked |= names
    return frozenset(asked | _public_hosts(public))


def _public_hosts(public: str) -> set[str]:
    """The names of the public address: with its port, and without one that goes without saying."""
    if not public:
        return set()
    parts = urlsplit(public)
    name = _bracketed(parts.hostname or "")
    return {f"{name}:{parts.port}"} if parts.port else {name, f"{name}:{PORTS[parts.scheme]}"}


def _networks(given: str) -> list[str]:
    """An address or a network, as it is seen by a listener of either family."""
    try:
        network = ipaddress.ip_network(given)
    except ValueError as error:
        raise UsageError(f"a trusted proxy should be an address or a network: {error}") from None
    if network.version == 6:
        return [str(network)]
    return [str(network), f"::ffff:{network.network_address}/{96 + network.prefixlen}"]


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
