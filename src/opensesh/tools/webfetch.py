"""Fetch a web page."""

from __future__ import annotations

import asyncio
import base64
import re
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit, urlunsplit

from msgspec import Meta, Struct

from ..errors import ToolFailedError
from . import html_to_text
from .arguments import Arguments
from .tool import BuiltinTool, Context, ToolOutput, attachment

if TYPE_CHECKING:
    import httpx2

Format = Literal["text", "markdown", "html"]

MAX_BYTES = 5 * 1024 * 1024
DEFAULT_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS = 30.0, 120.0
_MAX_REQUESTS = 10
_AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/143.0.0.0 Safari/537.36"
_PLAIN_AGENT = "opencode"
_ACCEPT: dict[Format, str] = {
    "markdown": "text/markdown, text/x-markdown;q=0.9, text/plain;q=0.8, text/html;q=0.7, */*;q=0.1",
    "text": "text/plain, text/markdown;q=0.9, text/html;q=0.8, */*;q=0.1",
    "html": "text/html, application/xhtml+xml;q=0.9, text/plain;q=0.8, */*;q=0.1",
}


class WebFetchArguments(Arguments, frozen=True):
    """The address and the format."""

    url: Annotated[str, Meta(description="The address, beginning with http:// or https://")]
    format: Annotated[Format, Meta(description="How to show it: markdown (default), text or html")] = "markdown"
    timeout: Annotated[float | None, Meta(description="Seconds to wait, at most 120; 30 if not given")] = None


class _FetchedPage(Struct, frozen=True, kw_only=True):
    """The response of a server."""

    url: str
    content_type: str
    body: bytes
    charset: str | None
    """As the server declares it."""


class WebFetchTool(BuiltinTool[WebFetchArguments]):
    """Sends a GET request. Pages become Markdown or text, images attachments."""

    id = "webfetch"
    parameters = WebFetchArguments

    def __init__(self, *, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        """``transport`` replaces the network in tests."""
        self._transport = transport

    async def execute(self, args: WebFetchArguments, ctx: Context) -> ToolOutput:
        """Ask, and fetch. A redirect to another host needs permission too."""
        _check_address(args.url)
        asked = {"url": args.url, "format": args.format, "timeout": args.timeout}
        await ctx.ask("webfetch", _names(args.url), always=["*"], metadata=asked)
        page = await self._fetch(args, ctx)
        title = f"{args.url} ({page.content_type})"
        mime = page.content_type.partition(";")[0].strip().lower()
        if mime.startswith("image/") and mime != "image/svg+xml":
            url = f"data:{mime};base64,{base64.b64encode(page.body).decode()}"
            return ToolOutput(title, "Image fetched successfully", {}, (attachment(ctx, mime, url),))
        return ToolOutput(title, await asyncio.to_thread(_render, page, args.format))

    async def _fetch(self, args: WebFetchArguments, ctx: Context) -> _FetchedPage:
        import httpx2  # takes long to import

        seconds = min(max(args.timeout or DEFAULT_TIMEOUT_SECONDS, 1.0), MAX_TIMEOUT_SECONDS)
        url, agent = args.url, _AGENT
        async with httpx2.AsyncClient(transport=self._transport, timeout=seconds) as client:
            for _ in range(_MAX_REQUESTS):
                headers = {"user-agent": agent, "accept": _ACCEPT[args.format], "accept-language": "en-US,en;q=0.9"}
                answer = await _get(client, url, headers, seconds)
                if isinstance(answer, _FetchedPage):
                    return answer
                if answer is not None:
                    _check_address(answer)
                    if _origin(answer) != _origin(url):
                        asked = {"url": answer, "format": args.format}
                        await ctx.ask("webfetch", _names(answer), always=["*"], metadata=asked)
                    url = answer
                elif agent == _AGENT:
                    agent = _PLAIN_AGENT  # some sites that check browsers let an honest user agent pass
                else:
                    break
        raise ToolFailedError(f"{args.url} cannot be reached: it requires a browser, or redirects without end")


async def _get(
    client: httpx2.AsyncClient, url: str, headers: dict[str, str], seconds: float
) -> _FetchedPage | str | None:
    """Return the page, the target of a redirect, or ``None`` for a check that only browsers pass (Cloudflare)."""
    import httpx2

    try:
        async with asyncio.timeout(seconds), client.stream("GET", url, headers=headers) as response:
            if response.has_redirect_location:
                return html_to_text.absolute(url, response.headers["location"])
            if response.status_code == 403 and response.headers.get("cf-mitigated") == "challenge":
                return None
            if not response.is_success:
                raise ToolFailedError(f"{url} answered {response.status_code} {response.reason_phrase}".rstrip())
            declared = response.headers.get("content-length", "")
            if declared.isdigit() and int(declared) > MAX_BYTES:
                raise _too_large(url)
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise _too_large(url)
            content_type = response.headers.get("content-type", "")
            return _FetchedPage(url=url, content_type=content_type, body=bytes(body), charset=response.charset_encoding)
    except (TimeoutError, httpx2.TimeoutException):
        raise ToolFailedError(f"{url} did not answer within {seconds:g} s") from None
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise ToolFailedError(f"{url} could not be fetched: {error or type(error).__name__}") from error


def _too_large(url: str) -> ToolFailedError:
    return ToolFailedError(f"{url} is larger than {MAX_BYTES // 1024 // 1024} MiB")


def _check_address(url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ToolFailedError(
            f"{url!r} cannot be fetched: the address must begin with http:// or https:// and name a host"
        )


def _names(url: str) -> list[str]:
    """Return ``url``, and its normal form if that differs: a rule about a host must match both."""
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    host = f"[{host}]" if ":" in host else host
    default_port = {"http": 80, "https": 443}.get(parts.scheme)
    netloc = host if parts.port in (None, default_port) else f"{host}:{parts.port}"
    plain = urlunsplit((parts.scheme, netloc, parts.path or "/", parts.query, parts.fragment))
    return list(dict.fromkeys((url, plain)))


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


def _render(page: _FetchedPage, output_format: Format) -> str:
    """Decode the body with the encoding that the server or the page declares, and convert HTML."""
    declared = re.search(rb"<meta[^>]+charset=[\"']?([\w-]+)", page.body[:2048], re.IGNORECASE)
    text = ""
    for name in (page.charset, declared[1].decode() if declared else None, "utf-8"):
        try:
            if name:
                text = page.body.decode(name, "replace")
                break
        except (LookupError, ValueError):  # unknown names; ValueError: some of Python's codecs cannot replace
            continue
    is_html = "html" in page.content_type.lower()
    match output_format:
        case "markdown" if is_html:
            return html_to_text.to_markdown(text, page.url)
        case "text" if is_html:
            return html_to_text.to_text(text)
        case _:
            return text
