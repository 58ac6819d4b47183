from __future__ import annotations

import asyncio
import base64
import random
import time
from collections.abc import AsyncIterator, Callable

import httpx2
import msgspec
import pytest

from opensesh.errors import PermissionDeniedError, ToolFailedError
from opensesh.tools.html_to_text import to_markdown, to_text
from opensesh.tools.webfetch import WebFetchTool
from opensesh.tools.websearch import CodeSearchTool, WebSearchTool

from .bench import Bench

PAGE = """<!doctype html><html><head><title>T</title><style>p{}</style></head><body>
<script>var x = "<p>not this</p>";</script>
<h1>Title &amp; more</h1><p>Some <b>bold</b> and <em>soft</em> text,
  with a <a href="/there">link</a>.</p>
<ul><li>one</li><li>two<ol start="3"><li>deep</li><li>deeper</li></ol></li></ul>
<pre class="language-py"><code>def f():
    return 1
</code></pre>
<blockquote><p>Said.</p><p>Again.</p></blockquote>
<p>Use <code>x &lt; y</code><br>here</p><hr>
<table><tr><th>A</th><th>B</th></tr><tr><td>1</td><td>a|b</td></tr></table>
<img src="i.png" alt="pic"><noscript>no</noscript>
</body></html>"""

MARKDOWN = """# Title & more

Some **bold** and *soft* text, with a [link](https://x.test/there).

- one
- two
  3. deep
  4. deeper

```py
def f():
    return 1
```

> Said.
>
> Again.

Use `x < y`
here

---

| A | B |
| --- | --- |
| 1 | a\\|b |

![pic](https://x.test/i.png)"""


def web(answer: Callable[[httpx2.Request], httpx2.Response]) -> WebFetchTool:
    return WebFetchTool(transport=httpx2.MockTransport(answer))


def page(text: str, kind: str = "text/html; charset=utf-8") -> httpx2.Response:
    return httpx2.Response(200, content=text.encode(), headers={"content-type": kind})


def test_a_page_becomes_markdown() -> None:
    assert to_markdown(PAGE, "https://x.test/a/b").replace("/a/i.png", "/i.png") == MARKDOWN


def test_a_page_becomes_text() -> None:
    text = to_text(PAGE)
    assert text.startswith("Title & more\nSome bold and soft text, with a link.\none\ntwo\ndeep")
    assert "    return 1" in text
    assert "not this" not in text


@pytest.mark.parametrize(
    ("broken", "markdown", "text"),
    [
        ("<p>a<b>b", "a**b", "ab"),
        ("</div>x", "x", "x"),
        ("<a href=x>", "", ""),
        ("<ul><li>a", "- a", "a"),
        ("<td>x</td>", "x", "x"),
        (
            "<table><tr><th>a<th>b<tr><td>1<td>2</table>end",
            "| a | b |\n| --- | --- |\n| 1 | 2 |\n\nend",
            "a b\n 1 2\nend",
        ),
        ("<table><tr><td>a<td><table><tr><td>b", "| a |  |\n| --- | --- |\n\n| b |\n| --- |", "a\n b"),
        ("a < b", "a < b", "a < b"),
        ("x<script>y", "x", "x"),
        ("x<svg><p>y", "x", "x"),
        ("", "", ""),
    ],
)
def test_broken_pages_are_read_as_far_as_they_go(broken: str, markdown: str, text: str) -> None:
    assert (to_markdown(broken), to_text(broken)) == (markdown, text)


def odd_page(seed: int) -> tuple[str, list[str]]:
    """A page of tags in any order, and its words."""
    choose = random.Random(seed)
    tables, others = "table tr td th".split(), "tbody p ul ol li b a blockquote pre h1 div code br hr".split()
    pieces: list[str] = []
    words: list[str] = []
    for _ in range(choose.randint(1, 25)):
        tag = choose.choice(tables if choose.random() < 0.6 else others)
        match choose.randrange(4):
            case 0:
                pieces.append(f"</{tag}>")
            case 1:
                words.append(f"word{len(words)}.")
                pieces.append(words[-1])
            case _:
                pieces.append(f"<{tag} href=/x>")
    return "".join(pieces), words


def test_no_word_of_an_odd_page_is_lost() -> None:
    for seed in range(500):
        page, words = odd_page(seed)
        for text in (to_markdown(page), to_text(page)):
            assert [word for word in words if word not in text] == [], page


@pytest.mark.parametrize(
    ("page", "most"),
    [
        ("<ul><li>" * 5_000 + "x", 500_000),
        ("<blockquote>" * 5_000 + "x\n" * 500 + "</blockquote>" * 5_000, 100_000),
        ("<a href='/y'>" * 5_000 + "x" + "</a>" * 5_000, 100),
        ("<pre>" + " " * 200_000 + "x", 200_100),
        ("<svg>" + "<b>" * 20_000 + "</i>" * 20_000, 0),
        ("x" + "<!--" * 50_000, 1),
        ("x" + "<a <" * 30_000, 1),
    ],
)
def test_a_hostile_page_takes_neither_time_nor_memory(page: str, most: int) -> None:
    begun = time.process_time()
    assert len(to_markdown(page, "https://x.test/")) <= most
    to_text(page)
    assert time.process_time() - begun < 5


