from __future__ import annotations

import json
from pathlib import Path

import pytest

from opensesh.cli.main import run
from opensesh.history.formats import FORMATS
from opensesh.storage import paths

from .serving import Client, serving


async def three_sessions(client: Client) -> list[str]:
    names = [await client.create(title=f"Number {number}") for number in range(3)]
    for number, session_id in enumerate(names):
        await client.prompt(session_id, f"SAY the word is xylophone{number}")
    return names


async def test_sessions_of_all_projects_are_listed_in_pages(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        names = await three_sessions(client)
        first = await client.get("/history/sessions?limit=2")
        second = await client.get("/history/sessions", params={"limit": 2, "after": first["next"]})
        assert [item["id"] for item in (*first["items"], *second["items"])] == names[::-1]
        assert (first["total"], second["next"]) == (3, None)
        response = await client.http.get("/history/sessions", params={"after": "nonsense!"})
        assert response.status_code == 400


async def test_an_unchanged_answer_is_not_sent_again(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        await three_sessions(client)
        response = await client.http.get("/history/projects")
        etag = response.headers["etag"]
        again = await client.http.get("/history/projects", headers={"if-none-match": etag})
        assert (again.status_code, again.content) == (304, b"")
        await client.create(title="Another")
        changed = await client.http.get("/history/projects", headers={"if-none-match": etag})
        assert changed.status_code == 200


async def test_sessions_can_be_searched_read_inspected_and_exported(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        names = await three_sessions(client)
        result = await client.get("/history/search?q=xylophone1")
        assert {hit["sessionID"] for hit in result["hits"]} == {names[1]}
        detail = await client.get(f"/history/sessions/{names[1]}")
        assert (detail["messages"], detail["prompts"], detail["cost"]["stored"]) != (0, 0, "0")
        assert await client.get(f"/history/sessions/{names[1]}/context")
        markdown = await client.http.get(f"/history/sessions/{names[1]}/export?format=markdown")
        assert "xylophone1" in markdown.text
        assert markdown.headers["content-disposition"].startswith("attachment")


async def test_an_export_with_subagents_is_one_document(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        parent = await client.create(title="Parent")
        child = await client.create(title="Child", parentID=parent)
        address = f"/history/sessions/{parent}/export?children=true&format"
        exported = await client.get(f"{address}=json")
        assert [session["info"]["id"] for session in exported] == [parent, child]
        assert (await client.http.get(f"{address}=opencode")).status_code == 400


async def test_every_format_but_a_table_can_be_exported(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        operation = (await client.get("/doc"))["paths"]["/history/sessions/{name}/export"]["get"]
        (choices,) = (one["schema"]["enum"] for one in operation["parameters"] if one["name"] == "format")
        assert set(choices) == set(FORMATS) - {"parquet"}


async def test_costs_checks_and_running_sessions_are_reported(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        await three_sessions(client)
        stats = await client.get("/history/stats?by=model")
        assert [row["key"] for row in stats["rows"]] == ["scripted/prompt"]
        assert (await client.get("/history/doctor"))["findings"] == []
        assert (await client.get("/history/running")) == {"items": []}
        assert (await client.http.get("/history/search")).status_code == 400
        assert (await client.http.get("/history/sessions/nothing")).status_code == 404


async def test_statistics_are_those_of_the_command_line_also_as_csv(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving(tmp_path / "p") as client:
        await three_sessions(client)
        for by in ("day", "month", "model", "project", "session"):
            document = await client.get(f"/history/stats?by={by}")
            assert run(["stats", "--by", by, "--json"]) == 0
            assert document == json.loads(capsys.readouterr().out)
        tools = await client.get("/history/stats?by=tool")
        assert tools == {"by": "tool", "rows": []}
        table = await client.http.get("/history/stats?by=model&format=csv")
        assert table.headers["content-type"] == "text/csv; charset=utf-8"
        assert table.headers["content-disposition"] == 'attachment; filename="stats-by-model.csv"'
        assert run(["stats", "--by", "model", "--csv"]) == 0
        assert table.text == capsys.readouterr().out
        assert (await client.http.get("/history/stats?project=nothing-like-it")).status_code == 404


async def test_removed_sessions_are_listed_restored_and_deleted_for_good(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        names = await three_sessions(client)
        for name in names[:2]:
            assert (await client.http.delete(f"/session/{name}")).status_code == 200
        items = (await client.get("/history/trash"))["items"]
        assert [(item["session"], item["title"]) for item in items] == [(names[1], "Number 1"), (names[0], "Number 0")]
        restored = await client.http.post("/history/trash/restore", json={"sessions": [names[0]]})
        assert restored.json()["left"] == []
        assert (await client.get(f"/session/{names[0]}"))["title"] == "Number 0"
        refused = await client.http.post("/history/trash/restore", json={"sessions": [names[0]]})
        assert refused.status_code == 404
        deleted = await client.http.post("/history/trash/empty", json={})
        assert deleted.json() == {"deleted": 1, "shares": []}
        assert (await client.get("/history/trash"))["items"] == []
        assert (await client.http.get(f"/session/{names[1]}")).status_code == 404


async def test_a_repair_can_be_reversed_and_no_other_file_named_for_that(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        await three_sessions(client)
        tree = Path(paths.storage())
        damaged = tree / "session" / "global" / "ses_torn.json"
        damaged.parent.mkdir(parents=True, exist_ok=True)
        damaged.write_bytes(b'{"id": ')
        report = await client.get("/history/doctor")
        assert [finding["kind"] for finding in report["findings"]] == ["torn"]
        assert report["repairs"] == []
        fixed = (await client.http.post("/history/doctor/fix", json={})).json()
        assert not damaged.exists()
        assert [repair["undo"] for repair in (await client.get("/history/doctor"))["repairs"]] == [fixed["undo"]]
        for path in ("/etc/passwd", str(damaged), fixed["undo"] + "x"):
            refused = await client.http.post("/history/doctor/undo", json={"undo": path})
            assert refused.status_code == 404
        undone = await client.http.post("/history/doctor/undo", json={"undo": fixed["undo"]})
        assert undone.json() == {"restored": 1, "left": []}
        assert damaged.read_bytes() == b'{"id": '
