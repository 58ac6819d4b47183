from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from .serving import Client, listening, serving


def address(client: Client, terminal_id: str) -> str:
    return f"{client.url.replace('http', 'ws')}/pty/{terminal_id}/connect"


async def test_a_terminal_runs_a_program_that_a_websocket_talks_to(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client, listening(client) as events:
        body = {"command": "/bin/sh", "title": "mine", "env": {"PS1": "$ "}}
        terminal = await client.post("/pty", body)
        assert terminal["cwd"] == str(tmp_path / "p")
        assert terminal["status"] == "running"
        assert [one["id"] for one in await client.get("/pty")] == [terminal["id"]]
        size = {"title": "yours", "size": {"rows": 20, "cols": 70}}
        assert (await client.http.put(f"/pty/{terminal['id']}", json=size)).json()["title"] == "yours"
        async with connect(address(client, terminal["id"]), proxy=None) as socket:
            await socket.send("stty size; tty; echo done-$((40+2))\n")
            seen = ""
            async with asyncio.timeout(30):
                while "done-42" not in seen:
                    seen += str(await socket.recv())
            assert "20 70" in seen
            assert "/dev/" in seen
        async with connect(address(client, terminal["id"]), proxy=None) as socket:
            assert "done-42" in str(await socket.recv())
            await socket.send(b"exit 3\n")
            async with asyncio.timeout(30):
                await socket.wait_closed()
        exited = await events.wait_for("pty.exited", id=terminal["id"])
        assert exited["properties"]["exitCode"] == 3
        assert await client.get("/pty") == []
        assert (await client.http.get(f"/pty/{terminal['id']}")).status_code == 404
        assert (await client.http.delete(f"/pty/{terminal['id']}")).json() is True
        other = await client.post("/pty", {"command": "/bin/sh"})
        assert (await client.http.delete(f"/pty/{other['id']}")).json() is True
        await events.wait_for("pty.deleted", id=other["id"])


async def test_a_websocket_continues_where_an_earlier_one_ended(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client, listening(client) as events:
        script = "stty -echo; printf '\U0001f680ready'; read line; printf more; read line"
        terminal = await client.post("/pty", {"command": "/bin/sh", "args": ["-c", script]})
        url = address(client, terminal["id"])
        async with asyncio.timeout(30), connect(url, proxy=None) as first:
            seen, is_placed = "", False
            while not (is_placed and seen.endswith("ready")):
                message = await first.recv()
                if isinstance(message, bytes):
                    is_placed = True
                    assert message == b'\0{"cursor":%d}' % (
                        len(seen) + seen.count("\U0001f680")
                    )  # as JavaScript counts
                else:
                    seen += message
            await first.send("\n")
            assert await first.recv() == "more"
        for cursor, output in (
            ("0", ["\U0001f680readymore"]),
            ("4", ["adymore"]),
            ("-1", []),
            ("99", []),
            ("x", [seen + "more"]),
        ):
            async with asyncio.timeout(30), connect(f"{url}?cursor={cursor}", proxy=None) as later:
                assert [await later.recv() for _ in output] == output
                assert await later.recv() == b'\0{"cursor":11}'
        assert (await client.http.delete(f"/pty/{terminal['id']}")).json() is True
        await events.wait_for("pty.deleted", id=terminal["id"])
        with pytest.raises(InvalidStatus) as refused:
            async with connect(url, proxy=None):
                pass
        assert refused.value.response.status_code == 404


async def test_a_foreign_page_cannot_connect_to_a_terminal(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        terminal = await client.post("/pty", {"command": "/bin/sh"})
        with pytest.raises(InvalidStatus) as refused:
            async with connect(address(client, terminal["id"]), origin="https://evil.example", proxy=None):  # pyright: ignore[reportArgumentType]
                pass
        assert refused.value.response.status_code == 403
        assert (await client.http.delete(f"/pty/{terminal['id']}")).json() is True


async def test_terminals_end_with_the_server(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        terminal = await client.post("/pty", {"command": "/bin/sh", "args": ["-c", "sleep 600"]})
        assert Path(f"/proc/{terminal['pid']}").exists()
    assert not Path(f"/proc/{terminal['pid']}").exists()
