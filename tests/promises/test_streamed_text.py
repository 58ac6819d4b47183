from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest

from opensesh import events
from opensesh.engine.opening import open_engine
from opensesh.models.request import Request
from opensesh.models.stream_events import FinishStep, StartStep, StreamEvent, TextDelta, TextEnd, TextStart
from opensesh.project import resolve
from opensesh.sessions import Sessions
from opensesh.storage.disk import Disk
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.opencode_db.store import OpencodeDB
from opensesh.storage.protocol import Store
from opensesh.storage.stream_journal import StreamJournals, journals_of
from opensesh.testing.scripted import ScriptedModel
from tests.engine.harness import open_harness
from tests.harness.processes import ProcessGroup, Report

WORDS = [f"word{number} and others that come at the same time, " for number in range(400)]


class Slow:
    """Sends words, one each interval, and never ends."""

    def __init__(self, interval: float) -> None:
        self._interval = interval

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        yield StartStep()
        yield TextStart("t")
        for word in WORDS:
            yield TextDelta("t", word)
            await asyncio.sleep(self._interval)
        await asyncio.Event().wait()


def open_place(place: str) -> Store:
    return OpencodeDB(place) if place.endswith(".db") else JsonTree(place)


def stream_slowly(report: Report, place: str) -> None:
    async def run() -> None:
        async with open_engine(store=open_place(place), scripts={"it": Slow(0.01)}) as engine:
            session = await engine.create(title="A title")
            report(session.id)
            published: list[tuple[float, int]] = []
            total = 0
            async for envelope in engine.prompt(session.id, "Go.", model="scripted/it"):
                match envelope.event:
                    case events.PartUpdated(delta=str(delta)) | events.PartDelta(delta=delta):
                        total += len(delta)
                        published.append((time.monotonic(), total))
                        old = [length for moment, length in published if moment < time.monotonic() - 0.5]
                        report(old[-1] if old else 0)
                    case _:
                        pass

    asyncio.run(run())


def streamed(place: str, session_id: str) -> str:
    messages = open_place(place).messages(session_id)
    return "".join(part["text"] for part in messages[-1].parts if part["type"] == "text")


@pytest.fixture(params=["storage", "opencode.db"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path = tmp_path / request.param
    if path.suffix == ".db":
        path.write_bytes((Path(__file__).parents[1] / "fixtures/opencode-1.2/opencode.db").read_bytes())
    return str(path)


def test_promise_2_text_published_half_a_second_ago_survives_kill_9(place: str) -> None:
    with ProcessGroup() as processes:
        process = processes.start(stream_slowly, place)
        session_id, *_ = process.wait_for(200)
        result = process.kill()
    due = result.reports[-1]
    assert due > 4_096, "more than the beginning, which is stored while a text is short"
    before = streamed(place, session_id)
    assert len(before) >= due, "other readers see it, and so does the next process"
    assert "".join(WORDS).startswith(before)

    async def resume() -> None:
        async with open_engine(store=open_place(place), scripts={"it": ScriptedModel("SAY more")}) as engine:
            outcome = await engine.resume(session_id)
            assert outcome is not None
            assert (await outcome).kind == "answered"

    asyncio.run(resume())
    store = open_place(place)
    journals = journals_of(store, ("session", session_id))
    assert journals is not None
    assert journals.texts(session_id) == {}
    parts = [part for message in store.messages(session_id) for part in message.parts if part["type"] == "text"]
    assert parts[1]["text"] == before
    assert store.read(("part", parts[1]["messageID"], parts[1]["id"]))["text"] == before, "it is stored now"


async def test_promise_2_other_readers_see_text_that_is_still_being_streamed(place: str) -> None:
    async with open_harness(Slow(0.01), store=open_place(place)) as harness:
        await harness.submit()
        await harness.until(lambda: len(harness.published(events.PartDelta)) > 150)
        length = sum(len(event.delta) for event in harness.published(events.PartDelta))
        assert length > 4_096, "more than the beginning, which is stored while a text is short"
        reader = Sessions(open_place(place), resolve("."))
        deadline = time.monotonic() + 60
        while len(reader.messages(harness.session)[-1].parts[-1]["text"]) < length:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)


class CountingDisk(Disk):
    def __init__(self) -> None:
        super().__init__(durable=False)
        self.count = 0

    def write(self, descriptor: int, data: bytes) -> None:
        self.count += len(data)
        super().write(descriptor, data)


class Long:
    """Sends a long text, and calls back before it ends."""

    def __init__(self, text: str, before_end: Callable[[], object]) -> None:
        self._text = text
        self._before_end = before_end

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        yield StartStep()
        yield TextStart("t")
        for start in range(0, len(self._text), 50):
            yield TextDelta("t", self._text[start : start + 50])
            if start % 500 == 0:
                await asyncio.sleep(0.02)
        await asyncio.sleep(1)
        self._before_end()
        yield TextEnd("t")
        yield FinishStep("stop")


async def test_promise_2_a_long_answer_costs_the_tree_less_than_1_6_bytes_for_each_byte() -> None:
    text = "".join(path.read_text() for path in sorted((Path(__file__).parents[2] / "docs").glob("*.md")))[:60_000]
    disk, journaled = CountingDisk(), list[int]()

    def measure() -> None:
        folder = StreamJournals(store).folder
        paths = [os.path.join(above, name) for above, _, names in os.walk(folder) for name in names]
        journaled.append(sum(map(os.path.getsize, paths)))

    store = JsonTree("storage", disk=disk)
    async with open_harness(Long(text, measure), store=store) as harness:
        assert (await harness.ask()).text == text.rstrip()
    assert journaled[0] > 10_000, "it was in the journal"
    assert not os.path.exists(StreamJournals(store).folder)
    assert (disk.count + journaled[0]) / len(text.encode()) < 1.6


@pytest.mark.parametrize(("version", "tables"), [("1.2", ["part"]), ("1.18.33", ["part", "event"])])
async def test_promise_2_a_database_has_a_long_answer_as_often_as_opencode_writes_it(
    version: str, tables: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "opencode.db"
    path.write_bytes((Path(__file__).parents[1] / f"fixtures/opencode-{version}/opencode.db").read_bytes())
    text = "".join(WORDS)
    async with open_harness(Long(text, list), store=OpencodeDB(path)) as harness:
        await harness.ask()
    with closing(sqlite3.connect(path)) as database:
        long = {name: f"SELECT count(*) FROM {name} WHERE data LIKE '%word100 %'" for name in tables}
        assert [database.execute(query).fetchone() for query in long.values()] == [(1,)] * len(tables)