def test_the_end_of_a_page_is_read() -> None:
    assert to_text("a &lt b &copy") == "a < b ©"
    assert to_text("<p>a<!-- never closed <p>b") == "a"
    assert to_markdown("<blockquote>" * 30 + "deep") == "deep"


def test_an_address_or_number_that_means_nothing_costs_itself_alone() -> None:
    strange = '<p>See <a href="http://[x/">here</a>.</p><img src="//[y"><ol start="²"><li>one</ol>'
    assert to_markdown(strange, "https://x.test/") == "See [here](http://[x/).\n\n![](//[y)\n\n1. one"


async def test_a_page_is_fetched_as_markdown_unless_asked_otherwise(bench: Bench) -> None:
    tool = web(lambda request: page("<h1>Hi</h1><p>there</p>"))
    answer = await bench.run(tool, url="https://x.test/")
    assert answer.output == "# Hi\n\nthere"
    assert answer.title == "https://x.test/ (text/html; charset=utf-8)"
    assert bench.patterns("webfetch") == ["https://x.test/"]
    assert (await bench.run(tool, url="https://x.test/", format="text")).output == "Hi\nthere"
    assert (await bench.run(tool, url="https://x.test/", format="html")).output == "<h1>Hi</h1><p>there</p>"
    plain = web(lambda request: page("<b>as it is</b>", "text/plain"))
    assert (await bench.run(plain, url="https://x.test/")).output == "<b>as it is</b>"


async def test_the_charset_is_the_servers_or_the_pages(bench: Bench) -> None:
    latin = httpx2.Response(200, content=b"<p>caf\xe9</p>", headers={"content-type": "text/html; charset=latin-1"})
    assert (await bench.run(web(lambda request: latin), url="https://x.test/")).output == "café"
    meta = httpx2.Response(
        200, content=b'<meta charset="latin-1"><p>caf\xe9</p>', headers={"content-type": "text/html"}
    )
    assert (await bench.run(web(lambda request: meta), url="https://x.test/")).output == "café"


@pytest.mark.parametrize("charset", ["hex", "idna", "undefined", "no-such-thing"])
async def test_a_charset_that_is_none_is_passed_over(bench: Bench, charset: str) -> None:
    odd = httpx2.Response(
        200, content="<p>café</p>".encode(), headers={"content-type": f"text/html; charset={charset}"}
    )
    assert (await bench.run(web(lambda request: odd), url="https://x.test/")).output == "café"


async def test_an_image_is_attached(bench: Bench) -> None:
    image = httpx2.Response(200, content=b"\x89PNG", headers={"content-type": "image/png"})
    answer = await bench.run(web(lambda request: image), url="https://x.test/p.png")
    assert answer.attachments[0]["url"] == "data:image/png;base64," + base64.b64encode(b"\x89PNG").decode()


@pytest.mark.parametrize(
    "url", ["ftp://x", "file:///etc/passwd", "x.test", "javascript:alert(1)", "http://", "http://[x", "http://x:99999/"]
)
async def test_only_the_web_is_fetched(bench: Bench, url: str) -> None:
    with pytest.raises(ToolFailedError, match="cannot be fetched"):
        await bench.run(web(lambda request: page("x")), url=url)
    assert bench.asked == []


@pytest.mark.parametrize(
    "url",
    [
        "https://INNER.test/a?b#c",
        "HTTPS://inner.test/a?b#c",
        "https://inner.test:443/a?b#c",
        "https://me:word@inner.test./a?b#c",
    ],
)
async def test_a_rule_about_a_host_holds_however_it_is_spelled(bench: Bench, url: str) -> None:
    bench.refuse["webfetch"] = PermissionDeniedError("no")
    with pytest.raises(PermissionDeniedError):
        await bench.run(WebFetchTool(), url=url)
    assert bench.patterns("webfetch") == [url, "https://inner.test/a?b#c"]


async def test_a_plain_address_is_asked_for_once(bench: Bench) -> None:
    bench.refuse["webfetch"] = PermissionDeniedError("no")
    for url in ("http://inner.test:8080/a", "http://[::1]/a"):
        with pytest.raises(PermissionDeniedError):
            await bench.run(WebFetchTool(), url=url)
    assert bench.patterns("webfetch") == ["http://inner.test:8080/a", "http://[::1]/a"]


async def test_redirects_are_checked_like_the_first_address(bench: Bench) -> None:
    targets = {"/a": "/b", "/b": "https://y.test/c", "/file": "file:///etc/passwd", "/loop": "/loop"}
    targets |= {"/port": "http://y.test:99999/", "/bracket": "http://[y/"}

    def answer(request: httpx2.Request) -> httpx2.Response:
        target = targets.get(request.url.path)
        return httpx2.Response(302, headers={"location": target}) if target else page(f"at {request.url}", "text/plain")

    tool = web(answer)
    assert (await bench.run(tool, url="https://x.test/a")).output == "at https://y.test/c"
    assert bench.patterns("webfetch") == ["https://x.test/a", "https://x.test/b", "https://y.test/c"]
    for path in ("file", "port", "bracket"):
        with pytest.raises(ToolFailedError, match="cannot be fetched"):
            await bench.run(tool, url=f"https://x.test/{path}")
    with pytest.raises(ToolFailedError, match="without end"):
        await bench.run(tool, url="https://x.test/loop")
    bench.refuse["webfetch"] = PermissionDeniedError("no")
    with pytest.raises(PermissionDeniedError):
        await bench.run(tool, url="https://x.test/a")


