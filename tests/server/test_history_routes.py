from __future__ import annotations

from pathlib import Path

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
        found = await client.get("/history/search?q=xylophone1")
        assert {hit["sessionID"] for hit in found["hits"]} == {names[1]}
        detail = await client.get(f"/history/sessions/{names[1]}")
        assert (detail["messages"], detail["prompts"], detail["cost"]["stored"]) != (0, 0, "0")
        transcript = await client.get(f"/history/sessions/{names[1]}/transcript?limit=1")
        assert (transcript["start"], transcript["total"]) == (1, 2)
        assert {"type": "text", "text": "the word is xylophone1", "synthetic": False} in transcript["items"][0][
            "blocks"
        ]
        assert await client.get(f"/history/sessions/{names[1]}/context")
        markdown = await client.http.get(f"/history/sessions/{names[1]}/export?format=markdown")
        assert "xylophone1" in markdown.text
        assert markdown.headers["content-disposition"].startswith("attachment")


async def test_costs_checks_and_running_sessions_are_reported(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        await three_sessions(client)
        stats = await client.get("/history/stats?by=model")
        assert [row["key"] for row in stats["rows"]] == ["scripted/prompt"]
        assert (await client.get("/history/doctor"))["findings"] == []
        assert (await client.get("/history/running")) == {"items": []}
        assert (await client.http.get("/history/search")).status_code == 400
        assert (await client.http.get("/history/sessions/nothing")).status_code == 404
