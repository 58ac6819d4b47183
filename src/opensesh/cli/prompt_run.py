"""One prompt from submission to outcome: shows its events, answers its requests, counts its usage, handles Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

from .. import ids
from ..engine.budget import used_tokens
from ..errors import OpenseshError
from ..events import Event, MessageUpdated
from ..models.stream_events import Usage
from ..records import Document, dumps_compact, object_at, side_calls
from .terminal import Stream

if TYPE_CHECKING:
    from ..bus import Envelope, Subscription
    from ..engine.engine import Engine
    from ..engine.loop import Outcome
    from .responders import AutoResponder

    Submit = Callable[[str], Awaitable[asyncio.Future[Outcome]]]

EXIT_CODES = {"answered": 0, "failed": 1, "blocked": 1, "aborted": 130}
"""The exit code for each kind of a prompt's outcome."""
OUTCOME_NOTES = {"aborted": "aborted", "blocked": "stopped, because a permission was refused"}
"""What the user is shown of an outcome that no event shows, by its kind."""
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class RunUsage:
    """Tokens and cost of all model calls of one run, including subagents and the title."""

    def __init__(self) -> None:
        self._started = ids.now_ms()
        self._answers: dict[str, Document] = {}

    def record(self, event: Event) -> None:
        """Count the calls of an event, unless they were made before this run."""
        if not isinstance(event, MessageUpdated):
            return
        calls = {f"{event.info['id']}#{number}": call for number, call in enumerate(side_calls(event.info))}
        if event.info.get("role") == "assistant":
            calls[event.info["id"]] = event.info
        for name, call in calls.items():
            if object_at(call, "time").get("created", 0) >= self._started:
                self._answers[name] = call

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return (ids.now_ms() - self._started) / 1000

    @property
    def tokens(self) -> Document:
        """Tokens by bucket, in the form that messages have."""
        total = sum(map(used_tokens, self._answers.values()), Usage())
        cache = {"read": total.cache_read, "write": total.cache_write}
        return {"input": total.input, "output": total.output, "reasoning": total.reasoning, "cache": cache}

    def cost(self, engine: Engine) -> float | None:
        """Return the cost in US dollars; ``None`` if some price is unknown."""
        total = engine.spent(list(self._answers.values())).cost
        return None if total is None else float(total)

    def summary(self, engine: Engine) -> str:
        """Return ``$0.0123  1,200 tokens in (900 of them cached), 48 out  7.4 s``."""
        tokens = self.tokens
        cached = tokens["cache"]["read"]
        sent = tokens["input"] + cached + tokens["cache"]["write"]
        cached_note = f" ({cached:,} of them cached)" if cached else ""
        received = tokens["output"] + tokens["reasoning"]
        return (
            f"{format_cost(self.cost(engine))}  {sent:,} tokens in{cached_note}, {received:,} out  {self.seconds:.1f} s"
        )


def format_cost(cost: float | None) -> str:
    """Return US dollars, to a hundredth of a cent."""
    if cost is None:
        return "cost unknown"
    return "less than $0.0001" if 0 < cost < 0.0001 else f"${cost:.4f}"


class RunView(Protocol):
    """Shows the events of a run."""

    def follow(self, session_id: str) -> None:
        """Learn which session the run is in."""
        ...

    def show(self, envelope: Envelope) -> None:
        """Show an event."""
        ...


