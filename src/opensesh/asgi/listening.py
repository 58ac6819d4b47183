"""Sockets to listen on, and the names under which clients may reach them."""

from __future__ import annotations

import os
import socket

from ..errors import OpenseshError, UsageError

_FIRST_ACTIVATED_DESCRIPTOR = 3
_BACKLOG = 512


def bracketed(host: str) -> str:
    """Return an address as URLs contain it: IPv6 addresses in brackets."""
    return f"[{host}]" if ":" in host else host


def listen(host: str, port: int, *, host_option: str = "--host") -> socket.socket:
    """Return a socket that listens on an address; ``port`` 0 takes any free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol, asyncio switches off the delay of small packets for the connections.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError, UnicodeError) as error:
        listener.close()
        option = "--port" if isinstance(error, OSError) and not isinstance(error, socket.gaierror) else host_option
        reason = getattr(error, "strerror", None) or error
        raise OpenseshError(f"cannot listen on {host} port {port}: {reason}; choose another with {option}") from None
    return listener


def activated_socket() -> socket.socket | None:
    """Return the listening socket that systemd passed to this process, if it did (``sd_listen_fds(3)``)."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    count = os.environ.get("LISTEN_FDS", "")
    if count != "1":
        raise UsageError(f"systemd passed {count or 'no'} sockets; the unit must have exactly one ListenStream=")
    for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):
        os.environ.pop(name, None)  # they are for this process, not for the commands that it starts
    listener = socket.socket(fileno=_FIRST_ACTIVATED_DESCRIPTOR)
    listener.setblocking(False)
    os.set_inheritable(listener.fileno(), False)
    return listener


def accepted_hosts(host: str, port: int) -> frozenset[str]:
    """Return the values of the Host header that name a listener on ``host`` and ``port``, loopback names included."""
    names = {"127.0.0.1", "localhost", "[::1]", bracketed(host).lower()}
    return frozenset({f"{name}:{port}" for name in names} | (names if port == 80 else set[str]()))
