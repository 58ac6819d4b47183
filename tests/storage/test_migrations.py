from __future__ import annotations

import json
import os
import re
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from opensesh import ids
from opensesh.errors import MigrationError, StoreTooNewError
from opensesh.storage.disk import Disk
from opensesh.storage.json_tree.migrations import LAYOUT, left_behind, migrate, pending, version
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.locks import Locks
from opensesh.storage.protocol import Damage

from ..harness import FullDisk, sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..harness import Report

DIFFS = [
    {"file": "a.py", "before": "", "after": "x\n", "additions": 3, "deletions": 1},
    {"file": "b.py", "before": "y", "after": "", "additions": 0, "deletions": 4},
]


@pytest.fixture
def ram(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk that is none, if there is one: what dies here is a process, not the machine."""
    shared = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else tmp_path) as folder:
        yield Path(folder)


class OldData:
    """A data folder as OpenCode before 0.6.0 left it."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.tree = JsonTree(data / "storage", locks=Locks(str(data / "locks")))

    def session(self, project: str, name: str, *, root: str = "", **more: Any) -> None:
        folder = self.data / "project" / project / "storage" / "session"
        message, part = name.replace("ses", "msg"), name.replace("ses", "prt")
        self.put(
            folder / "info" / f"{name}.json", {"id": name, "title": f"about {name}", "time": {"created": 1}} | more
        )
        info: dict[str, Any] = {"id": message, "sessionID": name, "time": {"created": 1}}
        if root:
            info["path"] = {"cwd": root, "root": root}
        self.put(folder / "message" / name / f"{message}.json", info)
        self.put(folder / "part" / name / message / f"{part}.json", {"id": part, "type": "text", "text": "hé"})

    def record(self, key: tuple[str, ...], value: Any) -> None:
        """Write a record as an older OpenCode would: nothing is migrated before."""
        self.put(self.data.joinpath("storage", *key).with_suffix(".json"), value)

    def put(self, path: Path, value: Any) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")

    def stored(self, kind: str) -> dict[str, Any]:
        return {"/".join(key[1:]): value for key, value in self.tree.scan((kind,))}


@pytest.fixture
def old(tmp_path: Path) -> OldData:
    return OldData(tmp_path / "data")


def named(worktree: str) -> str:
    return f"id-of-{os.path.basename(worktree)}"


def content(folder: Path) -> dict[str, bytes | None]:
    """Every file, and every folder, below one."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
        if "locks" not in path.parts
    }


def with_all_kinds(old: OldData) -> OldData:
    """What a migration has to deal with: a known project, one that moved away, ``global``, diffs, and junk."""
    worktree = old.data / "work"
    worktree.mkdir(parents=True)
    old.session("work", "ses_1", root=str(worktree), summary={"diffs": DIFFS, "more": [1]}, unknown={"kept": 1.5})
    old.session("work", "ses_2", root=str(worktree))
    old.session("moved", "ses_3", root=str(old.data / "gone"))
    old.session("global", "ses_4", summary={"diffs": []})
    folder = old.data / "project" / "work" / "storage" / "session"
    (folder / "info" / "ses_torn.json").write_bytes(b'{"id": "ses_to')
    (folder / "message" / "stray.json").write_bytes(b"{}")
    (folder / "info" / "ses_1 (copy).json").write_bytes(b"{}")
    (old.data / "project" / "empty").mkdir()
    (old.data / "project" / "a file").write_bytes(b"")
    return old


def expect_migrated(old: OldData) -> None:
    sessions = {"id-of-work/ses_1", "id-of-work/ses_2", "global/ses_3", "global/ses_4"}
    assert set(old.stored("session")) == sessions
    assert set(old.stored("message")) == {f"ses_{n}/msg_{n}" for n in range(1, 5)}
    assert set(old.stored("part")) == {f"msg_{n}/prt_{n}" for n in range(1, 5)}
    assert old.stored("session_diff") == {"ses_1": DIFFS, "ses_4": []}
    assert old.stored("session")["id-of-work/ses_1"] == {
        "id": "ses_1",
        "title": "about ses_1",
        "time": {"created": 1},
        "summary": {"more": [1], "additions": 3, "deletions": 5, "files": 2},
        "unknown": {"kept": 1.5},
    }
    assert {name: (item["id"], item["worktree"]) for name, item in old.stored("project").items()} == {
        "id-of-work": ("id-of-work", str(old.data / "work")),
        "global": ("global", "/"),
    }
    assert (old.data / "storage" / "session" / "id-of-work" / "ses_torn.json").read_bytes() == b'{"id": "ses_to'
    assert (old.data / "storage" / "migration").read_bytes() == b"2"


def test_everything_is_taken_over_global_included_and_the_sources_stay(old: OldData) -> None:
    with_all_kinds(old)
    sources = content(old.data / "project")
    assert pending(old.tree)
    outcome = migrate(old.tree, named)
    expect_migrated(old)
    assert content(old.data / "project") == sources
    assert outcome.steps == 2
    assert Damage(
        str(old.data / "project/work/storage/session/message/stray.json"), "not a record of the old layout"
    ) in (outcome.left)
    assert {os.path.basename(damage.path) for damage in outcome.left} == {
        "stray.json",
        "ses_1 (copy).json",
        "ses_torn.json",
    }
    assert not pending(old.tree)
    assert version(old.tree) == LAYOUT == 2


def test_records_are_taken_over_byte_for_byte(old: OldData) -> None:
    with_all_kinds(old)
    migrate(old.tree, named)
    source = old.data / "project" / "work" / "storage" / "session"
    assert (old.data / "storage" / "session" / "id-of-work" / "ses_2.json").read_bytes() == (
        source / "info" / "ses_2.json"
    ).read_bytes()
    assert (old.data / "storage" / "part" / "msg_1" / "prt_1.json").read_bytes() == (
        source / "part" / "ses_1" / "msg_1" / "prt_1.json"
    ).read_bytes()


def test_a_project_that_is_taken_over_has_the_record_it_would_have_had(old: OldData) -> None:
    with_all_kinds(old)
    before = ids.now_ms()
    migrate(old.tree, named)
    known, unknown = old.stored("project")["id-of-work"], old.stored("project")["global"]
    now = known["time"]["created"]
    assert before <= now <= ids.now_ms()
    time = {"created": now, "updated": now, "initialized": now}
    worktree = str(old.data / "work")
    assert known == {"id": "id-of-work", "worktree": worktree, "vcs": "git", "sandboxes": [], "time": time}
    assert unknown == {"id": "global", "worktree": "/", "sandboxes": [], "time": unknown["time"]}


def test_sessions_of_a_folder_that_is_gone_are_of_no_project(old: OldData) -> None:
    old.session("moved", "ses_1", root=str(old.data / "gone"))
    migrate(old.tree, named)
    assert list(old.stored("session")) == ["global/ses_1"]
    assert {name: item["worktree"] for name, item in old.stored("project").items()} == {"global": "/"}


def test_a_session_of_no_project_stays_one_wherever_it_worked(old: OldData) -> None:
    old.session("global", "ses_1", root=str(old.data))
    migrate(old.tree, named)
    assert list(old.stored("session")) == ["global/ses_1"]
    assert list(old.stored("project")) == ["global"]


def test_a_project_without_sessions_leaves_no_record(old: OldData) -> None:
    (old.data / "project" / "empty").mkdir(parents=True)
    migrate(old.tree, named)
    assert old.stored("project") == {}


def test_a_record_that_is_already_there_word_for_word_is_not_worth_telling(old: OldData) -> None:
    old.session("global", "ses_1")
    migrate(old.tree, named)
    (old.data / "storage" / "migration").unlink()
    old.record(("message", "ses_1", "msg_1"), {"id": "msg_1", "agent": "plan"})
    left = migrate(old.tree, named).left
    assert [(os.path.basename(damage.path), damage.reason) for damage in left] == [
        ("msg_1.json", "the tree already has another record of that name, which was kept")
    ]


def test_the_first_message_that_says_so_decides_where_a_project_is(old: OldData) -> None:
    for number in range(2, 10):
        (old.data / f"work-{number}").mkdir(parents=True)
        old.session("work", f"ses_{number}", root=str(old.data / f"work-{number}"))
    messages = old.data / "project" / "work" / "storage" / "session" / "message" / "ses_1"
    for number, odd in enumerate(("", "x", "[]", '{"path": null}', '{"path": {"root": 5}}', '{"path": {"root": ""}}')):
        messages.mkdir(exist_ok=True)
        (messages / f"msg_1{number}.json").write_text(odd)
    migrate(old.tree, named)
    assert list(old.stored("project")) == ["id-of-work-2"]


def test_a_record_that_cannot_be_read_stops_nothing_and_is_reported(old: OldData) -> None:
    old.session("work", "ses_1", root=str(old.data))
    folder = old.data / "project" / "work" / "storage" / "session"
    (folder / "message" / "ses_1" / "msg_0.json").symlink_to("gone")
    (outcome,) = migrate(old.tree, named).left
    assert outcome.path == str(folder / "message" / "ses_1" / "msg_0.json")
    assert outcome.reason == "cannot be read: No such file or directory"
    assert list(old.stored("session")) == ["id-of-data/ses_1"]


def test_what_systems_and_editors_leave_in_a_folder_is_not_a_record(old: OldData) -> None:
    old.session("work", "ses_1")
    old.session(".trash", "ses_2")
    folder = old.data / "project" / "work" / "storage" / "session" / "info"
    for name in (".DS_Store", "._ses_1.json", "ses_1.json~", "notes.txt"):
        (folder / name).write_bytes(b"{}")
    (old.data / "project" / ".DS_Store").write_bytes(b"")
    assert migrate(old.tree, named).left == []
    assert list(old.stored("session")) == ["global/ses_1"]


def test_a_file_where_the_old_projects_would_be_is_none_of_them(old: OldData) -> None:
    old.data.mkdir()
    (old.data / "project").write_bytes(b"")
    assert not pending(old.tree)
    assert migrate(old.tree, named).written == 0


def test_diffs_stay_where_they_are_if_those_already_moved_are_torn(old: OldData) -> None:
    session = {"id": "ses_1", "summary": {"diffs": DIFFS}}
    old.record(("session", "global", "ses_1"), session)
    torn = old.data / "storage" / "session_diff" / "ses_1.json"
    torn.parent.mkdir()
    torn.write_bytes(b"[{")
    (left,) = migrate(old.tree, named).left
    assert left.reason == "keeps its diffs: session_diff already holds others"
    assert old.stored("session") == {"global/ses_1": session}
    assert torn.read_bytes() == b"[{"


def test_migrating_again_changes_nothing(old: OldData) -> None:
    with_all_kinds(old)
    migrate(old.tree, named)
    before = content(old.data)
    outcome = migrate(old.tree, named)
    assert (outcome.steps, outcome.written, outcome.left) == (0, 0, [])
    assert content(old.data) == before


def test_a_new_tree_is_counted_and_nothing_else(old: OldData) -> None:
    assert not pending(old.tree)
    assert migrate(old.tree, named).written == 0
    assert content(old.data) == {"storage": None, "storage/migration": b"2"}


def test_a_tree_that_began_with_this_layout_is_not_old_though_it_does_not_count(
    old: OldData, caplog: pytest.LogCaptureFixture
) -> None:
    old.record(("session", "global", "ses_9"), {"id": "ses_9", "summary": {"additions": 7}})
    old.record(("session", "global", "ses_8"), {"id": "ses_8"})
    (old.data / "storage" / "session" / "global" / "ses_7.json").write_bytes(b"{")
    assert version(old.tree) == 0
    assert not pending(old.tree)
    assert not caplog.records
    old.record(("session", "global", "ses_9"), {"id": "ses_9", "summary": {"additions": 7, "diffs": []}})
    assert pending(old.tree)


def test_a_tree_one_step_behind_takes_one_step(old: OldData) -> None:
    with_all_kinds(old)
    old.record(("session", "global", "ses_9"), {"id": "ses_9", "summary": {"additions": 7, "diffs": DIFFS}})
    (old.data / "storage" / "migration").write_text("1")
    assert pending(old.tree)
    assert migrate(old.tree, named).steps == 1
    assert list(old.stored("session")) == ["global/ses_9"]
    assert old.stored("session")["global/ses_9"]["summary"] == {"additions": 3, "deletions": 5, "files": 2}
    assert old.stored("session_diff") == {"ses_9": DIFFS}


@pytest.mark.parametrize("counter", [b"3", b'"17"', b"9" * 5_000, b"4\n"])
def test_a_newer_tree_is_left_alone(old: OldData, counter: bytes) -> None:
    with_all_kinds(old)
    old.put(old.data / "storage" / "session" / "global" / "ses_9.json", {"summary": {"diffs": DIFFS}})
    (old.data / "storage" / "migration").write_bytes(counter)
    before = content(old.data)
    with pytest.raises(StoreTooNewError, match="Nothing was changed") as reported:
        migrate(old.tree, named)
    assert reported.value.data["layout"] == version(old.tree) > LAYOUT
    assert content(old.data) == before


@pytest.mark.parametrize("counter", [b"", b"\0\0", b"x", b"-1", b"\xff", b"1.5", b"null"])
def test_a_counter_that_says_nothing_counts_as_none_and_nothing_is_overwritten(old: OldData, counter: bytes) -> None:
    with_all_kinds(old)
    migrate(old.tree, named)
    old.tree.update(("session", "id-of-work", "ses_2"), lambda session: session.update(title="newer"))
    (old.data / "storage" / "migration").write_bytes(counter)
    outcome = migrate(old.tree, named)
    assert old.stored("session")["id-of-work/ses_2"]["title"] == "newer"
    assert "ses_2.json" in {os.path.basename(damage.path) for damage in outcome.left}
    old.tree.update(("session", "id-of-work", "ses_2"), lambda session: session.update(title="about ses_2"))
    expect_migrated(old)


def test_diffs_that_differ_from_those_already_moved_are_both_kept(old: OldData) -> None:
    session = {"id": "ses_1", "summary": {"diffs": DIFFS}}
    old.record(("session", "global", "ses_1"), session)
    old.record(("session_diff", "ses_1"), DIFFS[:1])
    old.record(("session", "global", "ses_2"), session)
    old.put(old.data / "storage" / "session_diff" / "ses_2.json", DIFFS)
    old.record(("session", "global", "ses_3"), session)
    old.record(("session", "other", "ses_3"), {"id": "ses_3", "summary": {"diffs": DIFFS[1:]}})
    outcome = migrate(old.tree, named)
    stored = old.stored("session")
    assert stored["global/ses_1"] == session
    assert old.stored("session_diff") == {"ses_1": DIFFS[:1], "ses_2": DIFFS, "ses_3": DIFFS}
    assert "diffs" not in stored["global/ses_2"]["summary"]
    assert "diffs" not in stored["global/ses_3"]["summary"]
    assert stored["other/ses_3"]["summary"] == {"diffs": DIFFS[1:]}
    assert [os.path.relpath(damage.path, old.tree.root) for damage in outcome.left] == [
        os.path.join("session", "global", "ses_1.json"),
        os.path.join("session", "other", "ses_3.json"),
    ]


@pytest.mark.parametrize(
    "session",
    [
        [],
        None,
        {"summary": None},
        {"summary": []},
        {"summary": {"diffs": None}},
        {"summary": {"diffs": {"a": 1}}},
        {"summary": {"diffs": "text"}},
    ],
)
def test_a_session_without_diffs_is_not_touched(old: OldData, session: Any) -> None:
    old.put(old.data / "storage" / "session" / "global" / "ses_1.json", session)
    migrate(old.tree, named)
    assert json.loads((old.data / "storage" / "session" / "global" / "ses_1.json").read_bytes()) == session
    assert old.stored("session_diff") == {}


def test_strange_diffs_and_strange_files_stop_nothing(old: OldData) -> None:
    diffs = [{"additions": "many"}, {"deletions": None}, 5, None, {"additions": 2, "deletions": [1]}]
    old.put(old.data / "storage" / "session" / "global" / "ses_1.json", {"summary": {"diffs": diffs}})
    old.put(old.data / "storage" / "session" / "stray.json", {"summary": {"diffs": DIFFS}})
    old.put(old.data / "storage" / "session" / "global" / "not a key.json", {"summary": {"diffs": DIFFS}})
    outcome = migrate(old.tree, named)
    assert old.stored("session_diff") == {"ses_1": diffs}
    assert old.stored("session")["global/ses_1"] == {"summary": {"additions": 2, "deletions": 0, "files": 3}}
    assert [os.path.basename(damage.path) for damage in outcome.left] == ["not a key.json"]


def broken_git(worktree: str) -> str:
    raise RuntimeError("git went away")


def interrupted(worktree: str) -> str:
    raise KeyboardInterrupt


def test_a_step_that_fails_leaves_everything_as_it_was_and_can_be_run_again(old: OldData) -> None:
    with_all_kinds(old)
    before = content(old.data)
    with pytest.raises(MigrationError, match=r"step 0 on .* stopped. git went away\nEverything is as it was"):
        migrate(old.tree, broken_git)
    assert content(old.data) == before
    with pytest.raises(KeyboardInterrupt):
        migrate(old.tree, interrupted)
    assert content(old.data) == before
    migrate(old.tree, named)
    expect_migrated(old)


class Failing(Disk):
    """Fails once, at its ``at``-th renaming."""

    def __init__(self, at: int) -> None:
        super().__init__(durable=False)
        self.left = at

    def rename(self, old: str, new: str) -> None:
        self.left -= 1
        if self.left == 0:
            raise OSError(5, "Input/output error")
        super().rename(old, new)


class Stuck(Failing):
    """Nor does it take anything away again."""

    def unlink(self, path: str) -> None:
        if not path.endswith(".tmp"):
            raise OSError(5, "Input/output error")
        super().unlink(path)


def test_what_cannot_be_reverted_is_reported_and_the_rest_is_reverted(old: OldData) -> None:
    with_all_kinds(old)
    sources = content(old.data / "project")
    failure = attempt(old, Stuck(4))
    assert failure
    assert "Everything is as it was" not in str(failure)
    text = r"Some of it could not be undone \(\S+\.json: could not be .*\); nothing is lost\. It"
    assert re.search(text, str(failure))
    assert not [name for name in content(old.data) if name.endswith(".tmp")]
    assert content(old.data / "project") == sources
    migrate(old.tree, named)
    expect_migrated(old)


def attempt(old: OldData, disk: Disk) -> MigrationError | None:
    try:
        migrate(old.tree, named, disk=disk)
    except MigrationError as error:
        return error
    return None


def test_wherever_a_step_fails_the_one_before_stands_and_the_data_is_as_it_was(old: OldData) -> None:
    with_all_kinds(old)
    steps: list[int] = []
    while failure := attempt(old, Failing(len(steps) + 1)):
        steps.append(failure.data["step"])
        assert "Everything is as it was" in str(failure)
        assert version(old.tree) == failure.data["step"]
        assert not [name for name in content(old.data) if name.endswith(".tmp")]
        if version(old.tree) == 1:
            assert old.stored("session")["id-of-work/ses_1"]["summary"]["diffs"] == DIFFS
            assert old.stored("session_diff") == {}
            break
        assert not (old.data / "storage").exists()
    assert steps.count(0) > 15
    assert steps[-1] == 1
    for at in (2, 3, 4, 5):
        before = content(old.data)
        assert attempt(old, Failing(at))
        assert content(old.data) == before
    migrate(old.tree, named)
    expect_migrated(old)


class Watched(Disk):
    """Notes what it is asked for."""

    def __init__(self, text: list[str], *, durable: bool) -> None:
        super().__init__(durable=durable)
        self.said = text

    def rename(self, old: str, new: str) -> None:
        self.said.append("count" if os.path.basename(new) == "migration" else "rename")
        super().rename(old, new)

    def sync_folder(self, folder: str) -> None:
        self.said.append(f"sync {os.path.basename(folder)}")
        super().sync_folder(folder)


@pytest.mark.skipif(not hasattr(os, "sync"), reason="this system cannot sync everything at once")
def test_a_step_is_counted_only_when_all_it_did_is_on_the_disk(old: OldData, monkeypatch: pytest.MonkeyPatch) -> None:
    text: list[str] = []
    monkeypatch.setattr(os, "sync", lambda: text.append("sync all"))
    old.session("global", "ses_1", summary={"diffs": DIFFS})
    outcome = migrate(old.tree, named, disk=Watched(text, durable=False))
    step = ["sync all", *["rename"] * 4, "sync all", "count", "sync storage"]
    assert text == [*step, "sync all", *["rename"] * 2, "sync all", "count", "sync storage"]
    assert outcome.written == 6


@pytest.mark.skipif(not hasattr(os, "sync"), reason="this system cannot sync everything at once")
def test_one_record_is_reason_enough_to_sync_and_none_is_not(old: OldData, monkeypatch: pytest.MonkeyPatch) -> None:
    text: list[str] = []
    monkeypatch.setattr(os, "sync", lambda: text.append("sync all"))
    old.record(("session", "global", "ses_1"), {"id": "ses_1", "summary": {"diffs": DIFFS}})
    old.record(("session_diff", "ses_1"), DIFFS)
    migrate(old.tree, named, disk=Watched(text, durable=False))
    assert text == ["count", "sync storage", "sync all", "rename", "sync all", "count", "sync storage"]


def test_a_disk_that_syncs_each_file_is_not_asked_to_sync_everything(
    old: OldData, monkeypatch: pytest.MonkeyPatch
) -> None:
    text: list[str] = []
    monkeypatch.setattr(os, "sync", lambda: text.append("sync all"), raising=False)
    old.session("global", "ses_1")
    migrate(old.tree, named, disk=Watched(text, durable=True))
    assert "sync all" not in text
    for folder in ("ses_1", "msg_1", "project"):
        assert text[text.index(f"sync {folder}", text.index("rename")) - 1] == "rename"
    assert text[text.index("count") + 1] == "sync storage"


@pytest.mark.skipif(not hasattr(os, "sync"), reason="this system cannot sync everything at once")
def test_by_default_everything_is_synced_at_once(old: OldData, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def one(descriptor: int) -> None:
        calls.append("one")

    monkeypatch.setattr(os, "sync", lambda: calls.append("all"))
    monkeypatch.setattr(os, "fsync", one)
    with_all_kinds(old)
    migrate(old.tree, named)
    assert (calls.count("all"), calls.count("one")) == (4, 2)


@pytest.mark.parametrize("late", [False, True])
def test_a_full_disk_stops_a_step_wherever_it_fills_up(old: OldData, late: bool) -> None:
    with_all_kinds(old)
    before = content(old.data)
    space = 0
    while failure := attempt(old, FullDisk(space, late=late)):
        assert "the disk is full" in str(failure)
        assert "Everything is as it was" in str(failure)
        if version(old.tree) == 0:
            assert content(old.data) == before
        else:
            assert old.stored("session")["id-of-work/ses_1"]["summary"]["diffs"] == DIFFS
            assert old.stored("session_diff") == {}
        space += 61
    assert space > 1000
    expect_migrated(old)


def dying_with_all_kinds(disk: Disk, folder: str, tell: Report) -> None:
    migrate(with_all_kinds(OldData(Path(folder))).tree, named, disk=disk)
    tell("migrated")


def dying_with_two_sessions(disk: Disk, folder: str, tell: Report) -> None:
    old = OldData(Path(folder))
    old.session("work", "ses_1", root=folder, summary={"diffs": DIFFS})
    old.session("global", "ses_2")
    migrate(old.tree, named, disk=disk)
    tell("migrated")


class Hasty(Disk):
    """Promises what it does not keep; good enough for a test that survives no power cut."""

    def sync(self, descriptor: int) -> None:
        pass

    def sync_folder(self, folder: str) -> None:
        pass


def check_after_death(folder: str, text: list[Any], died_at: str) -> None:
    old = OldData(Path(folder))
    sources = content(old.data / "project")
    assert version(old.tree) == 2 or not text
    for _, value in old.tree.scan(("session",), report=lambda damage: None):
        assert "id" in value
    migrate(old.tree, named, disk=Hasty())
    assert content(old.data / "project") == sources
    if "moved" in sources:
        expect_migrated(old)
    else:
        assert len(old.stored("session")) == len(old.stored("message")) == len(old.stored("part")) == 2
        assert old.stored("session_diff") == {"ses_1": DIFFS}
        assert version(old.tree) == 2


@pytest.mark.load
@pytest.mark.parametrize(
    ("scenario", "points"),
    [(dying_with_two_sessions, 80), pytest.param(dying_with_all_kinds, 150, marks=[pytest.mark.slow])],
)
def test_a_migration_may_die_anywhere_and_be_run_again(
    ram: Path, scenario: Callable[[Disk, str, Report], None], points: int
) -> None:
    done = sweep(scenario, check_after_death, ram)
    assert done.points > points
    assert set(done.operations) >= {"open_new", "half a write", "rename", "sync", "sync_folder", "new_folder"}


def test_a_migration_waits_for_writers_and_keeps_them_out(old: OldData) -> None:
    with_all_kinds(old)
    inside, go_on = threading.Event(), threading.Event()

    def slowly(worktree: str) -> str:
        inside.set()
        go_on.wait(60)
        return named(worktree)

    with ThreadPoolExecutor(2) as pool:
        migrating = pool.submit(migrate, old.tree, slowly)
        assert inside.wait(60)
        writing = pool.submit(old.tree.write, ("todo", "ses_1"), [])
        threading.Event().wait(0.1)
        assert not writing.done()
        go_on.set()
        migrating.result(60)
        writing.result(60)
    expect_migrated(old)
    assert old.stored("todo") == {"ses_1": []}


def test_two_processes_that_migrate_at_once_take_each_step_once(old: OldData) -> None:
    with_all_kinds(old)
    outcomes: list[int] = []
    work: list[Callable[[], None]] = [lambda: outcomes.append(migrate(old.tree, named).steps)] * 4
    with ThreadPoolExecutor(4) as pool:
        for item in [pool.submit(act) for act in work]:
            item.result(60)
    assert sorted(outcomes) == [0, 0, 0, 2]
    expect_migrated(old)


def test_projects_that_opencode_left_out_of_its_migration_are_added_when_asked(old: OldData) -> None:
    worktree = old.data / "work"
    worktree.mkdir(parents=True)
    old.session("work", "ses_1", root=str(worktree))
    migrate(old.tree, named)
    old.session("moved", "ses_3", root=str(old.data / "gone"), summary={"diffs": DIFFS})
    old.session("work", "ses_2", root=str(worktree))
    sources = content(old.data / "project")
    assert left_behind(old.tree) == [str(old.data / "project" / "moved" / "storage" / "session")]
    outcome = migrate(old.tree, named)
    assert (outcome.left, version(old.tree)) == ([], LAYOUT)
    assert set(old.stored("session")) == {"id-of-work/ses_1", "global/ses_3"}
    assert old.stored("session_diff") == {"ses_3": DIFFS}
    assert content(old.data / "project") == sources
    assert left_behind(old.tree) == []
    assert migrate(old.tree, named) == (0, 0, [])


def test_what_was_removed_since_the_migration_is_not_added_again(old: OldData) -> None:
    worktree = old.data / "work"
    worktree.mkdir(parents=True)
    old.session("work", "ses_1", root=str(worktree))
    old.session("work", "ses_2", root=str(worktree))
    migrate(old.tree, named)
    for name in ("ses_1", "ses_2"):
        old.tree.remove(("session", "id-of-work", name))
        assert left_behind(old.tree) == []
        assert migrate(old.tree, named) == (0, 0, [])
    assert old.stored("session") == {}
