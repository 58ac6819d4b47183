from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from opensesh.errors import RecordError, StoreError
from opensesh.history.maintenance.doctor import repair
from opensesh.records import Session, view
from opensesh.sessions import moving, trash
from opensesh.storage import open_store, revocations
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.leases import leases_of
from opensesh.storage.memory import Memory
from opensesh.storage.opencode_db.store import OpencodeDB

from ..storage.opencode_databases import V1_2, V1_18, copy_database, execute, select
from .sample_tree import Json, Sample, contents

FIXTURES = Path(__file__).parents[1] / "fixtures"


def session(info: Json) -> Session:
    return view(info, Session)


def test_removed_sessions_come_back_to_the_byte(sample: Sample) -> None:
    kept = sample.talk("kept")
    gone = sample.talk("gone")
    child = sample.talk("child", parent=gone["id"])
    sample.tool(sample.messages(gone)[1])
    sample.write(("todo", gone["id"]), [])
    sample.write(("session_diff", child["id"]), [])
    before = contents(sample.root)
    tree = JsonTree(sample.root)
    plan = trash.remove(tree, [session(gone)], dry_run=True)
    assert contents(sample.root) == before
    done = trash.remove(tree, [session(gone)])
    assert {item.id for item in done.sessions} == {gone["id"], child["id"]}
    assert (plan.files, plan.bytes) == (done.files, done.bytes)
    left = contents(sample.root)
    assert not any(name in path for path in left for name in (gone["id"], child["id"]))
    assert [key[-1] for key in tree.list(("session",))] == [kept["id"]]
    assert done.files == len(before) - len(left)
    assert not (sample.root / "message" / gone["id"]).exists()
    assert trash.restore(done.undo).restored == done.files
    assert contents(sample.root) == before
    assert trash.contents() == []


def test_the_trash_is_listed_and_emptied_by_age(sample: Sample) -> None:
    sessions = [sample.talk(f"number {number}") for number in range(2)]
    tree = JsonTree(sample.root)
    for item in sessions:
        trash.remove(tree, [session(item)])
    kept = trash.contents()
    assert sorted(title for item in kept for title in item.titles.values()) == ["number 0", "number 1"]
    assert trash.empty(tree, before=min(item.time for item in kept)) == []
    assert len(trash.empty(tree)) == 2
    assert trash.contents() == []


def test_a_share_is_revoked_only_when_the_trash_is_emptied(sample: Sample) -> None:
    shared = sample.talk("shared", share={"url": "https://example.com/s/1"})
    sample.write(("session_share", shared["id"]), {"id": "1", "secret": "s", "url": "https://example.com/s/1"})
    trash.remove(JsonTree(sample.root), [session(shared)])
    assert list(revocations.waiting()) == []
    trash.empty(JsonTree(sample.root))
    assert [(name, share.secret) for name, share in revocations.waiting()] == [(shared["id"], "s")]


def test_a_running_session_and_one_in_a_database_are_left_alone(sample: Sample) -> None:
    running = sample.talk("running")
    tree = JsonTree(sample.root)
    with leases_of(tree).acquire(running["id"], "opensesh run"):
        done = trash.remove(tree, [session(running)])
    assert done.sessions == []
    assert "opensesh run" in done.left[0].reason
    assert done.undo == ""
    elsewhere = session({"id": "ses_db", "time": {"created": 1}, "projectID": "x"})
    assert "database" in trash.remove(tree, [elsewhere]).left[0].reason
    database = shutil.copy(FIXTURES / "opencode-1.2" / "opencode.db", sample.root.parent)
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("ALTER TABLE session ADD COLUMN later TEXT")
    with pytest.raises(StoreError, match="read-only"):
        trash.remove(open_store(str(database)), [elsewhere])
    assert trash.remove(Memory(), [elsewhere]).sessions == []


def test_archiving_is_taken_back_unless_the_session_went_on(sample: Sample) -> None:
    one, other = sample.talk("one"), sample.talk("other")
    before = contents(sample.root)
    tree = JsonTree(sample.root)
    done = trash.archive(tree, [session(one), session(other)])
    assert all(tree.read(key)["time"]["archived"] for key in tree.list(("session",)))
    assert trash.archive(tree, [session(tree.read(key)) for key in tree.list(("session",))]).sessions == []
    tree.update(("session", "proj", other["id"]), lambda info: info.update(title="renamed"))
    undone = trash.restore(done.undo)
    assert (undone.restored, [os.path.basename(item.path) for item in undone.left]) == (1, [f"{other['id']}.json"])
    assert contents(sample.root)[f"session/proj/{one['id']}.json"] == before[f"session/proj/{one['id']}.json"]


