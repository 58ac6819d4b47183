"""Share and unshare sessions, for commands and for :class:`~opensesh.sharing.share_sync.ShareSync`.

Stored as OpenCode stores it: a record ``session_share/<sessionID>``, and ``share.url`` in the session's record. A share
that is to be removed is recorded first (:mod:`opensesh.storage.revocations`), and the record is deleted when the server
has confirmed the removal: so it can be retried at any time, even after the session is gone.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from ..errors import BusyError, NotFoundError, OpenseshError, ReadOnlyStoreError, RecordError, ShareError, UsageError
from ..records import Document, Share, object_at, view
from ..redaction import Redactor, known_secrets
from ..retry import RetryPolicy
from ..storage import keys, paths, revocations
from ..storage.leases import leases_of
from ..storage.locations import is_users_own
from ..storage.locks import attempt_lock
from ..storage.protocol import Key, store_ids
from . import share_records
from .client import ShareChannel, ShareServer, server_of
from .items import ShareItem, is_incomplete, model_document, session_items
from .share_records import ShareRecord
from .share_settings import PUBLIC_SERVER, ShareSettings, load_share_settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from ..config import Config
    from ..sessions import Sessions
    from .client import DescribeModel

T = TypeVar("T")
DEFAULT_RETRY = RetryPolicy(max_retries=3, initial_delay_ms=500, max_delay_ms=60_000)


class ShareResult(NamedTuple):
    """A session that is shared."""

    session: str
    url: str
    is_new: bool
    sent: int
    """How many items were sent."""
    redacted: dict[str, int]
    """How many secrets were redacted, by rule."""
    too_large: list[str]
    """Keys of the items that the server does not accept because of their size."""
    behind: str = ""
    """Why the server does not have everything yet; empty if it does."""


class UnshareResult(NamedTuple):
    """A share that was to be removed."""

    session: str
    url: str
    error: str = ""
    """Why the share still exists; empty if it was removed."""


class ShareService:
    """Shares the sessions of one store. An async context manager; every method may be retried after a failure."""

    def __init__(
        self,
        sessions: Sessions,
        settings: ShareSettings,
        *,
        known_secrets: Callable[[], Iterable[str]] = tuple,
        describe_model: DescribeModel | None = None,
        retry: RetryPolicy = DEFAULT_RETRY,
        timeout: float = 30.0,
    ) -> None:
        """``known_secrets`` returns secrets to redact in addition to those that match a pattern."""
        self.sessions = sessions
        self.settings = settings
        self._known_secrets = known_secrets
        self._describe_model = describe_model
        self._retry = retry
        self._timeout = timeout
        self._servers: dict[str, ShareServer] = {}

    async def __aenter__(self) -> ShareService:
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers.values():
            await server.aclose()

    # -- sharing -------------------------------------------------------------------------------------------------------

    async def share(self, session_id: str, *, redact: bool | None = None) -> ShareResult:
        """Share a session, or update its share. ``redact`` overrides the settings."""
        share, is_new = await self.create(session_id, redact=redact)
        channel = await self.channel(session_id, share)
        sent, behind = 0, ""
        try:
            sent = await self._with_retries(lambda: self.update(session_id, channel))
        except ShareError as error:
            if error.is_gone and not is_new:
                await self.unshare(session_id)  # deletes the records of a share that the server no longer has
                return await self.share(session_id, redact=redact)
            behind = error.message
        counts = dict(channel.redactor.counts) if channel.redactor else {}
        return ShareResult(session_id, share.url, is_new, sent, counts, channel.too_large, behind)

    async def create(self, session_id: str, *, redact: bool | None = None) -> tuple[Share, bool]:
        """Return the share of a session, and whether it is new; a new one is empty."""
        self.settings.check()
        for share in revocations.of(session_id):
            await self._remove(session_id, share)
        # If two processes share a session at the same time, the secret of one share is lost.
        lock_file = os.path.join(paths.state(), "locks", "sharing", *keys.check_key((session_id,)))
        with attempt_lock(lock_file) as is_free:
            if not is_free:
                message = f"session {session_id} is being shared by another process; try again"
                raise BusyError(message, session=session_id)
            existing = await asyncio.to_thread(self.find, session_id)
            other = None if existing else await asyncio.to_thread(self._stored, session_id)
            if other is not None:
                raise UsageError(
                    f"session {session_id} is shared at {other.url}, which was not made here: nothing is sent "
                    f"there. 'opensesh session unshare {session_id}' removes it, and then the session can be shared",
                    session=session_id,
                )
            if existing is not None:
                if redact is not None:
                    await asyncio.to_thread(self._record, session_id, existing, redact)
                return existing, False
            # If the share cannot be stored (a read-only store), fail before anything is sent.
            await asyncio.to_thread(self.sessions.update, session_id, lambda info: None, touch=False)
            server = self._server(self.settings.server)
            share = await self._with_retries(lambda: server.create(session_id))
            await asyncio.to_thread(self._store, session_id, share, redact)
            return share, True

    async def channel(self, session_id: str, share: Share) -> ShareChannel:
        """Return a channel to a share, with the redaction that was chosen when the share was made."""
        record = await asyncio.to_thread(self._record, session_id, share)
        redactor = Redactor(self._known_secrets()) if record.redact else None
        server = self._server(record.server)
        return ShareChannel(server, share, redactor=redactor, describe_model=self._describe_model)

    def is_current(self, session_id: str, channel: ShareChannel) -> bool:
        """Return whether a channel still has the redaction of its share, which another process may have changed."""
        record = share_records.find_share(session_id, channel.share)
        return record is None or record.redact == (channel.redactor is not None)

    async def update(self, session_id: str, channel: ShareChannel, *, running: bool = False) -> int:
        """Send everything that the server does not have; return how many items were sent.

        Incomplete parts of a session that is ``running``, here or in another process, are left out.
        """
        items, incomplete = await asyncio.to_thread(self._items, session_id, running)
        await asyncio.to_thread(share_records.mark, session_id, unsent=True)
        sent = await channel.update(items, incomplete=incomplete)
        await asyncio.to_thread(share_records.mark, session_id, unsent=False)
        return sent

    def find(self, session_id: str) -> Share | None:
        """Return the share of a session according to the store, if it was made by this user."""
        share = self._stored(session_id)
        return share if share is not None and self._is_own(session_id, share) else None

    def _stored(self, session_id: str) -> Share | None:
        share = self._read(keys.share(session_id))
        return share if share is not None and share.id and share.secret else None

    def _is_own(self, session_id: str, share: Share) -> bool:
        """Return whether a share was made here, or by OpenCode in the user's data folder and on the user's server.

        A store of another person may name any address, to which every change of the session would be sent.
        """
        if share_records.find_share(session_id, share) is not None:
            return True
        settings = self.settings
        servers = {PUBLIC_SERVER, settings.server if settings.chosen_by_user else PUBLIC_SERVER}
        return server_of(share, default="") in servers and is_users_own(store_ids(self.sessions.store))

    # -- unsharing -----------------------------------------------------------------------------------------------------

    async def unshare(self, session_id: str) -> UnshareResult:
        """Remove all shares of a session, which itself may be gone.

        Raises :class:`ShareError` if a server does not confirm; that share stays recorded for :meth:`retry`.
        """
        shares = await asyncio.to_thread(self._shares, session_id)
        if not shares:
            raise NotFoundError(f"no share of session {session_id} is known on this machine", session=session_id)
        for share in shares:
            await asyncio.to_thread(self._record_revocation, session_id, share)
        failures: dict[str, ShareError] = {}
        for share in shares:
            try:
                await self._remove(session_id, share)
                failures.pop(share.url, None)  # of two secrets known for one share, one is right
            except ShareError as error:
                failures[share.url] = error
        for failure in failures.values():
            raise failure
        return UnshareResult(session_id, shares[0].url)

    async def retry(self) -> list[UnshareResult]:
        """Remove every share of this store whose removal is pending; return the result for each."""
        results: list[UnshareResult] = []
        for session_id, share in list(revocations.waiting(self.sessions.store)):
            try:
                await self._remove(session_id, share)
                results.append(UnshareResult(session_id, share.url))
            except OpenseshError as error:
                results.append(UnshareResult(session_id, share.url, error.message))
        return results

    # -- internals -----------------------------------------------------------------------------------------------------

    async def _with_retries(self, operation: Callable[[], Awaitable[T]]) -> T:
        failures = 0
        while True:
            try:
                return await operation()
            except ShareError as error:
                failures += 1
                if not error.retryable or not self._retry.allows(failures):
                    raise
                await asyncio.sleep(retry_delay_seconds(self._retry, failures, error))

    async def _remove(self, session_id: str, share: Share) -> None:
        """Remove a share from its server and then from all records here."""
        record = share_records.find_share(session_id, share)
        server = self._server(record.server if record else server_of(share, default=self.settings.server))
        await self._with_retries(lambda: server.remove(share, session_id))
        await asyncio.to_thread(self._delete_records, session_id, share)

    def _server(self, base: str) -> ShareServer:
        if base not in self._servers:
            self._servers[base] = ShareServer(base, timeout=self._timeout)
        return self._servers[base]

    def _record(
        self, session_id: str, share: Share, redact: bool | None = None, *, server: str | None = None
    ) -> ShareRecord:
        """Return the record of a share, created if the share is new or made by OpenCode, and changed to ``redact``."""
        known = share_records.find_share(session_id, share)
        record = known or ShareRecord(
            session=session_id,
            id=share.id or "",
            secret=share.secret,
            url=share.url,
            server=server or server_of(share, default=self.settings.server),
            store=self.sessions.store.place,
            redact=self.settings.redact,
            unsent=True,
        )
        if redact is not None:
            record = msgspec.structs.replace(record, redact=redact)
        if record != known:
            share_records.save(record)
        return record

    def _store(self, session_id: str, share: Share, redact: bool | None) -> None:
        self._record(session_id, share, redact, server=self.settings.server)
        try:
            self.sessions.store.write(keys.share(session_id), share.document)
            self.sessions.update(session_id, lambda info: info.update(share={"url": share.url}), touch=False)
        except BaseException:
            # The store does not know the share, so it would never be removed.
            revocations.note(session_id, share, store=store_ids(self.sessions.store)[0])
            raise

    def _record_revocation(self, session_id: str, share: Share) -> None:
        """Record that a share is to be removed, and in which store it was made, unless that is recorded already."""
        if any((other.id, other.secret) == (share.id, share.secret) for other in revocations.of(session_id)):
            return
        record, store = share_records.find_share(session_id, share), self.sessions.store
        made_in = record.store if record and record.store not in ("", store.place) else store_ids(store)[0]
        revocations.note(session_id, share, store=made_in, why="unshared")

    def _items(self, session_id: str, running: bool) -> tuple[list[ShareItem], list[str]]:
        """Return the items of a session, and the keys of incomplete parts that are left out while it runs."""
        items = list(session_items(self.sessions, session_id))
        if not running and leases_of(self.sessions.store).holder(session_id) is None:
            return items, []
        incomplete = {item.key for item in items if item.type == "part" and is_incomplete(item.data)}
        return [item for item in items if item.key not in incomplete], list(incomplete)

    def _shares(self, session_id: str) -> list[Share]:
        """Return every known share of a session, from all records."""
        record = share_records.find(session_id)
        shares = [
            self._read(keys.share(session_id)),
            self._read(("share", session_id)),
            record.share if record else None,
            *revocations.of(session_id),
        ]
        return list(
            {(share.id, share.secret): share for share in shares if share is not None and share.secret}.values()
        )

    def _read(self, key: Key) -> Share | None:
        try:
            return view(self.sessions.store.read(key), Share)
        except (NotFoundError, RecordError):
            return None

    def _delete_records(self, session_id: str, share: Share) -> None:
        """Delete every record of a removed share, except in databases that are read-only."""
        for key in (keys.share(session_id), ("share", session_id)):
            stored = self._read(key)
            with suppress(ReadOnlyStoreError):
                if stored is not None and stored.id == share.id:
                    self.sessions.store.remove(key)

        def remove_link(info: Document) -> None:
            if object_at(info, "share").get("url") == share.url:
                del info["share"]

        with suppress(NotFoundError, RecordError, ReadOnlyStoreError):
            self.sessions.update(session_id, remove_link, touch=False)
        if share_records.find_share(session_id, share) is not None:
            share_records.delete(session_id)
        revocations.done(session_id, share)


def retry_delay_seconds(policy: RetryPolicy, failures: int, error: OpenseshError) -> float:
    """Return how long to wait before the next request to a share server: at least as long as it requests, but never
    longer than the policy's maximum."""
    requested = error.wait if isinstance(error, ShareError) else None
    return max(policy.delay_ms(failures) / 1000, min(requested or 0, policy.max_delay_ms / 1000))


def open_share_service(sessions: Sessions, config: Config, *, retry: RetryPolicy = DEFAULT_RETRY) -> ShareService:
    """Return a share service with the settings of a configuration; it redacts the secrets known to this machine."""

    def secrets() -> Iterable[str]:
        return known_secrets(config.document, config.flags.environ)

    def describe_model(provider_id: str, model_id: str) -> Document:
        return model_document(config, provider_id, model_id)

    settings = load_share_settings(config)
    return ShareService(sessions, settings, known_secrets=secrets, describe_model=describe_model, retry=retry)
