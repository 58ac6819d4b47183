from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from opensesh.sharing.share_server import ShareServerOptions, share_server

from .serving import SCRIPTED, Client, listening, make_project, serving
from .test_attached_run import opensesh

WRITE = 'CALL write {"filePath": "new.txt", "content": "one\\n"}\n---\nSAY written'


async def session(client: Client, *arguments: str, code: int = 0) -> str:
    action, *others = arguments
    exit_code, out, err = await opensesh("session", action, *others, "--attach", client.url, cwd=client.directory)
    assert exit_code == code, out + err
    return out + err


async def test_a_session_is_forked_renamed_and_compacted_on_a_server(tmp_path: Path) -> None:
    async with serving(make_project(tmp_path / "p")) as client:
        session_id = await client.create(title="First")
        await client.prompt(session_id, "SAY hello")
        out = await session(client, "rename", "last", "Second", "title")
        assert out == f"{session_id} renamed: Second title\n"
        fork = json.loads(await session(client, "fork", session_id[:14], "--json"))
        assert fork["id"] != session_id
        assert len(await client.get(f"/session/{fork['id']}/message")) == 2
        assert "compacted: " in await session(client, "compact", session_id)
        assert any(one["info"].get("summary") is True for one in await client.get(f"/session/{session_id}/message"))
        assert "restored to before its last compaction" in await session(client, "compact", "--undo", session_id)
        assert "compacted again" in await session(client, "compact", "--redo", session_id)
        assert "has no undone compaction" in await session(client, "compact", "--redo", session_id, code=3)
        assert "no session is called" in await session(client, "rename", "nothing-like-this", "x", code=3)


