from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncGenerator
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx2
import pytest

from opensesh.errors import OpenseshError, StoreError, UsageError
from opensesh.sharing.items import ShareItem
from opensesh.sharing.share_server import RateLimit, RateLimits, ShareServerOptions, share_app, share_server
from opensesh.sharing.share_store import HTTPError, ShareLimits, ShareStore

from .faulty_server import FaultyServer, Json, run_faulty_server

SCRIPT = "<script>alert(document.domain)</script>"
HOSTILE = (
    SCRIPT,
    '"><img src=x onerror=alert(1)>',
    "javascript:alert(1)",
    "[click](javascript:alert(1)) [x](data:text/html,<script>alert(1)</script>)",
    "</title></style></script><svg onload=alert(1)>",
    "```html\n</pre><script>alert(1)</script>\n```",
    "{{ 7 * 7 }} {% raw %}",
    "\ud800 lone",
)
DEEP = b"[" * 990 + b"]" * 990
"""What can be read, and not be written again."""


@pytest.fixture
async def client(faulty_server: FaultyServer) -> AsyncGenerator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=faulty_server.url) as result:
        yield result


async def created(client: httpx2.AsyncClient, session: str = "ses_1") -> Json:
    answer = await client.post("/api/share", json={"sessionID": session})
    assert answer.status_code == 200
    return answer.json()


def item(kind: str, **data: Any) -> Json:
    return {"type": kind, "data": data}


async def put(client: httpx2.AsyncClient, share: Json, *items: Json) -> httpx2.Response:
    return await client.post(f"/api/share/{share['id']}/sync", json={"secret": share["secret"], "data": list(items)})


async def test_the_newest_item_of_a_key_counts_and_the_order_stays(client: httpx2.AsyncClient) -> None:
    share = await created(client)
    first: list[Json] = [
        item("session", id="ses_1", title="one"),
        item("message", id="msg_1", role="user"),
        item("part", id="prt_1", messageID="msg_1", text="a"),
        {"type": "session_diff", "data": []},
        {"type": "model", "data": [{"id": "m"}]},
    ]
    assert (await put(client, share, *first)).json() == {}
    assert (await put(client, share, item("session", id="ses_1", title="two", cost=0.25, z=[1.5, None]))).is_success
    result = (await client.get(f"/api/share/{share['id']}/data")).json()
    assert [entry["type"] for entry in result] == ["session", "message", "part", "session_diff", "model"]
    assert result[0]["data"] == {"id": "ses_1", "title": "two", "cost": 0.25, "z": [1.5, None]}
    assert result[1:] == first[1:]


async def test_shares_outlive_the_server_and_secrets_are_not_kept(tmp_path: Path) -> None:
    async with run_faulty_server(tmp_path / "data") as faulty_server:
        async with httpx2.AsyncClient(base_url=faulty_server.url) as client:
            share = await created(client)
            await put(client, share, item("session", id="ses_1", title="stays"))
        await faulty_server.stop()
        kept = b"".join(path.read_bytes() for path in (tmp_path / "data").iterdir())
        assert b"stays" in kept
        assert share["secret"].encode() not in kept
        await faulty_server.start()
        async with httpx2.AsyncClient(base_url=faulty_server.url) as client:
            result = await client.get(f"/api/share/{share['id']}/data")
            assert result.json() == [item("session", id="ses_1", title="stays")]
            assert (await put(client, share, item("session", id="ses_1", title="still mine"))).is_success


async def test_what_is_taken_down_is_gone_from_the_disk(client: httpx2.AsyncClient, tmp_path: Path) -> None:
    share, other = await created(client), await created(client)
    for entry in (share, other):
        await put(client, entry, item("session", id="ses_1", title=f"mark-of-{entry['id']}"))
    answer = await client.request("DELETE", f"/api/share/{share['id']}", json={"secret": share["secret"]})
    assert answer.status_code == 200
    for path in (f"/api/share/{share['id']}/data", f"/share/{share['id']}"):
        assert (await client.get(path)).status_code == 404
    assert (await put(client, share, item("session", id="ses_1"))).status_code == 404
    kept = b"".join(path.read_bytes() for path in (tmp_path / "shares").iterdir())
    assert f"mark-of-{share['id']}".encode() not in kept
    assert f"mark-of-{other['id']}".encode() in kept


