"""OAuth for MCP servers: what the authorization server of a server is, and how it is asked for tokens.

Follows RFC 9728 and RFC 8414 (discovery), RFC 7591 (registration), RFC 7636 (PKCE), RFC 8707 (resource) and RFC 9207
(issuer). The server and its authorization server are not trusted: addresses are checked before they are used, answers
are limited in size and time, and redirects are not followed.

Everything here blocks, and is called in a thread.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast
from urllib.parse import quote, urlencode, urljoin, urlsplit

import httpx2
import msgspec
from msgspec import Struct

from ...errors import ToolFailedError
from ...models.transport import ssl_context
from ..web_addresses import at_address, host_of, is_loopback, is_private, lookup, port_of, proxy_of
from .saved_logins import SavedClient, SavedTokens

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...config.schema import McpOAuthConfig

T = TypeVar("T")

DEFAULT_CALLBACK_PORT = 19876
CALLBACK_PATH = "/mcp/oauth/callback"
NO_REGISTRATION = "Server does not support dynamic client registration. Please provide clientId in config."
"""OpenCode's message, which its clients show."""
_MAX_ANSWER_BYTES = 1 << 18
_ANSWER_SECONDS = 15.0
_MAX_ERROR_CHARACTERS = 300
_CHALLENGE = re.compile(r'\b(resource_metadata|scope)=(?:"([^"]*)"|([^\s,]+))', re.IGNORECASE)


class OAuthError(ToolFailedError):
    """A login to a server failed."""


class RejectedError(OAuthError):
    """The authorization server rejected a request. ``code`` is the error code of OAuth."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class Challenge(Struct, frozen=True):
    """What a server asks for in the header ``WWW-Authenticate``."""

    resource_metadata: str | None = None
    scope: str | None = None


class Endpoints(Struct, frozen=True, kw_only=True):
    """An authorization server, and what the server that needs it says about itself."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    registration_endpoint: str | None = None
    scopes_supported: tuple[str, ...] = ()
    response_types_supported: tuple[str, ...] = ("code",)
    code_challenge_methods_supported: tuple[str, ...] = ("S256",)
    token_endpoint_auth_methods_supported: tuple[str, ...] = ()
    resource: str | None = None
    """The identifier of the resource that tokens are for."""
    resource_scopes: tuple[str, ...] = ()


class _Resource(Struct, frozen=True, kw_only=True):
    resource: str
    authorization_servers: tuple[str, ...] = ()
    scopes_supported: tuple[str, ...] = ()


class _Registration(Struct, frozen=True, kw_only=True):
    client_id: str
    client_secret: str | None = None
    client_id_issued_at: float | None = None
    client_secret_expires_at: float | None = None


class _TokenAnswer(Struct, frozen=True, kw_only=True):
    access_token: str
    token_type: str = "Bearer"  # noqa: S105
    refresh_token: str | None = None
    expires_in: float | str | None = None
    scope: str | None = None


class _ErrorAnswer(Struct, frozen=True, kw_only=True):
    error: str
    error_description: str = ""


def redirect_uri(settings: McpOAuthConfig) -> str:
    """Return the address that the browser is sent to with the code."""
    port = settings.callback_port or DEFAULT_CALLBACK_PORT
    return settings.redirect_uri or f"http://127.0.0.1:{port}{CALLBACK_PATH}"


def parse_challenge(header: str | None) -> Challenge:
    """Return what a ``WWW-Authenticate`` header asks for."""
    return Challenge(**{name.lower(): quoted or plain for name, quoted, plain in _CHALLENGE.findall(header or "")})


