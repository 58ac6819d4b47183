"""Keeps shares up to date while sessions run: hears of changes on the bus, and sends them a second later.

What changed is remembered by key, so that ten changes of one thing are sent once, as it is when they are sent. A server
that does not answer is asked again, ever more patiently; meanwhile changes gather. Whatever could not be sent before
the end is noted, and a later sharer takes it up.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, ParamSpec

from ..errors import BusyError, OpenseshError, ShareError
from ..events import Missed, SessionCreated, SessionDeleted
from ..retry import RetryPolicy
from ..storage import revocations
from . import share_records as journal
from .items import concerned, is_growing, read_key
from .share_service import retry_delay_seconds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from ..bus import Bus, Subscription
    from ..events import Event
    from ..records import Share
    from ..storage.protocol import Key
    from .channel import Channel
    from .items import ShareItem
    from .share_service import ShareService

P = ParamSpec("P")
log = logging.getLogger("opensesh.sharing")
_MOMENT = 1.0
"""Seconds between two tries when the end has come; and for errands that can be run another time."""
_RETRY = RetryPolicy(initial_delay_ms=1_000, max_delay_ms=60_000)


class _SessionQueue:
    """One session: what of it is new, and the way to its share."""

    def __init__(self, session_id: str) -> None:
        self.session = session_id
        self.keys: dict[Key, None] = {}
        self.whole = False
        """Whether single changes no longer tell what is new."""
        self.wanted = False
        """Whether it is to be shared."""
        self.channel: Channel | None = None
        self.failures = 0
        self.behind = False
        """Whether something may be missing on the server that nobody noted."""
        self.closed = False
        """Whether the server will have no more of it."""
        self.ready = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def note(self, key: Key | None) -> None:
        if key is None:
            self.whole = True
        else:
            self.keys[key] = None
        self.ready.set()

    def take(self) -> tuple[dict[Key, None], bool]:
        taken = self.keys, self.whole
        self.keys, self.whole = {}, False
        self.ready.clear()
        return taken

    def put_back(self, keys: dict[Key, None], whole: bool) -> None:
        self.keys = {**keys, **self.keys}
        self.whole |= whole
        self.ready.set()


class ShareSync:
    """An async context manager around whatever runs sessions. Leaving it sends what is left, for a while.

    Sessions that are shared, by whomever, are kept up to date; with the terms ``auto``, new root sessions are shared.
    ``tell`` gets a line for people when a session was shared, or its share could not be kept up to date.
    """

    def __init__(
        self,
        publisher: ShareService,
        bus: Bus,
        *,
        delay: float = 1.0,
        patience: float = 5.0,
        retry: RetryPolicy = _RETRY,
        tell: Callable[[str], None] = log.warning,
    ) -> None:
        """``delay`` is from the first change until it is sent; ``patience`` for what is left at the end. In seconds."""
        self._publisher = publisher
        self._bus = bus
        self._delay = delay
        self._patience = patience
        self._retry = retry
        self._tell = tell
        self._lines: dict[str, _SessionQueue] = {}
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Task[None] | None = None
        self._errand: asyncio.Task[None] | None = None
        self._subscription: Subscription | None = None
        self._closing = asyncio.Event()
        self._removed = asyncio.Event()

    async def __aenter__(self) -> ShareSync:
        await self._group.__aenter__()
        self._subscription = self._bus.subscribe()
        self._listener = self._start(self._listen, self._subscription)
        self._errand = self._group.create_task(_unharmed(self._revoke))
        self._start(self._take_up)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                await self._finish()
        finally:
            for task in (*self._tasks, *([self._errand] if self._errand is not None else [])):
                task.cancel()
            await self._group.__aexit__(None, None, None)
        for line in self._lines.values():
            if line.ready.is_set() and (line.wanted or line.channel):
                what = f"{line.session} is not shared" if line.wanted else f"the share of {line.session} is behind"
                self._tell(f"{what}; 'opensesh session share {line.session}' tries again")

    def share(self, session_id: str) -> None:
        """Have a session shared, soon; it is told when that is done."""
        line = self._line(session_id)
        line.wanted = True
        line.note(None)

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _finish(self) -> None:
        if self._subscription is not None and self._listener is not None:
            self._subscription.close_after(self._bus.last)
            await asyncio.wait([self._listener])
        self._closing.set()
        self._removed.set()
        deadline = time.monotonic() + self._patience
        while self._tasks and (left := deadline - time.monotonic()) > 0:
            await asyncio.wait(self._tasks, timeout=left)  # a task may start others
        if self._errand is not None:
            await asyncio.wait([self._errand], timeout=_MOMENT)

    def _start(self, work: Callable[P, Awaitable[None]], *given: P.args, **named: P.kwargs) -> asyncio.Task[None]:
        task = self._group.create_task(_unharmed(work, *given, **named))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _listen(self, heard: Subscription) -> None:
        async for envelope in heard:
            self._hear(envelope.event)

    def _hear(self, event: Event) -> None:
        if isinstance(event, Missed):
            self._start(self._take_up, True)
        elif isinstance(event, SessionDeleted):
            self._removed.set()
        elif isinstance(event, SessionCreated):
            if self._publisher.terms.automatic and not event.info.get("parentID"):
                self.share(event.info["id"])
        elif (found := concerned(event)) is not None:
            self._line(found[0]).note(found[1])

    def _line(self, session_id: str) -> _SessionQueue:
        line = self._lines.setdefault(session_id, _SessionQueue(session_id))
        if line.task is None or line.task.done():
            line.task = self._start(self._tend, line)
        return line

    async def _tend(self, line: _SessionQueue) -> None:
        while await self._is_ready(line):
            await self._pause(self._delay)
            await self._flush(line)

    async def _is_ready(self, line: _SessionQueue) -> bool:
        """Wait for something to send; whether there is."""
        if not line.ready.is_set() and not self._closing.is_set():
            async with asyncio.TaskGroup() as either:
                waiting = [either.create_task(event.wait()) for event in (line.ready, self._closing)]
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for each in waiting:
                    each.cancel()
        return line.ready.is_set()

    async def _pause(self, seconds: float) -> None:
        """Wait, but not once there is an end to come to."""
        try:
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        except TimeoutError:
            return

    async def _flush(self, line: _SessionQueue) -> None:
        keys, whole = line.take()
        try:
            channel = await self._reach(line)
            if channel is not None:
                await self._send(line, channel, None if whole or line.behind else keys)
            line.failures, line.behind = 0, False
        except asyncio.CancelledError:
            line.put_back(keys, whole)
            raise
        except (ShareError, BusyError) as error:
            if isinstance(error, ShareError) and not error.retryable:
                self._give_up(line, error)
                return
            line.put_back(keys, whole)
            await self._wait_for_server(line, error)
        except OpenseshError as error:
            self._give_up(line, error)

    async def _wait_for_server(self, line: _SessionQueue, error: ShareError | BusyError) -> None:
        line.failures += 1
        line.behind = True
        if line.failures == 3:
            self._tell(f"the share of {line.session} waits for its server: {error.message}")
        wait = retry_delay_seconds(self._retry, line.failures, error)
        if self._closing.is_set():
            await asyncio.sleep(min(wait, _MOMENT))
        else:
            await self._pause(wait)

    async def _reach(self, line: _SessionQueue) -> Channel | None:
        """The way to a session's share; ``None`` if there is no share, or none that is to stay."""
        publisher = self._publisher
        share = None if line.closed else await asyncio.to_thread(publisher.find, line.session)
        if share is not None and revocations.is_waiting(line.session, share):
            share = None
        if share is None and line.wanted:
            share, is_new = await publisher.create(line.session)
            if is_new:
                self._tell(f"shared at {share.url}")
        line.wanted = False
        if share is None:
            line.channel = None
        elif not await asyncio.to_thread(self._is_good, line, share):
            line.channel = await publisher.channel(line.session, share)
            line.behind = True  # what a process that ended did not send is found now
        return line.channel

    def _is_good(self, line: _SessionQueue, share: Share) -> bool:
        """Whether a line has a way to this share, on the terms that hold now."""
        channel = line.channel
        if channel is None or channel.share.id != share.id:
            return False
        return self._publisher.is_as_agreed(line.session, channel)

    async def _send(self, line: _SessionQueue, channel: Channel, keys: dict[Key, None] | None) -> None:
        """Send what is under these keys; everything, if single keys no longer tell."""
        found = None if keys is None else await asyncio.to_thread(self._read, keys)
        if found is None:
            await self._publisher.update(line.session, channel, running=True)
        else:
            await asyncio.to_thread(journal.mark, line.session, unsent=True)
            await channel.send(found)
            await asyncio.to_thread(journal.mark, line.session, unsent=False)
        for key in channel.too_large:
            self._tell(f"{key} of {line.session} is too large for the server, and is not shared")
        channel.too_large.clear()

    def _read(self, keys: dict[Key, None]) -> list[ShareItem] | None:
        """What is stored under these keys by now; ``None`` if some of it is gone."""
        items = [read_key(self._publisher.sessions, key) for key in keys]
        found = [item for item in items if item is not None]
        if len(found) < len(items):
            return None
        return [item for item in found if item.type != "part" or not is_growing(item.data)]

    def _give_up(self, line: _SessionQueue, error: OpenseshError) -> None:
        line.closed, line.wanted, line.channel = True, False, None
        gone = isinstance(error, ShareError) and error.is_gone
        why = "its server holds it no longer; 'opensesh session unshare' forgets it" if gone else error.message
        self._tell(f"the share of {line.session} is not kept up to date: {why}")

    async def _revoke(self) -> None:
        """Take down what is to go: at the beginning, and when a session was removed."""
        store = self._publisher.sessions.store
        while True:
            waiting = await asyncio.to_thread(lambda: any(True for _ in revocations.waiting(store)))
            if waiting and not self._publisher.terms.off:
                for each in await self._publisher.retry():
                    if each.error:
                        log.info("%s still stands: %s", each.url, each.error)
            if self._closing.is_set():
                return
            await self._removed.wait()
            self._removed.clear()

    async def _take_up(self, everything: bool = False) -> None:
        """Send what an earlier sharer of this store could not; or look after every share of it."""
        if self._publisher.terms.off:
            return
        place = self._publisher.sessions.store.place
        for each in await asyncio.to_thread(lambda: list(journal.standing())):
            if each.store == place and (each.unsent or everything):
                self._line(each.session).note(None)


async def _unharmed(work: Callable[P, Awaitable[None]], *given: P.args, **named: P.kwargs) -> None:
    """Sharing may fail; what is shared must not fail with it."""
    try:
        await work(*given, **named)
    except Exception:
        log.exception("sharing broke off")
