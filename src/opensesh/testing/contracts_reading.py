"""Contracts about identity, reading and queries, for every store; and those of read-only stores.

A contract about queries passes for a store that does not offer them.
"""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from .. import ids
from ..errors import InvalidKeyError, NotFoundError, ReadOnlyStoreError
from ..records import as_list, as_object
from ..storage.protocol import SessionQueries
from ..storage.queries import SessionQuery, newest_first, session_updated
from .samples import BAD_NAMES, Subject, expect, expect_raises, expect_same, no_damage

if TYPE_CHECKING:
    from ..storage.protocol import Key


def every_record_reads_as_it_was_stored(subject: Subject) -> None:
    for key, value in subject.records.items():
        expect_same(subject.store.read(key), value, "/".join(key))


def changing_a_value_after_a_read_does_not_change_the_record(subject: Subject) -> None:
    for key, value in subject.records.items():
        _spoil(subject.store.read(key))
        expect_same(subject.store.read(key), value, f"{'/'.join(key)}, changed by a reader,")
    for _, value in subject.store.scan(()):
        _spoil(value)
    for session in subject.sessions:
        for message in subject.store.messages(session):
            _spoil(message.info)
            for part in message.parts:
                _spoil(part)
    every_record_reads_as_it_was_stored(subject)


def a_missing_record_is_not_found(subject: Subject) -> None:
    for key in (
        ("session", "global", ids.descending("ses")),
        ("message", ids.descending("ses"), ids.ascending("msg")),
        ("todo", ids.descending("ses")),
        ("nothing", "of", "the", "kind"),
        ("session",),
        ("message", "x" * 64, "y" * 64),
    ):
        expect_raises(NotFoundError, lambda key=key: subject.store.read(key), f"reading {key}")


def a_key_that_could_leave_the_store_is_refused(subject: Subject) -> None:
    store = subject.store
    expect_raises(InvalidKeyError, lambda: store.read(()), "reading the empty key")
    for name in BAD_NAMES:
        for key in ((name,), (name, "x"), ("session", name), ("session", "global", name), ("todo", name, "x")):
            expect_raises(InvalidKeyError, lambda key=key: store.read(key), f"reading {key!a:.80}")
            expect_raises(InvalidKeyError, lambda key=key: store.list(key), f"listing {key!a:.80}")
            expect_raises(InvalidKeyError, lambda key=key: list(store.scan(key)), f"scanning {key!a:.80}")
        expect_raises(InvalidKeyError, lambda name=name: store.messages(name), f"the messages of {name!a:.80}")


def list_names_every_record_in_key_order(subject: Subject) -> None:
    keys = list(subject.store.list())
    expect(keys == sorted(keys), "the keys are not sorted")
    missing, extra = set(subject.records) - set(keys), set(keys) - set(subject.records)
    expect(not missing, f"keys are missing: {sorted(missing)[:3]}")
    expect(not extra, f"there are keys that were not stored: {sorted(extra)[:3]}")
    expect(len(keys) == len(set(keys)), "a key appears twice")


def a_prefix_matches_whole_elements_of_a_key(subject: Subject) -> None:
    prefixes = {key[:depth] for key in subject.records for depth in range(1, len(key) + 1)}
    for prefix in sorted(prefixes):
        below = sorted(key for key in subject.records if key[: len(prefix)] == prefix and len(key) > len(prefix))
        keys = list(subject.store.list(prefix))
        expect(keys == below, f"below {prefix} there should be {below[:3]}..., not {keys[:3]}...")
    for prefix in (("ses",), ("sessio",), ("nothing",), ("session", "globa"), ("message", ids.descending("ses"))):
        expect(list(subject.store.list(prefix)) == [], f"there should be nothing below {prefix}")


