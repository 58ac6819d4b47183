"""An engine for tests: a store in memory that records every write, and a model that plays a script."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from opensesh import events
from opensesh.bus import Envelope
from opensesh.engine.engine import Engine
from opensesh.engine.loop import Outcome
from opensesh.engine.opening import open_engine
from opensesh.engine.prompt import Prompt
from opensesh.engine.settings import Settings
from opensesh.models.request import Provider, Request
from opensesh.models.stream_events import StreamEvent
from opensesh.plugins import Pluggable
from opensesh.records import Rule
from opensesh.retry import RetryPolicy
from opensesh.storage.memory import Memory
from opensesh.storage.protocol import Batch, Key, Store, StoredMessage
from opensesh.testing.scripted import Script, ScriptedModel
from opensesh.tools.tool import Tool, ToolOutput

IMPATIENT = Settings(retry=RetryPolicy(initial_delay_ms=1, max_delay_ms=1))


class _RecordingBatch:
    """A batch that records the keys of what is written."""

    def __init__(self, batch: Batch, keys: list[Key]) -> None:
        self._batch = batch
        self._keys = keys
        self.remove = batch.remove

    def write(self, key: Key, value: Any) -> None:
        self._batch.write(key, value)
        self._keys.append(key)


class WriteLog(Memory):
    """A store in memory that records every write, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[Key, Any]] = []

    @contextmanager
    def batch(self) -> Generator[Batch]:
        keys: list[Key] = []
        with super().batch() as batch:
            yield _RecordingBatch(batch, keys)
        self.written += [(key, self.read(key)) for key in keys]

    def states(self, part: str) -> list[str]:
        """Return the states in which a tool part was stored, in order."""
        return [value["state"]["status"] for key, value in self.written if key[0] == "part" and key[2] == part]


class EngineHarness:
    """A running engine with one session, and the events that it has published."""

    def __init__(self, engine: Engine, provider: Provider, store: Store, session: str) -> None:
        self.engine = engine
        self.provider = provider
        self.store = store
        self.session = session
        self.received: list[Envelope] = []
        engine.bus.listen(self.received.append)

    @property
    def model(self) -> ScriptedModel:
        assert isinstance(self.provider, ScriptedModel)
        return self.provider

    async def ask(self, prompt: str | Prompt = "Go.", session: str | None = None, **more: Any) -> Outcome:
        if isinstance(prompt, str):
            more = {"model": "scripted/it"} | more
        return await asyncio.wait_for(self.engine.run(session or self.session, prompt, **more), 60)

    async def submit(self, prompt: str = "Go.", session: str | None = None, **more: Any) -> asyncio.Future[Outcome]:
        more = {"model": "scripted/it"} | more
        return await self.engine.submit(session or self.session, prompt, **more)

    def messages(self, session: str | None = None) -> list[StoredMessage]:
        """Return the stored messages of a session."""
        return list(self.engine.sessions.messages(session or self.session))

    def answers(self) -> list[StoredMessage]:
        return [message for message in self.messages() if message.info["role"] == "assistant"]

    def parts(self, kind: str, session: str | None = None) -> list[dict[str, Any]]:
        return [part for message in self.messages(session) for part in message.parts if part["type"] == kind]

    def text(self) -> str:
        """Return all text of the model."""
        return "".join(part["text"] for message in self.answers() for part in message.parts if part["type"] == "text")

    def published(self, kind: type[events.Event]) -> list[Any]:
        """Return the published events of one kind, in order."""
        received = sorted(self.received, key=lambda envelope: envelope.sequence)
        return [envelope.event for envelope in received if isinstance(envelope.event, kind)]

    async def until(self, holds: Callable[[], Any]) -> Any:
        """Wait until ``holds`` returns something true, and return that."""
        async with asyncio.timeout(60):
            while not (result := holds()):
                await asyncio.sleep(0.005)
            return result

    async def until_published(self, kind: type[events.Event], number: int = 1) -> Any:
        """Wait for the ``number``-th event of a kind."""
        return (await self.until(lambda: len(self.published(kind)) >= number and self.published(kind)))[number - 1]

    def assert_sound(self) -> None:
        """Check what is true of every session that is not running: all calls and answers have ended."""
        assert self.engine.status() == {}
        messages = self.messages()
        for message in messages:
            for part in message.parts:
                if part["type"] == "tool":
                    assert part["state"]["status"] in ("completed", "error"), part
            if message.info["role"] == "assistant":
                assert "completed" in message.info["time"], message.info
        assert messages[-1].info["role"] == "assistant", "a prompt without an answer"
        last = messages[-1].info
        assert "error" in last or last["finish"] not in ("tool-calls", "unknown"), last


@asynccontextmanager
async def open_harness(
    script: str | Script | Provider,
    *,
    config: dict[str, Any] | None = None,
    store: Store | None = None,
    settings: Settings = IMPATIENT,
    tools: Sequence[Tool] = (),
    plugins: Sequence[Pluggable] = (),
    rules: Sequence[Rule] | None = None,
    title: str | None = "A title",
    **models: Provider,
) -> AsyncGenerator[EngineHarness]:
    """Open an engine in the current directory, with a session in it; the model is ``scripted/it``."""
    Path("opencode.json").write_text(json.dumps(config or {}))
    provider = ScriptedModel(script) if isinstance(script, (str, Script)) else script
    kept = store or WriteLog()
    scripts = {"it": provider} | models
    opened = open_engine(".", store=kept, settings=settings, tools=tools, scripts=scripts, plugins=plugins)
    async with opened as engine:
        session = await engine.create(title=title, permission=rules)
        yield EngineHarness(engine, provider, kept, session.id)


class Playing:
    """A provider that plays prepared events, one list a call; an exception among them is raised."""

    def __init__(self, *calls: Sequence[StreamEvent | BaseException]) -> None:
        self._calls = list(calls)
        self.requests: list[Request] = []
        self.closed_in_place = 0
        """How many streams were closed by the task that read them, rather than by the garbage collector."""

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        self.requests.append(request)
        reader = asyncio.current_task()
        try:
            for event in self._calls[len(self.requests) - 1]:
                if isinstance(event, BaseException):
                    raise event
                yield event
                await asyncio.sleep(0)
        finally:
            self.closed_in_place += asyncio.current_task() is reader


class Acting:
    """A tool that calls a function of the test, without asking for permission."""

    schema: dict[str, Any] = {"type": "object", "properties": {}}
    description = "Acts."

    read_only = False

    def __init__(self, name: str, act: Callable[[dict[str, Any], Any], Awaitable[Any]]) -> None:
        self.id = name
        self._act = act

    async def run(self, arguments: Any, ctx: Any) -> ToolOutput:
        answer = await self._act(dict(arguments), ctx)
        return answer if isinstance(answer, ToolOutput) else ToolOutput("Acted", str(answer))


def echo() -> Acting:
    async def act(arguments: dict[str, Any], ctx: Any) -> str:
        return f"echo {json.dumps(arguments)}"

    return Acting("echo", act)


def hanging(started: asyncio.Event | None = None) -> Acting:
    """Return a tool that never ends by itself."""

    async def act(arguments: dict[str, Any], ctx: Any) -> str:
        await ctx.progress(title="hanging", metadata={"so": "far"})
        if started is not None:
            started.set()
        await asyncio.Event().wait()
        return "never"

    return Acting("hang", act)