async def test_a_gate_that_wants_a_browser_is_tried_once_more(bench: Bench) -> None:
    agents: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        agents.append(request.headers["user-agent"])
        if request.headers["user-agent"].startswith("Mozilla") or request.url.path == "/never":
            return httpx2.Response(403, headers={"cf-mitigated": "challenge"})
        return page("in", "text/plain")

    assert (await bench.run(web(answer), url="https://x.test/")).output == "in"
    assert len(agents) == 2
    with pytest.raises(ToolFailedError, match="requires a browser"):
        await bench.run(web(answer), url="https://x.test/never")


async def test_what_is_too_large_is_not_fetched(bench: Bench) -> None:
    declared = httpx2.Response(200, content=b"x" * (5 * 1024 * 1024 + 1))
    with pytest.raises(ToolFailedError, match="larger than 5 MiB"):
        await bench.run(web(lambda request: declared), url="https://x.test/")

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 1_000_000

    def undeclared(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=endless())

    with pytest.raises(ToolFailedError, match="larger than 5 MiB"):
        await bench.run(web(undeclared), url="https://x.test/")


@pytest.mark.parametrize(("status", "text"), [(404, "404 Not Found"), (500, "500 Internal Server Error")])
async def test_an_answer_of_no_is_a_failure(bench: Bench, status: int, text: str) -> None:
    with pytest.raises(ToolFailedError, match=text):
        await bench.run(web(lambda request: httpx2.Response(status)), url="https://x.test/")


async def test_a_broken_or_slow_server_is_a_failure(bench: Bench) -> None:
    def broken(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    async def slow(request: httpx2.Request) -> httpx2.Response:
        await asyncio.sleep(30)
        return page("")

    with pytest.raises(ToolFailedError, match="could not be fetched: refused"):
        await bench.run(web(broken), url="https://x.test/")
    with pytest.raises(ToolFailedError, match="did not answer within 1 s"):
        await bench.run(WebFetchTool(transport=httpx2.MockTransport(slow)), url="https://x.test/", timeout=0.1)


def exa(*bodies: str, status: int = 200) -> tuple[httpx2.MockTransport, list[dict[str, object]]]:
    seen: list[dict[str, object]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        assert str(request.url) == "https://mcp.exa.ai/mcp"
        seen.append(msgspec.json.decode(request.content))
        return httpx2.Response(status, content="".join(bodies).encode())

    return httpx2.MockTransport(answer), seen


FOUND = '{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"found it"}]}}'


@pytest.mark.parametrize("body", [f"event: message\ndata: {FOUND}\n\n", FOUND])
async def test_the_web_is_searched_by_way_of_exa(bench: Bench, body: str) -> None:
    transport, seen = exa(body)
    answer = await bench.run(WebSearchTool(transport=transport), query="python 3.15", numResults=3)
    assert answer.output == "found it"
    arguments = {"query": "python 3.15", "type": "auto", "numResults": 3, "livecrawl": "fallback"}
    assert seen[0]["method"] == "tools/call"
    assert seen[0]["params"] == {"name": "web_search_exa", "arguments": arguments}
    assert bench.patterns("websearch") == ["python 3.15"]


async def test_code_is_searched_by_way_of_exa(bench: Bench) -> None:
    transport, seen = exa(FOUND)
    answer = await bench.run(CodeSearchTool(transport=transport), query="asyncio TaskGroup")
    assert answer.output == "found it"
    expected = {"query": "asyncio TaskGroup", "tokensNum": 5000}
    assert seen[0]["params"] == {"name": "get_code_context_exa", "arguments": expected}
    with pytest.raises(ToolFailedError, match="tokensNum"):
        await bench.run(CodeSearchTool(transport=transport), query="x", tokensNum=10)


async def test_a_search_that_fails_or_finds_nothing_says_so(bench: Bench) -> None:
    for nothing in ('{"content":[]}', "null", "[]", '{"content":null}', '{"content":["x",{"text":1}]}'):
        transport, _ = exa(f'data: {{"jsonrpc":"2.0","id":1,"result":{nothing}}}\n\n')
        assert "No search results" in (await bench.run(WebSearchTool(transport=transport), query="x")).output
    transport, _ = exa('data: {"jsonrpc":"2.0","id":1,"error":{"message":"quota"}}\n\n')
    with pytest.raises(ToolFailedError, match="quota"):
        await bench.run(WebSearchTool(transport=transport), query="x")
    transport, _ = exa("busy", status=503)
    with pytest.raises(ToolFailedError, match="503: busy"):
        await bench.run(CodeSearchTool(transport=transport), query="x")
