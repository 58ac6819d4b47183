from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
from pathlib import Path

import httpx2
import pytest

from opensesh.errors import UsageError
from opensesh.server.access import access_log_path
from opensesh.server.http_server import http_server
from opensesh.server.state import ServerOptions

from .serving import SCRIPTED, Client, serving

EVIL = "https://evil.example"


async def request(client: Client, method: str, path: str, headers: dict[str, str], **options: str) -> httpx2.Response:
    return await client.http.request(method, path, headers=headers, **options)  # pyright: ignore[reportArgumentType]


async def test_cve_2026_22812_a_page_of_another_origin_cannot_run_a_command(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        session_id = await client.create()
        headers = {"origin": EVIL, "content-type": "application/json"}
        body = '{"agent":"build","command":"touch pwned"}'
        response = await request(client, "POST", f"/session/{session_id}/shell", headers, content=body)
        assert response.status_code == 403
        assert "access-control-allow-origin" not in response.headers
        assert not (tmp_path / "p/pwned").exists()
        preflight = {"origin": EVIL, "access-control-request-method": "POST"}
        response = await request(client, "OPTIONS", f"/session/{session_id}/shell", preflight)
        assert "access-control-allow-origin" not in response.headers
        assert "access-control-allow-methods" not in response.headers


async def test_a_request_that_needs_no_preflight_changes_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        for headers in (
            {"origin": EVIL, "content-type": "text/plain"},
            {"origin": "null", "content-type": "text/plain"},
            {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "content-type": "text/plain"},
        ):
            response = await request(client, "POST", "/session", headers, content='{"title":"made by a page"}')
            assert response.status_code == 403
        response = await request(client, "POST", "/session", {"content-type": "text/plain"}, content='{"title":"x"}')
        assert response.status_code == 415
        assert await client.get("/session") == []


async def test_dns_rebinding_is_refused_for_every_operation_before_anything_is_done(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        for host in ("evil.example", "evil.example:4096", "127.0.0.1.evil.example", "localhost.evil.example:80", ""):
            for method, path in (("GET", "/session"), ("POST", "/session"), ("GET", "/event"), ("GET", "/nothing")):
                response = await request(client, method, path, {"host": host})
                assert response.status_code in (400, 403), (host, method, path)
        assert await client.get("/session") == []


async def test_forwarded_ports_and_allowed_hosts_are_accepted(tmp_path: Path) -> None:
    async with serving(tmp_path / "p", allowed_hosts=("box.example", "other.example:8080")) as client:
        for host in ("localhost:5000", "127.0.0.1:1", "[::1]:4096", "localhost", "box.example", "box.example:443"):
            assert (await request(client, "GET", "/session", {"host": host})).status_code == 200, host
        assert (await request(client, "GET", "/session", {"host": "other.example:8080"})).status_code == 200
        assert (await request(client, "GET", "/session", {"host": "other.example:9090"})).status_code == 403


async def test_pages_of_this_machine_and_of_configured_origins_may_read_answers(tmp_path: Path) -> None:
    async with serving(tmp_path / "p", cors=("https://app.example",)) as client:
        for origin in ("http://localhost:3000", "http://127.0.0.1:5173", "tauri://localhost", "https://app.example"):
            response = await request(client, "POST", "/session", {"origin": origin})
            assert response.status_code == 200
            assert response.headers["access-control-allow-origin"] == origin
            assert response.headers["vary"] == "Origin"
        for origin in ("https://localhost:3000", "http://localhost", "http://localhost:3000.evil.example", "null"):
            assert (await request(client, "POST", "/session", {"origin": origin})).status_code == 403, origin


async def test_a_foreign_page_can_read_nothing_and_open_no_stream(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        response = await request(client, "GET", "/session", {"origin": EVIL})
        assert "access-control-allow-origin" not in response.headers
        for path in ("/event", "/global/event", "/history/events", "/tui/control/next"):
            assert (await request(client, "GET", path, {"origin": EVIL})).status_code == 403
        browser = {"origin": EVIL, "sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}
        assert (await request(client, "GET", "/session", browser)).status_code == 403
        link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
        assert (await request(client, "GET", "/session", link)).status_code == 200
        assert (await request(client, "GET", "/session", link | {"sec-fetch-dest": "iframe"})).status_code == 403
        assert (await request(client, "GET", "/tui/control/next", link)).status_code == 403


async def test_an_address_of_the_network_needs_a_password(tmp_path: Path) -> None:
    for hostname in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
        with pytest.raises(UsageError, match="password"):
            async with http_server(ServerOptions(hostname=hostname, port=0, directory=str(tmp_path))):
                pass


async def test_a_password_is_needed_everywhere_and_appears_in_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving(tmp_path / "p", password="s3same:ü") as client:
        assert await client.get("/session") == []
        plain = Client(client.url, client.directory)
        for path in ("/session", "/global/health", "/doc", "/event", "/nothing"):
            response = await plain.http.get(path)
            assert (response.status_code, response.text) == (401, "Unauthorized")
            assert response.headers["www-authenticate"] == 'Basic realm="Secure Area"'
        for value in ("Basic !!!", "Basic " + base64.b64encode(b"opencode:no").decode(), "Bearer s3same", "Basic"):
            assert (await plain.http.get("/session", headers={"authorization": value})).status_code == 401
        token = base64.b64encode("opencode:s3same:ü".encode()).decode()
        assert (await plain.http.get("/session", params={"auth_token": token})).status_code == 200
        assert (await plain.http.get("/session", params={"auth_token": "bm8="})).status_code == 401
        await plain.http.aclose()
    assert "s3same" not in caplog.text


async def test_the_password_is_not_passed_on_to_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCODE_SERVER_PASSWORD", "s3same")
    async with serving(tmp_path / "p", password="s3same") as client:
        (tmp_path / "p" / ".opencode" / "command").mkdir(parents=True)
        (tmp_path / "p" / ".opencode" / "command" / "show.md").write_text("SAY !`env`")
        session_id = await client.create()
        arguments = json.dumps({"command": "env", "description": "d"})
        await client.prompt(session_id, f"CALL bash {arguments}\n---\nSAY done")
        body = {"agent": "build", "model": SCRIPTED, "command": "env"}
        await client.post(f"/session/{session_id}/shell", body)
        body = {"agent": "build", "model": "scripted/prompt", "command": "show", "arguments": ""}
        await client.post(f"/session/{session_id}/command", body)
        text = json.dumps(await client.get(f"/session/{session_id}/message"))
        assert text.count("OPENSESH_CALL=") >= 3, "each has shown its environment"
        assert "s3same" not in text


async def test_no_file_outside_of_the_project_is_shown(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "key.txt").write_text("s3same")
    async with serving(tmp_path / "p") as client:
        (tmp_path / "p" / "link").symlink_to(tmp_path / "outside")
        (tmp_path / "p" / "key.txt").symlink_to(tmp_path / "outside" / "key.txt")
        (tmp_path / "p" / "own.txt").write_text("own")
        assert (await client.get("/file/content?path=own.txt"))["content"] == "own"
        for path in ("key.txt", "link/key.txt", "../outside/key.txt"):
            assert (await client.http.get("/file/content", params={"path": path})).status_code == 403, path
        for path in ("link", ".."):
            assert (await client.http.get("/file", params={"path": path})).status_code == 403, path
        outside = str(tmp_path / "outside")  # a path from the root is one from the directory, as in OpenCode
        assert await client.get("/file", params={"path": outside}) == []
        assert (await client.get("/file/content", params={"path": f"{outside}/key.txt"}))["content"] == ""
        assert "s3same" not in (await client.http.get("/find", params={"pattern": "s3same"})).text


async def test_m9_idle_connections_do_not_keep_other_clients_out(tmp_path: Path) -> None:
    async with serving(tmp_path / "p", max_connections=40) as client:
        port = int(client.url.rpartition(":")[2])
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(100)]
        for _ in range(3):
            async with httpx2.AsyncClient() as fresh:
                assert (await fresh.get(f"{client.url}/global/health")).status_code == 200
        for _, writer in idle:
            writer.close()


async def test_a_request_whose_head_never_ends_is_dropped(tmp_path: Path) -> None:
    async with serving(tmp_path / "p", head_seconds=0.3) as client:
        port = int(client.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /global/health HTTP/1.1\r\nHost: localhost\r\nX: ")
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        writer.close()


async def test_nothing_is_read_after_a_request_with_two_lengths(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        host = client.url.removeprefix("http://")
        reader, writer = await asyncio.open_connection(*host.split(":"))
        second = f"GET /global/health HTTP/1.1\r\nHost: {host}\r\n\r\n"
        head = f"POST /session HTTP/1.1\r\nHost: {host}\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(f"{head}0\r\n\r\n{second}".encode())
        async with asyncio.timeout(30):
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"healthy" not in answer
        writer.close()


async def test_changes_are_in_the_access_log_and_reads_are_not(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        session_id = await client.create()
        await client.get(f"/session/{session_id}")
        headers = {"origin": "http://evil.example", "user-agent": "evil\x1b[2J"}
        await request(client, "DELETE", f"/session/{session_id}?auth_token=secret", headers)
    lines = [line.split(" ", 1)[1] for line in Path(access_log_path()).read_text().splitlines()]
    own = [line for line in lines if session_id in line or line.startswith("POST /session 200")]
    assert own[-2].startswith("POST /session 200 127.0.0.1 ")
    assert own[-1] == f"DELETE /session/{session_id} 403 127.0.0.1 evil\\x1b[2J"
    assert os.stat(access_log_path()).st_mode & 0o077 == 0
