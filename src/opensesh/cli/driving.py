"""One prompt from beginning to end: submits it, shows what happens, answers what is asked, and stops when told to."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

from .tally import Tally

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from ..bus import Envelope, Subscription
    from ..engine.engine import Engine
    from ..engine.loop import Outcome
    from .asking import Policy

    Ask = Callable[[str], Awaitable[asyncio.Future[Outcome]]]

EXIT_CODES = {"answered": 0, "failed": 1, "blocked": 1, "aborted": 130}
"""By the kind of a prompt's outcome."""
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class View(Protocol):
    """Whoever shows a run."""

    def follow(self, session_id: str) -> None:
        """This is the session."""
        ...

    def show(self, envelope: Envelope) -> None:
        """Something happened."""
        ...


class Drive:
    """A prompt under way. ``tally`` is what it has cost so far."""

    def __init__(self, engine: Engine, view: View, answers: Policy, tell: Callable[[str], None]) -> None:
        self.engine = engine
        self.tally = Tally()
        self.session_id = ""
        self.is_heard = True
        """Whether there is still someone who reads what is shown."""
        self._view = view
        self._answers = answers
        self._tell = tell
        self._stops = 0
        self._unwritable: OSError | None = None
        self._main: asyncio.Task[object] | None = None

    async def run(self, session: Callable[[], Awaitable[str]], ask: Ask) -> Outcome:
        """Open the engine, ``ask`` in the session that ``session`` answers with, and see it through.

        The first interruption aborts the run, which then has an outcome like any other; the second ends the process.
        """
        main = self._main = asyncio.current_task()
        failure: Exception | None = None
        outcome: Outcome | None = None
        async with self.engine.bus.subscribe() as heard, asyncio.TaskGroup() as group:
            group.create_task(self._watch(heard))
            with self._interruptible():
                try:
                    async with self.engine:
                        outcome = await self._converse(session, ask)
                except asyncio.CancelledError:
                    if outcome is None or main is None:
                        raise
                    main.uncancel()  # it has its outcome; only something like a title was waited for
                except Exception as error:
                    failure = error
            heard.close_after(self.engine.bus.last)
        failure = failure or self._unwritable
        if failure is not None or outcome is None:
            raise failure or asyncio.CancelledError
        return outcome

    async def _converse(self, session: Callable[[], Awaitable[str]], ask: Ask) -> Outcome:
        self.session_id = await session()
        self._view.follow(self.session_id)
        return await (await ask(self.session_id))

    async def _watch(self, heard: Subscription) -> None:
        async for envelope in heard:
            self.tally.note(envelope.event)
            if self.is_heard:
                try:
                    self._view.show(envelope)
                except OSError as error:
                    self._nobody_reads(error)
            await self._answers.mind(envelope.event)

    def _nobody_reads(self, error: OSError) -> None:
        """The reader went away, as ``head`` does, or the disk is full: nobody would see what more is done, or could
        object to it."""
        self.is_heard = False
        self._unwritable = None if isinstance(error, BrokenPipeError) else error
        self.stop()

    def stop(self) -> None:
        """Abort; what is being asked is not asked any more."""
        self._answers.leave()
        if not self.engine.abort(self.session_id) and self._main is not None:
            self._main.cancel()

    def _interrupted(self) -> None:
        self._stops += 1
        if self._stops > 1:
            # The next run of this session brings its records to an end, as after a crash.
            os._exit(130)
        with suppress(OSError):
            self._tell("stopping; once more to leave at once")
        self.stop()

    @contextmanager
    def _interruptible(self) -> Generator[None]:
        loop = asyncio.get_running_loop()
        caught: list[signal.Signals] = []
        for each in _SIGNALS:
            # Windows cannot, and neither can a thread: there an interruption cancels the task.
            with suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(each, self._interrupted)
                caught.append(each)
        try:
            yield
        finally:
            for each in caught:
                loop.remove_signal_handler(each)
