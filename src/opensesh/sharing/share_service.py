"""Shares sessions and takes shares back, for whoever asks: a command, or the sharer of a running engine.

What is stored is what OpenCode stores: ``session_share/<sessionID>``, and ``share.url`` in the session's record. A
share that is to go is noted first (:mod:`opensesh.storage.revocations`) and forgotten when the server has let go of it,
so that it can be tried again at any time, by anyone, also when the session is gone.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from ..errors import BusyError, NotFoundError, OpenseshError, ReadOnlyStoreError, RecordError, ShareError
from ..records import Share, as_object, view
from ..retry import RetryPolicy
from ..storage import keys, paths, revocations
from ..storage.leases import leases_of
from ..storage.locks import open_lock_file, try_lock_file
from ..storage.protocol import store_ids
from . import share_records as journal
from .channel import Channel
from .client import ShareServer, server_of
from .items import ShareItem, everything, is_growing
from .share_records import ShareRecord
from .share_settings import ShareSettings, terms

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable
    from types import TracebackType

    from ..config import Config
    from ..records import Document
    from ..sessions import Sessions
    from ..storage.protocol import Key
    from .channel import Describe

T = TypeVar("T")
DEFAULT_RETRY = RetryPolicy(max_retries=3, initial_delay_ms=500, max_delay_ms=60_000)


class ShareResult(NamedTuple):
    """A session that is shared."""

    session: str
    url: str
    is_new: bool
    sent: int
    """How many items went to the server."""
    redacted: dict[str, int]
    """What was taken out of them, by rule."""
    too_large: list[str]
    """What the server would not take, by key."""
    behind: str = ""
    """Why the server does not have all of it yet; empty if it does."""


class UnshareResult(NamedTuple):
    """A share that was to go."""

    session: str
    url: str
    error: str = ""
    """Why it still stands; empty if it is gone."""


class ShareService:
    """Shares the sessions of one store. An async context manager; every method may be called again after a failure."""

    def __init__(
        self,
        sessions: Sessions,
        terms: ShareSettings,
        *,
        known: Callable[[], Iterable[str]] = tuple,
        describe: Describe | None = None,
        retry: RetryPolicy = DEFAULT_RETRY,
        timeout: float = 30.0,
    ) -> None:
        """``known`` gives the secrets to take out beside those that look like one."""
        self.sessions = sessions
        self.terms = terms
        self._retry = retry
        self._known = known
        self._describe = describe
        self._timeout = timeout
        self._servers: dict[str, ShareServer] = {}

    async def __aenter__(self) -> ShareService:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._servers.values():
            await server.aclose()

    # -- sharing -------------------------------------------------------------------------------------------------------

    async def share(self, session_id: str, *, redact: bool | None = None) -> ShareResult:
        """Share a session, or bring its share up to date. ``redact`` says otherwise than the terms do."""
        share, is_new = await self.create(session_id, redact=redact)
        channel = await self.channel(session_id, share)
        sent, behind = 0, ""
        try:
            sent = await self.patiently(lambda: self.update(session_id, channel))
        except ShareError as error:
            if error.is_gone and not is_new:
                await self.unshare(session_id)  # which forgets a share that is no more
                return await self.share(session_id, redact=redact)
            behind = error.message
        counts = dict(channel.redactor.counts) if channel.redactor else {}
        return ShareResult(session_id, share.url, is_new, sent, counts, channel.too_large, behind)

    async def create(self, session_id: str, *, redact: bool | None = None) -> tuple[Share, bool]:
        """The share of a session, empty if it is new; and whether it is."""
        self.terms.check()
        for share in revocations.of(session_id):
            await self._take_down(session_id, share)
        with _alone(session_id):
            held = await asyncio.to_thread(self.find, session_id)
            if held is not None:
                if redact is not None:
                    await asyncio.to_thread(self._note, session_id, held, redact)
                return held, False
            # Whatever keeps it from being stored should be known before anything is told to anyone.
            await asyncio.to_thread(self.sessions.update, session_id, lambda info: None, touch=False)
            server = self._server(self.terms.server)
            share = await self.patiently(lambda: server.create(session_id))
            await asyncio.to_thread(self._store, session_id, share, redact)
            return share, True

    async def channel(self, session_id: str, share: Share) -> Channel:
        """The way to a share, on the terms that were agreed on when it was made."""
        from .redactor import ShareRedactor  # its rules take a while to be made ready

        standing = await asyncio.to_thread(self._note, session_id, share)
        redactor = ShareRedactor(self._known()) if standing.redact else None
        return Channel(self._server(standing.server), share, redactor=redactor, describe=self._describe)

    def is_as_agreed(self, session_id: str, channel: Channel) -> bool:
        """Whether a channel is on the terms of its share, which another process may have changed meanwhile."""
        standing = journal.find(session_id)
        return standing is None or standing.id != channel.share.id or standing.redact == (channel.redactor is not None)

    async def update(self, session_id: str, channel: Channel, *, running: bool = False) -> int:
        """Tell the server everything it does not know yet; how many items that was. While the session is ``running``,
        here or elsewhere, parts that still grow are left out."""
        items, later = await asyncio.to_thread(self._everything, session_id, running)
        await asyncio.to_thread(journal.mark, session_id, unsent=True)
        sent = await channel.bring_up_to_date(items, later=later)
        await asyncio.to_thread(journal.mark, session_id, unsent=False)
        return sent

    def find(self, session_id: str) -> Share | None:
        """The share of a session that stands, by its record in the store."""
        share = self._read(keys.share(session_id))
        return share if share is not None and share.id and share.secret else None

    # -- taking back ---------------------------------------------------------------------------------------------------

    async def unshare(self, session_id: str) -> UnshareResult:
        """Take the share of a session down, whether the session is still there or not; all of them, if there are more.

        Where a server does not, :class:`ShareError`; that share stays noted, and :meth:`retry` comes back to it.
        """
        shares = await asyncio.to_thread(self._shares, session_id)
        if not shares:
            raise NotFoundError(f"session {session_id} is not shared, as far as is known here", session=session_id)
        for share in shares:
            await asyncio.to_thread(self._note_to_go, session_id, share)
        failures: dict[str, ShareError] = {}
        for share in shares:
            try:
                await self._take_down(session_id, share)
                failures.pop(share.url, None)  # of two secrets that are known for one share, one is right
            except ShareError as error:
                failures[share.url] = error
        for failure in failures.values():
            raise failure
        return UnshareResult(session_id, shares[0].url)

    async def retry(self) -> list[UnshareResult]:
        """Take down every share of this store that is still to go; what became of each."""
        found: list[UnshareResult] = []
        for session_id, share in list(revocations.waiting(self.sessions.store)):
            try:
                await self._take_down(session_id, share)
                found.append(UnshareResult(session_id, share.url))
            except OpenseshError as error:
                found.append(UnshareResult(session_id, share.url, error.message))
        return found

    async def patiently(self, act: Callable[[], Awaitable[T]]) -> T:
        """Do it, again and again for a while if that may help."""
        failures = 0
        while True:
            try:
                return await act()
            except ShareError as error:
                failures += 1
                if not error.retryable or failures > self._retry.max_retries:
                    raise
                await asyncio.sleep(retry_delay_seconds(self._retry, failures, error))

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _take_down(self, session_id: str, share: Share) -> None:
        server = self._server(self._base(session_id, share))
        await self.patiently(lambda: server.remove(share, session_id))
        await asyncio.to_thread(self._forget, session_id, share)

    def _server(self, base: str) -> ShareServer:
        if base not in self._servers:
            self._servers[base] = ShareServer(base, timeout=self._timeout)
        return self._servers[base]

    def _base(self, session_id: str, share: Share) -> str:
        standing = journal.find(session_id)
        if standing is not None and standing.id == share.id:
            return standing.server
        return server_of(share, otherwise=self.terms.server)

    def _note(self, session_id: str, share: Share, redact: bool | None = None) -> ShareRecord:
        """What is agreed on about a share; noted, if it was not, since OpenCode may have made it."""
        standing = journal.find(session_id)
        if standing is None or standing.id != share.id:
            standing = self._standing(session_id, share, server_of(share, otherwise=self.terms.server), redact)
            journal.note(standing)
        elif redact is not None and redact != standing.redact:
            standing = msgspec.structs.replace(standing, redact=redact)
            journal.note(standing)
        return standing

    def _standing(self, session_id: str, share: Share, server: str, redact: bool | None) -> ShareRecord:
        return ShareRecord(
            session=session_id,
            id=share.id or "",
            secret=share.secret,
            url=share.url,
            server=server,
            store=self.sessions.store.place,
            redact=self.terms.redact if redact is None else redact,
            unsent=True,
        )

    def _store(self, session_id: str, share: Share, redact: bool | None) -> None:
        journal.note(self._standing(session_id, share, self.terms.server, redact))
        try:
            self.sessions.store.write(keys.share(session_id), share.document)
            self.sessions.update(session_id, lambda info: info.update(share={"url": share.url}), touch=False)
        except BaseException:
            revocations.note(session_id, share, store=store_ids(self.sessions.store)[0])  # nobody would know of it
            raise

    def _note_to_go(self, session_id: str, share: Share) -> None:
        """Note that a share is to go, and where it was made; unless that is noted, maybe for another reason."""
        if any((each.id, each.secret) == (share.id, share.secret) for each in revocations.of(session_id)):
            return
        standing, store = journal.find(session_id), self.sessions.store
        elsewhere = standing.store if standing is not None and standing.id == share.id else ""
        made_in = store_ids(store)[0] if elsewhere in ("", store.place) else elsewhere
        revocations.note(session_id, share, store=made_in, why="unshared")

    def _everything(self, session_id: str, running: bool) -> tuple[list[ShareItem], list[str]]:
        """All there is of a session, and the keys of what is left out while it runs, since more of it is to come."""
        found = list(everything(self.sessions, session_id))
        if not running and leases_of(self.sessions.store).holder(session_id) is None:
            return found, []
        growing = {item.key for item in found if item.type == "part" and is_growing(item.data)}
        return [item for item in found if item.key not in growing], list(growing)

    def _shares(self, session_id: str) -> list[Share]:
        """Every share of a session that is known of, from wherever, each once."""
        standing = journal.find(session_id)
        found = [
            self._read(keys.share(session_id)),
            self._read(("share", session_id)),
            standing.share if standing else None,
            *revocations.of(session_id),
        ]
        return list({(share.id, share.secret): share for share in found if share is not None and share.secret}.values())

    def _read(self, key: Key) -> Share | None:
        try:
            return view(self.sessions.store.read(key), Share)
        except (NotFoundError, RecordError):
            return None

    def _forget(self, session_id: str, share: Share) -> None:
        """The share is gone: nothing here may say otherwise, but for a database that is only read."""
        for key in (keys.share(session_id), ("share", session_id)):
            held = self._read(key)
            try:
                if held is not None and held.id == share.id:
                    self.sessions.store.remove(key)
            except ReadOnlyStoreError:
                continue
        with suppress(NotFoundError, RecordError, ReadOnlyStoreError):
            self.sessions.update(session_id, lambda info: _without_link(info, share.url), touch=False)
        standing = journal.find(session_id)
        if standing is not None and standing.id == share.id:
            journal.forget(session_id)
        revocations.done(session_id, share)


def retry_delay_seconds(policy: RetryPolicy, failures: int, error: OpenseshError) -> float:
    """Return how long to wait for a share server: what the server requests counts up to the policy's own maximum."""
    requested = error.wait if isinstance(error, ShareError) else None
    return max(policy.delay_ms(failures) / 1000, min(requested or 0, policy.max_delay_ms / 1000))


def open_share_service(sessions: Sessions, config: Config, *, retry: RetryPolicy = DEFAULT_RETRY) -> ShareService:
    """A publisher on the terms of a configuration, which takes out every secret that this machine is known to hold."""

    def known() -> Iterable[str]:
        from .redactor import known_secrets

        return known_secrets(config.document, config.flags.environ)

    def describe(provider_id: str, model_id: str) -> Document:
        from .models import described

        return described(config, provider_id, model_id)

    return ShareService(sessions, terms(config), known=known, describe=describe, retry=retry)


def _without_link(info: Document, url: str) -> None:
    if (as_object(info.get("share")) or {}).get("url") == url:
        del info["share"]


@contextmanager
def _alone(session_id: str) -> Generator[None]:
    """Keep two from sharing a session at the same time: the secret of one of the shares would be lost."""
    descriptor = open_lock_file(os.path.join(paths.state(), "locks", "sharing", *keys.check_key((session_id,))))
    try:
        if not try_lock_file(descriptor):
            raise BusyError(f"session {session_id} is being shared at this moment; try again", session=session_id)
        yield
    finally:
        os.close(descriptor)