def test_a_session_that_is_filed_twice_goes_and_is_put_away_as_a_whole(sample: Sample) -> None:
    twice = sample.talk("twice")
    sample.write(("session", "old", twice["id"]), twice | {"projectID": "old", "time": {"created": 1, "updated": 2}})
    before = contents(sample.root)
    tree = JsonTree(sample.root)
    put_away = trash.archive(tree, [session(twice)])
    assert all(tree.read(key)["time"]["archived"] for key in tree.list(("session",)))
    assert trash.restore(put_away.undo).restored == put_away.files == 2
    removed = trash.remove(tree, [session(twice)])
    assert tree.list(("session",)) == []
    assert trash.restore(removed.undo, twice["id"]).restored == removed.files
    assert contents(sample.root) == before


def test_a_session_that_is_filed_twice_is_filed_once_where_it_is_moved_to(sample: Sample, tmp_path: Path) -> None:
    twice = sample.talk("twice")
    older = twice | {"projectID": "global", "title": "older", "time": {"created": 1, "updated": 2}}
    sample.write(("session", "global", twice["id"]), older)
    before = contents(sample.root)
    tree = JsonTree(sample.root)
    moved = moving.move(tree, [session(twice)], str(tmp_path))
    [key] = tree.list(("session",))
    assert key == ("session", "global", twice["id"])
    assert tree.read(key) == twice | {"projectID": "global", "directory": str(tmp_path)}
    assert trash.restore(moved.undo).restored == moved.files == 2
    assert {path: data for path, data in contents(sample.root).items() if path in before} == before


def test_a_session_that_went_on_after_it_was_moved_stays_where_it_is(sample: Sample, tmp_path: Path) -> None:
    one = sample.talk("one")
    tree = JsonTree(sample.root)
    moved = moving.move(tree, [session(one)], str(tmp_path))
    tree.update(("session", "global", one["id"]), lambda info: info.update(title="renamed"))
    before = contents(sample.root)
    undone = trash.restore(moved.undo)
    assert (undone.restored, [item.reason for item in undone.left]) == (0, ["it has been changed since"])
    assert contents(sample.root) == before


def test_taking_back_a_move_can_be_interrupted_after_the_rename(sample: Sample, tmp_path: Path) -> None:
    one = sample.talk("one")
    path = sample.path("session", "proj", one["id"])
    before = path.read_bytes()
    moved = moving.move(JsonTree(sample.root), [session(one)], str(tmp_path))
    path.parent.mkdir(exist_ok=True)
    sample.path("session", "global", one["id"]).rename(path)
    assert trash.restore(moved.undo).restored == 1
    assert path.read_bytes() == before


