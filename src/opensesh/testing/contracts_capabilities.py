"""Contracts about batches and the optional capabilities of a store that can be written.

A contract about a capability passes for a store that does not offer it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import ids
from ..errors import BusyError, InvalidKeyError, NotFoundError
from ..records import as_object
from ..storage.leases import leases_of
from ..storage.protocol import LeaseProvider, LiveEvents
from .samples import SEED, Subject, expect, expect_raises, expect_same

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..storage.protocol import Batch, Key, RecordChange, Store

_FIRST: Key = ("sample", "first")
_SECOND: Key = ("sample", "second")
_SESSION = next(key[-1] for key in SEED if key[0] == "session")


class _BlockFailedError(Exception):
    """Raised inside a batch."""


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