async def test_a_revert_is_previewed_and_undone_on_a_server(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    async with serving(project) as client:
        session_id = await client.create()
        await client.prompt(session_id, WRITE)
        assert "+one" in await session(client, "diff", session_id)
        preview = json.loads(await session(client, "revert", session_id, "--dry-run", "--json"))
        local = await opensesh("session", "revert", session_id, "--dry-run", "--json", cwd=project)
        assert preview == json.loads(local[1])
        assert "confirm with --yes" in await session(client, "revert", session_id, code=2)
        assert await session(client, "revert", session_id, "--yes") == f"{session_id} reverted: 1 file changed\n"
        assert not (project / "new.txt").exists()
        assert await session(client, "unrevert", session_id, "--yes") == f"{session_id} unreverted\n"
        assert (project / "new.txt").read_text() == "one\n"
        (project / "new.txt").write_text("mine\n")
        assert "--force overwrites" in await session(client, "revert", session_id, "--yes", code=1)
        await session(client, "revert", session_id, "--yes", "--force")
        assert "is already reverted to before its first prompt" in await session(
            client, "revert", session_id, "--yes", code=3
        )


async def test_sessions_are_archived_removed_and_restored_on_a_server(tmp_path: Path) -> None:
    async with serving(make_project(tmp_path / "p")) as client:
        parent = await client.create(title="Parent")
        child = await client.create(title="Child", parentID=parent)
        assert "Archived: 1 session." in await session(client, "archive", parent)
        assert (await client.get(f"/session/{parent}"))["time"]["archived"]
        assert "unarchived: Parent" in await session(client, "archive", "--undo", parent)
        assert "confirm with --yes" in await session(client, "remove", parent, code=2)
        removed = json.loads(await session(client, "remove", parent, "--yes", "--json"))
        assert removed["sessions"] == [parent, child]
        assert (await client.http.get(f"/session/{child}")).status_code == 404
        listed = json.loads(await session(client, "trash", "--json"))
        local = await opensesh("session", "trash", "--json", cwd=client.directory)
        assert listed == json.loads(local[1])
        assert "restored" in await session(client, "restore", "last")
        assert (await client.get(f"/session/{child}"))["title"] == "Child"
        await session(client, "remove", child, "--yes")
        assert "1 session deleted permanently" in await session(client, "trash", "--empty", "--yes")
        assert await session(client, "trash") == "0 sessions in the trash.\n"


async def test_a_session_is_shared_and_unshared_by_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with share_server(ShareServerOptions(str(tmp_path / "shares"), port=0)) as share_url:
        monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", json.dumps({"enterprise": {"url": share_url}}))
        async with serving(make_project(tmp_path / "p")) as client:
            session_id = await client.create()
            assert "confirm with --yes" in await session(client, "share", session_id, code=2)
            link = (await session(client, "share", session_id, "--yes")).strip()
            assert link.startswith(share_url)
            assert (await client.get(f"/session/{session_id}"))["share"]["url"] == link
            assert await session(client, "share", session_id) == f"{link}\n"
            assert await session(client, "unshare", session_id) == f"{link} was removed.\n"
            assert "is not shared" in await session(client, "unshare", session_id, code=3)


async def test_what_a_server_cannot_do_and_a_wrong_password_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(make_project(tmp_path / "p"), password="secret") as client:
        session_id = await client.create()
        assert "OPENCODE_SERVER_PASSWORD" in await session(client, "rename", session_id, "x", code=1)
        monkeypatch.setenv("OPENCODE_SERVER_PASSWORD", "secret")
        await session(client, "rename", session_id, "x")
        assert "cannot be moved through a server" in await session(client, "move", session_id, os.sep, code=2)
        assert "name the sessions" in await session(client, "remove", "--empty", "--yes", code=2)
        assert "--reverted cannot be combined" in await session(client, "fork", session_id, "--reverted", code=2)
    assert "does not answer" in await session(client, "rename", session_id, "x", code=1)


async def test_commands_that_would_run_or_change_a_session_of_a_server_name_its_address(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    (project / "opencode.json").write_text('{"permission": {"bash": "ask"}}')
    async with serving(project) as client:
        session_id = await client.create(title="Mine")
        await client.prompt(session_id, WRITE)
        async with listening(client) as events:
            text = 'CALL bash {"command": "true", "description": "Wait"}\n---\nSAY done'
            body = {"model": SCRIPTED, "parts": [{"type": "text", "text": text}]}
            await client.post(f"/session/{session_id}/prompt_async", body)
            asked = await events.wait_for("permission.asked")
            for command in (
                ("run", "--session", session_id, "-m", "scripted/prompt", "SAY mine"),
                ("session", "compact", session_id),
                ("session", "compact", "--undo", session_id),
                ("session", "revert", session_id, "--yes"),
                ("session", "archive", session_id),
                ("session", "archive", "--undo", session_id),
                ("session", "rename", session_id, "Other"),
                ("session", "share", session_id, "--yes"),
                ("session", "move", session_id, str(tmp_path)),
                ("session", "remove", session_id, "--yes"),
            ):
                code, out, err = await opensesh(*command, cwd=project)
                assert (code, f"opensesh serve at {client.url}" in err) == (4, True), (command, out, err)
            await client.post(f"/permission/{asked['properties']['id']}/reply", {"reply": "once"})
            await events.wait_for("session.idle")
            assert (await client.get(f"/session/{session_id}"))["title"] == "Mine"
            assert (project / "new.txt").exists()


async def test_emptying_the_trash_of_a_server_takes_down_the_shares_of_deleted_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with share_server(ShareServerOptions(str(tmp_path / "shares"), port=0)) as share_url:
        monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", json.dumps({"enterprise": {"url": share_url}}))
        async with serving(make_project(tmp_path / "p")) as client:
            session_id = await client.create(title="Shared")
            link = (await session(client, "share", session_id, "--yes")).strip()
            await session(client, "remove", session_id, "--yes")
            assert (await client.http.get(link)).status_code == 200
            emptied = await client.http.post("/history/trash/empty", json={})
            assert emptied.json() == {"deleted": 1, "shares": [{"url": link, "error": None}]}
            assert (await client.http.get(link)).status_code == 404