def check_address(url: str, server_url: str) -> list[str]:
    """Return the IP addresses of the host of ``url``; none if it is unknown here. Raise :class:`OAuthError` unless
    ``url`` may be used to log in to the server: HTTPS, or a server on this machine.

    A server of the public Internet may not name an address of this machine or its network, and only a server that is
    configured as one of this machine may name this machine: what its name leads to can change.
    """
    try:
        parts = urlsplit(url)
        host, port = host_of(url), port_of(url)
    except ValueError:
        raise OAuthError(f"{_shown(url)} is not a valid address") from None
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
    if not host or parts.username is not None or not is_safe:
        raise OAuthError(f"{_shown(url)} is not used to log in: only https, and http on this machine, is safe")
    own_host = host_of(server_url)
    addresses = lookup(host, port)
    if host != own_host and any(map(is_private, addresses)):
        is_local = any(map(is_private, lookup(own_host, port_of(server_url))))
        if not is_local or (any(map(is_loopback, addresses)) and not is_loopback(own_host)):
            raise OAuthError(f"{_shown(url)} is in the network of this machine, and {_shown(server_url)} is not")
    return addresses


def discover(server_url: str, challenge: Challenge) -> Endpoints:
    """Find the authorization server of a server."""
    check_address(server_url, server_url)
    resource = _resource(server_url, challenge)
    named = resource.authorization_servers if resource else ()
    issuer = named[0] if named else _origin(server_url)
    check_address(issuer, server_url)
    path = urlsplit(issuer).path.rstrip("/")
    root = _origin(issuer)
    candidates = [
        f"{root}/.well-known/oauth-authorization-server{path}",
        f"{root}/.well-known/openid-configuration{path}",
    ]
    if path:
        candidates.append(f"{root}{path}/.well-known/openid-configuration")
    for url in candidates:
        endpoints = _metadata(url, Endpoints, server_url)
        if endpoints is not None:
            break
    else:  # the addresses that the first version of MCP's authorization prescribed
        endpoints = Endpoints(
            issuer=issuer,
            authorization_endpoint=f"{root}/authorize",
            token_endpoint=f"{root}/token",
            registration_endpoint=f"{root}/register",
        )
    if endpoints.issuer.rstrip("/") != issuer.rstrip("/"):
        raise OAuthError(f"the metadata of {_shown(issuer)} is that of another server: {_shown(endpoints.issuer)}")
    if "code" not in endpoints.response_types_supported or "S256" not in endpoints.code_challenge_methods_supported:
        raise OAuthError(f"{_shown(issuer)} does not support authorization codes with PKCE (S256)")
    for url in (endpoints.authorization_endpoint, endpoints.token_endpoint, endpoints.registration_endpoint):
        if url:
            check_address(url, server_url)
    return msgspec.structs.replace(
        endpoints,
        resource=resource.resource if resource else None,
        resource_scopes=resource.scopes_supported if resource else (),
    )


def _resource(server_url: str, challenge: Challenge) -> _Resource | None:
    well_known = f"{_origin(server_url)}/.well-known/oauth-protected-resource"
    candidates = [f"{well_known}{urlsplit(server_url).path.rstrip('/')}", well_known]
    for url in [challenge.resource_metadata] if challenge.resource_metadata else dict.fromkeys(candidates):
        resource = _metadata(url, _Resource, server_url)
        if resource is not None:
            if not _covers(resource.resource, server_url):
                raise OAuthError(f"{_shown(url)} is about another server: {_shown(resource.resource)}")
            return resource
    return None


def _covers(resource: str, server_url: str) -> bool:
    """Return whether a resource is the server or an address above it."""
    try:
        ours, above = (f"{urlsplit(url).path.rstrip('/')}/" for url in (server_url, resource))
        return _origin(server_url) == _origin(resource) and ours.startswith(above)
    except ValueError:
        return False


def register(endpoints: Endpoints, redirect: str, server_url: str) -> SavedClient:
    """Register this program as a client of the authorization server."""
    if endpoints.registration_endpoint is None:
        raise OAuthError(NO_REGISTRATION)
    metadata = {
        "redirect_uris": [redirect],
        "client_name": "opensesh",
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }
    answer = _post(endpoints.registration_endpoint, server_url, json=metadata)
    registration = _decoded(answer, _Registration, endpoints.registration_endpoint)
    return SavedClient(**msgspec.structs.asdict(registration))