async def test_only_the_secret_changes_a_share(client: httpx2.AsyncClient) -> None:
    share, other = await created(client), await created(client)
    assert share["id"] != other["id"]
    for secret in (other["secret"], "", share["secret"][:-1], None, 7, ["x"], "\ud800"):
        body = json.dumps({"secret": secret, "data": [item("session", id="x")]}).encode()
        assert (await client.post(f"/api/share/{share['id']}/sync", content=body)).status_code == 403
        assert (await client.request("DELETE", f"/api/share/{share['id']}", content=body)).status_code == 403
    assert (await client.get(f"/api/share/{share['id']}/data")).json() == []


@pytest.mark.parametrize("name", ["%2e%2e", "..%2f..%2fetc", "a", "x" * 300, "shares.db", "%00", "a b c d e f g h"])
async def test_odd_names_are_no_shares(client: httpx2.AsyncClient, name: str) -> None:
    for path in (f"/share/{name}", f"/api/share/{name}/data"):
        assert (await client.get(path)).status_code in (404, 405)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b"{", 400),
        (b"[" * 4_000, 400),
        (b'{"sessionID": 5}', 400),
        (b'{"sessionID": "../../x"}', 400),
        (b'{"sessionID": "' + b"x" * 5000 + b'"}', 413),
    ],
)
async def test_odd_requests_are_refused_in_a_line(client: httpx2.AsyncClient, body: bytes, status: int) -> None:
    answer = await client.post("/api/share", content=body)
    assert answer.status_code == status
    assert set(answer.json()) == {"error"}


async def test_odd_items_are_passed_over(client: httpx2.AsyncClient) -> None:
    share = await created(client)
    odd: list[Any] = [None, 1, "x", {}, {"type": "session"}, {"type": [], "data": 1}]
    odd += [item("session", id=5), item("part", id="prt_1"), item("later", id="x")]
    odd += [item("message", id="x" * 500), {"type": "model", "data": {}}, item("message", id="\ud800")]
    body = json.dumps({"secret": share["secret"], "data": [*odd, item("message", id="msg_1")]}).encode()
    assert (await client.post(f"/api/share/{share['id']}/sync", content=body)).status_code == 200
    assert (await client.get(f"/api/share/{share['id']}/data")).json() == [item("message", id="msg_1")]
    deep = b'{"secret": "%s", "data": [{"type": "model", "data": %s}]}' % (share["secret"].encode(), DEEP)
    for body in (json.dumps({"secret": share["secret"], "data": {}}).encode(), deep):
        assert (await client.post(f"/api/share/{share['id']}/sync", content=body)).status_code == 400


async def test_other_names_and_other_sites_are_turned_away(
    client: httpx2.AsyncClient, faulty_server: FaultyServer
) -> None:
    for host in ("evil.example", f"evil.example:{faulty_server.port}", "127.0.0.1:1", ""):
        assert (await client.get("/", headers={"host": host})).status_code == 421
    for origin in ("https://evil.example", "null", "http://[", f"http://127.0.0.1.evil.example:{faulty_server.port}"):
        answer = await client.post("/api/share", json={"sessionID": "ses_1"}, headers={"origin": origin})
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers
    own = await client.post("/api/share", json={"sessionID": "ses_1"}, headers={"origin": faulty_server.url})
    assert own.status_code == 200


async def test_a_share_grows_to_its_limit_and_no_further(tmp_path: Path) -> None:
    limits = ShareLimits(body=50_000, share=30_000, items=5)
    async with (
        run_faulty_server(tmp_path / "s", limits=limits) as faulty_server,
        httpx2.AsyncClient(base_url=faulty_server.url) as client,
    ):
        share = await created(client)
        assert (await put(client, share, item("session", id="a", text="x" * 20_000))).is_success
        for too_much in ("x" * 20_000, "x" * 60_000):
            assert (await put(client, share, item("message", id="m", text=too_much))).status_code == 413
        many = [item("message", id=f"m{number}") for number in range(6)]
        assert (await put(client, share, *many)).status_code == 413
        assert len((await client.get(f"/api/share/{share['id']}/data")).json()) == 1

        async def drip() -> AsyncGenerator[bytes]:
            for _ in range(100):
                yield b"x" * 1000

        assert (await client.post("/api/share", content=drip())).status_code == 413


