"""Costs of the engine: a step early and late in a session, a delta, bytes written, and the import."""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from itertools import pairwise
from typing import Any

from opensesh.engine.opening import open_engine
from opensesh.models import stream_events as events
from opensesh.models.request import Provider, Request
from opensesh.storage.disk import Disk
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.memory import Memory
from opensesh.storage.protocol import Store
from opensesh.tools.tool import Context, ToolOutput

from .report import child_cpu, line, python

STEPS = 1_000
DELTAS = 100_000
TEXTS = (2_000, 9_000, 30_000, 70_000, 200_000, 600_000)
_FINISHED = (events.FinishStep("stop"),)
_OPENED = (events.StartStep(), events.TextStart("t"))


def run() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = os.path.join(folder, "state")
        early, late = steps(folder)
        line(f"CPU of a step after {STEPS - 100:,}", late / early, "one of the first hundred", 1.2)
        line("CPU of a step", early * 1_000, "a millisecond", 2.0)
        line("deltas a second of CPU", DELTAS / deltas(folder) / 100, "100, as a fast model sends", 100, at_least=True)
        line("bytes written while streaming", written(folder), "bytes streamed", 1.6)
        line(
            "import of the engine",
            child_cpu([python(), "-c", "import opensesh.engine.engine"]) / child_cpu([python(), "-c", "pass"]),
            "python -c pass",
            12,
        )


class Stepping:
    """A model that calls a tool at every step and records the CPU time."""

    def __init__(self) -> None:
        self.clock: list[float] = []

    async def stream(self, request: Request) -> AsyncIterator[events.StreamEvent]:
        self.clock.append(time.process_time())
        number = len(self.clock)
        for event in (*_OPENED, events.TextDelta("t", "On it."), events.TextEnd("t")):
            yield event
        if number > STEPS:
            for event in _FINISHED:
                yield event
            return
        call = f"call_{number}"
        yield events.ToolInputStart(call, "echo")
        yield events.ToolCall(call, "echo", {"number": number})
        yield events.FinishStep("tool-calls", events.Usage(input=900, output=40))


class Echo:
    """A tool that does nothing."""

    id = "echo"
    description = "Answers."
    schema: dict[str, Any] = {"type": "object", "properties": {}}

    async def run(self, arguments: Mapping[str, Any], ctx: Context) -> ToolOutput:
        return ToolOutput("Echo", "words " * 100, {"truncated": False})


class Streaming:
    """A model that streams texts of these lengths, one for each prompt, in small deltas."""

    def __init__(self, sizes: tuple[int, ...], piece: int) -> None:
        self._sizes = list(sizes)
        self._piece = "word " * (piece // 5)

    async def stream(self, request: Request) -> AsyncIterator[events.StreamEvent]:
        for event in _OPENED:
            yield event
        for _ in range(self._sizes.pop(0) // len(self._piece)):
            yield events.TextDelta("t", self._piece)
        for event in (events.TextEnd("t"), *_FINISHED):
            yield event


class CountingDisk(Disk):
    """Counts the bytes written."""

    bytes = 0

    def write(self, descriptor: int, data: bytes) -> None:
        self.bytes += len(data)
        super().write(descriptor, data)


def steps(folder: str) -> tuple[float, float]:
    """Return the CPU seconds of a step among the first hundred and among the last, least disturbed of four runs."""
    early, late = float("inf"), float("inf")
    for _ in range(4):
        model = Stepping()
        asyncio.run(session(folder, Memory(), model, 1))
        took = [after - before for before, after in pairwise(model.clock)]
        early, late = min(early, least_disturbed(took[4:104])), min(late, least_disturbed(took[-100:]))
    return early, late


def least_disturbed(took: list[float]) -> float:
    """Return the median of the ten consecutive steps that other processes disturbed least."""
    return min(statistics.median(took[start : start + 10]) for start in range(0, len(took), 10))


def deltas(folder: str) -> float:
    """Return the CPU seconds of streaming ``DELTAS`` deltas of ten characters."""
    began = time.process_time()
    asyncio.run(session(folder, Memory(), Streaming((DELTAS * 10,), 10), 1))
    return time.process_time() - began


def written(folder: str) -> float:
    """Return the bytes written for each byte of text, in a session with answers of many lengths."""
    disk = CountingDisk(durable=False)
    tree = JsonTree(os.path.join(folder, "storage"), disk=disk)
    asyncio.run(session(folder, tree, Streaming(TEXTS, 20), len(TEXTS)))
    return disk.bytes / sum(TEXTS)


async def session(folder: str, store: Store, model: Provider, prompts: int) -> None:
    """Run a session with this number of prompts."""
    async with open_engine(folder, store=store, scripts={"it": model}, tools=[Echo()]) as engine:
        opened = await engine.create(title="A session")
        for _ in range(prompts):
            outcome = await engine.run(opened.id, "Go.", model="scripted/it")
            if outcome.kind != "answered":
                raise SystemExit(f"unexpected outcome: {outcome.description}")