def test_a_trash_on_another_disk_gives_back_the_same(
    sample: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = sample.talk("one")
    folder = sample.root / "message" / one["id"]
    (folder / "link.json").symlink_to(tmp_path)
    (folder / "more").mkdir()
    (folder / "more" / "x").write_text("x")
    record = sample.path("session", "proj", one["id"])
    record.chmod(0o640)
    os.utime(record, (1_000_000_000, 1_000_000_000))
    before = contents(sample.root)
    with TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as state:
        monkeypatch.setenv("XDG_STATE_HOME", state)
        removed = trash.remove(JsonTree(sample.root), [session(one)])
        assert not folder.exists()
        assert trash.restore(removed.undo).left == []
    assert contents(sample.root) == before
    assert (folder / "link.json").is_symlink()
    assert (record.stat().st_mode & 0o777, record.stat().st_mtime) == (0o640, 1_000_000_000)


def test_sessions_of_a_store_in_memory_are_removed_archived_moved_and_restored(tmp_path: Path) -> None:
    store = Memory()
    one = {"id": "ses_1", "projectID": "proj", "directory": "/x", "title": "one", "time": {"created": 1, "updated": 1}}
    store.write(("session", "proj", "ses_1"), one)
    store.write(("message", "ses_1", "msg_1"), {"id": "msg_1", "sessionID": "ses_1", "time": {"created": 1}})
    store.write(("part", "msg_1", "prt_1"), {"id": "prt_1", "messageID": "msg_1", "sessionID": "ses_1"})
    store.write(("todo", "ses_1"), [])
    before = dict(store.scan(()))
    done = trash.remove(store, [session(one)])
    assert (done.files, dict(store.scan(()))) == (4, {})
    assert [content.titles for content in trash.contents(store)] == [{"ses_1": "one"}]
    assert trash.contents(Memory()) == []
    assert trash.restore(done.undo, "ses_1", store=store).restored == 4
    assert dict(store.scan(())) == before
    archived = trash.archive(store, [session(one)])
    assert store.read(("session", "proj", "ses_1"))["time"]["archived"]
    assert trash.restore(archived.undo, store=store).restored == 1
    assert dict(store.scan(())) == before
    moved = moving.move(store, [session(one)], str(tmp_path))
    assert store.read(("session", "global", "ses_1"))["directory"] == str(tmp_path)
    with pytest.raises(StoreError, match="is not open"):
        trash.restore(moved.undo)
    assert trash.restore(moved.undo, store=store).restored == 1
    assert {key: value for key, value in store.scan(()) if key[0] != "project"} == before


@pytest.mark.parametrize("source", [V1_18, V1_2], ids=["1.18", "1.2"])
def test_every_session_of_a_database_is_removed_archived_moved_and_restored(source: Path, tmp_path: Path) -> None:
    with OpencodeDB(copy_database(tmp_path / "data", source)) as store:

        def records() -> dict[tuple[str, ...], Any]:
            return {key: value for key, value in store.scan(()) if key[0] != "project"}

        for _, _, name in store.list(("session",)):
            store.write(("session_diff", name), [{"file": "a.txt", "additions": 1, "deletions": 0}])
            store.write(("todo", name), [{"content": "look", "status": "pending", "priority": "high"}])
            store.write(("session_share", name), {"id": "1", "secret": "s", "url": "https://example.com/s/1"})
        before = records()
        sessions = [session(record) for key, record in before.items() if key[0] == "session"]
        for change in (
            lambda: trash.remove(store, sessions),
            lambda: trash.archive(store, sessions),
            lambda: moving.move(store, sessions, str(tmp_path)),
        ):
            done = change()
            assert records() != before
            assert trash.restore(done.undo, store=store).left == []
            assert records() == before


def test_a_session_that_is_in_two_stores_comes_back_in_both(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with OpencodeDB(copy_database(data)) as database:
        tree = JsonTree(data / "storage")
        with tree.batch() as batch:
            for key, value in database.scan(()):
                batch.write(key, value)
        families = [session(value) for _, value in tree.scan(("session",)) if "parentID" in value]
        child, parent = families[0].id, families[0].parent_id
        assert parent is not None
        tree.remove(("session", families[0].project_id, parent))  # the tree has only the child
        store = open_store(str(data))

        def records() -> list[dict[tuple[str, ...], Any]]:
            return [
                {key: value for key, value in member.scan(()) if key[0] != "project"} for member in (tree, database)
            ]

        before = records()
        chosen = [session(store.read(key)) for key in store.list(("session",)) if key[-1] == parent]
        for change in (
            lambda: trash.remove(store, chosen),
            lambda: trash.archive(store, chosen),
            lambda: moving.move(store, chosen, str(tmp_path)),
        ):
            done = change()
            assert records() != before
            assert trash.restore(done.undo, store=store).left == []
            assert records() == before
        removed = trash.remove(store, chosen)
        assert [set(item.titles) for item in trash.contents(store)] == [{parent, child}]
        assert trash.restore(removed.undo, parent, store=store).restored == removed.files
        assert records() == before
        assert trash.contents(store) == []


def test_a_session_that_could_not_be_restored_is_not_removed(tmp_path: Path) -> None:
    path = copy_database(tmp_path / "data")
    execute(path, "UPDATE session SET time_created = -5 WHERE id = (SELECT min(id) FROM session)")
    with OpencodeDB(path) as store:
        before = dict(store.scan(()))
        [name] = select(path, "SELECT min(id) FROM session")[0]
        [unreadable] = [value for key, value in before.items() if key[0] == "session" and key[-1] == name]
        with pytest.raises(RecordError, match="'opensesh doctor --fix' repairs it"):
            trash.remove(store, [session(unreadable)])
        assert dict(store.scan(())) == before
        assert trash.contents(store) == []
        repair(store)
        removed = trash.remove(store, [session(unreadable)])
        assert trash.restore(removed.undo, store=store).left == []
        assert len(dict(store.scan(()))) == len(before)