async def test_a_full_server_takes_no_more_but_lets_go(tmp_path: Path) -> None:
    async with (
        run_faulty_server(tmp_path / "s", limits=ShareLimits(total=100_000)) as faulty_server,
        httpx2.AsyncClient(base_url=faulty_server.url) as client,
    ):
        share = await created(client)
        await put(client, share, item("session", id="a", text="x" * 120_000))
        assert (await client.post("/api/share", json={"sessionID": "ses_2"})).status_code == 507
        assert (await put(client, share, item("session", id="a"))).status_code == 507
        answer = await client.request("DELETE", f"/api/share/{share['id']}", json={"secret": share["secret"]})
        assert answer.is_success
        await created(client)


def test_a_full_disk_is_reported_and_keeps_what_was_stored(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with closing(ShareStore(str(tmp_path))) as shares:
        name, secret = shares.create("ses_1")
        shares.put(name, secret, [ShareItem("session", {"id": "a"})])
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
        try:
            with pytest.raises(HTTPError, match="this server cannot store it: disk"):
                shares.put(name, secret, [ShareItem("session", {"id": "a", "text": "x" * 500_000})])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert shares.items(name) == [ShareItem("session", {"id": "a"})]
        shares.put(name, secret, [ShareItem("session", {"id": "b"})])


async def test_a_client_that_leaves_in_the_middle_is_not_a_failure(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with share_server(ShareServerOptions(str(tmp_path), port=0)) as url:
        path = url.removeprefix("http://")
        for _ in range(2):
            _, writer = await asyncio.open_connection(*path.split(":"))
            writer.write(f"POST /api/share HTTP/1.1\r\nhost: {path}\r\ncontent-length: 99\r\n\r\n{{".encode())
            await writer.drain()
            await asyncio.sleep(0.05)
            writer.close()
            await writer.wait_closed()
        async with httpx2.AsyncClient() as client:
            assert (await client.get(url)).is_success
    assert capfd.readouterr().err == ""


async def test_who_asks_too_often_has_to_wait(tmp_path: Path) -> None:
    rates = RateLimits({"create": RateLimit(2, 0.01), "sync": RateLimit(100, 10), "read": RateLimit(100, 10)})
    async with (
        run_faulty_server(tmp_path / "s", rates=rates) as faulty_server,
        httpx2.AsyncClient(base_url=faulty_server.url) as client,
    ):
        answers = [await client.post("/api/share", json={"sessionID": "ses_1"}) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert [answer.headers.get("retry-after") for answer in answers] == [None, None, "100"]


def test_a_rate_recovers_and_counts_each_address_by_itself() -> None:
    now = [0.0]
    rates = RateLimits({"read": RateLimit(2, 0.5)}, clock=lambda: now[0])
    assert [rates.wait_seconds("read", "a") for _ in range(3)] == [0, 0, 2]
    assert rates.wait_seconds("read", "b") == 0
    now[0] = 2.0
    assert [rates.wait_seconds("read", "a") for _ in range(2)] == [0, 2]
    for number in range(20_000):
        rates.wait_seconds("read", str(number))
    assert rates.wait_seconds("read", "a") == 0


# -- the page ----------------------------------------------------------------------------------------------------------


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)


async def test_nothing_in_a_session_becomes_part_of_the_page(client: httpx2.AsyncClient) -> None:
    share = await created(client)
    items: list[Json] = [
        item("session", id=SCRIPT, title=SCRIPT, directory=HOSTILE[1], time={"created": 1, "updated": 2})
    ]
    for number, words in enumerate(HOSTILE):
        name = f"msg_{number}"
        role = "user" if number % 2 else "assistant"
        info: Json = {"role": role, "time": {"created": number}, "agent": words, "modelID": words, "providerID": words}
        items.append(item("message", id=name, **info, error={"name": words, "data": {"message": words}}))
        state = {"status": words, "input": {"command": words}, "output": words, "error": words}
        state["metadata"] = {"diff": f"+{words}"}
        parts = [
            {"type": "text", "text": words},
            {"type": "reasoning", "text": words},
            {"type": "tool", "tool": words, "state": state},
            {"type": "file", "mime": words, "filename": words, "url": words},
            {"type": "file", "mime": "image/svg+xml", "filename": words, "url": "data:image/svg+xml," + words},
            {"type": "subtask", "agent": words, "description": words},
            {"type": "retry", "attempt": words},
        ]
        items += [item("part", id=f"prt_{number}_{path}", messageID=name, **part) for path, part in enumerate(parts)]
    body = json.dumps({"secret": share["secret"], "data": items}).encode()
    assert (await client.post(f"/api/share/{share['id']}/sync", content=body)).is_success
    answer = await client.get(f"/share/{share['id']}")
    assert answer.status_code == 200
    page = Tags()
    page.feed(answer.text)
    assert [tag for tag, _ in page.tags if tag in ("script", "svg", "iframe", "object", "form", "base", "img")] == [
        "script"
    ]
    assert not [name for _, result in page.tags for name in result if name.startswith("on")]
    links = [result.get("href") or "" for tag, result in page.tags if tag == "a"]
    assert all(link.startswith(("http://", "https://", "mailto:", "#")) for link in links)
    assert sum("alert(document.domain)" in text for text in page.text) > 5
    assert "49" not in "".join(text for text in page.text if "7 *" in text)
    rule = answer.headers["content-security-policy"]
    assert "default-src 'none'" in rule
    assert "script-src 'sha256-" in rule
    assert "frame-ancestors 'none'" in rule
    assert "unsafe-inline" not in rule.partition("script-src")[2].partition(";")[0]


async def test_odd_records_do_not_break_the_page(client: httpx2.AsyncClient) -> None:
    share = await created(client)
    odd: list[Any] = [None, 5, "x", [], {}, [{}], {"x": 1}, 1e308, -1, True]
    items = [item("session", id="ses_1", title=odd[number % 10], time=odd[number]) for number in range(10)][-1:]
    for number, value in enumerate(odd):
        items.append(item("message", id=f"m{number}", time=value, role=value, error=value, cost=value, tokens=value))
        items.append(item("message", id=f"n{number}", time={"created": 5}, role="assistant", error=value, cost=value))
        items.append(item("part", id=f"p{number}", messageID=f"n{number}", type="tool", state=value, tool=value))
        items.append(item("part", id=f"q{number}", messageID=f"n{number}", type="text", text=value))
        items.append(item("part", id=f"r{number}", messageID=f"n{number}", type=value))
        state = {"status": "completed", "input": value, "metadata": {"diff": value, "sessionId": str(value)}}
        items.append(item("part", id=f"s{number}", messageID=f"n{number}", type="tool", state=state))
    assert (await put(client, share, *items)).is_success
    assert (await client.get(f"/share/{share['id']}")).status_code == 200


async def test_every_answer_carries_the_headers_that_keep_it_to_itself(client: httpx2.AsyncClient) -> None:
    share = await created(client)
    for path in ("/", f"/share/{share['id']}", f"/api/share/{share['id']}/data", "/nowhere", "/share/unknown-name"):
        answer = await client.get(path)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "noindex" in answer.headers["x-robots-tag"]
    empty = await client.get(f"/share/{share['id']}")
    assert "on its way" in empty.text
    assert share["id"] not in (await client.get("/")).text


# -- serving -----------------------------------------------------------------------------------------------------------


async def test_a_server_serves_for_as_long_as_its_block(tmp_path: Path) -> None:
    async with share_server(ShareServerOptions(str(tmp_path / "s"), port=0)) as url:
        assert url.startswith("http://127.0.0.1:")
        async with httpx2.AsyncClient() as client:
            answer = await client.post(f"{url}/api/share", json={"sessionID": "ses_1"})
            assert answer.json()["url"].startswith(f"{url}/share/")
    async with httpx2.AsyncClient() as client:
        with pytest.raises(httpx2.ConnectError):
            await client.get(url)
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "s" / "shares.db").stat().st_mode) == 0o600


