"""Addresses of web pages as rules compare them, and the IP addresses that they lead to.

A rule about a host or a path must hold however the address is spelled: ``http://127.1/``, ``http://0x7f000001/`` and
``http://127。0。0。1/`` are all ``http://127.0.0.1/``, and ``/%73ecret`` is ``/secret``. A host name can also lead to
an address of this machine or its network, so names are resolved, and the connection goes to the address that was
checked: resolving again would give a name server the chance to answer differently.
"""

from __future__ import annotations

import asyncio
import posixpath
import socket
import unicodedata
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Resolve = Callable[[str, int], Awaitable[list[str]]]
    """Returns the IP addresses of a host. Raises :class:`OSError`."""

_NAT64 = IPv6Network("64:ff9b::/96")
_UNICAST = IPv6Network("2000::/3")
"""All addresses of the public Internet. Python calls others global, too: site-local ones, those of local NAT64."""
_PROTOCOLS = IPv4Network("192.0.0.0/24")
_AZURE = IPv4Address("168.63.129.16")
"""A public address behind which a virtual machine of Azure finds its settings, as others do at link-local ones."""
_DEFAULT_PORTS = {"http": 80, "https": 443}


def host_of(url: str) -> str:
    """Return the host as it is looked up: an IP address in its usual form, or a name in lower-case ASCII."""
    host = unicodedata.normalize("NFKC", unquote(urlsplit(url).hostname or "")).replace("。", ".").rstrip(".")
    try:
        return str(_unmapped(ip_address(host)))
    except ValueError:
        pass
    try:  # what the operating system takes for an IPv4 address: 127.1, 0x7f000001, 2130706433
        return socket.inet_ntoa(socket.inet_aton(host))
    except (OSError, ValueError):
        pass
    try:
        return host.encode("idna").decode().lower()
    except UnicodeError:
        return host.lower()


def port_of(url: str) -> int:
    """Return the port, by the scheme if the address has none."""
    parts = urlsplit(url)
    return parts.port or _DEFAULT_PORTS.get(parts.scheme, 443)


def with_host(url: str, host: str) -> str:
    """Return ``url`` in its normal form with another host, and without a user name and password."""
    parts = urlsplit(url)
    host = f"[{host}]" if ":" in host else host
    netloc = host if parts.port in (None, _DEFAULT_PORTS.get(parts.scheme)) else f"{host}:{parts.port}"
    return urlunsplit((parts.scheme, netloc, parts.path or "/", parts.query, parts.fragment))


def names(url: str, host: str | None = None) -> list[str]:
    """Return the spellings of ``url`` that rules are asked about: as it is, in its normal form, and with the path
    decoded and without ``..``. ``host`` replaces its host in all but the first."""
    plain = with_host(url, host or host_of(url))
    parts = urlsplit(plain)
    path = unquote(parts.path)
    path = posixpath.normpath(f"/{path.lstrip('/')}") + ("/" if path.endswith("/") and path.strip("/") else "")
    decoded = urlunsplit(parts._replace(path=path, query=unquote(parts.query), fragment=unquote(parts.fragment)))
    return list(dict.fromkeys(([] if host else [url]) + [plain, decoded]))


def is_loopback(host: str) -> bool:
    """Return whether a host, by its name or address, is this machine."""
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_private(address: str) -> bool:
    """Return whether an IP address is not one of the public Internet: this machine, its network, link-local (where
    clouds keep credentials), or reserved."""
    ip = _unmapped(ip_address(address.partition("%")[0]))
    if isinstance(ip, IPv4Address):
        return not ip.is_global or ip.is_multicast or ip in _PROTOCOLS or ip == _AZURE
    return not ip.is_global or ip not in _UNICAST


def at_address(url: str, address: str) -> tuple[str, dict[str, str], dict[str, str]]:
    """Return ``url`` with one of the addresses of its host in place of the name, and the headers and extensions of a
    request that give the server the name, for TLS too."""
    host = host_of(url)
    return with_host(url, address), {"host": urlsplit(with_host(url, host)).netloc}, {"sni_hostname": host}


def proxy_of(url: str) -> str:
    """Return the proxy that fetches ``url``, and that then looks up the name itself; empty without one."""
    from urllib.request import getproxies, proxy_bypass  # loads email and http.client, which nothing else here needs

    parts = urlsplit(url)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all") or ""
    if not proxy or proxy_bypass(parts.hostname or ""):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def lookup(host: str, port: int) -> list[str]:
    """Return the IP addresses of a host; none if it is unknown here. A proxy may know it."""
    try:
        return list(dict.fromkeys(str(e[4][0]) for e in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))
    except OSError:
        return []


async def resolve(host: str, port: int) -> list[str]:
    """Return the IP addresses of a host, in the order of preference."""
    addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in addresses))


async def literal_only(host: str, port: int) -> list[str]:
    """Return the host if it is an IP address, or the name of this machine; nothing else is looked up."""
    if host == "localhost" or host.endswith(".localhost"):
        return ["127.0.0.1"]
    try:
        return [str(ip_address(host))]
    except ValueError:
        return []


def _unmapped(ip: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address that an IPv6 address stands for, if any."""
    if isinstance(ip, IPv4Address):
        return ip
    if ip in _NAT64:
        return IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or ip
