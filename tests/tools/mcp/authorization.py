"""An MCP server that requires a login, and its authorization server, on the loopback address."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit
from urllib.request import ProxyHandler, build_opener

from ...models.loopback import Exchange, serving

Answer = tuple[int, object] | tuple[int, object, dict[str, str]]


class Authorization:
    """One server with both roles."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: dict[str, Callable[[dict[str, str]], Answer]] = {}
        """Answers to paths, in place of its own."""
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.registrations: list[dict[str, Any]] = []
        self.token_requests: list[dict[str, str]] = []
        self.challenges: dict[str, dict[str, str]] = {}
        self.access_tokens: set[str] = set()
        self.refresh_tokens: set[str] = set()
        self.expires_in: int | None = 3600
        self.is_open = False
        """Whether the server requires no login."""
        self.metadata: dict[str, Any] = {}
        """Changes to the metadata of the authorization server."""
        self.resource: dict[str, Any] = {}
        """Changes to the metadata of the resource."""

    @property
    def mcp_url(self) -> str:
        return f"{self.url}/mcp"

    def paths(self) -> list[str]:
        return [path for _, path, _ in self.requests]

    async def __call__(self, exchange: Exchange) -> None:
        first, _, rest = exchange.head.partition("\r\n")
        method, target, _ = first.split(" ")
        headers = dict(line.split(": ", 1) for line in rest.splitlines() if ": " in line)
        path = urlsplit(target).path
        self.requests.append((method, path, headers))
        if path in self.answers:
            answer = self.answers[path](headers)
        else:
            answer = self._answer(path, target, exchange.body, headers)
        status, body, more = answer if len(answer) == 3 else (*answer, {})
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        lines = {"Content-Type": "application/json", "Content-Length": str(len(data)), **more}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        await exchange.send(f"HTTP/1.1 {status} Status\r\n{head}\r\n".encode(), data)

    def _answer(self, path: str, target: str, body: bytes, headers: dict[str, str]) -> Answer:
        answer: Answer = (404, None)
        match path:
            case "/mcp":
                answer = self._mcp(body, headers)
            case "/.well-known/oauth-protected-resource/mcp":
                answer = 200, {"resource": self.mcp_url, "authorization_servers": [self.url], **self.resource}
            case "/.well-known/oauth-authorization-server":
                answer = self._metadata()
            case "/register":
                self.registrations.append(json.loads(body))
                client = {"client_id": f"client-{len(self.registrations)}", "client_id_issued_at": 1_700_000_000}
                answer = 201, {**json.loads(body), **client}
            case "/authorize":
                query = dict(parse_qsl(urlsplit(target).query))
                code = f"code-{len(self.challenges) + 1}"
                self.challenges[code] = query
                reply = urlencode({"code": code, "state": query["state"]})
                answer = 302, None, {"Location": f"{query['redirect_uri']}?{reply}"}
            case "/token":
                answer = self._token({name: values[0] for name, values in parse_qs(body.decode()).items()})
            case _:
                pass
        return answer

    def _metadata(self) -> Answer:
        names = {"authorization": "authorize", "token": "token", "registration": "register"}
        document = {
            "issuer": self.url,
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_post"],
            **{f"{name}_endpoint": f"{self.url}/{path}" for name, path in names.items()},
            **self.metadata,
        }
        return 200, {name: value for name, value in document.items() if value is not None}

    def _token(self, form: dict[str, str]) -> Answer:
        self.token_requests.append(form)
        number = len(self.token_requests)
        if form["grant_type"] == "authorization_code":
            query = self.challenges.pop(form["code"], None)
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
            if query is None or query["code_challenge"] != challenge or query["redirect_uri"] != form["redirect_uri"]:
                return 400, {"error": "invalid_grant", "error_description": "the code is not valid"}
        elif form.get("refresh_token") not in self.refresh_tokens:
            return 400, {"error": "invalid_grant", "error_description": "the refresh token is not valid"}
        else:
            self.refresh_tokens.discard(form["refresh_token"])
        access, refresh = f"access-{number}", f"refresh-{number}"
        self.access_tokens.add(access)
        self.refresh_tokens.add(refresh)
        tokens = {"access_token": access, "token_type": "Bearer", "refresh_token": refresh, "scope": "read"}
        return 200, tokens | ({"expires_in": self.expires_in} if self.expires_in else {})

    def _mcp(self, body: bytes, headers: dict[str, str]) -> Answer:
        if not self.is_open and headers.get("authorization", "").removeprefix("bearer ") not in self.access_tokens:
            metadata = f"{self.url}/.well-known/oauth-protected-resource/mcp"
            return 401, {"error": "invalid_token"}, {"WWW-Authenticate": f'Bearer resource_metadata="{metadata}"'}
        if not body:
            return 405, None
        message = json.loads(body)
        match message["method"]:
            case "initialize":
                result: Any = {
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "guarded", "version": "1"},
                }
            case "tools/list":
                result = {"tools": [{"name": "whoami", "inputSchema": {"type": "object"}}]}
            case "tools/call":
                result = {"content": [{"type": "text", "text": headers["authorization"].removeprefix("bearer ")}]}
            case method if method.startswith("notifications/"):
                return 202, None
            case _:
                return 404, None
        return 200, {"jsonrpc": "2.0", "id": message["id"], "result": result}


def browse(url: str) -> tuple[int, str]:
    """Open an address as a browser whose user agrees: follow the redirect, and return the last answer."""
    try:
        with build_opener(ProxyHandler({})).open(url, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except OSError as error:
        read = getattr(error, "read", None)
        return getattr(error, "code", 0), read().decode() if read else str(error)


@asynccontextmanager
async def guarded() -> AsyncGenerator[Authorization]:
    authorization = Authorization()
    async with serving(authorization) as server:
        authorization.url = server.url
        yield authorization
