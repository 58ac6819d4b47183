from __future__ import annotations

import gc
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opensesh.errors import StoreError
from opensesh.history.cache import cache_file
from opensesh.history.cache.derived_cache import DerivedCache
from opensesh.history.search.search_filters import Filters
from opensesh.history.search.text_layer import TEXT
from opensesh.history.search.text_search import Query, search
from opensesh.storage import paths
from opensesh.storage.change_feeds import UNSTABLE, RawRecord, StoredSession, fingerprint
from opensesh.storage.json_tree.change_feed import JsonTreeFeed
from opensesh.storage.locations import StoreLocations, find_stores
from opensesh.storage.locks import open_lock_file, try_lock_file
from opensesh.storage.opencode_db.change_feed import OpencodeDBFeed

from ..storage.test_opencode_v2 import Writer as V2Writer
from .sample_stores import Database, Tree, settle

FIXTURES = Path(__file__).parents[1] / "fixtures"


class CountingFeed(JsonTreeFeed):
    """Counts what is read of the files."""

    reads = 0

    def session(self, session_id: str) -> StoredSession | None:
        self.reads += 1
        return super().session(session_id)

    def messages(self, session_id: str, ids: Sequence[str] | None = None) -> Iterator[RawRecord]:
        for record in super().messages(session_id, ids):
            self.reads += 1
            yield record

    def parts(self, session_id: str, ids: Sequence[tuple[str, str]]) -> Iterator[RawRecord]:
        for record in super().parts(session_id, ids):
            self.reads += 1
            yield record


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "storage")


@pytest.fixture
def index(tree: Tree) -> Iterator[DerivedCache]:
    made = DerivedCache(find_stores(str(tree.root.parent)))
    yield made
    made.close()


def found(index: DerivedCache, text: str, *, refresh: bool = True, **filters: object) -> list[str | None]:
    if refresh:
        index.refresh(TEXT)
    query = Query(text, filters=Filters(**filters), limit=0)  # type: ignore[arg-type]
    return [hit.part for hit in search(index, query).hits]


def rows(index: DerivedCache) -> set[tuple[object, ...]]:
    sql = """SELECT s.name, s.title, m.name, m.role, p.name, p.kind, p.digest, p.tool, p.time, p.unfinished FROM part p
             JOIN session s ON s.id = p.session LEFT JOIN message m ON m.id = p.message"""
    return set(index.query(TEXT, lambda db: db.execute(sql).fetchall()))


