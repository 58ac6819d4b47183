"""Contracts about writing, by one caller and by several threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from .. import ids
from ..errors import InvalidKeyError, NotFoundError, StoreError
from .contracts_reading import every_record_reads_as_it_was_stored, list_names_every_record_in_key_order
from .samples import BAD_NAMES, VALUES, WRAP, Scribe, Subject, expect, expect_raises, expect_same, no_damage, no_edit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..storage.protocol import Key, Store


KEY: Key = ("sample", "one")


class _RefusedError(Exception):
    """Raised by an edit."""


def a_value_is_read_as_it_was_written(subject: Subject) -> None:
    for number, value in enumerate(VALUES):
        key = ("sample", f"value-{number}")
        subject.store.write(key, deepcopy(value))
        expect_same(subject.store.read(key), value, f"value {number}")
        expect_same(dict(subject.store.scan(("sample",)))[key], value, f"value {number}, scanned,")


def changing_a_value_after_a_write_does_not_change_the_record(subject: Subject) -> None:
    value: dict[str, Any] = {"inner": {"list": [1]}}
    subject.store.write(KEY, value)
    value["inner"]["list"].append(2)
    value["late"] = True
    expect_same(subject.store.read(KEY), {"inner": {"list": [1]}}, "a value that its writer changed afterwards")


def changing_the_result_of_an_update_does_not_change_the_record(subject: Subject) -> None:
    kept: list[Any] = []

    def edit(value: Any) -> None:
        value["inner"].append(2)
        kept.append(value)

    subject.store.write(KEY, {"inner": [1]})
    answer = subject.store.update(KEY, edit)
    expect_same(answer, {"inner": [1, 2]}, "what the update returned")
    answer["inner"].append(3)
    kept[0]["inner"].append(4)
    expect_same(subject.store.read(KEY), {"inner": [1, 2]}, "a record that a caller changed after the update")


def write_replaces_the_whole_record(subject: Subject) -> None:
    values: list[Any] = [{"a": 1, "b": {"c": 2}}, {"b": {}}, [1, 2], {"a": 0}]
    for value in values:
        subject.store.write(KEY, value)
        expect_same(subject.store.read(KEY), value, "a record that was replaced")
    expect(list(subject.store.list(("sample",))) == [KEY], "replacing a record left another one")


def update_keeps_fields_that_the_edit_does_not_change(subject: Subject) -> None:
    for number, value in enumerate(VALUES):
        if isinstance(value, dict):
            subject.store.write(KEY, value)
            subject.store.update(KEY, lambda record, number=number: record.update(edited=number))
            expect_same(subject.store.read(KEY), value | {"edited": number}, f"value {number}, edited,")
    subject.store.write(KEY, {"z": 1, "a": 2, "m": 3})
    subject.store.update(KEY, lambda record: record.update(a=9))
    expect_same(subject.store.read(KEY), {"z": 1, "a": 9, "m": 3}, "a record with one field edited")


def arrays_can_be_updated_in_place(subject: Subject) -> None:
    key, item = ("todo", ids.descending("ses")), {"content": "x", "status": "pending", "priority": "high"}
    subject.store.write(key, [])
    subject.store.update(key, lambda todos: todos.append(item))
    expect_same(subject.store.read(key), [item], "an array that was edited")


def update_of_a_missing_record_is_not_found(subject: Subject) -> None:
    calls: list[Any] = []
    expect_raises(NotFoundError, lambda: subject.store.update(("sample", "none"), calls.append), "updating nothing")
    expect(not calls, "the edit was called for a record that is not there")
    expect(list(subject.store.list(("sample",))) == [], "an update created a record")


def an_edit_that_raises_changes_nothing(subject: Subject) -> None:
    def spoil(value: Any) -> None:
        value.clear()
        raise _RefusedError

    subject.store.write(KEY, {"a": 1})
    expect_raises(_RefusedError, lambda: subject.store.update(KEY, spoil), "an edit that raises")
    expect_same(subject.store.read(KEY), {"a": 1}, "a record whose edit raised")
    subject.store.update(KEY, lambda value: value.update(b=2))
    expect_same(subject.store.read(KEY), {"a": 1, "b": 2}, "a record updated after an edit that raised")


def a_value_that_is_not_json_is_refused_and_changes_nothing(subject: Subject) -> None:
    subject.store.write(KEY, {"a": 1})
    for value in (object(), {"a": object()}, {"a": {1, 2}, "b": object()}, [lambda: None]):
        expect_raises(Exception, lambda value=value: subject.store.write(KEY, value), f"writing {value!r}")
        expect_raises(
            Exception,
            lambda value=value: subject.store.update(KEY, lambda record: record.update(bad=value)),
            f"putting {value!r} into a record",
        )
    expect_same(subject.store.read(KEY), {"a": 1}, "a record after writes that were refused")
    subject.store.write(KEY, {"a": 2})
    expect_same(subject.store.read(KEY), {"a": 2}, "a record written after writes that were refused")


def a_removed_record_is_gone(subject: Subject) -> None:
    store = subject.store
    for key in list(subject.records):
        store.remove(key)
        expect_raises(NotFoundError, lambda key=key: store.read(key), f"reading {key} after it was removed")
        expect_raises(NotFoundError, lambda key=key: store.update(key, no_edit), f"updating {key} after it was removed")
    expect(list(store.list()) == [], "records are listed that were removed")
    expect(list(store.scan(())) == [], "records are scanned that were removed")
    expect(not any(store.messages(session) for session in subject.sessions), "messages are left that were removed")


def removing_twice_is_not_an_error(subject: Subject) -> None:
    subject.store.write(KEY, {})
    for key in (KEY, KEY, ("sample", "never"), ("never", "was", "there"), ("sample",)):
        subject.store.remove(key)
    every_record_reads_as_it_was_stored(subject)


def removing_a_record_changes_no_other(subject: Subject) -> None:
    victims = [key for number, key in enumerate(subject.records) if number % 2]
    for key in victims:
        subject.store.remove(key)
    rest = Subject(subject.store, {key: value for key, value in subject.records.items() if key not in set(victims)})
    every_record_reads_as_it_was_stored(rest)
    list_names_every_record_in_key_order(rest)
    subject.store.write(victims[0], {"back": True})
    expect_same(subject.store.read(victims[0]), {"back": True}, "a record that was removed and written again")


def a_key_can_be_the_prefix_of_others(subject: Subject) -> None:
    store = subject.store
    for key in (("sample", "a"), ("sample", "a", "b"), ("sample", "a", "b", "c"), ("sample", "ab")):
        store.write(key, {"key": list(key)})
    expect(
        list(store.list(("sample", "a"))) == [("sample", "a", "b"), ("sample", "a", "b", "c")],
        "what is below a record is mixed up with the record, or with its neighbours",
    )
    store.remove(("sample", "a"))
    expect_same(store.read(("sample", "a", "b")), {"key": ["sample", "a", "b"]}, "a record below a removed one")
    expect_raises(NotFoundError, lambda: store.read(("sample", "a")), "reading the removed one")


def no_key_is_written_that_could_leave_the_store(subject: Subject) -> None:
    store = subject.store
    for name in ("", *BAD_NAMES):
        for key in ((name,), (name, "x"), ("sample", name), ("sample", name, "x")):
            expect_raises(InvalidKeyError, lambda key=key: store.write(key, {}), f"writing {key!a:.80}")
            expect_raises(InvalidKeyError, lambda key=key: store.update(key, no_edit), f"updating {key!a:.80}")
            expect_raises(InvalidKeyError, lambda key=key: store.remove(key), f"removing {key!a:.80}")
    expect_raises(InvalidKeyError, lambda: store.write((), {}), "writing the empty key")
    list_names_every_record_in_key_order(subject)


def plain_names_of_ordinary_length_are_accepted(subject: Subject) -> None:
    for name in ("a", "-", "_", "0", "A", "com", "con1", "x" * 120, "ses_1e08b2c3fffe0Az9", "CON-", "0a1b2c3d" * 5):
        subject.store.write(("sample", name), {"name": name})
        expect_same(subject.store.read(("sample", name)), {"name": name}, f"what is stored as {name}")


def messages_stay_in_order_when_ids_wrap_around(subject: Subject) -> None:
    session = ids.descending("ses")
    for start in (WRAP - 3_500, WRAP - 40 * 86_400_000):
        scribe = Scribe(start, step=1000 if start > WRAP - 86_400_000 else 20 * 86_400_000)
        names = _write_messages(subject.store, scribe, session, [None] * 8)
        expect(names[-1] < names[0], "the sample itself does not cross the wraparound")
        _expect_messages(subject.store, session, names)
        for key in subject.store.list(("message", session)):
            subject.store.remove(key)


def messages_are_ordered_by_time_not_by_name(subject: Subject) -> None:
    session = ids.descending("ses")
    names = ["msg_mine", None, "msg_000", None, "msg_zzz-last", None, "msg_ffffffffffff", None, "msg_0", None, "msg_a"]
    _expect_messages(subject.store, session, _write_messages(subject.store, Scribe(WRAP + 10**9), session, names))


def messages_with_ids_of_another_clock_are_ordered_by_time(subject: Subject) -> None:
    for ahead in (-3_600_000, -90_000, -500, 500, 90_000, 3_600_000):
        session = ids.descending("ses")
        clock = Scribe(WRAP + 10**9 + ahead, step=5000)
        names = [clock.message(session)[1]["id"] if number % 5 == 4 else None for number in range(60)]
        names = _write_messages(subject.store, Scribe(WRAP + 10**9), session, names)
        _expect_messages(subject.store, session, names, lasts=(0, 1, 2, 7, 20))


def messages_of_the_same_time_are_ordered_by_id(subject: Subject) -> None:
    session = ids.descending("ses")
    scribe = Scribe(WRAP + 10**9, step=0)
    _expect_messages(subject.store, session, _write_messages(subject.store, scribe, session, [None] * 12))


def parts_are_ordered_by_creation(subject: Subject) -> None:
    session = ids.descending("ses")
    scribe = Scribe(WRAP - 1)
    key, message = scribe.message(session)
    subject.store.write(key, message)
    before = [Scribe(WRAP - 2).part(session, message["id"], "early") for _ in range(1)]
    after = [scribe.part(session, message["id"], str(number)) for number in range(20)]
    for key, part in reversed(before + after):
        subject.store.write(key, part)
    texts = [part["text"] for part in subject.store.messages(session, report=no_damage)[0].parts]
    expect(texts == ["early", *map(str, range(20))], f"the parts come as {texts}")


def a_scan_tolerates_changes_during_the_scan(subject: Subject) -> None:
    store = subject.store
    for number in range(6):
        store.write(("sample", f"n{number}"), {"number": number})
    scan = store.scan(("sample",), report=no_damage)
    first = next(scan)
    store.remove(("sample", "n3"))
    store.write(("sample", "n5"), {"number": 50})
    store.write(("sample", "n9"), {"number": 9})
    numbers = [value["number"] for _, value in [first, *scan]]
    expect(numbers[:3] == [0, 1, 2], f"the scan lost records that were not changed: {numbers}")
    expect({4} < set(numbers) <= {0, 1, 2, 3, 4, 5, 50, 9}, f"the scan found {numbers}")


def _write_messages(store: Store, scribe: Scribe, session: str, names: Iterable[str | None]) -> list[str]:
    """Store messages in this order, and return their ids."""
    written: list[tuple[Key, Any]] = [scribe.message(session, name) for name in names]
    for key, message in sorted(written, key=lambda record: record[0][::-1]):
        store.write(key, message)
    return [key[2] for key, _ in written]


def _expect_messages(store: Store, session: str, names: list[str], lasts: Iterable[int] = ()) -> None:
    for last in lasts or range(len(names) + 2):
        listed = [message.info["id"] for message in store.messages(session, last=last, report=no_damage)]
        expect(listed == names[-last:], f"with last={last}, messages come as {listed}, not as {names[-last:]}")


_THREADS = 8
_ROUNDS = 25
TIMEOUT_SECONDS = 20.0


def updates_of_one_record_lose_nothing(subject: Subject) -> None:
    subject.store.write(KEY, {"count": 0, "by": {}})

    def work(name: str) -> None:
        def add(value: Any) -> None:
            value["count"] += 1
            value["by"][name] = value["by"].get(name, 0) + 1

        for _ in range(_ROUNDS):
            subject.store.update(KEY, add)

    _together([lambda name=f"t{number}": work(name) for number in range(_THREADS)])
    record = subject.store.read(KEY)
    expect(
        record["count"] == _THREADS * _ROUNDS, f"{_THREADS * _ROUNDS} updates were made, {record['count']} are there"
    )
    expect(set(record["by"].values()) == {_ROUNDS}, f"the updates are shared out as {record['by']}")


def updates_of_different_records_do_not_disturb_each_other(subject: Subject) -> None:
    keys = [("sample", f"own-{number}") for number in range(_THREADS)]

    def work(key: Key) -> None:
        subject.store.write(key, [])
        for number in range(_ROUNDS):
            subject.store.update(key, lambda value, number=number: value.append(number))

    _together([lambda key=key: work(key) for key in keys])
    for key in keys:
        expect_same(subject.store.read(key), list(range(_ROUNDS)), f"{key}, which one thread alone wrote,")


def other_records_can_be_written_and_removed_meanwhile(subject: Subject) -> None:
    def work(number: int) -> None:
        key = ("sample", "folder", f"n{number}")
        for _ in range(_ROUNDS):
            subject.store.write(key, {"number": number})
            expect_same(subject.store.read(key), {"number": number}, "a record that only this thread removes")
            subject.store.remove(key)

    _together([lambda number=number: work(number) for number in range(_THREADS)])
    expect(list(subject.store.list(("sample",))) == [], "records are left that were removed")


def a_reader_sees_the_old_record_or_the_new_one(subject: Subject) -> None:
    def record(number: int) -> dict[str, Any]:
        return {"first": number, "filling": [str(number) * 50] * (number % 40), "last": number}

    done = threading.Event()
    subject.store.write(KEY, record(0))

    def write() -> None:
        try:
            for number in range(1, 60):
                subject.store.write(KEY, record(number))
        finally:
            done.set()

    def read() -> None:
        latest = 0
        while not done.is_set():
            value = subject.store.read(KEY)
            expect_same(value, record(value["first"]), "a record read while it was written")
            expect(value["first"] >= latest, "a reader saw a record that was replaced before")
            latest = value["first"]

    _together([write, read, read])


def a_write_during_an_update_is_not_lost(subject: Subject) -> None:
    editing, written = threading.Event(), threading.Event()
    subject.store.write(KEY, {"from": "none"})

    def slow(value: Any) -> None:
        editing.set()
        written.wait(0.2)
        value["from"] = "the update"

    def write() -> None:
        editing.wait(TIMEOUT_SECONDS)
        subject.store.write(KEY, {"from": "the write"})
        written.set()

    _together([lambda: subject.store.update(KEY, slow), write])
    expect_same(subject.store.read(KEY), {"from": "the write"}, "a record written while it was updated")


def an_edit_that_calls_the_store_is_refused_or_safe(subject: Subject) -> None:
    calls: list[tuple[str, Callable[[Store, Key], object]]] = [
        ("write", lambda store, key: store.write(key, {"inner": True})),
        ("update", lambda store, key: store.update(key, lambda value: value.update(inner=True))),
        ("remove", lambda store, key: store.remove(key)),
    ]
    for what, call in calls:
        for key in (KEY, ("sample", "other")):
            _expect_no_deadlock(subject.store, f"an edit that called {what}", call, key)


def _expect_no_deadlock(store: Store, what: str, call: Callable[[Store, Key], object], key: Key) -> None:
    store.write(KEY, {"outer": 0})
    store.write(("sample", "other"), {})
    outcome: list[str] = []

    def work() -> None:
        try:
            store.update(KEY, lambda _: outcome.append(str(call(store, key))))
        except (StoreError, NotFoundError) as error:
            outcome.append(f"{error}")

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(TIMEOUT_SECONDS)
    expect(not worker.is_alive(), f"{what} of {'the same' if key == KEY else 'another'} record waits forever")
    expect(outcome, f"{what} ended its thread")
    store.write(KEY, {"outer": 1})
    expect_same(store.read(KEY), {"outer": 1}, f"a record written after {what}")


def _together(work: list[Callable[[], object]]) -> None:
    with ThreadPoolExecutor(len(work)) as pool:
        for outcome in [pool.submit(act) for act in work]:
            outcome.result(TIMEOUT_SECONDS * 3)