class Grant(Struct, frozen=True, kw_only=True):
    """A login that the user has to confirm in a browser."""

    server_url: str
    endpoints: Endpoints
    client: SavedClient
    redirect: str
    state: str
    verifier: str
    scope: str | None

    @property
    def url(self) -> str:
        """The address to open in a browser."""
        challenge = base64.urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest()).decode().rstrip("=")
        query = {
            "response_type": "code",
            "client_id": self.client.client_id,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "redirect_uri": self.redirect,
            "state": self.state,
            "scope": self.scope,
            "prompt": "consent" if self.scope and "offline_access" in self.scope.split() else None,
            "resource": self.endpoints.resource,
        }
        separator = "&" if urlsplit(self.endpoints.authorization_endpoint).query else "?"
        encoded = urlencode({name: value for name, value in query.items() if value is not None})
        return f"{self.endpoints.authorization_endpoint}{separator}{encoded}"

    def redeem(self, code: str) -> SavedTokens:
        """Exchange the code that the browser brought for tokens."""
        form = {"code": code, "code_verifier": self.verifier, "redirect_uri": self.redirect}
        return _tokens(self.endpoints, self.client, self.server_url, grant_type="authorization_code", **form)

    def __repr__(self) -> str:
        return f"Grant({self.server_url!r}, ...)"


def begin(server_url: str, settings: McpOAuthConfig, endpoints: Endpoints, challenge: Challenge) -> Grant:
    """Prepare a login: with the client of the configuration, or as a client that is registered for it."""
    redirect = redirect_uri(settings)
    if settings.client_id:
        client = SavedClient(client_id=settings.client_id, client_secret=settings.client_secret)
    else:
        client = register(endpoints, redirect, server_url)
    scope = settings.scope or challenge.scope or " ".join(endpoints.resource_scopes) or None
    # Without this scope, servers of OpenID Connect issue no refresh token.
    if not settings.scope and scope and "offline_access" in endpoints.scopes_supported:
        scope = " ".join(dict.fromkeys([*scope.split(), "offline_access"]))
    return Grant(
        server_url=server_url,
        endpoints=endpoints,
        client=client,
        redirect=redirect,
        state=secrets.token_hex(32),
        verifier=secrets.token_urlsafe(32),
        scope=scope,
    )


def renew(endpoints: Endpoints, client: SavedClient, server_url: str, tokens: SavedTokens) -> SavedTokens:
    """Exchange a refresh token for new tokens."""
    form = {"grant_type": "refresh_token", "refresh_token": tokens.refresh_token or ""}
    renewed = _tokens(endpoints, client, server_url, **form)
    return msgspec.structs.replace(
        renewed,
        refresh_token=renewed.refresh_token or tokens.refresh_token,
        scope=renewed.scope or tokens.scope,
    )


def _tokens(endpoints: Endpoints, client: SavedClient, server_url: str, **form: str) -> SavedTokens:
    if endpoints.resource is not None:
        form["resource"] = endpoints.resource
    supported = endpoints.token_endpoint_auth_methods_supported
    headers: dict[str, str] = {}
    if client.client_secret and (not supported or "client_secret_basic" in supported):
        pair = f"{quote(client.client_id, safe='')}:{quote(client.client_secret, safe='')}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    else:
        form["client_id"] = client.client_id
        if client.client_secret:
            form["client_secret"] = client.client_secret
    answer = _post(endpoints.token_endpoint, server_url, data=form, headers=headers)
    tokens = _decoded(answer, _TokenAnswer, endpoints.token_endpoint)
    token = tokens.access_token
    is_header_value = bool(token) and token.isascii() and token.isprintable() and " " not in token
    if tokens.token_type.lower() != "bearer" or not is_header_value:
        raise OAuthError(f"{_shown(endpoints.token_endpoint)} issued a token that cannot be sent as a bearer token")
    try:
        lifetime = float(tokens.expires_in or 0)
    except ValueError:
        lifetime = 0.0
    return SavedTokens(
        access_token=tokens.access_token,
        refresh_token=tokens.refresh_token,
        expires_at=round(time.time() + lifetime, 3) if lifetime else None,
        scope=tokens.scope,
    )


