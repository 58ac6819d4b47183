from __future__ import annotations

import gzip
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

from opensesh.server.web.pages import imported_scripts, static_files

from ..server.serving import serving
from .test_entry import bare, redeem, sign_in, ticket


async def test_a_list_that_has_not_changed_is_not_rendered_again(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        await client.create(title="One")
        browser = await sign_in(client)
        first = await browser.request("GET", "/ui/?fragment=rows")
        while "One" not in first.text:  # the first table is being made
            first = await browser.request("GET", "/ui/?fragment=rows")
        unchanged = first.headers["etag"]
        again = await browser.request("GET", "/ui/?fragment=rows", if_none_match=unchanged)
        assert (again.status_code, again.content) == (304, b"")
        filtered = await browser.request("GET", "/ui/?q=one&fragment=rows", if_none_match=unchanged)
        assert filtered.status_code == 200
        await client.create(title="Two")
        changed = await browser.request("GET", "/ui/?fragment=rows", if_none_match=unchanged)
        assert changed.status_code == 200
        assert "Two" in changed.text


async def test_pages_scripts_and_styles_are_compressed_if_the_browser_reads_that(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        browser = await sign_in(client)
        page = await browser.request("GET", "/ui/keys", accept_encoding="identity")
        assert "content-encoding" not in page.headers
        compressed = await browser.request("GET", "/ui/keys", accept_encoding="gzip, br")
        assert compressed.headers["content-encoding"] == "gzip"
        assert "accept-encoding" in compressed.headers.get_list("vary")
        assert int(compressed.headers["content-length"]) < len(page.content) / 2
        assert compressed.text == page.text
        address = re.findall(r'"(/ui/static/\w+/shell.js)"', page.text)[0]
        script = await bare(client).get(address, headers={"accept-encoding": "gzip"})
        assert script.headers["content-encoding"] == "gzip"
        assert script.content == static_files()["shell.js"].content
        plain = await bare(client).get(address, headers={"accept-encoding": "identity"})
        assert plain.content == script.content


async def test_the_answer_with_the_key_is_not_compressed(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        response = await redeem(client, await ticket(client), **{"accept-encoding": "gzip"})
        assert response.json()["key"]
        assert "content-encoding" not in response.headers


async def test_a_page_names_every_script_that_it_will_import(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        browser = await sign_in(client)
        session_id = await client.create(title="One")
        page = await browser.request("GET", f"/ui/session/{session_id}")
        named = set(re.findall(r'"/ui/static/\w+/(\w+\.js)"', page.text))
        assert {"session_live.js", "log.js", "dom.js"} <= named
        for name in named:
            assert set(imported_scripts(name)) <= named


async def test_a_browser_reads_at_most_four_event_streams(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client, AsyncExitStack() as stack:
        browser = await sign_in(client)
        http = bare(client)
        chunks: list[AsyncIterator[bytes]] = []  # one that is not kept closes its connection

        async def status(streams: AsyncExitStack) -> int:
            request = http.stream("GET", "/history/events?as=html", headers=browser.headers)
            response = await streams.enter_async_context(request)
            if response.status_code == 200:
                chunks.append(response.aiter_bytes())
                await anext(chunks[-1])
            return response.status_code

        kept = await stack.enter_async_context(AsyncExitStack())
        closed = await stack.enter_async_context(AsyncExitStack())
        assert [await status(streams) for streams in (kept, kept, kept, closed, kept)] == [200, 200, 200, 200, 429]
        other = await sign_in(client)
        assert (await other.request("GET", "/ui/keys")).status_code == 200
        await closed.aclose()
        assert await status(kept) == 200  # the server waits until it notices the closed connection


def test_all_scripts_and_styles_together_are_small_on_the_wire() -> None:
    sizes = {".js": 0, ".css": 0}
    for name, file in static_files().items():
        if (suffix := name[name.rindex(".") :]) in sizes:
            assert gzip.decompress(file.compressed) == file.content
            sizes[suffix] += len(file.compressed)
    assert sizes[".js"] < 60_000
    assert sizes[".css"] < 30_000
