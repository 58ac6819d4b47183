from __future__ import annotations

import json
import os
import random
import threading
import time
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from opensesh.errors import RecordError
from opensesh.project import ProjectLocation
from opensesh.records import Project, dumps, read_message, read_part, view
from opensesh.sessions import Sessions
from opensesh.storage.disk import read_file
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.record_ids import message_positions, with_parts
from opensesh.testing.samples import WRAP, Scribe

if TYPE_CHECKING:
    from collections.abc import Callable

    from opensesh.storage.protocol import Damage, Key

PLACE = ProjectLocation("/work", "global", "/", "/", None)
SESSIONS = 12
MESSAGES = 8
PARTS = 3


def healthy(tree: JsonTree) -> dict[Key, Any]:
    """A small history."""
    records: dict[Key, Any] = {}
    scribe = Scribe(WRAP - 20_000)
    for number in range(SESSIONS):
        key, session = scribe.session("global", f"session {number}")
        records[key] = session
        for _ in range(MESSAGES):
            key, message = scribe.message(session["id"])
            records[key] = message
            for text in ("one", "two", "three")[:PARTS]:
                key, part = scribe.part(session["id"], message["id"], text)
                records[key] = part
    for key, value in records.items():
        tree.write(key, value)
    return records


# -- how files get damaged ---------------------------------------------------------------------------------------------


def truncated(chance: random.Random, data: bytes) -> bytes:
    return data[: chance.randrange(len(data))]


def zeroed(chance: random.Random, data: bytes) -> bytes:
    start = chance.choice((0, chance.randrange(len(data))))
    return data[:start] + b"\0" * (len(data) - start)


def flipped(chance: random.Random, data: bytes) -> bytes:
    damaged = bytearray(data)
    for _ in range(chance.randint(1, 6)):
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
    return bytes(damaged)


def mistyped(chance: random.Random, data: bytes) -> bytes:
    """Some values inside replaced by values of another type, or left out."""
    document = json.loads(data)
    strange: list[Any] = [None, True, -1, 1e300, 10**30, "", "x", [], {}, [[]], {"": {}}, "\ud800", {"created": "x"}]
    for _ in range(chance.randint(1, 3)):
        path = document
        while True:
            name = chance.choice(list(path))
            if isinstance(path[name], dict) and path[name] and chance.random() < 0.6:
                path = path[name]
                continue
            break
        if chance.random() < 0.3 and len(path) > 1:
            del path[name]
        else:
            path[name] = deepcopy(chance.choice(strange))
    return json.dumps(document).encode()


def not_an_object(chance: random.Random, data: bytes) -> bytes:
    return chance.choice((b"null", b"[]", b'"text"', b"0", b"true", b"[{}]", b"-1.5e10", b"[null]", b"{}"))


def nested(chance: random.Random, data: bytes) -> bytes:
    depth = chance.choice((10, 400, 990, 2_000, 100_000))
    opening, middle, closing = chance.choice(((b"[", b"", b"]"), (b'{"time":', b"1", b"}")))
    return opening * depth + middle + closing * chance.choice((depth, 0))


