"""Contracts about identity, batches and the optional capabilities of a store.

A contract about a capability passes for a store that does not offer it.
"""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any

from .. import ids
from ..errors import BusyError, InvalidKeyError, NotFoundError, ReadOnlyStoreError
from ..records import as_object
from ..storage.leases import leases_of
from ..storage.protocol import LeaseProvider, LiveEvents, SessionQueries
from ..storage.queries import SessionQuery, newest_first, session_updated
from .samples import SEED
from .subject import Subject, expect, expect_raises, expect_same, no_damage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..storage.protocol import Batch, Key, RecordChange, Store

_FIRST: Key = ("sample", "first")
_SECOND: Key = ("sample", "second")
_SESSION = next(key[-1] for key in SEED if key[0] == "session")


class _BlockFailedError(Exception):
    """Raised inside a batch."""


def the_id_does_not_depend_on_the_current_directory(subject: Subject) -> None:
    before, here = subject.store.id, os.getcwd()
    expect(before, "the id is empty")
    with tempfile.TemporaryDirectory() as folder:
        try:
            os.chdir(folder)
            expect(subject.store.id == before, "the id changed with the current directory")
        finally:
            os.chdir(here)


def queries_agree_with_a_scan(subject: Subject) -> None:
    store = subject.store
    if not isinstance(store, SessionQueries):
        return
    sessions = [(key, value) for key, value in subject.records.items() if key[0] == "session"]
    updates = sorted(session_updated(record) for _, record in sessions)
    middle = updates[len(updates) // 2] if updates else 0
    projects = frozenset(key[1] for key, _ in sessions[:1])
    base = SessionQuery()
    for query in (
        base,
        base._replace(limit=1),
        base._replace(limit=2, children=False),
        base._replace(archived=False),
        base._replace(projects=projects),
        base._replace(projects=frozenset()),
        base._replace(since=middle),
        base._replace(until=middle),
    ):
        expected = sorted((entry for entry in sessions if query.matches(entry[1])), key=newest_first)
        answer = list(store.query_sessions(query, report=no_damage))
        keys = [key for key, _ in expected[: query.limit or None]]
        expect([key for key, _ in answer] == keys, f"{query} selected other sessions than a scan, or in another order")
        for key, record in answer:
            expect_same(record, subject.records[key], f"{key[-1]}, returned by a query,")
        expect(store.count_sessions(query) == len(expected), f"{query} was counted wrongly")


def a_read_only_store_is_not_writable_and_refuses_batches(subject: Subject) -> None:
    expect(not subject.store.writable, "the store says that it can be written")

    def write() -> None:
        with subject.store.batch() as batch:
            batch.write(_FIRST, {})

    expect_raises(ReadOnlyStoreError, write, "a batch")


def a_store_that_can_be_written_is_writable(subject: Subject) -> None:
    expect(subject.store.writable, "the store says that it cannot be written")


def a_batch_applies_writes_and_removals(subject: Subject) -> None:
    subject.store.write(_FIRST, {"old": True})
    with subject.store.batch() as batch:
        batch.remove(_FIRST)
        batch.write(_SECOND, {"new": True})
        batch.remove(("sample", "missing"))
    expect_raises(NotFoundError, lambda: subject.store.read(_FIRST), "reading a record that a batch removed")
    expect_same(subject.store.read(_SECOND), {"new": True}, "a record that a batch wrote")


def a_batch_applies_operations_in_order(subject: Subject) -> None:
    with subject.store.batch() as batch:
        batch.write(_FIRST, {"number": 1})
        batch.write(_FIRST, {"number": 2})
        batch.write(_SECOND, {})
        batch.remove(_SECOND)
    expect_same(subject.store.read(_FIRST), {"number": 2}, "a record that was written twice in a batch")
    expect_raises(NotFoundError, lambda: subject.store.read(_SECOND), "reading a record that was removed after a write")


def a_batch_is_not_applied_if_its_block_raises(subject: Subject) -> None:
    subject.store.write(_FIRST, {"old": True})

    def fail() -> None:
        with subject.store.batch() as batch:
            batch.write(_FIRST, {"new": True})
            batch.write(_SECOND, {"new": True})
            raise _BlockFailedError

    expect_raises(_BlockFailedError, fail, "a batch whose block raises")
    expect_same(subject.store.read(_FIRST), {"old": True}, "a record after a batch that failed")
    expect(list(subject.store.list(("sample",))) == [_FIRST], "a batch that failed left a record")


def a_batch_with_a_bad_value_or_key_changes_nothing(subject: Subject) -> None:
    def bad_value(batch: Batch) -> None:
        batch.write(_SECOND, {"not JSON": object()})

    def bad_key(batch: Batch) -> None:
        batch.write(("..", "up"), {})

    def apply(add: Callable[[Batch], None]) -> None:
        with subject.store.batch() as batch:
            batch.write(_FIRST, {})
            add(batch)

    expect_raises(Exception, lambda: apply(bad_value), "a batch with a value that is not JSON")
    expect_raises(InvalidKeyError, lambda: apply(bad_key), "a batch with a key that could leave the store")
    expect(not subject.store.list(("sample",)), "a refused batch left a record")


def a_batch_keeps_no_reference_and_is_invisible_until_it_ends(subject: Subject) -> None:
    value: dict[str, Any] = {"inner": [1]}
    with subject.store.batch() as batch:
        batch.write(_FIRST, value)
        value["inner"].append(2)
        expect(not subject.store.list(("sample",)), "a batch was visible before its end")
    expect_same(subject.store.read(_FIRST), {"inner": [1]}, "a value that was changed after it was put into a batch")


def a_session_has_one_lease_at_a_time(subject: Subject) -> None:
    leases = leases_of(subject.store)
    expect(leases.holder(_SESSION) is None, "a session that is not running has a holder")
    with leases.acquire(_SESSION, "the first") as lease:
        holder = leases_of(subject.store).holder(_SESSION)
        expect(holder is not None and holder.owner == "the first", "the holder of a lease is not reported")
        lease.heartbeat()
        busy = expect_raises(BusyError, lambda: leases.acquire(_SESSION, "the second"), "a second lease")
        expect("the first" in str(busy), "the error does not name the holder")
        with leases.acquire(ids.descending("ses"), "another session"):
            pass
    lease.release()
    expect(leases.holder(_SESSION) is None, "a released lease still has a holder")
    leases.acquire(_SESSION, "the next").release()
    expect(not isinstance(subject.store, LeaseProvider) or leases.abandoned() == [], "a released lease is abandoned")


def subscribers_receive_every_change_after_it_can_be_read(subject: Subject) -> None:
    store = subject.store
    if not isinstance(store, LiveEvents):
        return
    received: list[tuple[Key, bool]] = []

    def receive(changes: Sequence[RecordChange]) -> None:
        for change in changes:
            expect(_exists(store, change.key) is not change.removed, f"{change} was reported before it could be read")
            received.append((change.key, change.removed))

    def refuse(_: Sequence[RecordChange]) -> None:
        raise RuntimeError("a subscriber that fails")

    stops = [store.subscribe(refuse), store.subscribe(receive)]
    store.write(_FIRST, {"number": 1})
    store.update(_FIRST, lambda record: record.update(number=2))
    with store.batch() as batch:
        batch.write(_SECOND, {})
        batch.remove(_FIRST)
    store.remove(_SECOND)
    for stop in (*stops, *stops):
        stop()
    store.write(_FIRST, {})
    expected = [(_FIRST, False), (_FIRST, False), (_SECOND, False), (_FIRST, True), (_SECOND, True)]
    expect(received == expected, f"subscribers received {received}, not {expected}")


def closing_twice_is_not_an_error(subject: Subject) -> None:
    subject.store.close()
    subject.store.close()


def _exists(store: Store, key: Key) -> bool:
    try:
        return as_object(store.read(key)) is not None
    except NotFoundError:
        return False


READING = (
    the_id_does_not_depend_on_the_current_directory,
    queries_agree_with_a_scan,
)
REFUSING = (a_read_only_store_is_not_writable_and_refuses_batches,)
WRITING = (
    a_store_that_can_be_written_is_writable,
    a_batch_applies_writes_and_removals,
    a_batch_applies_operations_in_order,
    a_batch_is_not_applied_if_its_block_raises,
    a_batch_with_a_bad_value_or_key_changes_nothing,
    a_batch_keeps_no_reference_and_is_invisible_until_it_ends,
    a_session_has_one_lease_at_a_time,
    subscribers_receive_every_change_after_it_can_be_read,
    closing_twice_is_not_an_error,
)
