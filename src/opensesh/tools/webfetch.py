"""Fetch a web page."""

from __future__ import annotations

import asyncio
import base64
import codecs
import re
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from ..errors import ToolFailedError
from . import web_addresses
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
_ENCODING = re.compile(r"utf|ascii|iso8859|cp\d|koi8|mac|gb|big5|euc|shift_jis|iso2022|johab|hz|tis", re.IGNORECASE)
"""Encodings of pages. Python has others: its punycode takes quadratic time."""


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

    def __init__(
        self, *, transport: httpx2.AsyncBaseTransport | None = None, resolve: web_addresses.Resolve | None = None
    ) -> None:
        """``transport`` replaces the network in tests, and ``resolve`` the name servers."""
        self._transport = transport
        self._resolve = resolve or (web_addresses.resolve if transport is None else web_addresses.literal_only)

    async def execute(self, args: WebFetchArguments, ctx: Context) -> ToolOutput:
        """Ask, and fetch. Every redirect needs permission, too."""
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
        asked: set[str] = set()
        for _ in range(_MAX_REQUESTS):
            headers = {"user-agent": agent, "accept": _ACCEPT[args.format], "accept-language": "en-US,en;q=0.9"}
            addresses = await self._ask(ctx, url, asked, args)
            transport = self._transport or _transport(url, addresses)
            async with httpx2.AsyncClient(transport=transport, timeout=seconds) as client:
                answer = await _get_from(client, url, addresses, headers, seconds)
            if isinstance(answer, _FetchedPage):
                return answer
            if answer is not None:
                url = answer
            elif agent == _AGENT:
                agent = _PLAIN_AGENT  # some sites that check browsers let an honest user agent pass
            else:
                break
        raise ToolFailedError(f"{args.url} cannot be reached: it requires a browser, or redirects without end")

    async def _ask(self, ctx: Context, url: str, asked: set[str], args: WebFetchArguments) -> list[str]:
        """Ask for an address unless it was ``asked`` for, and return the IP addresses that it may be fetched from.

        Nothing is looked up before the permission is given. An address that is not of the public Internet is asked
        for by its number, and as ``private_address``.
        """
        _check_address(url)
        metadata = {"url": url, "format": args.format, "timeout": args.timeout}

        async def ask(permission: str, patterns: list[str]) -> None:
            new = [pattern for pattern in patterns if f"{permission} {pattern}" not in asked]
            if new:
                exact = [web_addresses.with_host(url, host) for host in private]
                # "*" and "?" of an address would be wildcards of the pattern: /a?b would also be /a/b.
                always = ["*"] if permission == "webfetch" else [u for u in exact if "*" not in u and "?" not in u]
                await ctx.ask(permission, new, always=always, metadata=metadata)
                asked.update(f"{permission} {pattern}" for pattern in new)

        private: list[str] = []
        await ask("webfetch", web_addresses.names(url))
        host = web_addresses.host_of(url)
        if web_addresses.proxy_of(url):
            addresses = await web_addresses.literal_only(host, 0)
        else:
            try:
                addresses = await self._resolve(host, web_addresses.port_of(url))
            except OSError as error:
                raise ToolFailedError(f"{url} could not be fetched: {error.strerror or error}") from error
            except ValueError as error:
                raise ToolFailedError(f"{url} could not be fetched: its host cannot be looked up") from error
        private += [address for address in addresses if web_addresses.is_private(address)]
        for address in private:
            names = web_addresses.names(url, web_addresses.host_of(web_addresses.with_host(url, address)))
            await ask("webfetch", names)
            await ask("private_address", names)
        return addresses


async def _get_from(
    client: httpx2.AsyncClient, url: str, addresses: list[str], headers: dict[str, str], seconds: float
) -> _FetchedPage | str | None:
    """Fetch ``url`` from the first of its addresses that accepts a connection."""
    import httpx2

    for address in addresses[:-1]:
        try:
            return await _get(client, url, address, headers, seconds)
        except ToolFailedError as error:
            if not isinstance(error.__cause__, httpx2.ConnectError):
                raise
    return await _get(client, url, addresses[-1] if addresses else "", headers, seconds)


async def _get(
    client: httpx2.AsyncClient, url: str, address: str, headers: dict[str, str], seconds: float
) -> _FetchedPage | str | None:
    """Return the page, the target of a redirect, or ``None`` for a check that only browsers pass (Cloudflare).

    The connection goes to ``address``, if given. The server is sent the name of the host, and proves it by its
    certificate.
    """
    import httpx2

    target, own_headers, extensions = web_addresses.at_address(url, address) if address else (url, {}, {})
    try:
        stream = client.stream("GET", target, headers=headers | own_headers, extensions=extensions)
        async with asyncio.timeout(seconds), stream as response:
            if response.has_redirect_location:
                from . import html_to_text

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


def _transport(url: str, addresses: list[str]) -> httpx2.AsyncBaseTransport | None:
    """Return how ``url`` is fetched; ``None`` leaves it to httpx, which reads ``NO_PROXY`` in its own way.

    Where httpx would go around the proxy for a name that the proxy was to look up, the name could lead to this machine
    without a question.
    """
    import httpx2

    if addresses == [web_addresses.host_of(url)]:
        return None
    return httpx2.AsyncHTTPTransport(proxy=None if addresses else web_addresses.proxy_of(url))


def _render(page: _FetchedPage, output_format: Format) -> str:
    """Decode the body with the encoding that the server or the page declares, and convert HTML."""
    declared = re.search(rb"<meta[^>]+charset=[\"']?([\w-]+)", page.body[:2048], re.IGNORECASE)
    text = ""
    for name in (page.charset, declared[1].decode() if declared else None, "utf-8"):
        try:
            if name and _ENCODING.match(codecs.lookup(name).name):
                text = page.body.decode(name, "replace")
                break
        except (LookupError, ValueError):  # ValueError: a name that contains NUL
            continue
    is_html = "html" in page.content_type.lower()
    from . import html_to_text  # slow to import, and most sessions fetch no page

    match output_format:
        case "markdown" if is_html:
            return html_to_text.to_markdown(text, page.url)
        case "text" if is_html:
            return html_to_text.to_text(text)
        case _:
            return text
