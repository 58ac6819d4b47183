"""Compaction: the largest request for a summary relative to the window, for conversations of several sizes."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator

from opensesh.engine.context_window import request_tokens, usable, visible
from opensesh.engine.opening import open_engine
from opensesh.engine.summary_text import summary_chunks
from opensesh.models.model import scripted_model
from opensesh.models.request import Request
from opensesh.models.stream_events import FinishStep, StartStep, StreamEvent, TextDelta, TextEnd, TextStart, Usage
from opensesh.storage.memory import Memory

from .report import interleaved, line

_WINDOWS = (0.5, 2, 10)


class _Brief:
    """A provider that answers in two words and records the sizes of its requests."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        self.sizes.append(sum(request_tokens(request).values()))
        yield StartStep()
        yield TextStart("1")
        yield TextDelta("1", "in short")
        yield TextEnd("1")
        yield FinishStep(reason="stop", usage=Usage(input=1, output=1))


def run() -> None:
    for windows in _WINDOWS:
        largest, requests, size = asyncio.run(_compacted(windows))
        what = f"request for a summary of {windows:g} windows ({requests} of them)"
        line(what, largest / size, "the usable window", 1.0)
    asyncio.run(_inspected())


async def _compacted(windows: float) -> tuple[int, int, int]:
    brief = _Brief()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        async with open_engine(folder, store=Memory(), scripts={"it": brief}) as engine:
            size = usable(scripted_model("it"), engine.config)
            session = (await engine.create(title="bench")).id
            words = "some words of a conversation " * (size * 4 // 29 // 20)
            for _ in range(int(20 * windows)):
                await engine.run(session, words, model="scripted/it")
            before = len(brief.sizes)
            await (await engine.compact(session))
        os.chdir("/")
    return max(brief.sizes[before:]), len(brief.sizes) - before, size


async def _inspected() -> None:
    """Compare inspecting a request with building the request for a summary."""
    brief = _Brief()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        async with open_engine(folder, store=Memory(), scripts={"it": brief}) as engine:
            session = await engine.create(title="bench")
            for _ in range(200):
                await engine.run(session.id, "some words of a conversation " * 200, model="scripted/it")
            messages = visible(engine.sessions.messages(session.id))
            model, config = scripted_model("it"), engine.config
            looked, cut = interleaved(
                lambda: engine.components.inspector.inspect(session),
                lambda: summary_chunks(messages, model, config),
                rounds=5,
            )
        os.chdir("/")
    line("inspecting a request of 400 messages", looked / cut, "splitting them for a summary")
