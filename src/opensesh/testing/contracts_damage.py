"""Contracts about records that were damaged from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import NotFoundError, RecordError
from .samples import Subject, expect, expect_raises, expect_same, no_edit

if TYPE_CHECKING:
    from ..storage.protocol import Damage, Key

NO_JSON = (
    b"",
    b"\0" * 300,
    b'{"id": "x", "title": "cut o',
    b'{"id": "x"}}',
    b'{"id": "\xff\xfe"}',
    b"{'id': 1}",
    b"[" * 100_000,
    b"not json at all",
)
"""What crashes, full disks and other programs leave behind."""

NO_MESSAGE = (
    b"[]",
    b"null",
    b'"text"',
    b"17",
    b"{}",
    b'{"id": "msg_x", "time": 3}',
    b'{"id": "msg_x", "time": {"created": "soon"}}',
)
"""JSON, but not a message."""


def a_damaged_record_is_reported_and_not_changed(subject: Subject) -> None:
    key = _first(subject, "session")
    for data in NO_JSON:
        subject.damage(key, data)
        for error in (
            expect_raises(RecordError, lambda: subject.store.read(key), f"reading {data[:30]!r}"),
            expect_raises(RecordError, lambda: subject.store.update(key, no_edit), f"updating {data[:30]!r}"),
            expect_raises(RecordError, lambda: subject.store.read(key), f"reading {data[:30]!r} again"),
        ):
            expect(error.path and error.reason, f"an error about {data[:30]!r} does not say where and why")
        expect(key in list(subject.store.list()), "a damaged record is not listed")


def a_scan_leaves_out_damaged_records(subject: Subject) -> None:
    keys = [key for key in subject.records if key[0] in ("session", "part")][: len(NO_JSON)]
    for key, data in zip(keys, NO_JSON, strict=True):
        subject.damage(key, data)
    reports: list[Damage] = []
    healthy = dict(subject.store.scan((), report=reports.append))
    missing = set(subject.records) - set(healthy) - set(keys)
    expect(not missing, f"healthy records are hidden by damaged ones: {sorted(missing)[:3]}")
    expect(not set(healthy) & set(keys), "a damaged record is answered as if it were healthy")
    expect(len(reports) == len(keys), f"{len(keys)} records are damaged, {len(reports)} are reported")
    expect(all(report.path and report.reason for report in reports), "a report does not say where and why")


def damaged_messages_are_left_out(subject: Subject) -> None:
    session = subject.sessions[0]
    expected = subject.messages(session)
    for data in NO_JSON + NO_MESSAGE:
        victim, _ = expected[2]
        subject.damage(("message", session, victim["id"]), data)
        for last in (0, 2, len(expected) - 1):
            reports: list[Damage] = []
            messages = [
                message.info["id"] for message in subject.store.messages(session, last=last, report=reports.append)
            ]
            healthy = [info["id"] for info, _ in expected if info is not victim]
            complaint = f"beside {data[:30]!r}, with last={last}, there are the messages {messages}"
            expect(messages == healthy[-last:], complaint)
            expect(len(reports) == 1 or last == 2, f"{data[:30]!r} is reported {len(reports)} times")


def a_damaged_part_is_left_out_of_its_message(subject: Subject) -> None:
    session, (info, parts) = next(
        (session, message)
        for session in subject.sessions
        for message in subject.messages(session)
        if len(message[1]) > 1
    )
    for data in (*NO_JSON, b"[]", b"null"):
        subject.damage(("part", info["id"], parts[0]["id"]), data)
        reports: list[Damage] = []
        messages = {message.info["id"]: message for message in subject.store.messages(session, report=reports.append)}
        expect_same(messages[info["id"]].parts, parts[1:], f"a message with the damaged part {data[:30]!r}")
        expect(len(reports) == 1, f"{data[:30]!r} is reported {len(reports)} times")


def a_damaged_record_can_be_replaced_and_removed(subject: Subject) -> None:
    first, second = _first(subject, "session"), _first(subject, "message")
    for data in NO_JSON:
        subject.damage(first, data)
        subject.store.write(first, {"whole": True})
        expect_same(subject.store.read(first), {"whole": True}, "a record that replaced a damaged one")
        subject.damage(second, data)
        subject.store.remove(second)
        expect_raises(NotFoundError, lambda: subject.store.read(second), "reading a damaged record that was removed")


def _first(subject: Subject, kind: str) -> Key:
    return next(key for key in subject.records if key[0] == kind)