def count(index: DerivedCache, table: str) -> int:
    return index.query(TEXT, lambda db: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def test_what_is_new_is_found_by_the_next_question(index: DerivedCache, tree: Tree) -> None:
    assert found(index, "gravel") == []
    session = tree.session()
    message, part = tree.text(session, "the gravel road")
    assert found(index, "gravel") == [part]
    tree.settle()
    assert found(index, "gravel") == [part]
    another = tree.part(session, message, type="text", text="more gravel")
    assert found(index, "gravel") == [another, part]
    _, answer = tree.text(session, "gravel is loose stone", "assistant")
    assert set(found(index, "gravel")) == {part, another, answer}


@pytest.mark.parametrize("age", [0, 3_600, 90_000])
def test_a_long_session_is_indexed_from_end_to_end_and_followed(index: DerivedCache, tree: Tree, age: int) -> None:
    session = tree.session()
    parts = [tree.text(session, "gravel")[1] for _ in range(150)]
    tree.settle(age)
    assert set(found(index, "gravel")) == set(parts)
    parts += [tree.text(session, "gravel")[1] for _ in range(3)]
    assert set(found(index, "gravel")) == set(parts)


def test_what_is_gone_is_not_found(index: DerivedCache, tree: Tree) -> None:
    keep, drop = tree.session(), tree.session(title="gravel in a title")
    message, _ = tree.text(keep, "gravel one")
    second = tree.part(keep, message, type="text", text="gravel two")
    other, _ = tree.text(keep, "gravel three")
    tree.text(drop, "gravel four")
    tree.settle()
    assert len(found(index, "gravel")) == 5
    tree.path("part", message, second).unlink()
    tree.path("message", keep, other).unlink()
    shutil.rmtree(tree.root / "message" / drop)
    tree.path("session", "global", drop).unlink()
    assert len(found(index, "gravel")) == 1
    assert count(index, "tombstone") == 4
    assert count(index, "session") == 1


def test_an_unchanged_store_is_neither_read_nor_written(tree: Tree) -> None:
    for number in range(30):
        tree.text(tree.session(), f"words of session {number}")
    tree.settle(90_000)
    feed = CountingFeed(str(tree.root))
    index = DerivedCache(find_stores(str(tree.root.parent)), feeds=[feed])
    index.refresh(TEXT)
    assert feed.reads >= 90
    before = {path: path.stat().st_mtime_ns for path in Path(index.path).parent.iterdir()}
    feed.reads = 0
    for _ in range(3):
        index.refresh(TEXT)
    assert feed.reads == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    index.close()


def test_a_part_that_grows_in_place_is_followed_to_its_end(index: DerivedCache, tree: Tree) -> None:
    session = tree.session()
    message = tree.message(session, "assistant", time={"created": int(time.time() * 1000)})
    part = tree.part(session, message, type="text", text="slow", time={"start": 1})
    for _ in range(40):  # older sessions are not what is looked at closely
        tree.text(tree.session(), "something else")
    tree.settle(90_000)
    assert found(index, "slow") == [part]
    folder = (tree.root / "part" / message).stat().st_mtime_ns
    tree.part(session, message, part, type="text", text="slow and gravel", time={"start": 1})
    assert (tree.root / "part" / message).stat().st_mtime_ns == folder
    assert found(index, "gravel") == [part]
    tree.part(session, message, part, type="text", text="slow and gravel and done", time={"start": 1, "end": 2})
    assert found(index, "done") == [part]
    assert found(index, "slow") == [part]


def test_a_tool_that_runs_for_days_is_found_when_it_answers(index: DerivedCache, tree: Tree) -> None:
    session = tree.session()
    message = tree.message(session, "assistant", time={"created": int(time.time() * 1000)})
    _, part = tree.tool(session, "task", message=message, status="running", input={"prompt": "dig"})
    for _ in range(40):
        tree.text(tree.session(), "something else")
    tree.settle(3 * 86_400)
    assert found(index, "dig") == [part]
    assert found(index, "gravel") == []
    tree.tool(session, "task", message=message, name=part, input={"prompt": "dig"}, output="gravel")
    assert found(index, "gravel") == [part]


def test_two_changes_within_one_tick_of_the_clock_are_both_seen(index: DerivedCache, tree: Tree) -> None:
    session = tree.session()
    message, part = tree.text(session, "first words")
    path = tree.path("part", message, part)
    moment = path.stat().st_mtime_ns
    assert found(index, "first") == [part]
    path.write_text(path.read_text().replace("first", "other"))
    os.utime(path, ns=(moment, moment))
    assert found(index, "other") == [part]
    assert found(index, "first") == []


def test_two_changes_of_a_session_within_one_tick_are_both_seen(index: DerivedCache, tree: Tree) -> None:
    session = tree.session(title="first words")
    path = tree.path("session", "global", session)
    moment = path.stat().st_mtime_ns
    assert found(index, "first") == [None]
    path.write_text(path.read_text().replace("first", "other"))
    os.utime(path, ns=(moment, moment))
    assert found(index, "other") == [None]


def test_two_changes_of_a_database_within_one_tick_are_both_seen(tmp_path: Path) -> None:
    database = Database(tmp_path / "opencode.db")
    database.session("ses_a", title="first words")
    moment = database.path.stat().st_mtime_ns
    index = DerivedCache(find_stores(str(tmp_path)))
    assert found(index, "first") == [None]
    database.connection.execute("UPDATE session SET title = 'other words'")
    os.utime(database.path, ns=(moment, moment))
    assert found(index, "other") == [None]
    database.close()
    index.close()


@pytest.mark.parametrize("which", [0, -1])
def test_the_newest_messages_are_looked_at_closely_whether_their_names_come_first_or_last(
    index: DerivedCache, tree: Tree, which: int
) -> None:
    session = tree.session()
    message, part = [tree.text(session, "spelled worng") for _ in range(60)][which]
    tree.settle()
    assert len(found(index, "worng")) == 60
    tree.part(session, message, part, type="text", text="spelled wrong")
    assert found(index, "wrong") == [part]


def test_a_finished_record_edited_by_hand_is_noticed_when_everything_is_compared(
    index: DerivedCache, tree: Tree
) -> None:
    session = tree.session()
    message, part = tree.text(session, "spelled worng")
    for _ in range(40):
        tree.text(tree.session(), "something else")
    tree.settle(90_000)
    assert found(index, "worng") == [part]
    path = tree.path("part", message, part)
    moment = path.stat().st_mtime_ns
    path.write_text(path.read_text().replace("worng", "wrong"))
    os.utime(path, ns=(moment, moment + 10))
    assert found(index, "wrong") == []
    index.refresh(TEXT, full=True)
    assert found(index, "wrong", refresh=False) == [part]
    assert found(index, "worng", refresh=False) == []


def test_nothing_is_shown_that_was_deleted(index: DerivedCache, tree: Tree) -> None:
    session = tree.session()
    message, part = tree.text(session, "spelled worng")
    gone = tree.part(session, message, type="text", text="worng too")
    for _ in range(40):
        tree.text(tree.session(), "something else")
    tree.settle(90_000)
    assert set(found(index, "worng")) == {part, gone}
    path = tree.path("part", message, part)
    moment = path.stat().st_mtime_ns
    path.write_text(path.read_text().replace("worng", "wrong"))
    os.utime(path, ns=(moment, moment + 10))
    tree.path("part", message, gone).unlink()
    assert found(index, "worng") == []
    assert found(index, "wrong") == [part]


def test_all_sessions_take_their_turn_to_be_compared(index: DerivedCache, tree: Tree) -> None:
    message, part = tree.text(tree.session(), "spelled worng")
    for _ in range(40):
        tree.text(tree.session(), "spelled worng")
    tree.settle(90_000)
    index.refresh(TEXT)
    path = tree.path("part", message, part)
    moment = path.stat().st_mtime_ns
    path.write_text(path.read_text().replace("worng", "wrong"))
    os.utime(path, ns=(moment, moment + 10))
    for _ in range(50):
        _execute(Path(index.path), "UPDATE meta SET value = value - 61000000000 WHERE name = 'rechecked'")
        if found(index, "wrong") == [part]:
            return
    pytest.fail("never noticed")


def test_nothing_is_buried_when_only_the_time_of_a_file_changed(index: DerivedCache, tree: Tree) -> None:
    session = tree.session()
    tree.text(session, "gravel")
    tree.settle()
    index.refresh(TEXT)
    tree.settle(10)
    index.refresh(TEXT, full=True)
    assert (count(index, "tombstone"), len(found(index, "gravel"))) == (0, 1)


def test_a_new_title_is_found_and_the_old_one_is_not(index: DerivedCache, tree: Tree) -> None:
    session = tree.session(title="about gravel")
    tree.settle()
    assert found(index, "gravel") == [None]
    tree.session(session, title="about sand")
    assert found(index, "gravel") == []
    assert found(index, "sand") == [None]


def test_an_index_that_is_worn_out_is_made_anew(index: DerivedCache, tree: Tree) -> None:
    session = tree.session()
    message = tree.message(session)
    parts = [tree.part(session, message, type="text", text=f"gravel {number}") for number in range(1_100)]
    index.refresh(TEXT)
    for number, part in enumerate(parts):
        tree.part(session, message, part, type="text", text=f"sand {number}")
    index.refresh(TEXT)
    assert count(index, "tombstone") == 0
    assert len(found(index, "sand")) == 1_100
    assert found(index, "gravel") == []


@pytest.mark.parametrize(
    "harm", ["deleted", "empty", "cut", "garbage", "older", "foreign", "moved", "flipped", "no table"]
)
def test_an_index_that_cannot_be_used_is_made_anew(index: DerivedCache, tree: Tree, harm: str) -> None:
    for number in range(20):
        tree.text(tree.session(), f"gravel and {'sand ' * number}")
    tree.settle()
    assert len(found(index, "gravel")) == 20
    index.close()
    path = Path(index.path)
    _execute(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    data = path.read_bytes()
    match harm:
        case "deleted":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "cut":
            path.write_bytes(data[: len(data) // 2])
        case "garbage":
            path.write_bytes(b"no database, but long enough to be looked at " * 200)
        case "older":
            _execute(path, "PRAGMA user_version = 0")
        case "foreign":
            path.unlink()
            _execute(path, "CREATE TABLE other (x)")
        case "moved":
            _execute(path, "UPDATE meta SET value = '/elsewhere' WHERE name = 'place'")
        case "flipped":
            path.write_bytes(data[:8192] + bytes(byte ^ 0xFF for byte in data[8192:]))
        case _:
            _execute(path, "DROP TABLE words")
    assert len(found(index, "gravel")) == 20
    assert len(found(index, "sand", refresh=False)) == 19


def _execute(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


def test_an_index_made_anew_by_another_process_is_taken_up(index: DerivedCache, tree: Tree) -> None:
    tree.text(tree.session(), "gravel")
    assert len(found(index, "gravel")) == 1
    other = DerivedCache(find_stores(str(tree.root.parent)))
    cache_file.remove(other.path)
    tree.text(tree.session(), "gravel")
    assert len(found(other, "gravel")) == 2
    other.close()
    assert len(found(index, "gravel", refresh=False)) == 2


def test_where_no_index_can_be_kept_one_is_made_for_the_moment(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.text(tree.session(), "gravel")
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    for variable in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, str(blocked))
        index = DerivedCache(find_stores(str(tree.root.parent)))
        assert len(found(index, "gravel")) == 1
        tree.text(tree.session(), "gravel")
        assert len(found(index, "gravel")) == 2
        index.close()
        shutil.rmtree(tree.root)
        tree.text(tree.session(), "gravel")
        monkeypatch.delenv(variable)
    assert blocked.read_text() == "in the way"


@pytest.fixture
def small_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def limit(pages: int) -> None:
        def open_writer(path: str, place: str) -> sqlite3.Connection:
            connection = opened(path, place)
            connection.execute(f"PRAGMA max_page_count = {pages}")
            return connection

        monkeypatch.setattr(cache_file, "open_writer", open_writer)

    opened = cache_file.open_writer
    return limit


def test_what_does_not_fit_on_the_disk_is_found_all_the_same(
    index: DerivedCache, tree: Tree, small_disk: Callable[[int], None]
) -> None:
    small_disk(1)
    tree.text(tree.session(), "gravel " + random_words(5_000))
    assert len(found(index, "gravel")) == 1
    assert index.temporary_reason == f"{index.path}: the disk is full"
    assert not os.path.exists(index.path), "half an index would fill the disk"
    tree.text(tree.session(), "gravel")
    assert len(found(index, "gravel")) == 2
    assert len(found(index, "*rave*")) == 2
    small_disk(100_000)
    index.close()
    assert len(found(index, "gravel")) == 2
    assert (index.temporary_reason, os.path.exists(index.path)) == ("", True)


def test_what_is_new_is_found_even_if_it_does_not_fit_into_the_index(
    tree: Tree, small_disk: Callable[[int], None]
) -> None:
    for _ in range(10):
        tree.text(tree.session(), "gravel")
    tree.settle()
    index = DerivedCache(find_stores(str(tree.root.parent)))
    index.refresh(TEXT)
    index.close()
    kept = Path(index.path).read_bytes()
    small_disk(1)
    tree.text(tree.session(), "gravel " + random_words(5_000))
    feed = CountingFeed(str(tree.root))
    index = DerivedCache(find_stores(str(tree.root.parent)), feeds=[feed])
    index.refresh(TEXT)
    assert feed.reads == 6, "the three new records once for the disk, once for memory, and nothing that was known"
    assert len(found(index, "gravel")) == 11
    assert index.temporary_reason
    assert Path(index.path).read_bytes() == kept
    index.close()


def test_a_damaged_index_on_a_full_disk_prevents_no_answer(
    index: DerivedCache, tree: Tree, small_disk: Callable[[int], None]
) -> None:
    tree.text(tree.session(), "gravel " + random_words(5_000))
    tree.settle()
    index.refresh(TEXT)
    index.close()
    _execute(Path(index.path), "DROP TABLE words")
    small_disk(1)
    assert len(found(index, "gravel", refresh=False)) == 1
    assert index.temporary_reason


def random_words(number: int) -> str:
    return " ".join(f"{zlib.crc32(bytes(item)):x}" for item in range(number))


@pytest.mark.parametrize("kept", [True, False])
def test_an_index_that_was_not_closed_closes_its_file_when_it_is_collected(tree: Tree, kept: bool) -> None:
    tree.text(tree.session(), "gravel")
    if not kept:
        Path(paths.state()).parent.mkdir(parents=True, exist_ok=True)
        Path(paths.state()).write_text("no folder, so the lock cannot be stored")
    index = DerivedCache(find_stores(str(tree.root.parent)))
    assert len(found(index, "gravel")) == 1
    assert os.path.exists(index.path) == kept
    retained = index.query(TEXT, lambda db: db)
    del index
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        retained.execute("SELECT 1")


def test_only_the_owner_can_read_it(index: DerivedCache, tree: Tree) -> None:
    tree.text(tree.session(), "gravel")
    index.refresh(TEXT)
    for path in Path(index.path).parent.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(Path(index.path).parent.stat().st_mode) == 0o700


def test_readers_do_not_wait_for_writers(tree: Tree) -> None:
    tree.text(tree.session(), "gravel")
    index = DerivedCache(find_stores(str(tree.root.parent)), lock_timeout=0.2)
    index.refresh(TEXT)
    tree.text(tree.session(), "gravel again")
    name = Path(index.path).stem
    descriptor = open_lock_file(os.path.join(paths.state(), "locks", name))
    assert try_lock_file(descriptor)
    index.refresh(TEXT)
    assert len(found(index, "gravel", refresh=False)) == 1
    assert "another opensesh" in search(index, Query("gravel")).note
    os.close(descriptor)
    assert len(found(index, "gravel")) == 2
    assert search(index, Query("gravel")).note == ""
    index.close()


def test_a_write_ahead_log_is_used_only_where_memory_is_shared(index: DerivedCache, tree: Tree) -> None:
    mounts = "/dev/sda / ext4 rw 0 0\nbox:/home /home nfs4 rw 0 0\n/dev/sdb /home/me/fast ext4 rw 0 0\n"
    assert cache_file.is_shared("/home/me/.cache/opensesh/index.db", mounts)
    assert not cache_file.is_shared("/home/me/fast/index.db", mounts)
    assert not cache_file.is_shared("/var/cache/index.db", mounts)
    assert not cache_file.is_shared("/var/cache/index.db", "")
    tree.text(tree.session(), "gravel")
    index.refresh(TEXT)
    assert index.query(TEXT, lambda db: db.execute("PRAGMA journal_mode").fetchone()) == ("wal",)


def test_an_index_with_a_rollback_journal_works_as_well(index: DerivedCache, tree: Tree) -> None:
    tree.text(tree.session(), "gravel")
    index.refresh(TEXT)
    index.close()
    _execute(Path(index.path), "PRAGMA journal_mode = DELETE")
    tree.text(tree.session(), "gravel")
    assert len(found(index, "gravel")) == 2
    assert index.query(TEXT, lambda db: db.execute("PRAGMA journal_mode").fetchone()) == ("delete",)


WORKER = """
import sys
from opensesh.history.cache.derived_cache import DerivedCache
from opensesh.history.search.text_layer import TEXT
from opensesh.history.search.text_search import Query, search
from opensesh.storage.locations import find_stores
index = DerivedCache(find_stores(sys.argv[1]))
least = 0
for _ in range(int(sys.argv[2])):
    index.refresh(TEXT)
    total = search(index, Query("gravel")).total
    assert total >= least, (total, least)
    least = total
print(least)
"""


def test_several_processes_use_one_index(tree: Tree) -> None:
    for _ in range(10):
        tree.text(tree.session(), "gravel")
    path = str(tree.root.parent)
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER, path, "8"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    for _ in range(20):
        tree.text(tree.session(), "gravel")
        time.sleep(0.02)
    outcomes = [worker.communicate(timeout=60) for worker in workers]
    assert [error.decode() for _, error in outcomes] == ["", "", ""]
    assert all(10 <= int(out) <= 30 for out, _ in outcomes)
    index = DerivedCache(find_stores(path))
    assert len(found(index, "gravel")) == 30
    index.close()


def test_damage_affects_only_its_record_and_is_reported(index: DerivedCache, tree: Tree) -> None:
    session = tree.session(title="named")
    message, part = tree.text(session, "gravel one")
    torn = tree.part(session, message, type="text", text="gravel two")
    lost, kept = tree.text(session, "gravel three")
    nameless = tree.session(title="gravel title")
    _, orphan = tree.text(nameless, "gravel four")
    for key in (("part", message, torn), ("message", session, lost), ("session", "global", nameless)):
        path = tree.path(*key)
        path.write_bytes(path.read_bytes()[:-9])
    tree.path("part", message, "prt_empty").write_bytes(b"")
    tree.path("part", message, "not a name").write_bytes(b"{}")
    assert set(found(index, "gravel")) == {part, kept, orphan}
    reasons = [damage.path for damage in index.damage]
    assert {str(tree.path("part", message, torn)), str(tree.path("message", session, lost))} < set(reasons)
    tree.part(session, message, torn, type="text", text="gravel two")
    assert torn in found(index, "gravel")


def test_every_generation_is_indexed(tmp_path: Path) -> None:
    for name, word, least in (
        ("opencode-1.1.65", "scripted", 5),
        ("opencode-1.18.33", "scripted", 5),
        ("opencode-1.2", "the", 1),
    ):
        path = tmp_path / name
        shutil.copytree(FIXTURES / name, path)
        index = DerivedCache(find_stores(str(path)))
        index.refresh(TEXT)
        assert index.damage == []
        assert search(index, Query(word)).total >= least
        index.close()


def test_a_database_is_followed_by_the_times_of_its_rows(tmp_path: Path) -> None:
    database = Database(tmp_path / "opencode.db")
    database.session("ses_a")
    database.message("ses_a", "msg_a")
    database.part("ses_a", "msg_a", "prt_a", type="text", text="gravel")
    index = DerivedCache(find_stores(str(tmp_path)))
    assert found(index, "gravel") == ["prt_a"]
    settle(database.path)
    assert found(index, "gravel") == ["prt_a"]
    database.part("ses_a", "msg_a", "prt_b", type="text", text="gravel too")
    assert set(found(index, "gravel")) == {"prt_a", "prt_b"}
    database.clock += 1
    database.part("ses_a", "msg_a", "prt_a", type="text", text="sand")
    assert found(index, "gravel") == ["prt_b"]
    assert found(index, "sand") == ["prt_a"]
    database.connection.execute("DELETE FROM part WHERE id = 'prt_b'")
    assert found(index, "gravel") == []
    database.connection.execute("UPDATE session SET title = 'gravel'")
    assert found(index, "gravel") == [None]
    database.connection.execute("DELETE FROM session")
    assert found(index, "gravel") == []
    database.close()
    index.close()


def test_a_database_behind_a_link_is_followed_by_its_log(tmp_path: Path) -> None:
    database = Database(tmp_path / "elsewhere" / "opencode.db")
    database.connection.execute("PRAGMA journal_mode = WAL")
    database.session("ses_a", title="gravel")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "opencode.db").symlink_to(database.path)
    settle(database.path)
    index = DerivedCache(find_stores(str(tmp_path / "data")))
    assert found(index, "gravel") == [None]
    database.session("ses_b", title="more gravel")
    assert found(index, "gravel") == [None, None]
    index.close()
    database.close()


def test_a_database_that_has_not_changed_is_not_opened(tmp_path: Path) -> None:
    database = Database(tmp_path / "opencode.db")
    database.session("ses_a")
    database.message("ses_a", "msg_a")
    database.part("ses_a", "msg_a", "prt_a", type="text", text="gravel")
    database.close()
    settle(database.path)
    index = DerivedCache(find_stores(str(tmp_path)))
    index.refresh(TEXT)
    index.close()
    moment = database.path.stat().st_mtime_ns
    size = database.path.stat().st_size
    database.path.write_bytes(b"x" * size)
    os.utime(database.path, ns=(moment, moment))
    index.refresh(TEXT)
    assert count(index, "part") == 2
    index.close()


def test_sessions_of_2x_are_indexed_and_followed(tmp_path: Path) -> None:
    writer = V2Writer(tmp_path / "opencode.db")
    writer.message("msg_a", "user", 1, {"text": "gravel and sand", "time": {"created": 1}})
    index = DerivedCache(find_stores(str(tmp_path)))
    (part,) = found(index, "gravel")
    assert found(index, "list files") == [None]
    writer.message("msg_b", "user", 2, {"text": "more gravel", "time": {"created": 2}})
    assert len(found(index, "gravel")) == 2
    assert part in found(index, "sand")
    writer.connection.close()
    index.close()


def test_a_session_in_two_stores_is_indexed_once_the_fullest_copy_of_each_record(tree: Tree, tmp_path: Path) -> None:
    session = tree.session("ses_a", title="old title")
    message = tree.message(session, "assistant")
    tree.tool(session, "bash", message=message, name="prt_a", status="running", input={"command": "dig"})
    tree.part(session, message, "prt_b", type="text", text="gravel in the tree")
    tree.settle()
    database = Database(tmp_path / "opencode.db")
    database.session("ses_a", title="new title", time_updated=database.clock + 1)
    database.message("ses_a", message, role="assistant", time={"created": 1, "completed": 2})
    state = {"status": "completed", "input": {"command": "dig"}, "output": "gravel was dug"}
    database.part("ses_a", message, "prt_a", type="tool", tool="bash", state=state)
    database.part("ses_a", message, "prt_c", type="text", text="gravel in the database")
    index = DerivedCache(find_stores(str(tmp_path)))
    assert sorted(map(str, found(index, "gravel"))) == ["prt_a", "prt_b", "prt_c"]
    assert found(index, "new title") == [None]
    assert found(index, "old title") == []
    assert found(index, "dig") == ["prt_a"]
    (hit,) = search(index, Query('"was dug"')).hits
    assert hit.snippet.text == "gravel was dug"
    settle(database.path)
    index.refresh(TEXT)
    tree.part(session, message, "prt_d", type="text", text="gravel late in the tree")
    os.utime(tree.root / "message" / session)
    assert "prt_d" in found(index, "gravel")
    database.connection.execute("DELETE FROM session")
    database.connection.execute("DELETE FROM message")
    database.connection.execute("DELETE FROM part")
    assert sorted(map(str, found(index, "gravel"))) == ["prt_b", "prt_d"]
    assert found(index, "old title") == [None]
    database.close()
    index.close()


def test_what_only_one_of_two_stores_holds_stays_when_the_other_changes(tree: Tree, tmp_path: Path) -> None:
    session = tree.session("ses_a")
    parts = {tree.text(session, "gravel")[1] for _ in range(60)}
    tree.settle()
    database = Database(tmp_path / "opencode.db")
    database.session("ses_a")
    database.message("ses_a", "msg_a")
    database.part("ses_a", "msg_a", "prt_a", type="text", text="gravel")
    settle(database.path)
    index = DerivedCache(find_stores(str(tmp_path)))
    assert set(found(index, "gravel")) == parts | {"prt_a"}
    database.part("ses_a", "msg_a", "prt_b", type="text", text="gravel")
    assert set(found(index, "gravel")) == parts | {"prt_a", "prt_b"}
    database.close()
    index.close()


def test_a_store_that_went_away_is_forgotten(tree: Tree, tmp_path: Path) -> None:
    tree.text(tree.session(), "gravel")
    database = Database(tmp_path / "opencode.db")
    database.session("ses_db", title="gravel")
    database.close()
    index = DerivedCache(find_stores(str(tmp_path)))
    assert len(found(index, "gravel")) == 2
    index.close()
    database.path.unlink()
    index = DerivedCache(find_stores(str(tmp_path)))
    assert len(found(index, "gravel")) == 1
    index.close()


def test_a_database_that_cannot_be_read_does_not_cost_the_tree(tree: Tree, tmp_path: Path) -> None:
    tree.text(tree.session(), "gravel")
    (tmp_path / "opencode.db").write_bytes(b"not a database at all " * 100)
    index = DerivedCache(find_stores(str(tmp_path)))
    assert len(found(index, "gravel")) == 1
    assert [damage.path for damage in index.damage] == [str(tmp_path / "opencode.db")]
    index.close()
    alone = DerivedCache(find_stores(str(tmp_path / "opencode.db")))
    with pytest.raises(StoreError, match="not an SQLite database"):
        alone.refresh(TEXT)
    alone.close()


def test_a_database_that_breaks_later_leaves_what_is_known_of_it_and_the_tree_in_peace(
    tree: Tree, tmp_path: Path
) -> None:
    _, part = tree.text(tree.session(), "gravel")
    database = Database(tmp_path / "opencode.db")
    database.session("ses_a")
    database.message("ses_a", "msg_a")
    database.part("ses_a", "msg_a", "prt_a", type="text", text="gravel")
    database.close()
    tree.settle()
    settle(database.path)
    index = DerivedCache(find_stores(str(tmp_path)))
    assert set(found(index, "gravel")) == {part, "prt_a"}
    index.close()
    whole = database.path.read_bytes()
    database.path.write_bytes(b"not a database at all " * 100)
    assert set(found(index, "gravel")) == {part, "prt_a"}
    assert index.damage == [(str(database.path), "not an SQLite database")]
    assert [hit.part for hit in search(index, Query("gravel", "text")).hits] == [part]
    _execute(Path(index.path), "UPDATE meta SET value = value - 61000000000 WHERE name = 'rechecked'")
    index.refresh(TEXT, full=True)
    assert set(found(index, "gravel", refresh=False)) == {part, "prt_a"}
    database.path.write_bytes(whole)
    assert [hit.snippet.text for hit in search(index, Query("gravel")).hits] == ["gravel", "gravel"]
    index.close()


def test_a_session_that_cannot_be_read_is_read_the_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(tmp_path / "opencode.db")
    database.session("ses_a", title="gravel")
    settle(database.path)
    index = DerivedCache(find_stores(str(tmp_path)))
    with monkeypatch.context() as patched:

        def locked(feed: OpencodeDBFeed, name: str) -> None:
            raise StoreError(f"{feed.store_id}: locked")

        patched.setattr(OpencodeDBFeed, "session", locked)
        assert found(index, "gravel") == []
        assert [damage.reason for damage in index.damage] == ["locked"]
    assert found(index, "gravel") == [None]
    assert index.damage == []
    database.close()
    index.close()


def test_a_folder_whose_name_is_not_text_can_be_searched(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9")
    tree = Tree(path / "storage")
    _, part = tree.text(tree.session(), "gravel")
    database = Database(path / "opencode.db")
    database.session("ses_a", title="gravel")
    database.close()
    index = DerivedCache(find_stores(str(path)))
    assert set(found(index, "gravel")) == {part, None}
    index.close()
    assert set(found(index, "gravel", refresh=False)) == {part, None}
    index.close()


def test_an_index_for_the_moment_survives_an_interruption(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.text(tree.session(), "gravel")
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    index = DerivedCache(find_stores(str(tree.root.parent)))
    assert len(found(index, "gravel")) == 1
    tree.text(tree.session(), "gravel")

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index.refresh(TEXT, progress=interrupt)
    assert len(found(index, "gravel")) == 2
    index.close()


def test_progress_is_reported_for_all_that_is_read(tree: Tree) -> None:
    for _ in range(5):
        tree.text(tree.session(), "gravel")
    index = DerivedCache(find_stores(str(tree.root.parent)))
    progress: list[tuple[int, int]] = []
    index.refresh(TEXT, progress=lambda done, total: progress.append((done, total)))
    assert progress == [(number, 5) for number in range(6)]
    index.close()


def test_marks_differ_from_being_unsure() -> None:
    assert fingerprint(0) != UNSTABLE
    assert fingerprint() != UNSTABLE
    assert fingerprint(1, 2) == fingerprint(1, 2)
    assert fingerprint(1, 2) != fingerprint(2, 1)


ACTS = st.lists(
    st.tuples(
        st.sampled_from(
            ["session", "prompt", "answer", "tool", "finish", "retitle", "drop part", "drop message", "drop"]
        ),
        st.integers(0, 5),
    ),
    max_size=12,
)


class Opencode:
    """Does to a tree what OpenCode does to it, at moments that differ."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.sessions: list[str] = []
        self.parts: list[tuple[str, str, str]] = []
        self.running: list[tuple[str, str, str]] = []
        self.tick = 0

    def act(self, name: str, number: int) -> None:
        session = self.sessions[number % len(self.sessions)] if self.sessions else ""
        match name:
            case "session":
                self.sessions.append(self.tree.session())
            case "prompt" | "answer" if session:
                message, part = self.tree.text(session, f"gravel {number}", "user" if name == "prompt" else "assistant")
                self.parts.append((session, message, part))
            case "tool" if session:
                now = {"created": int(time.time() * 1000)}
                message = self.tree.message(session, "assistant", time=now)
                _, part = self.tree.tool(session, "bash", message=message, status="running")
                self.running.append((session, message, part))
            case "finish" if self.running:
                session, message, part = self.running.pop(number % len(self.running))
                if self.tree.path("message", session, message).exists():
                    self.tree.tool(session, "bash", message=message, name=part, output=f"sand {number}")
            case "retitle" if session:
                self.tree.session(session, title=f"title {number} {self.tick}")
            case _:
                self._drop(name, number, session)
        self._stamp()

    def _drop(self, name: str, number: int, session: str) -> None:
        if name == "drop part" and self.parts:
            session, message, part = self.parts.pop(number % len(self.parts))
            self.tree.path("part", message, part).unlink(missing_ok=True)
            self.tree.session(session)
        elif name == "drop message" and self.parts:
            session, message, _ = self.parts.pop(number % len(self.parts))
            self.tree.path("message", session, message).unlink(missing_ok=True)
        elif name == "drop" and session:
            self.sessions.remove(session)
            self.parts = [item for item in self.parts if item[0] != session]
            self.running = [item for item in self.running if item[0] != session]
            self.tree.path("session", "global", session).unlink()
            shutil.rmtree(self.tree.root / "message" / session, ignore_errors=True)

    def _stamp(self) -> None:
        """What was just written gets a time that no file had before."""
        self.tick += 1
        now = time.time_ns()
        for path in (self.tree.root, *self.tree.root.rglob("*")) if self.tree.root.exists() else ():
            if path.stat().st_mtime_ns > now - 5_000_000_000:
                moment = now - 200_000_000_000_000 + self.tick * 1_000_000
                os.utime(path, ns=(moment, moment))


@settings(max_examples=40)
@given(st.lists(ACTS, min_size=1, max_size=3))
def test_following_changes_ends_where_starting_afresh_does(
    tmp_path_factory: pytest.TempPathFactory, steps: list[list[tuple[str, int]]]
) -> None:
    folder = tmp_path_factory.mktemp("store")
    tree = Tree(folder / "storage")
    opencode = Opencode(tree)
    path = StoreLocations(str(folder), str(tree.root), ())
    index = DerivedCache(path, folder=str(folder / "cache"))
    for step in steps:
        for name, number in step:
            opencode.act(name, number)
        index.refresh(TEXT)
    fresh = DerivedCache(path, folder=str(folder / "fresh"))
    fresh.refresh(TEXT)
    assert rows(index) == rows(fresh)
    for item in (index, fresh):
        item.close()