async def test_a_file_that_is_not_a_database_is_named_and_left(tmp_path: Path) -> None:
    (tmp_path / "shares.db").write_text("what someone put here, and which is longer than the header of a database is")
    with pytest.raises(StoreError, match=r"shares\.db: file is not a database"):
        async with share_server(ShareServerOptions(str(tmp_path), port=0)):
            pass
    assert "someone put here" in (tmp_path / "shares.db").read_text()


async def test_links_begin_with_the_public_address(tmp_path: Path) -> None:
    with closing(ShareStore(str(tmp_path))) as shares:
        app = share_app(shares, hosts=frozenset({"share.example.org"}), public_url="https://share.example.org")
        way = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=way, base_url="http://share.example.org") as client:
            answer = await client.post("/api/share", json={"sessionID": "ses_1"})
    assert answer.json()["url"].startswith("https://share.example.org/share/")
    async with share_server(ShareServerOptions(str(tmp_path), port=0, public_url="https://share.example.org/")) as url:
        assert url == "https://share.example.org"


@pytest.mark.parametrize(
    ("public", "known"),
    [
        ("https://share.example.org:443", "https://share.example.org"),
        ("https://share.example.org", "https://share.example.org"),
        ("http://share.example.org:80/", "http://share.example.org"),
        ("https://[2001:db8::443]:443", "https://[2001:db8::443]"),
    ],
)
async def test_a_port_that_goes_without_saying_makes_no_other_address(tmp_path: Path, public: str, known: str) -> None:
    path = known.partition("://")[2]
    usual = 443 if known.startswith("https:") else 80
    async with share_server(ShareServerOptions(str(tmp_path), port=0)) as spare:
        port = int(spare.rpartition(":")[2])
    async with (
        share_server(ShareServerOptions(str(tmp_path), port=port, public_url=public)) as url,
        httpx2.AsyncClient() as client,
    ):
        assert url == known
        for host in (path, f"{path}:{usual}"):
            for origin in (known, f"{known}:{usual}"):
                headers = {"host": host, "origin": origin}
                answer = await client.post(f"{spare}/api/share", json={"sessionID": "ses_1"}, headers=headers)
                assert answer.json()["url"].startswith(f"{known}/share/")
        other = await client.get(spare, headers={"host": f"{path}:8443"})
        assert other.status_code == 421


