"""Keep shares up to date while sessions run: changes are read from the bus and sent about a second later.

Changed records are remembered by key, so ten changes of one record are sent once, in its latest state. While a server
does not answer, changes collect and are retried with growing delays. What could not be sent before the end is recorded,
and a later :class:`ShareSync` sends it.
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
from . import share_records
from .items import ShareItem, changed_key, is_incomplete, read_key
from .share_service import ShareService, retry_delay_seconds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..bus import Bus, Subscription
    from ..storage.protocol import Key
    from .client import ShareChannel

P = ParamSpec("P")
log = logging.getLogger("opensesh.sharing")
_CLOSING_DELAY_SECONDS = 1.0
"""The longest delay between two attempts while closing, and how long pending removals may take then."""
_RETRY = RetryPolicy(initial_delay_ms=1_000, max_delay_ms=60_000)


class _SessionQueue:
    """The unsent changes of one session, and the channel to its share."""

    def __init__(self, session_id: str) -> None:
        self.session = session_id
        self.keys: dict[Key, None] = {}
        self.send_all = False
        """Whether the changed keys are not sufficient, and the session must be compared as a whole."""
        self.share_requested = False
        self.channel: ShareChannel | None = None
        self.failures = 0
        self.behind = False
        """Whether the server may lack changes that were not recorded."""
        self.closed = False
        """Whether updates were given up after an error that a retry would not resolve."""
        self.task: asyncio.Task[None] | None = None
        """The task that sends the changes. It ends when there are none left."""

    @property
    def has_changes(self) -> bool:
        """Whether there is anything to send."""
        return self.send_all or bool(self.keys)

    def add(self, key: Key | None) -> None:
        if key is None:
            self.send_all = True
        else:
            self.keys[key] = None

    def take(self) -> tuple[dict[Key, None], bool]:
        changes = self.keys, self.send_all
        self.keys, self.send_all = {}, False
        return changes

    def put_back(self, keys: dict[Key, None], send_all: bool) -> None:
        self.keys = {**keys, **self.keys}
        self.send_all |= send_all


class ShareSync:
    """An async context manager around a running engine. Leaving it sends what is left, within ``close_timeout``.

    Shared sessions are kept up to date; with the setting ``share: auto``, new root sessions are shared. ``notify`` gets
    a line for the user when a session was shared, or when its share could not be updated.
    """

    def __init__(
        self,
        service: ShareService,
        bus: Bus,
        *,
        delay: float = 1.0,
        close_timeout: float = 5.0,
        retry: RetryPolicy = _RETRY,
        notify: Callable[[str], None] = log.warning,
    ) -> None:
        """``delay`` is the time in seconds from the first change until it is sent."""
        self._service = service
        self._bus = bus
        self._delay = delay
        self._close_timeout = close_timeout
        self._retry = retry
        self._notify = notify
        self._queues: dict[str, _SessionQueue] = {}
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Task[None] | None = None
        self._revocation_task: asyncio.Task[None] | None = None
        self._subscription: Subscription | None = None
        self._closing = asyncio.Event()
        self._session_removed = asyncio.Event()

    async def __aenter__(self) -> ShareSync:
        await self._group.__aenter__()
        self._subscription = self._bus.subscribe()
        self._listener = self._start(self._listen, self._subscription)
        self._revocation_task = self._group.create_task(_logging_errors(self._revoke_pending))
        self._start(self._resume)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                if self._subscription is not None and self._listener is not None:
                    self._subscription.close_after(self._bus.last)
                    await asyncio.wait([self._listener])
                self._closing.set()
                self._session_removed.set()
                deadline = time.monotonic() + self._close_timeout
                while self._tasks and (remaining := deadline - time.monotonic()) > 0:
                    await asyncio.wait(self._tasks, timeout=remaining)  # a task may start others
                if self._revocation_task is not None:
                    await asyncio.wait([self._revocation_task], timeout=_CLOSING_DELAY_SECONDS)
        finally:
            for task in (*self._tasks, *([self._revocation_task] if self._revocation_task is not None else [])):
                task.cancel()
            await self._group.__aexit__(None, None, None)
        for queue in self._queues.values():
            if queue.has_changes and (queue.share_requested or queue.channel):
                state = "is not shared" if queue.share_requested else "is shared, but not up to date"
                self._notify(f"{queue.session} {state}; retry with 'opensesh session share {queue.session}'")

    def share(self, session_id: str) -> None:
        """Request that a session is shared soon; ``notify`` gets its link."""
        self._add(session_id, None).share_requested = True

    def _start(self, work: Callable[P, Awaitable[None]], *args: P.args, **kwargs: P.kwargs) -> asyncio.Task[None]:
        task = self._group.create_task(_logging_errors(work, *args, **kwargs))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _listen(self, subscription: Subscription) -> None:
        async for envelope in subscription:
            event = envelope.event
            if isinstance(event, Missed):
                self._start(self._resume, True)
            elif isinstance(event, SessionDeleted):
                self._session_removed.set()
            elif isinstance(event, SessionCreated):
                if self._service.settings.automatic and not event.info.get("parentID"):
                    self.share(event.info["id"])
            elif (change := changed_key(event)) is not None:
                self._add(*change)

    def _add(self, session_id: str, key: Key | None) -> _SessionQueue:
        """Queue a changed record of a session, or all of them without a key, and see that a task sends it."""
        queue = self._queues.setdefault(session_id, _SessionQueue(session_id))
        queue.add(key)
        if queue.task is None or queue.task.done():
            queue.task = self._start(self._process, queue)
        return queue

    async def _process(self, queue: _SessionQueue) -> None:
        """Send the changes of a session until there are none."""
        while queue.has_changes:
            await self._sleep_unless_closing(self._delay)
            await self._flush(queue)

    async def _sleep_unless_closing(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        except TimeoutError:
            return

    async def _flush(self, queue: _SessionQueue) -> None:
        keys, send_all = queue.take()
        try:
            channel = await self._open_channel(queue)
            if channel is not None:
                await self._send(queue, channel, None if send_all or queue.behind else keys)
            queue.failures, queue.behind = 0, False
        except asyncio.CancelledError:
            queue.put_back(keys, send_all)
            raise
        except (ShareError, BusyError) as error:
            if isinstance(error, ShareError) and not error.retryable:
                self._give_up(queue, error)
                return
            queue.put_back(keys, send_all)
            queue.failures, queue.behind = queue.failures + 1, True
            if queue.failures == 3:
                self._notify(f"the share of {queue.session} is waiting for its server: {error.message}")
            wait = retry_delay_seconds(self._retry, queue.failures, error)
            if self._closing.is_set():
                await asyncio.sleep(min(wait, _CLOSING_DELAY_SECONDS))
            else:
                await self._sleep_unless_closing(wait)
        except OpenseshError as error:
            self._give_up(queue, error)

    async def _open_channel(self, queue: _SessionQueue) -> ShareChannel | None:
        """Return a channel to a session's share; ``None`` if the session is not shared or is being unshared."""
        service = self._service
        share = None if queue.closed else await asyncio.to_thread(service.find, queue.session)
        if share is not None and revocations.is_waiting(queue.session, share):
            share = None
        if share is None and queue.share_requested:
            share, is_new = await service.create(queue.session)
            if is_new:
                self._notify(f"shared at {share.url}")
        queue.share_requested = False
        channel = queue.channel
        if share is None:
            queue.channel = None
        elif (
            channel is None
            or channel.share.id != share.id
            or not await asyncio.to_thread(service.is_current, queue.session, channel)
        ):
            queue.channel = await service.channel(queue.session, share)
            queue.behind = True  # an earlier process may have left changes unsent, so everything is compared
        return queue.channel

    async def _send(self, queue: _SessionQueue, channel: ShareChannel, keys: dict[Key, None] | None) -> None:
        """Send the records with these keys; the whole session without keys, or if one of the records is gone."""
        items = None if keys is None else await asyncio.to_thread(self._read, keys)
        if items is None:
            await self._service.update(queue.session, channel, running=True)
        else:
            await asyncio.to_thread(share_records.mark, queue.session, unsent=True)
            await channel.send(items)
            await asyncio.to_thread(share_records.mark, queue.session, unsent=False)
        for key in channel.too_large:
            self._notify(f"{key} of {queue.session} is too large for the server and is not shared")
        channel.too_large.clear()

    def _read(self, keys: dict[Key, None]) -> list[ShareItem] | None:
        items: list[ShareItem] = []
        for key in keys:
            item = read_key(self._service.sessions, key)
            if item is None:
                return None
            if item.type != "part" or not is_incomplete(item.data):
                items.append(item)
        return items

    def _give_up(self, queue: _SessionQueue, error: OpenseshError) -> None:
        queue.closed, queue.share_requested, queue.channel = True, False, None
        reason = error.message
        if isinstance(error, ShareError) and error.is_gone:
            reason = f"its server no longer has it; 'opensesh session unshare {queue.session}' removes the link"
        self._notify(f"the share of {queue.session} is not updated any more: {reason}")

    async def _revoke_pending(self) -> None:
        """Remove shares whose removal is pending: at the start, and whenever a session was removed."""
        store = self._service.sessions.store
        while True:
            pending = await asyncio.to_thread(lambda: any(True for _ in revocations.waiting(store)))
            if pending and not self._service.settings.disabled_by:
                for result in await self._service.retry():
                    if result.error:
                        log.info("%s could not be removed: %s", result.url, result.error)
            if self._closing.is_set():
                return
            await self._session_removed.wait()
            self._session_removed.clear()

    async def _resume(self, every_share: bool = False) -> None:
        """Queue the shares of this store that have unsent changes, or every share."""
        if self._service.settings.disabled_by:
            return
        store = self._service.sessions.store
        for record in await asyncio.to_thread(lambda: list(share_records.list_all())):
            if record.store == store.place and (record.unsent or every_share):
                self._add(record.session, None)


async def _logging_errors(work: Callable[P, Awaitable[None]], *args: P.args, **kwargs: P.kwargs) -> None:
    """Run ``work``; an error is logged and must not end the run whose sessions are shared."""
    try:
        await work(*args, **kwargs)
    except Exception:
        log.exception("sharing failed")