def scan_agrees_with_list_and_read(subject: Subject) -> None:
    store = subject.store
    for prefix in {(), *(key[:1] for key in subject.records), *(key[:2] for key in subject.records)}:
        records = list(store.scan(prefix, report=no_damage))
        expect(
            [key for key, _ in records] == list(store.list(prefix)), f"scan and list of {prefix} name different keys"
        )
        for key, value in records:
            expect_same(value, subject.records[key], f"{'/'.join(key)}, scanned,")
    expect(list(store.scan(("nothing",), report=no_damage)) == [], "a scan of nothing found something")


def messages_come_oldest_first_with_their_parts_in_order(subject: Subject) -> None:
    for session in subject.sessions:
        expected = subject.messages(session)
        messages = subject.store.messages(session, report=no_damage)
        names = [message.info.get("id") for message in messages]
        expect(names == [info["id"] for info, _ in expected], f"the messages of {session} come as {names}")
        for message, (info, parts) in zip(messages, expected, strict=True):
            expect_same(message.info, info, f"message {info['id']}")
            expect_same(list(message.parts), parts, f"the parts of message {info['id']}")


def the_last_messages_are_the_end_of_all(subject: Subject) -> None:
    for session in subject.sessions:
        everything = list(subject.store.messages(session))
        for last in {*range(1, 8), len(everything) - 1, len(everything), len(everything) + 1} - {0}:
            newest = list(subject.store.messages(session, last=last, report=no_damage))
            expect(newest == everything[-last:], f"the last {last} of {len(everything)} messages are not the newest")


def a_session_that_does_not_exist_has_no_messages(subject: Subject) -> None:
    for last in (0, 1, 50):
        messages = subject.store.messages(ids.descending("ses"), last=last, report=no_damage)
        expect(list(messages) == [], f"there are {len(messages)} messages of a session that never was")


def every_record_has_a_location(subject: Subject) -> None:
    expect(subject.store.place, "the store cannot say where it is")
    names = {key: subject.store.locate(key) for key in subject.records}
    expect(all(names.values()), "the store cannot say where a record is")
    expect(len(set(names.values())) == len(names), "two records are said to be in the same place")
    expect(subject.store.locate(("session", "global", ids.descending("ses"))), "nor where one would be")


def threads_may_read_at_the_same_time(subject: Subject) -> None:
    checks = (every_record_reads_as_it_was_stored, messages_come_oldest_first_with_their_parts_in_order) * 4
    with ThreadPoolExecutor(len(checks)) as pool:
        for outcome in [pool.submit(check, subject) for check in checks]:
            outcome.result()


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


def a_read_only_store_refuses_every_write(subject: Subject) -> None:
    store = subject.store
    new: Key = ("session", "global", ids.descending("ses"))

    def edit(_: Any) -> None:
        raise AssertionError("an edit was called in a store that is only read")

    for key in (*list(subject.records)[:3], new):
        name = "/".join(key)
        expect_raises(ReadOnlyStoreError, lambda key=key: store.write(key, {}), f"writing {name}")
        expect_raises(ReadOnlyStoreError, lambda key=key: store.update(key, edit), f"updating {name}")
        expect_raises(ReadOnlyStoreError, lambda key=key: store.remove(key), f"removing {name}")
    every_record_reads_as_it_was_stored(subject)
    list_names_every_record_in_key_order(subject)


def a_read_only_store_is_not_writable_and_refuses_batches(subject: Subject) -> None:
    expect(not subject.store.writable, "the store says that it can be written")

    def write() -> None:
        with subject.store.batch() as batch:
            batch.write(("sample", "first"), {})

    expect_raises(ReadOnlyStoreError, write, "a batch")


def _spoil(value: Any) -> None:
    if (members := as_object(value)) is not None:
        for inner in members.values():
            _spoil(inner)
        members.clear()
        members["spoilt"] = True
    elif (items := as_list(value)) is not None:
        for inner in items:
            _spoil(inner)
        items[:] = ["spoilt"]


REFUSING = (a_read_only_store_refuses_every_write, a_read_only_store_is_not_writable_and_refuses_batches)
"""Contracts of read-only stores."""
