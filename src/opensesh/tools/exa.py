"""Exa's search service, as an MCP server over HTTP: one call, one answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import ToolFailedError
from ..models.sse import SSESplitter
from ..records import as_list, as_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx2

ADDRESS = "https://mcp.exa.ai/mcp"


async def call(
    tool: str, arguments: Mapping[str, Any], *, seconds: float, transport: httpx2.AsyncBaseTransport | None = None
) -> str:
    """The text that ``tool`` answers, or an empty one if it found nothing."""
    import asyncio

    import httpx2

    request = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": tool, "arguments": dict(arguments)},
    }
    headers = {"accept": "application/json, text/event-stream"}
    try:
        async with asyncio.timeout(seconds), httpx2.AsyncClient(transport=transport, timeout=seconds) as client:
            response = await client.post(ADDRESS, json=request, headers=headers)
    except TimeoutError:
        raise ToolFailedError(f"The search took longer than {seconds:g} s") from None
    except httpx2.HTTPError as error:
        raise ToolFailedError(f"The search service could not be reached: {error or type(error).__name__}") from error
    if not response.is_success:
        raise ToolFailedError(f"The search service answered {response.status_code}: {response.text[:500]}")
    return _text(response.content)


def _object(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        return {}


def _text(body: bytes) -> str:
    splitter = SSESplitter()
    messages = [event.data for event in (*splitter.feed(body), *splitter.close())] or [body.decode("utf-8", "replace")]
    for message in messages:
        fields = _object(message)
        if "error" in fields:
            raise ToolFailedError(f"The search service reported an error: {fields['error']}")
        for content in as_list((as_object(fields.get("result")) or {}).get("content")) or []:
            text = (as_object(content) or {}).get("text")
            if isinstance(text, str):
                return text
    return ""