async def create_for(url: str, *text: str) -> list[int]:
    result: list[int] = []
    async with httpx2.AsyncClient() as client:
        for entry in text:
            headers = {"x-forwarded-for": entry} if entry else {}
            answer = await client.post(f"{url}/api/share", json={"sessionID": "ses_1"}, headers=headers)
            result.append(answer.status_code)
    return result


@pytest.mark.parametrize("proxy", ["127.0.0.1", "127.0.0.0/8"])
async def test_who_comes_by_a_trusted_proxy_is_counted_by_its_own_address(tmp_path: Path, proxy: str) -> None:
    rates = RateLimits({"create": RateLimit(1, 0.01), "sync": RateLimit(1, 1), "read": RateLimit(1, 1)})
    async with share_server(ShareServerOptions(str(tmp_path), port=0, proxies=(proxy,), rates=rates)) as url:
        assert await create_for(url, "192.0.2.1", "192.0.2.2", "192.0.2.1") == [200, 200, 429]
        made_up = "198.51.100.7, 192.0.2.1"
        assert await create_for(url, made_up, "", "") == [429, 200, 429], "only what the proxy itself added counts"


@pytest.mark.parametrize("proxies", [(), ("192.0.2.9",)])
async def test_only_trusted_proxies_may_set_the_client_address(tmp_path: Path, proxies: tuple[str, ...]) -> None:
    rates = RateLimits({"create": RateLimit(1, 0.01), "sync": RateLimit(1, 1), "read": RateLimit(1, 1)})
    async with share_server(ShareServerOptions(str(tmp_path), port=0, proxies=proxies, rates=rates)) as url:
        assert await create_for(url, "192.0.2.1", "192.0.2.2") == [200, 429]


async def test_a_trusted_proxy_is_an_address_and_never_everybody(tmp_path: Path) -> None:
    for arguments in ("*", "proxy.example.org", "127.0.0.1:80", ""):
        with pytest.raises(UsageError, match="address or a network"):
            async with share_server(ShareServerOptions(str(tmp_path), port=0, proxies=(arguments,))):
                pass


async def test_remote_access_needs_an_option(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "share.example.org"):
        with pytest.raises(UsageError, match="--allow-remote"):
            async with share_server(ShareServerOptions(str(tmp_path), host=host, port=0)):
                pass
    async with share_server(ShareServerOptions(str(tmp_path), host="0.0.0.0", port=0, remote=True)) as url:
        assert url.startswith("http://0.0.0.0:")


async def test_a_port_in_use_is_reported_in_one_line(tmp_path: Path, faulty_server: FaultyServer) -> None:
    with pytest.raises(OpenseshError, match="choose another with --port"):
        async with share_server(ShareServerOptions(str(tmp_path), port=faulty_server.port)):
            pass


async def test_many_write_at_the_same_time(client: httpx2.AsyncClient) -> None:
    share = await created(client)

    async def one(number: int) -> int:
        return (await put(client, share, item("message", id=f"m{number}"))).status_code

    assert set(await asyncio.gather(*map(one, range(40)))) == {200}
    assert len((await client.get(f"/api/share/{share['id']}/data")).json()) == 40