class PromptRun:
    """A prompt in progress."""

    def __init__(self, engine: Engine, view: RunView, responder: AutoResponder, note: Callable[[str], None]) -> None:
        self.engine = engine
        self.usage = RunUsage()
        self.session_id = ""
        self.output_open = True
        """Whether what is shown can still be written."""
        self._view = view
        self._responder = responder
        self._note = note
        self._interruptions = 0
        self._write_error: OSError | None = None
        self._main: asyncio.Task[object] | None = None

    async def run(self, session: Callable[[], Awaitable[str]], submit: Submit) -> Outcome:
        """Open the engine, ``submit`` in the session that ``session`` returns, and wait for the outcome.

        The first interruption aborts the run, which then has an outcome like any other; the second ends the process.
        """
        main = self._main = asyncio.current_task()
        failure: Exception | None = None
        outcome: Outcome | None = None
        async with self.engine.bus.subscribe() as subscription, asyncio.TaskGroup() as group:
            group.create_task(self._watch(subscription))
            with self._handle_signals():
                try:
                    async with self.engine:
                        self.session_id = await session()
                        self._view.follow(self.session_id)
                        outcome = await (await submit(self.session_id))
                except asyncio.CancelledError:
                    if outcome is None or main is None:
                        raise
                    main.uncancel()  # there is an outcome; only something like the title was still to come
                except Exception as error:
                    failure = error
            subscription.close_after(self.engine.bus.last)
        failure = failure or self._write_error
        if failure is not None or outcome is None:
            raise failure or asyncio.CancelledError
        return outcome

    async def _watch(self, subscription: Subscription) -> None:
        async for envelope in subscription:
            self.usage.record(envelope.event)
            if self.output_open:
                try:
                    self._view.show(envelope)
                except OSError as error:
                    # The pipe is closed, or the disk is full: the user would not see what the run still does.
                    self.output_open = False
                    self._write_error = None if isinstance(error, BrokenPipeError) else error
                    self.abort()
            await self._responder.handle_event(envelope.event)

    def abort(self) -> None:
        """Abort the run, and stop asking the user."""
        self._responder.leave()
        if not self.engine.abort(self.session_id) and self._main is not None:
            self._main.cancel()

    @contextmanager
    def _handle_signals(self) -> Generator[None]:
        loop = asyncio.get_running_loop()
        handled: list[signal.Signals] = []

        def interrupt() -> None:
            self._interruptions += 1
            if self._interruptions > 1:
                # The next run of this session repairs its records, as after a crash.
                os._exit(130)
            with suppress(OSError):
                self._note("aborting; press Ctrl-C again to quit at once")
            self.abort()

        for number in _SIGNALS:
            # Not possible on Windows, nor outside of the main thread: there, an interruption cancels the task.
            with suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, interrupt)
                handled.append(number)
        try:
            yield
        finally:
            for number in handled:
                loop.remove_signal_handler(number)


# -- JSON --------------------------------------------------------------------------------------------------------------


class EventLines:
    """Writes every event as one line of JSON: its type, properties and sequence number."""

    def __init__(self, out: Stream) -> None:
        self._out = out

    def follow(self, session_id: str) -> None:
        """Do nothing: the events name their session."""

    def show(self, envelope: Envelope) -> None:
        """Write the event."""
        write_json_line(self._out, {**envelope.document, "sequence": envelope.sequence})


class NoView:
    """Shows nothing."""

    def follow(self, session_id: str) -> None:
        """Do nothing."""

    def show(self, envelope: Envelope) -> None:
        """Do nothing."""


def write_json_line(out: Stream, document: Document) -> None:
    """Write a document as one line, with every character escaped that some readers take for a line end."""
    line = dumps_compact(document)
    for character in ("\u2028", "\u2029", "\x85"):
        line = line.replace(character.encode(), b"\\u%04x" % ord(character))
    out.write_bytes(line + b"\n")


def result_document(run: PromptRun, outcome: Outcome) -> Document:
    """Return the result record of a run."""
    record: Document = {
        "type": "result",
        "sessionID": run.session_id,
        "outcome": outcome.kind,
        "text": outcome.text,
        "cost": run.usage.cost(run.engine),
        "tokens": run.usage.tokens,
    }
    return record | ({"error": outcome.error} if outcome.error is not None else {})


def failed_result_document(error: Exception) -> Document:
    """Return the result record of a run that failed before the prompt had an outcome."""
    known = isinstance(error, OpenseshError)
    data = {**error.data, "message": error.message} if known else {"message": f"{type(error).__name__}: {error}"}
    return {
        "type": "result",
        "sessionID": None,
        "outcome": "failed",
        "text": "",
        "cost": 0,
        "tokens": {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}},
        "error": {"name": error.json_name if known else "UnknownError", "data": data},
    }
