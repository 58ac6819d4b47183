from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from opensesh.bus import Bus
from opensesh.events import MessageUpdated, PartDelta, PartUpdated
from opensesh.project import resolve
from opensesh.server.event_streams import EventStreams
from opensesh.server.page_streams import Fragments, PageRendering, PageStream
from opensesh.server.streaming_markdown import StreamingMarkdown
from opensesh.sessions import Sessions
from opensesh.storage.memory import Memory

from .serving import LIMIT_SECONDS, SCRIPTED, Client, Json, make_project, serving


class Event(NamedTuple):
    id: str
    name: str
    data: Json


class Viewer:
    """The events of one stream of a page."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = asyncio.Event()

    def of(self, name: str) -> list[Json]:
        return [event.data for event in self.events if event.name == name]

    async def wait_for(self, name: str, matches: Callable[[Json], bool] = lambda data: True) -> Json:
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                for data in self.of(name):
                    if matches(data):
                        return data
                self._changed.clear()
                await self._changed.wait()

    async def read(self, client: Client, query: str, headers: dict[str, str]) -> None:
        event_id = name = ""
        async with client.http.stream("GET", f"/history/events?{query}", headers=headers, timeout=None) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            async for line in response.aiter_lines():
                field, _, value = line.partition(": ")
                match field:
                    case "id":
                        event_id = value
                    case "event":
                        name = value
                    case "data":
                        self.events.append(Event(event_id, name, json.loads(value)))
                        self._changed.set()
                    case _:
                        pass

    def text(self, part: str) -> str:
        """The text of a part, as the operations in JSON leave it."""
        text = ""
        for data in self.of("op"):
            if data["part"] == part:
                text = data["document"].get("text", "") if data["op"] == "part" else text[: data["from"]] + data["s"]
        return text


@asynccontextmanager
async def viewing(client: Client, query: str, **headers: str) -> AsyncGenerator[Viewer]:
    viewer = Viewer()
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    task = asyncio.create_task(viewer.read(client, query, names))
    try:
        await viewer.wait_for("connected")
        yield viewer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def start(client: Client, session_id: str, script: str) -> None:
    body = {"model": SCRIPTED, "parts": [{"type": "text", "text": script}]}
    await client.post(f"/session/{session_id}/prompt_async", body)


async def test_a_viewer_sees_a_prompt_and_the_growing_answer(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        session_id, other = await client.create(title="One"), await client.create(title="Two")
        async with viewing(client, f"session={session_id}") as viewer:
            await client.prompt(other, "SAY not for this viewer")
            await client.prompt(session_id, "SPLIT 3\nDRIP 0.02\nSAY The answer is forty-two, and here is why.")
            await viewer.wait_for("status", lambda data: data == {"session": session_id, "status": {"type": "idle"}})
        parts = {data["part"] for data in viewer.of("op")}
        texts = [viewer.text(part) for part in parts]
        assert "The answer is forty-two, and here is why." in texts
        assert not any("not for this viewer" in text for text in texts)
        assert any(data["op"] == "text" for data in viewer.of("op"))
        assert {data["session"] for data in viewer.of("turn")} == {session_id}
        assert {data["session"] for data in viewer.of("status")} == {session_id, other}
        assert viewer.of("usage")[-1]["tokens"]["output"] > 0


async def test_a_stream_continues_after_the_last_event_or_asks_to_read_again(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        session_id = await client.create(title="One")
        async with viewing(client, f"session={session_id}") as first:
            last = first.events[-1].id
        await client.prompt(session_id, "SAY while nobody watched")
        async with viewing(client, f"session={session_id}", last_event_id=last) as again:
            await again.wait_for("status", lambda data: data.get("status") == {"type": "idle"})
            assert "while nobody watched" in [again.text(data["part"]) for data in again.of("op")]
            assert again.of("reset") == []
        async with viewing(client, f"session={session_id}&lastEventID={last}") as by_query:
            await by_query.wait_for("status", lambda data: data.get("status") == {"type": "idle"})
        async with viewing(client, f"session={session_id}", last_event_id="0badcafe.17") as late:
            await late.wait_for("reset")


async def test_a_stream_begins_with_the_text_that_is_being_written(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        session_id = await client.create(title="One")
        async with viewing(client, f"session={session_id}") as first:
            await start(client, session_id, "SPLIT 2\nSAY Begun and not\nHANG")
            part = (await first.wait_for("op", lambda data: first.text(data["part"]).strip() == "Begun and not"))[
                "part"
            ]
            async with viewing(client, f"session={session_id}") as second:
                await second.wait_for("op", lambda data: data["part"] == part)
                assert second.text(part).strip() == "Begun and not"
                assert session_id in second.of("connected")[0]["running"]
        await client.post(f"/session/{session_id}/abort")


async def test_the_text_of_an_aborted_answer_is_complete_for_viewers(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        session_id = await client.create(title="One")
        async with viewing(client, f"session={session_id}&as=html") as viewer:
            await start(client, session_id, "SPLIT 1\nDRIP 0.05\nSAY Begun *and* not ended\nHANG")
            await viewer.wait_for("op", lambda data: data["op"] == "tail" and "not ended" in data["html"])
            await client.post(f"/session/{session_id}/abort")
            final = await viewer.wait_for("op", lambda data: data["op"] == "part" and "<em>" in data["html"])
        assert 'class="part text"' in final["html"]
        assert "Begun <em>and</em> not ended" in final["html"]
        assert any("Begun *and* not ended\nHANG" in data["html"] for data in viewer.of("op") if data["op"] == "part")
        async with viewing(client, f"session={session_id}&as=html") as later:
            await client.prompt(session_id, "SAY Next.")
            await later.wait_for("op", lambda data: "Next." in data.get("html", ""))
            assert final["part"] not in {data.get("part") for data in later.of("op")}


async def test_requests_come_first_and_are_listed_as_running(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    (project / "opencode.json").write_text('{"permission": {"bash": "ask"}}')
    async with serving(project) as client:
        session_id = await client.create(title="Waits")
        async with viewing(client, "") as viewer:
            await start(client, session_id, 'CALL bash {"command": "echo hello", "description": "greet"}')
            request = await viewer.wait_for("ask")
        assert (request["kind"], request["session"], request["title"]) == ("permission", session_id, "Waits")
        assert request["request"]["patterns"] == ["echo hello"]
        async with viewing(client, "as=html") as later:
            pending = await later.wait_for("ask")
            assert "echo hello" in pending["html"]
            assert later.of("connected")[0]["asks"] == [request["id"]]
            (item,) = (await client.get("/history/running"))["items"]
            assert item["session"] == session_id
            assert [one["id"] for one in item["asks"]] == [request["id"]]
            assert item["holder"].startswith("opensesh serve")
            await client.post(f"/permission/{request['id']}/reply", {"reply": "reject", "message": "do not"})
            answered = await later.wait_for("answered")
        assert answered == {"session": session_id, "id": request["id"], "reply": "reject"}


async def test_a_prompt_is_withdrawn_until_the_model_takes_it_up(tmp_path: Path) -> None:
    async with serving(make_project(tmp_path / "p")) as client:
        session_id = await client.create()
        queue = f"/history/sessions/{session_id}/queue"
        async with viewing(client, f"session={session_id}") as viewer:
            ids: list[str] = []
            for text in ("SAY First.\nHANG", "SAY Second."):
                body = {"model": SCRIPTED, "parts": [{"type": "text", "text": text}]}
                await client.http.post(f"/session/{session_id}/prompt_async", json=body)
                infos = [message["info"] for message in await client.get(f"/session/{session_id}/message")]
                ids.append([info["id"] for info in infos if info["role"] == "user"][-1])
                if text.endswith("HANG"):
                    await viewer.wait_for("op", lambda data: data["op"] == "text" or "document" in data)
            assert (await client.http.delete(f"{queue}/{ids[0]}")).status_code == 409
            assert (await client.http.delete(f"{queue}/{ids[1]}")).json() is True
            assert (await client.http.delete(f"{queue}/{ids[1]}")).status_code == 409
            await client.post(f"/session/{session_id}/abort")
        stored = await client.get(f"/session/{session_id}/message")
        assert ids[1] not in [message["info"]["id"] for message in stored]


async def test_a_revert_does_what_its_preview_showed_or_nothing(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    async with serving(project) as client:
        session_id = await client.create(title="Writes")
        write = json.dumps({"filePath": str(project / "new.txt"), "content": "one\ntwo\n"})
        await client.prompt(session_id, f"CALL write {write}\n---\nSAY done")
        messages = await client.get(f"/session/{session_id}/message")
        body = {"messageID": messages[0]["info"]["id"]}
        preview = await client.post(f"/history/sessions/{session_id}/revert-preview", body)
        (file,) = preview["files"]
        assert (file["path"], file["action"], file["conflict"], file["deletions"]) == ("new.txt", "delete", False, 2)
        assert "-one\n-two" in file["diff"]
        assert preview["messages"] == [message["info"]["id"] for message in messages]
        (project / "new.txt").write_text("changed by hand\n")
        stale = body | {"token": preview["token"]}
        response = await client.http.post(f"/history/sessions/{session_id}/revert", json=stale)
        assert (response.status_code, response.json()["name"]) == (409, "PreviewChangedError")
        conflict = await client.post(f"/history/sessions/{session_id}/revert-preview", body)
        assert conflict["files"][0]["conflict"]
        assert conflict["token"] != preview["token"]
        fresh = body | {"token": conflict["token"]}
        refused = await client.http.post(f"/history/sessions/{session_id}/revert", json=fresh)
        assert (refused.status_code, refused.json()["name"]) == (409, "RevertConflictError")
        forced = await client.post(f"/history/sessions/{session_id}/revert", fresh | {"force": True})
        assert forced["session"]["revert"]["messageID"] == body["messageID"]
        assert not (project / "new.txt").exists()
        assert (Path(forced["kept"]) / "new.txt").read_text() == "changed by hand\n"


async def test_sessions_are_archived_and_brought_back_and_compactions_undone(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        session_id = await client.create(title="Long")
        path = f"/history/sessions/{session_id}"
        assert "archived" in (await client.post(f"{path}/archive", {"archived": True}))["time"]
        assert "archived" not in (await client.post(f"{path}/archive", {"archived": False}))["time"]
        response = await client.http.post(f"{path}/undo-compaction", json={})
        assert response.status_code == 404
        await client.prompt(session_id, "SAY a long answer")
        before = await client.get(f"/session/{session_id}/message")
        await client.post(f"/session/{session_id}/summarize", SCRIPTED)
        assert len(await client.get(f"/session/{session_id}/message")) > len(before)
        assert await client.post(f"{path}/undo-compaction") is True
        assert await client.get(f"/session/{session_id}/message") == before


def _fragments() -> Fragments:
    def turn(info: Json) -> str:
        return f"<article>{info['id']}"

    def part(record: Json, directory: str, is_prompt: bool) -> str:
        return f"<p>{record['id']} in {directory}"

    return Fragments(str, part, str, turn, str)


def _no_sessions() -> Any:
    raise AssertionError


async def test_a_viewer_that_is_too_slow_must_read_again_and_needs_no_memory() -> None:
    bus = Bus(keep=50)
    rendering = PageRendering(EventStreams(bus), _fragments(), _no_sessions)
    stream = PageStream(rendering, ["ses_1"], last_event_id=None, as_html=True, running=lambda: ({}, []))
    chunks = aiter(stream)
    await anext(chunks)
    for number in range(500):
        bus.publish(MessageUpdated(info={"sessionID": "ses_1", "id": f"msg_{number}"}))
    received = b"".join([await anext(chunks)])
    assert b"event: reset" in received
    assert b"msg_449" not in received
    stream.close()


async def test_heartbeats_are_events_with_the_newest_id_also_when_other_sessions_are_busy() -> None:
    bus = Bus()
    streams = EventStreams(bus, heartbeat_seconds=0.2)
    rendering = PageRendering(streams, _fragments(), _no_sessions)
    stream = PageStream(rendering, [], last_event_id=None, as_html=True, running=lambda: ({}, []))
    chunks = aiter(stream)
    await anext(chunks)

    async def busy() -> None:
        while True:
            bus.publish(MessageUpdated(info={"sessionID": "ses_other", "id": "msg"}))
            await asyncio.sleep(0.01)

    task = asyncio.create_task(busy())
    async with asyncio.timeout(LIMIT_SECONDS):
        heartbeat = await anext(chunks)
    task.cancel()
    assert b"event: heartbeat" in heartbeat
    assert int(heartbeat.split(b"\n")[0].rpartition(b".")[2]) > 1
    stream.close()


async def test_all_viewers_share_one_rendering() -> None:
    rendered: list[str] = []

    def render(info: Any) -> str:
        rendered.append(info["id"])
        return "<article>"

    bus = Bus()
    rendering = PageRendering(EventStreams(bus), _fragments()._replace(turn=render), _no_sessions)
    streams = [
        PageStream(rendering, ["ses_1"], last_event_id=None, as_html=True, running=lambda: ({}, [])) for _ in range(5)
    ]
    readers = [aiter(stream) for stream in streams]
    for reader in readers:
        await anext(reader)
    bus.publish(MessageUpdated(info={"sessionID": "ses_1", "id": "msg_1"}))
    assert len({await anext(reader) for reader in readers}) == 1
    assert rendered == ["msg_1"]
    for stream in streams:
        stream.close()


def _count_rendered_texts() -> int:
    gc.collect()
    return sum(isinstance(kept, StreamingMarkdown) for kept in gc.get_objects())


async def test_texts_that_have_ended_are_not_kept_for_viewers(tmp_path: Path) -> None:
    bus = Bus()
    before = _count_rendered_texts()
    sessions = Sessions(Memory(), resolve(tmp_path))
    rendering = PageRendering(EventStreams(bus), _fragments(), lambda: sessions)
    stream = PageStream(rendering, ["ses_1"], last_event_id=None, as_html=True, running=lambda: ({}, []))
    chunks = aiter(stream)
    await anext(chunks)
    for number in range(20):
        ids = {"sessionID": "ses_1", "messageID": "msg_1", "id": f"prt_{number}"}
        part: Json = {**ids, "type": "reasoning", "text": "", "time": {"start": 1}}
        bus.publish(PartUpdated(part=part, delta="Some "))
        bus.publish(PartDelta(session_id="ses_1", message_id="msg_1", part_id=ids["id"], delta="thoughts"))
        async with asyncio.timeout(LIMIT_SECONDS):
            while b"thoughts" not in await anext(chunks):
                pass
        bus.publish(MessageUpdated(info={"sessionID": "ses_1", "id": "msg_1", "time": {"completed": 2}}))
    assert _count_rendered_texts() == before + 1
    stream.close()
