from __future__ import annotations

import asyncio
import resource
import statistics
import sys
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from opensesh import events
from opensesh.engine import cancellation
from opensesh.engine.engine import Engine
from opensesh.engine.opening import open_engine
from opensesh.models import stream_events as stream
from opensesh.models.request import Request
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.memory import Memory
from opensesh.storage.protocol import Key, Store

from .harness import echo

OPENED = (stream.StartStep(), stream.TextStart("t"))
FINISHED = (stream.TextEnd("t"), stream.FinishStep("stop"))


class Streaming:
    """Says a text of a given length, in pieces as they would come over a wire."""

    def __init__(self, size: int, piece: int) -> None:
        self._count = size // piece
        self._piece = piece

    async def stream(self, request: Request) -> AsyncIterator[stream.StreamEvent]:
        for event in OPENED:
            yield event
        for number in range(self._count):
            yield stream.TextDelta("t", f"{number:<{self._piece}}")
            if number % 64 == 0:
                await asyncio.sleep(0)
        for event in FINISHED:
            yield event


class Stepping:
    """Calls a tool at every step, and notes how many calls were made until then."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._counted = 0
        self.calls: list[int] = []

    def count(self, frame: Any, event: str, argument: Any) -> None:
        """For ``sys.setprofile``: counts calls, in Python and in C."""
        self._counted += event in ("call", "c_call")

    async def stream(self, request: Request) -> AsyncIterator[stream.StreamEvent]:
        self.calls.append(self._counted)
        number = len(self.calls)
        for event in (*OPENED, stream.TextDelta("t", "On it.")):
            yield event
        if number > self._steps:
            for event in FINISHED:
                yield event
            return
        yield stream.TextEnd("t")
        yield stream.ToolInputStart(f"call_{number}", "echo")
        yield stream.ToolCall(f"call_{number}", "echo", {"number": number})
        yield stream.FinishStep("tool-calls")


def around(calls: Sequence[int], step: int) -> float:
    """Return the median number of calls of the steps around this one."""
    took = [after - before for before, after in pairwise(calls)]
    return statistics.median(took[max(0, step - 15) : step + 15])


class Latency:
    """How long the event loop kept someone waiting who only wanted a moment."""

    worst = 0.0

    async def watch(self, done: asyncio.Event) -> None:
        while not done.is_set():
            before = time.perf_counter()
            await asyncio.sleep(0.002)
            self.worst = max(self.worst, time.perf_counter() - before)


async def crowd(store: Store, sessions: int, size: int, piece: int) -> tuple[Engine, float]:
    """Stream so many texts at the same time; the engine, and the worst moment of its loop."""
    latency, done = Latency(), asyncio.Event()
    async with open_engine(".", store=store, scripts={"it": Streaming(size, piece)}) as engine:
        opened = [await engine.create(title="one of many") for _ in range(sessions)]
        async with asyncio.TaskGroup() as group:
            group.create_task(latency.watch(done))
            runs = [group.create_task(engine.run(item.id, "Go.", model="scripted/it")) for item in opened]
            outcomes = await asyncio.gather(*runs)
            done.set()
        assert {outcome.kind for outcome in outcomes} == {"answered"}
        for outcome in outcomes:
            assert outcome.message is not None
            text = outcome.message.parts[1]["text"]
            assert size - piece <= len(text) <= size
    return engine, latency.worst


async def test_fifty_sessions_stream_at_the_same_time_and_none_waits_long() -> None:
    _, worst = await crowd(Memory(), 50, 500_000, 250)
    assert worst < 5.0


async def test_the_bus_holds_no_copies_of_a_growing_text() -> None:
    engine, _ = await crowd(Memory(), 1, 1_000_000, 100)
    kept = 0
    async with engine.bus.subscribe(after=0) as received:
        received.close_after(engine.bus.last)
        async for envelope in received:
            if isinstance(envelope.event, events.PartUpdated):
                kept += len(envelope.event.part.get("text", ""))
    assert 1_000_000 <= kept < 2_200_000


async def test_a_subscriber_that_is_too_slow_gets_the_number_of_missed_events_and_the_end() -> None:
    async with open_engine(".", store=Memory(), scripts={"it": Streaming(200_000, 10)}) as engine:
        session = await engine.create(title="fast")
        received: list[events.Event] = []
        async for envelope in engine.prompt(session.id, "Go.", model="scripted/it"):
            received.append(envelope.event)
            if len(received) == 3:
                while engine.status():
                    await asyncio.sleep(0.01)
        (missed,) = [event for event in received if isinstance(event, events.Missed)]
        assert missed.last - missed.first > 3_000
        assert isinstance(received[-2], events.SessionIdle)
        assert isinstance(received[-1], events.PromptEnded)


async def peak(folder: Path, sessions: int) -> int:
    tree = JsonTree(folder, durability="relaxed")
    tracemalloc.start()
    try:
        await crowd(tree, sessions, 1_000_000, 250)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


async def test_memory_is_bounded_by_what_is_streamed(tmp_path: Path) -> None:
    few, many = await peak(tmp_path / "few", 2), await peak(tmp_path / "many", 12)
    assert many - few < 2 * 10_000_000


@pytest.mark.slow
@pytest.mark.load
@pytest.mark.timeout(1_200)
async def test_fifty_sessions_of_ten_megabytes(tmp_path: Path) -> None:
    tree = JsonTree(tmp_path / "storage", durability="relaxed")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    _, worst = await crowd(tree, 50, 10_000_000, 200)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"500 MB in {time.perf_counter() - began:.0f} s; worst wait {worst:.2f} s; {grown:.0f} MB more than before")
    assert worst < 5.0
    assert grown < 1.4 * 500


async def steps(model: Stepping, store: Memory | None = None) -> Stepping:
    async with open_engine(".", store=store or Memory(), scripts={"it": model}, tools=[echo()]) as engine:
        session = await engine.create(title="long")
        outcome = await asyncio.wait_for(engine.run(session.id, "Go.", model="scripted/it"), 100)
        assert outcome.kind == "answered"
    return model


@pytest.mark.parametrize("count", [300, pytest.param(1_000, marks=pytest.mark.slow)])
async def test_a_late_step_makes_no_more_calls_than_an_early_one(count: int) -> None:
    model = Stepping(count)
    cancellation.threads.cache_clear()  # only threads that begin now are profiled
    threading.setprofile(model.count)
    sys.setprofile(model.count)
    try:
        await steps(model)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        cancellation.threads.cache_clear()
    assert around(model.calls, count - 15) < 1.05 * around(model.calls, 20)


class CountingReads(Memory):
    """Counts the records that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def read(self, key: Key) -> Any:
        self.reads += 1
        return super().read(key)

    def messages(self, session_id: str, **options: Any) -> Any:
        messages = super().messages(session_id, **options)
        self.reads += sum(1 + len(message.parts) for message in messages)
        return messages


async def test_a_late_step_reads_no_more_records_than_an_early_one() -> None:
    store, reads = CountingReads(), list[int]()

    class Counting(Stepping):
        async def stream(self, request: Request) -> AsyncIterator[stream.StreamEvent]:
            reads.append(store.reads)
            async for event in super().stream(request):
                yield event

    await steps(Counting(300), store)
    early, late = reads[30] - reads[10], reads[290] - reads[270]
    assert late <= early