def badly_encoded(chance: random.Random, data: bytes) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + chance.choice((b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\x80")) + data[at:]


def foreign(chance: random.Random, data: bytes) -> bytes:
    text = data.decode()
    return chance.choice(
        (
            b"",
            b" \n",
            b"\xef\xbb\xbf" + data,
            text.encode("utf-16"),
            data + data,
            data + b"\n",
            b"<<<<<<< HEAD\n" + data,
            data.replace(b'"', b"'"),
            b"\x1f\x8b\x08\x00" + data,
            b"NaN",
            b'{"time": {"created": 1e999}}',
            b'{"id": ' + b"9" * 10_000 + b"}",
            b'"' + b"\\ud83d" * 1000 + b'"',
        )
    )


KINDS: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    truncated,
    zeroed,
    flipped,
    mistyped,
    not_an_object,
    nested,
    badly_encoded,
    foreign,
)


class Fuzzed:
    """A healthy tree, and in the midst of it any number of damaged files."""

    def __init__(self, tree: JsonTree, number: int, seed: int) -> None:
        self.tree = tree
        self.records = healthy(tree)
        self.sessions = sorted({key[2] for key in self.records if key[0] == "session"})
        chance = random.Random(seed)
        samples = [(key, dumps(value)) for key, value in self.records.items()]
        self.damaged: dict[Key, bytes] = {}
        for count in range(number):
            key, data = chance.choice(samples)
            name = f"{key[-1][:4]}{chance.getrandbits(47):012x}damaged{count}"
            damaged = KINDS[count % len(KINDS)](chance, data.replace(key[-1].encode(), name.encode()))
            self.damaged[(*key[:-1], name)] = damaged
            path = Path(tree.locate((*key[:-1], name)))
            path.write_bytes(damaged)

    def expect_nothing_hidden(self) -> int:
        """Every healthy record is found by every way to find it; how many reports of damage there were."""
        reports: list[Damage] = []
        assert set(self.tree.list()) == {*self.records, *self.damaged}
        result = dict(self.tree.scan((), report=reports.append))
        for key, value in self.records.items():
            assert result[key] == value
        assert {*result} >= {*self.records}
        assert len(result) + len(reports) == len(self.records) + len(self.damaged)
        self._expect_sessions()
        for session in self.sessions:
            for last in (0, 3, 1000):
                self._expect_messages(session, last)
        for key, data in self.damaged.items():
            assert Path(self.tree.locate(key)).read_bytes() == data, "a damaged file was touched"
        return len(reports)

    def _expect_sessions(self) -> None:
        reported: list[Damage] = []
        sessions = Sessions(self.tree, PLACE)
        visible = {session.id for session in sessions.list(report=reported.append)}
        assert visible >= set(self.sessions)
        for session in self.sessions:
            assert sessions.get(session).document == self.records["session", "global", session]
        looks: list[tuple[str, Callable[[Any], object]]] = [
            ("session", lambda value: view(value, Project)),
            ("message", read_message),
            ("part", read_part),
        ]
        for kind, look in looks:
            for _, value in self.tree.scan((kind,), report=reported.append):
                assert refusal(look, value) != ""
        assert all(report.path and report.reason for report in reported)

    def _expect_messages(self, session: str, last: int) -> None:
        reported: list[Damage] = []
        result = {
            str(item.info.get("id")): item for item in self.tree.messages(session, last=last, report=reported.append)
        }
        everything = [value for key, value in self.records.items() if key[:2] == ("message", session)]
        if not last or last >= len(everything):
            for info in everything:
                message = result[info["id"]]
                assert message.info == info
                parts = self._parts(info["id"])
                assert [part for part in message.parts if part in parts] == parts
        assert all(report.path and report.reason for report in reported)

    def _parts(self, message: str) -> list[Any]:
        return [value for key, value in self.records.items() if key[:2] == ("part", message)]


def refusal(look: Callable[[Any], object], value: Any) -> str | None:
    """Why a view is refused, if it is; nothing else may happen."""
    try:
        look(value if isinstance(value, dict) else {"value": value})
    except RecordError as error:
        return error.reason
    return None


@pytest.mark.load
@pytest.mark.parametrize(("number", "seed"), [(1000, 1), pytest.param(10_000, 2, marks=[pytest.mark.slow])])
def test_damaged_files_never_stop_a_listing_nor_hide_a_healthy_record(tmp_path: Path, number: int, seed: int) -> None:
    fuzzed = Fuzzed(JsonTree(tmp_path / "storage", durability="relaxed"), number, seed)
    reports = fuzzed.expect_nothing_hidden()
    assert number * 0.4 < reports < number * 0.95


@pytest.mark.load
@pytest.mark.slow
@pytest.mark.parametrize("filling", [b"\0", b"x", b"["])
def test_a_file_of_100_mb_costs_itself_alone(tmp_path: Path, filling: bytes) -> None:
    fuzzed = Fuzzed(JsonTree(tmp_path / "storage", durability="relaxed"), 50, 3)
    big = (
        ("message", fuzzed.sessions[0], "msg_000000000001big"),
        ("session", "global", "ses_000000000001big"),
    )
    for key in big:
        fuzzed.damaged[key] = filling * 100_000_000
        Path(fuzzed.tree.locate(key)).write_bytes(fuzzed.damaged[key])
    fuzzed.expect_nothing_hidden()


def test_a_healthy_record_of_many_megabytes_is_read(tmp_path: Path) -> None:
    tree = JsonTree(tmp_path / "storage", durability="relaxed")
    value = {"id": "prt_x", "output": "y" * 8_000_000}
    tree.write(("part", "msg_x", "prt_x"), value)
    assert tree.read(("part", "msg_x", "prt_x")) == value


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_kind_of_damage_is_reported_by_its_file_and_reason(
    tmp_path: Path, kind: Callable[[random.Random, bytes], bytes]
) -> None:
    tree = JsonTree(tmp_path / "storage", durability="relaxed")
    chance = random.Random(kind.__name__)
    key: Key = ("session", "global", "ses_x")
    _, session = Scribe(WRAP).session("global", "a title with an é in it")
    tree.write(key, session)
    data = dumps(session)
    reports: list[Damage] = []
    for _ in range(60):
        damaged = kind(chance, data)
        Path(tree.locate(key)).write_bytes(damaged)
        before = len(reports)
        if not list(tree.scan(("session",), report=reports.append)):
            assert len(reports) == before + 1
            with pytest.raises(RecordError) as refused:
                tree.read(key)
            assert refused.value.reason in reports[-1].reason
            with pytest.raises(RecordError):
                tree.update(key, lambda value: None)
        assert Path(tree.locate(key)).read_bytes() == damaged
    assert {report.path for report in reports} <= {tree.locate(key)}
    assert (len(reports) > 20) is (kind not in (mistyped, not_an_object))


def test_a_damaged_session_is_left_out_of_lists_and_named_when_asked_for(tmp_path: Path) -> None:
    sessions = Sessions(JsonTree(tmp_path / "storage", durability="relaxed"), PLACE)
    good, bad = sessions.create(title="good"), sessions.create(title="bad")
    path = Path(sessions.store.locate(("session", "global", bad.id)))
    path.write_bytes(path.read_bytes()[:40])
    reports: list[Damage] = []
    assert [session.id for session in sessions.list(report=reports.append)] == [good.id]
    assert [report.path for report in reports] == [str(path)]
    for act in (sessions.get, sessions.touch, sessions.archive):
        with pytest.raises(RecordError, match="torn"):
            act(bad.id)


def test_damage_without_a_report_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tree = JsonTree(tmp_path / "storage")
    tree.write(("todo", "ses_x"), [])
    Path(tree.locate(("todo", "ses_x"))).write_bytes(b"")
    assert list(tree.scan(("todo",))) == []
    assert caplog.messages == [f"{tree.locate(('todo', 'ses_x'))}: the file is empty"]


def test_a_reader_beside_a_program_that_writes_in_place_sees_whole_records_or_damage(tmp_path: Path) -> None:
    tree = JsonTree(tmp_path / "storage", durability="relaxed")
    key: Key = ("session", "global", "ses_x")
    versions = [dumps({"id": "ses_x", "version": number, "text": str(number) * 3000}) for number in range(2)]
    tree.write(key, {})
    path, done = tree.locate(key), threading.Event()
    Path(path).write_bytes(versions[0])

    def write_in_place() -> None:
        while not done.is_set():
            for data in versions:
                with open(path, "wb", buffering=0) as file:
                    file.write(data[:1000])
                    file.write(data[1000:])

    writer = threading.Thread(target=write_in_place)
    writer.start()
    whole, deadline = 0, time.monotonic() + 90
    try:
        while whole < 20 and time.monotonic() < deadline:
            try:
                value = tree.read(key)
            except RecordError:
                continue
            assert dumps(value) in versions
            whole += 1
    finally:
        done.set()
        writer.join()
    assert tree.read(key)["version"] == 1
    assert whole == 20


def test_a_file_that_grows_while_it_is_read_is_read_again_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, versions = tmp_path / "record.json", [b"0" * 3000, b"1" * 3000]
    path.write_bytes(versions[0][:1000])
    contents, read = iter(versions), os.read

    def read_of_a_changing_file(descriptor: int, size: int) -> bytes:
        path.write_bytes(next(contents, versions[1]))
        return read(descriptor, size)

    monkeypatch.setattr(os, "read", read_of_a_changing_file)
    assert read_file(str(path)) == versions[1]


def test_a_folder_that_cannot_be_listed_costs_itself_alone(tmp_path: Path) -> None:
    tree = JsonTree(tmp_path / "storage", durability="relaxed")
    records = healthy(tree)
    (tmp_path / "storage" / "session" / "closed").mkdir(mode=0)
    (tmp_path / "storage" / "part" / "msg_file").write_bytes(b"not a folder")
    reports: list[Damage] = []
    assert dict(tree.scan((), report=reports.append)) == records
    expected = [] if os.access(tmp_path / "storage" / "session" / "closed", os.R_OK) else ["closed"]
    assert [os.path.basename(report.path) for report in reports] == expected


def test_a_message_or_part_that_is_not_an_object_is_reported_when_messages_are_read_one_by_one(tmp_path: Path) -> None:
    tree = JsonTree(tmp_path / "storage")
    tree.write(("message", "ses_a", "msg_a"), {"time": {"created": 1}})
    tree.write(("message", "ses_a", "msg_b"), "no message")
    tree.write(("part", "msg_a", "prt_a"), {"type": "text"})
    tree.write(("part", "msg_a", "prt_b"), ["no part"])
    reports: list[Damage] = []
    [(_, info)] = message_positions(tree, "ses_a", reports.append)
    assert [part["id"] for part in with_parts(tree, info, reports.append).parts] == ["prt_a"]
    assert [(Path(damage.path).stem, damage.reason) for damage in reports] == [
        ("msg_b", "$: expected an object"),
        ("prt_b", "$: expected an object"),
    ]
