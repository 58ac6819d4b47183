from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from opensesh import ids
from opensesh.errors import InvalidKeyError, NotFoundError, RecordError, StoreError
from opensesh.records import dumps
from opensesh.storage import open_store, open_tree, paths
from opensesh.storage.disk import read_file
from opensesh.storage.json_tree.store import JsonTree
from opensesh.testing.samples import WRAP, Scribe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from opensesh.storage.protocol import Damage, Key


class Counting(JsonTree):
    """Remembers which files were read."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        super().__init__(root, durability="relaxed")
        self.files: list[str] = []

    def _read(self, path: str) -> Any:
        self.files.append(os.path.basename(path).removesuffix(".json"))
        return super()._read(path)


@pytest.fixture
def tree(tmp_path: Path) -> Counting:
    return Counting(tmp_path / "storage")


def fill(tree: JsonTree, written: Iterable[tuple[Key, Any]]) -> list[str]:
    names: list[str] = []
    for key, value in written:
        tree.write(key, value)
        names.append(key[-1])
    return names


def message_ids(tree: JsonTree, session: str, last: int = 0) -> list[str]:
    return [message.info["id"] for message in tree.messages(session, last=last)]


def test_a_record_is_the_file_that_opencode_would_write(tree: JsonTree) -> None:
    tree.write(("session", "global", "ses_x"), {"id": "ses_x", "list": [], "object": {}, "text": "é/\u2028", "n": 1.0})
    file = Path(tree.place) / "session" / "global" / "ses_x.json"
    assert file.read_bytes().decode() == (
        '{\n  "id": "ses_x",\n  "list": [],\n  "object": {},\n  "text": "é/\u2028",\n  "n": 1\n}'
    )
    assert tree.locate(("session", "global", "ses_x")) == str(file)


def test_every_record_of_opencode_is_rewritten_to_the_byte(corpus: Path, wrap_corpus: Path, tmp_path: Path) -> None:
    for number, source in enumerate((corpus, wrap_corpus)):
        root = tmp_path / str(number)
        shutil.copytree(source / "storage", root)
        tree = JsonTree(root, durability="relaxed")
        keys = tree.list()
        assert len(keys) > 30
        for key in keys:
            tree.update(key, lambda value: None)
            assert (
                Path(tree.locate(key)).read_bytes()
                == (source / "storage" / Path(*key)).with_suffix(".json").read_bytes()
            )


def test_the_messages_of_opencode_across_the_wrap_come_in_their_true_order(wrap_corpus: Path) -> None:
    tree = JsonTree(wrap_corpus / "storage")
    ((_, session),) = {key[:2] for key in tree.list(("message",))}
    result = tree.messages(session)
    times = [message.info["time"]["created"] for message in result]
    assert times == sorted(times)
    assert times[0] < WRAP < times[-1]
    names = [message.info["id"] for message in result]
    assert names != sorted(names)
    assert [message_ids(tree, session, last) for last in range(1, len(names) + 1)] == [
        names[-last:] for last in range(1, len(names) + 1)
    ]


def test_a_missing_tree_is_an_empty_one(tmp_path: Path) -> None:
    tree = JsonTree(tmp_path / "none")
    assert tree.list() == []
    assert list(tree.scan(())) == []
    assert tree.messages("ses_x") == []
    with pytest.raises(NotFoundError, match="nothing is stored at"):
        tree.read(("todo", "ses_x"))
    with pytest.raises(NotFoundError):
        tree.update(("todo", "ses_x"), print)
    tree.remove(("todo", "ses_x"))
    assert not (tmp_path / "none").exists()


def test_dot_named_and_foreign_files_are_no_records(tree: JsonTree) -> None:
    for number in range(9):
        name = f"msg_{number}"
        tree.write(("message", "ses_x", name), {"id": name, "time": {"created": number}})
    folder = Path(tree.place) / "message" / "ses_x"
    for name in (".msg_2.json.7.tmp", ".hidden.json", "notes.txt", "msg_3.json.bak", ".folder"):
        (folder / name).mkdir() if name == ".folder" else (folder / name).write_bytes(b"{")
    (Path(tree.place) / "migration").write_bytes(b"2")
    reports: list[Damage] = []
    assert tree.list() == [("message", "ses_x", f"msg_{number}") for number in range(9)]
    assert [key for key, _ in tree.scan((), report=reports.append)] == tree.list()
    assert len(tree.messages("ses_x", report=reports.append)) == 9
    assert reports == []


def test_a_copy_with_a_name_that_is_not_a_key_is_reported_and_not_mixed_in(tree: JsonTree) -> None:
    key, message = Scribe(WRAP).message("ses_x")
    tree.write(key, message)
    tree.write(("session", "global", "ses_x"), {"id": "ses_x"})
    folder = Path(tree.place) / "message" / "ses_x"
    copies = [f"{key[2]} (conflicted copy).json", f"{key[2]}.sync-conflict.json", "é.json"]
    for name in copies:
        shutil.copy(tree.locate(key), folder / name)
    shutil.copytree(Path(tree.place) / "session" / "global", Path(tree.place) / "session" / "global copy")
    assert tree.list() == [key, ("session", "global", "ses_x")]
    reports: list[Damage] = []
    assert [result for result, _ in tree.scan((), report=reports.append)] == tree.list()
    assert sorted(os.path.basename(report.path) for report in reports) == sorted([*copies, "global copy"])
    reports.clear()
    assert [item.info["id"] for item in tree.messages("ses_x", report=reports.append)] == [key[2]]
    assert len(reports) == 3
    assert {report.reason for report in reports} == {"the name is not one of a record"}


def test_a_record_that_holds_null_is_still_a_record(tree: JsonTree) -> None:
    tree.write(("sample", "null"), None)
    assert list(tree.scan(("sample",))) == [(("sample", "null"), None)]


def test_removing_the_last_record_of_a_folder_removes_the_folder(tree: JsonTree) -> None:
    for key in (("part", "msg_1", "prt_1"), ("part", "msg_1", "prt_2"), ("todo", "ses_x")):
        tree.write(key, {})
    tree.remove(("part", "msg_1", "prt_1"))
    assert (Path(tree.place) / "part" / "msg_1").is_dir()
    tree.remove(("part", "msg_1", "prt_2"))
    tree.remove(("todo", "ses_x"))
    assert sorted(path.name for path in Path(tree.place).rglob("*")) == ["migration", "part", "todo"]


def test_reading_the_last_messages_does_not_read_the_rest(tree: Counting) -> None:
    scribe = Scribe(WRAP + 10**9)
    names = fill(tree, (scribe.message("ses_x") for _ in range(300)))
    tree.files.clear()
    assert message_ids(tree, "ses_x", 5) == names[-5:]
    assert len(set(tree.files)) < 20
    tree.files.clear()
    assert message_ids(tree, "ses_x", 290) == names[-290:]


def test_reading_the_last_messages_across_the_wrap_does_not_read_the_rest(tree: Counting) -> None:
    scribe = Scribe(WRAP - 150_000)
    names = fill(tree, (scribe.message("ses_x") for _ in range(300)))
    assert names != sorted(names)
    tree.files.clear()
    assert message_ids(tree, "ses_x", 5) == names[-5:]
    assert len(set(tree.files)) < 20


def test_a_session_that_went_on_for_more_than_half_an_era_is_in_order(tree: Counting) -> None:
    scribe = Scribe(WRAP - 425 * 86_400_000, step=45 * 86_400_000)
    names = fill(tree, (scribe.message("ses_x") for _ in range(40)))
    assert [message_ids(tree, "ses_x", last) for last in range(1, 41)] == [names[-last:] for last in range(1, 41)]


def test_the_messages_of_a_fork_are_found_without_reading_all(tree: Counting) -> None:
    original, copy = Scribe(WRAP + 10**9), Scribe(WRAP + 5 * 10**9, step=0)
    copies: list[tuple[Key, Any]] = []
    for _ in range(100):
        _, message = original.message("ses_x")
        key, info = copy.message("ses_x")
        copies.append((key, info | {"time": message["time"]}))
    names = fill(tree, copies)
    tree.files.clear()
    assert message_ids(tree, "ses_x", 5) == names[-5:]
    assert len(set(tree.files)) < 20
    later = Scribe(WRAP + 6 * 10**9)
    names += fill(tree, (later.message("ses_x") for _ in range(30)))
    tree.files.clear()
    assert [message_ids(tree, "ses_x", last) for last in (1, 5, 29)] == [names[-1:], names[-5:], names[-29:]]
    assert len(set(tree.files)) < 50


def test_damaged_messages_among_the_last_are_made_up_for(tree: Counting) -> None:
    scribe = Scribe(WRAP + 10**9)
    names = fill(tree, (scribe.message("ses_x") for _ in range(60)))
    for name in names[-20:-2]:
        Path(tree.locate(("message", "ses_x", name))).write_bytes(b"")
    healthy = names[:-20] + names[-2:]
    reports: list[Damage] = []
    result = [message.info["id"] for message in tree.messages("ses_x", last=5, report=reports.append)]
    assert result == healthy[-5:]
    assert len(reports) == 18


def test_no_damage_is_reported_twice_when_all_must_be_read(tree: Counting) -> None:
    scribe = Scribe(WRAP + 10**9)
    names = fill(tree, (scribe.message("ses_x") for _ in range(30)))
    key, late = scribe.message("ses_x")
    late["time"]["created"] = 5
    tree.write(key, late)
    Path(tree.locate(("message", "ses_x", names[-1]))).write_bytes(b"")
    reports: list[Damage] = []
    result = [message.info["id"] for message in tree.messages("ses_x", last=2, report=reports.append)]
    assert result == names[-3:-1]
    assert len(reports) == 1


def test_a_copy_among_the_last_messages_is_reported_and_not_mixed_in(tree: Counting) -> None:
    scribe = Scribe(WRAP + 10**9)
    names = fill(tree, (scribe.message("ses_x") for _ in range(60)))
    path = tree.locate(("message", "ses_x", names[-2]))
    copy = shutil.copy(path, path.replace(".json", " (conflicted copy).json"))
    reports: list[Damage] = []
    assert [item.info["id"] for item in tree.messages("ses_x", last=5, report=reports.append)] == names[-5:]
    assert reports == [(copy, "the name is not one of a record")]


def test_a_file_half_written_beside_the_last_messages_is_not_a_reason_to_read_the_rest(tree: Counting) -> None:
    scribe = Scribe(WRAP + 10**9)
    names = fill(tree, (scribe.message("ses_x") for _ in range(60)))
    (Path(tree.place) / "message" / "ses_x" / f".{names[-1]}.json.7.beef.tmp").write_bytes(b"")
    tree.files.clear()
    assert message_ids(tree, "ses_x", 5) == names[-5:]
    assert len(set(tree.files)) < 20


@pytest.mark.parametrize("begin", ["msg_mine_", "msg_a_name_of_my_own_"])
def test_the_newest_of_messages_that_clients_named_is_found_wherever_its_name_puts_it(
    tree: Counting, begin: str
) -> None:
    for number in range(30):
        name = f"{begin}{number:02d}"
        tree.write(("message", "ses_x", name), {"id": name, "time": {"created": 99 if number == 12 else number}})
    assert message_ids(tree, "ses_x", 3) == [f"{begin}{number}" for number in (28, 29, 12)]


@pytest.mark.parametrize("first_listed", ["whole", "torn", "gone"])
def test_the_last_messages_across_the_wrap_are_found_without_the_rest_on_any_day(
    tree: Counting, monkeypatch: pytest.MonkeyPatch, first_listed: str
) -> None:
    scribe = Scribe(WRAP - 150_000)
    names = fill(tree, (scribe.message("ses_x") for _ in range(300)))
    path = Path(tree.locate(("message", "ses_x", names[40])))
    path.unlink() if first_listed == "gone" else path.write_bytes(b"") if first_listed == "torn" else None

    truly_listed = os.listdir

    def listed(folder: str) -> list[str]:
        in_folder = truly_listed(folder)
        return [f"{name}.json" for name in names[40:] + names[:40]] if len(in_folder) > 200 else in_folder

    monkeypatch.setattr(ids, "now_ms", lambda: WRAP + ids.ERA_MS // 2)
    monkeypatch.setattr(os, "listdir", listed)
    tree.files.clear()
    assert message_ids(tree, "ses_x", 5) == names[-5:]
    assert len(set(tree.files)) < 20


def test_of_messages_that_are_all_torn_the_last_is_missing(tree: Counting) -> None:
    scribe = Scribe(WRAP - 15_000)
    for name in fill(tree, (scribe.message("ses_x") for _ in range(30))):
        Path(tree.locate(("message", "ses_x", name))).write_bytes(b"")
    reports: list[Damage] = []
    assert tree.messages("ses_x", last=5, report=reports.append) == []
    assert len(reports) == 30


def test_parts_whose_names_clients_made_up_are_all_there(tree: JsonTree) -> None:
    key, message = Scribe(WRAP).message("ses_x")
    tree.write(key, message)
    names = ["prt_mine", "prt_000000000001a", "x", "prt_zz"]
    for name in names:
        tree.write(("part", key[2], name), {"id": name})
    assert {part["id"] for part in tree.messages("ses_x")[0].parts} == set(names)


def test_a_store_called_within_an_update_refuses_and_leaves_the_record(tree: JsonTree) -> None:
    tree.write(("todo", "ses_x"), [1])
    for other in (tree, JsonTree(tree.place)):
        with pytest.raises(StoreError, match="would wait forever"):
            tree.update(("todo", "ses_x"), lambda _, other=other: other.write(("todo", "ses_x"), [2]))
    assert tree.read(("todo", "ses_x")) == [1]


def test_a_message_that_is_none_is_reported_and_the_others_are_found(tree: JsonTree) -> None:
    tree.write(("message", "ses_x", "msg_1"), [])
    tree.write(("message", "ses_x", "msg_2"), {"id": "msg_2"})
    tree.write(("message", "ses_x", "msg_4"), {"id": "msg_4", "time": {"created": 2}})
    Path(tree.locate(("message", "ses_x", "msg_5"))).mkdir()
    tree.write(("part", "msg_4", "prt_1"), {"id": "prt_1"})
    tree.write(("part", "msg_4", "prt_2"), "no part")
    Path(tree.locate(("part", "msg_4", "prt_3"))).write_bytes(b'{"id": "prt_3"')
    reports: list[Damage] = []
    result = tree.messages("ses_x", report=reports.append)
    assert [(message.info["id"], len(message.parts)) for message in result] == [("msg_4", 1)]
    assert {"/".join(Path(path).parts[-2:]): reason for path, reason in reports} == {
        "ses_x/msg_1.json": "$: expected an object",
        "ses_x/msg_2.json": "$.time.created: expected milliseconds, found nothing",
        "ses_x/msg_5.json": "cannot be read: not a regular file",
        "msg_4/prt_2.json": "$: expected an object",
        "msg_4/prt_3.json": "byte 14: torn: it ends in the middle",
    }
    with pytest.raises(RecordError, match="cannot be read") as caught:
        tree.read(("message", "ses_x", "msg_5"))
    assert caught.value.path == tree.locate(("message", "ses_x", "msg_5"))


def test_messages_that_cannot_be_listed_are_reported_and_nothing_else_is_lost(
    tree: JsonTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.write(("message", "ses_x", "msg_1"), {"id": "msg_1", "time": {"created": 1}})

    def refuse(folder: str) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied", folder)

    reports: list[Damage] = []
    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", refuse)
        for last in (0, 3):
            assert tree.messages("ses_x", last=last, report=reports.append) == []
        patched.setattr(os, "scandir", refuse)
        assert list(tree.scan(("message", "ses_x"), report=reports.append)) == tree.list() == []
    assert [report.reason for report in reports] == ["cannot be listed: Permission denied"] * 3
    assert message_ids(tree, "ses_x") == ["msg_1"]


@pytest.mark.parametrize("messages", [0, 1])
def test_a_folder_full_of_files_of_others_holds_what_messages_it_holds(tree: JsonTree, messages: int) -> None:
    folder = Path(tree.place) / "message" / "ses_x"
    folder.mkdir(parents=True)
    for number in range(20):
        (folder / f"notes-{number}.txt").write_bytes(b"")
    scribe = Scribe(WRAP + 10**9)
    names = fill(tree, (scribe.message("ses_x") for _ in range(messages)))
    assert message_ids(tree, "ses_x", 3) == message_ids(tree, "ses_x") == names


def test_a_file_where_a_folder_should_be_holds_nothing(tree: JsonTree) -> None:
    (Path(tree.place) / "message").mkdir(parents=True)
    (Path(tree.place) / "message" / "ses_x").write_bytes(b"")
    reports: list[Damage] = []
    for last in (0, 3):
        assert tree.messages("ses_x", last=last, report=reports.append) == []
    assert list(tree.scan(("message", "ses_x"), report=reports.append)) == tree.list(("message", "ses_x")) == []
    assert reports == []


@pytest.mark.parametrize(("options", "synced"), [({}, True), ({"durability": "relaxed"}, False)])
def test_a_write_is_on_the_disk_when_it_returns_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], synced: bool
) -> None:
    descriptors: list[int] = []
    monkeypatch.setattr(os, "fsync", descriptors.append)
    JsonTree(tmp_path / "storage", **options).write(("todo", "ses_x"), [])
    assert bool(descriptors) is synced


@pytest.mark.skipif(not os.path.isdir("/dev/fd"), reason="counts what the system lists there")
def test_nothing_stays_open_after_reading(tree: JsonTree) -> None:
    tree.write(("todo", "ses_x"), [])
    before = len(os.listdir("/dev/fd"))
    for _ in range(5):
        tree.read(("todo", "ses_x"))
    assert len(os.listdir("/dev/fd")) == before


def test_a_tree_below_a_folder_whose_name_is_not_text_has_locks_too(tmp_path: Path) -> None:
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    assert JsonTree(odd).locks.folder != JsonTree(tmp_path).locks.folder


@pytest.mark.parametrize("act", ["write", "update", "remove"])
def test_others_wait_while_a_record_is_updated(tree: JsonTree, act: str) -> None:
    key = ("todo", "ses_x")
    tree.write(key, [])
    acts: dict[str, Callable[[], object]] = {
        "write": lambda: tree.write(key, ["written"]),
        "update": lambda: tree.update(key, lambda value: value.append("too")),
        "remove": lambda: tree.remove(key),
    }
    other = threading.Thread(target=acts[act])

    def edit(value: list[str]) -> None:
        other.start()
        other.join(0.1)
        assert other.is_alive()
        value.append("edited")

    assert tree.update(key, edit) == ["edited"]
    other.join(60)
    left = [value for _, value in tree.scan(("todo",))]
    assert left == {"write": [["written"]], "update": [["edited", "too"]], "remove": []}[act]


def test_keys_are_checked_before_the_disk_is_touched(tree: JsonTree, tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text("{}")
    for key in (("..", "secret"), ("a", "..", "..", "secret"), ("a/../../secret",), ("",), ()):
        with pytest.raises(InvalidKeyError):
            tree.read(key)
        with pytest.raises(InvalidKeyError):
            tree.write(key, {})
        with pytest.raises(InvalidKeyError):
            tree.remove(key)
    assert os.listdir(tmp_path) == ["secret.json"]


def test_links_out_of_the_tree_are_not_followed_by_a_listing(tree: JsonTree, tmp_path: Path) -> None:
    tree.write(("todo", "ses_x"), [])
    (tmp_path / "outside" / "global").mkdir(parents=True)
    (tmp_path / "outside" / "global" / "ses_y.json").write_text("{}")
    (Path(tree.place) / "session").symlink_to(tmp_path / "outside")
    assert tree.list() == [("todo", "ses_x")]


def test_what_only_looks_like_a_file_is_damage_and_no_reason_to_wait(tree: JsonTree) -> None:
    tree.write(("todo", "ses_a"), [])
    folder = Path(tree.place) / "todo"
    (folder / "ses_b.json").symlink_to(folder / "gone")
    (folder / "ses_c.json").symlink_to(folder / "ses_c.json")
    (folder / "ses_d.json").symlink_to(folder)
    if hasattr(os, "mkfifo"):
        os.mkfifo(folder / "ses_e.json")
    reports: list[Damage] = []
    assert list(tree.scan(("todo",), report=reports.append)) == [(("todo", "ses_a"), [])]
    pipes = ["ses_e.json"] if hasattr(os, "mkfifo") else []
    assert [os.path.basename(report.path) for report in reports] == ["ses_c.json", "ses_d.json", *pipes]
    with pytest.raises(RecordError, match="cannot be read"):
        tree.read(("todo", "ses_d"))


def test_a_file_beyond_all_measure_is_damage_and_not_read_into_memory(tree: JsonTree) -> None:
    tree.write(("todo", "ses_a"), [])
    with open(Path(tree.place) / "todo" / "ses_b.json", "wb") as file:
        file.truncate(1 << 40)
    reports: list[Damage] = []
    assert [key for key, _ in tree.scan((), report=reports.append)] == [("todo", "ses_a")]
    assert [report.reason for report in reports] == ["cannot be read: too large: 1,099,511,627,776 bytes or more"]


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
def test_a_file_that_grows_while_it_is_read_is_read_to_its_end() -> None:
    # A file of /proc has the size 0, as one has that was just created.
    assert read_file("/proc/self/stat").startswith(b"%d " % os.getpid())


def test_a_record_torn_by_another_program_is_readable_a_moment_later(tree: JsonTree) -> None:
    whole = dumps({"id": "ses_x", "text": "x" * 1000})
    tree.write(("session", "global", "ses_x"), {})
    file = Path(tree.locate(("session", "global", "ses_x")))
    file.write_bytes(whole[:500])
    with pytest.raises(RecordError, match=r"at byte 500: torn: it ends in the middle") as torn:
        tree.read(("session", "global", "ses_x"))
    assert torn.value.path == str(file)
    file.write_bytes(whole)
    assert tree.read(("session", "global", "ses_x"))["id"] == "ses_x"


def test_open_store_finds_the_tree_in_a_data_folder_or_as_itself(tmp_path: Path) -> None:
    tree = open_tree(str(tmp_path / "data" / "storage"))
    tree.write(("session", "global", "ses_x"), {"id": "ses_x"})
    for path in (tmp_path / "data", tmp_path / "data" / "storage"):
        assert open_store(str(path)).place == str(tmp_path / "data" / "storage")
    assert open_store().place == paths.storage()


@pytest.mark.parametrize("place", ["postgresql://host/db", "sqlite://x"])
def test_an_address_that_no_store_answers_to_is_named(place: str) -> None:
    with pytest.raises(StoreError, match="no store is registered for"):
        open_store(place)


def test_ids_minted_now_are_listed_newest_session_first(tree: JsonTree) -> None:
    names = [ids.descending("ses") for _ in range(20)]
    for name in names:
        tree.write(("session", "global", name), {"id": name})
    assert [key[2] for key in tree.list(("session",))] == names[::-1]


def test_numbers_and_halves_of_characters_survive_an_update(tree: JsonTree) -> None:
    tree.write(("sample", "x"), {"a": 1})
    text = '{\n  "half": "\\ud800",\n  "big": 1e+21,\n  "whole": 100000000000000000000,\n  "small": 1e-7\n}'
    file = Path(tree.locate(("sample", "x")))
    file.write_text(text)
    tree.update(("sample", "x"), lambda value: None)
    assert file.read_text() == text
    assert json.loads(text)["half"] == tree.read(("sample", "x"))["half"]
