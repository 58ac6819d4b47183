"""Contracts about concurrent use by several threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ..errors import NotFoundError, StoreError
from .subject import Subject, expect, expect_same

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..storage.protocol import Key, Store

KEY: Key = ("sample", "shared")
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


ALL = (
    updates_of_one_record_lose_nothing,
    updates_of_different_records_do_not_disturb_each_other,
    other_records_can_be_written_and_removed_meanwhile,
    a_reader_sees_the_old_record_or_the_new_one,
    a_write_during_an_update_is_not_lost,
    an_edit_that_calls_the_store_is_refused_or_safe,
)