# HTTP.


def _metadata(url: str, kind: type[T], server_url: str) -> T | None:
    """Return a metadata document; ``None`` if there is none at that address."""
    answer = _request("GET", url, server_url)
    if answer.moved_to and _origin(answer.moved_to) == _origin(url):  # such as one with a slash at its end
        answer = _request("GET", answer.moved_to, server_url)
    if 400 <= answer.status < 500:
        return None
    if answer.status != 200:
        raise OAuthError(f"{_shown(url)} answered with HTTP {answer.status}")
    return _decoded(answer.content, kind, url)


def _post(url: str, server_url: str, **options: Any) -> bytes:
    answer = _request("POST", url, server_url, **options)
    if answer.status in (200, 201):
        return answer.content
    try:
        error = msgspec.json.decode(answer.content, type=_ErrorAnswer)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise OAuthError(f"{_shown(url)} answered with HTTP {answer.status}") from None
    raise RejectedError(_plain(error.error_description or error.error), error.error)


def client_for(url: str, headers: Mapping[str, str], *, direct: bool = False) -> httpx2.Client:
    """Return a client for requests to one address, ``direct`` without a proxy. It follows no redirects."""
    # Reading the certificates takes longer than the request to a server on this machine.
    verify = ssl_context() if url.startswith("https:") else False
    return httpx2.Client(timeout=_ANSWER_SECONDS, verify=verify, headers=dict(headers), trust_env=not direct)


class _Answer(NamedTuple):
    status: int
    content: bytes
    moved_to: str | None


def _request(method: str, url: str, server_url: str, **options: Any) -> _Answer:
    addresses = check_address(url, server_url)
    # Looking up the name again would give a name server the chance to answer differently.
    targets = [] if proxy_of(url) else [at_address(url, address) for address in addresses]
    for target in targets[:-1]:
        with suppress(httpx2.ConnectError):
            return _send(method, url, target, options)
    try:
        return _send(method, url, targets[-1] if targets else None, options)
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        raise OAuthError(f"{_shown(url)} cannot be reached: {str(error) or type(error).__name__}") from None


def _send(
    method: str, url: str, target: tuple[str, dict[str, str], dict[str, str]] | None, options: Mapping[str, Any]
) -> _Answer:
    address, headers, extensions = target or (url, {}, {})
    options = {**options, "headers": {**options.get("headers", {}), **headers}, "extensions": extensions}
    deadline = time.monotonic() + _ANSWER_SECONDS
    content = b""
    with (
        client_for(url, {"accept": "application/json"}, direct=target is not None) as client,
        client.stream(method, address, **options) as response,
    ):
        for piece in response.iter_bytes():
            content += piece
            if len(content) > _MAX_ANSWER_BYTES or time.monotonic() > deadline:
                raise OAuthError(f"{_shown(url)} answered with too much, or too slowly")
        moved = urljoin(url, response.headers["location"]) if response.has_redirect_location else None
        return _Answer(response.status_code, content, moved)


def _decoded(content: bytes, kind: type[T], url: str) -> T:
    try:
        document = msgspec.json.decode(content)
        # Servers send null for what they leave out.
        fields = {name: value for name, value in cast("Mapping[str, Any]", document).items() if value is not None}
        return msgspec.convert(fields, kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, AttributeError, RecursionError):
        raise OAuthError(f"{_shown(url)} did not answer with the JSON that OAuth prescribes") from None


# Addresses.


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower()


def _shown(url: str) -> str:
    """Return an address for a message: without its query, which may contain secrets."""
    return _plain(url.partition("?")[0])


def _plain(text: str) -> str:
    """Return a text of a server for a message."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:_MAX_ERROR_CHARACTERS])
