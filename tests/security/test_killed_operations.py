from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from opensesh.cli.main import run
from opensesh.engine.opening import open_engine
from opensesh.errors import WriteError
from opensesh.history.import_export.import_sources import read_sessions
from opensesh.history.import_export.importing import Importer
from opensesh.history.library import Library
from opensesh.history.maintenance.doctor import repair
from opensesh.project import resolve
from opensesh.server.http_server import http_server
from opensesh.server.state import ServerOptions
from opensesh.sessions import Sessions, moving, trash, undo
from opensesh.sessions.settling import settle
from opensesh.storage import open_store, paths, unfinished
from opensesh.storage.json_tree.journal import complete_journals
from opensesh.storage.json_tree.migrations import migrate
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.leases import leases_of
from opensesh.storage.opencode_db.store import OpencodeDB
from opensesh.storage.protocol import Key, ignore_damage
from tests.cli.running import Terminal
from tests.history.sample_tree import Sample, contents

_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.move")
_DIED = 86
_FAILED = 87
_KINDS = ("session/", "message/", "part/", "session_diff/")


def die_at(point: int, act: Callable[[], object]) -> bool:
    """Run ``act`` in a child process that ends at its ``point``-th change of the disk; return whether it got there.

    If not, ``act`` returned: that it raises in the child fails the test.
    """
    child = os.fork()
    if child == 0:
        left = [point]

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            is_write = event == "open" and isinstance(arguments[2], int) and bool(arguments[2] & os.O_CREAT)
            if event in _CHANGES or is_write:
                left[0] -= 1
                if left[0] == 0:
                    os._exit(_DIED)

        sys.addaudithook(hook)
        try:
            act()
        except BaseException:
            traceback.print_exc()
            os._exit(_FAILED)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, _DIED), "the operation fails by itself"
    return code == _DIED


@pytest.fixture(params=[5, pytest.param(1, marks=pytest.mark.slow)], ids=["every fifth point", "every point"])
def points(request: pytest.FixtureRequest) -> range:
    """Changes of the disk at which operations are killed, one after the other."""
    return range(1, 400, request.param)


def sessions_in(root: Path) -> list[tuple[str, int]]:
    return sorted((entry.id, entry.messages) for entry in Library(str(root)).sessions())


def records_in(root: Path) -> dict[str, bytes]:
    files = contents(root).items()
    return {path: data for path, data in files if path.startswith(_KINDS) and "/." not in path}


Act = Callable[[Path, str], object]


def remove(root: Path, session: str) -> object:
    store = open_store(str(root))
    return trash.remove(store, [Library(store=store).session(session).record])


def archive(root: Path, session: str) -> object:
    store = open_store(str(root))
    return trash.archive(store, [Library(store=store).session(session).record])


def move(root: Path, session: str) -> object:
    store = open_store(str(root))
    return moving.move(store, [Library(store=store).session(session).record], str(root.parent))


@pytest.mark.parametrize("act", [remove, archive, move])
@pytest.mark.parametrize("then", [None, "restore"])
def test_m1_a_killed_operation_is_completed_or_undone_by_the_next_command(
    sample: Sample, terminal: Terminal, tmp_path: Path, points: range, act: Act, then: str | None
) -> None:
    session = sample.talk("Work", answers=2)["id"]
    sample.talk("Other", answers=1)
    before = records_in(sample.root)
    whole = sessions_in(sample.root)
    kept = tmp_path / "kept"
    shutil.copytree(sample.root, kept)
    for point in points:
        shutil.rmtree(sample.root)
        shutil.rmtree(paths.state(), ignore_errors=True)
        shutil.copytree(kept, sample.root)
        if then:
            act(sample.root, session)
            done = records_in(sample.root)
            store = open_store(str(sample.root))
            undo = trash.changes_made(store)[0]
            died = die_at(point, lambda undo=undo, store=store: trash.restore(undo, store=store))
        else:
            done = None
            died = die_at(point, lambda: act(sample.root, session))
        terminal.run("list", "--archived")
        assert terminal.code == 0
        after = records_in(sample.root)
        if done is None and after == before:
            assert sessions_in(sample.root) == whole
        elif done is None:
            assert all(entry in whole for entry in sessions_in(sample.root)), point
            assert len(sessions_in(sample.root)) == 1 or act is not remove
        else:
            assert after in (before, done), point
        assert terminal.run("doctor")
        assert terminal.code == 0, (point, terminal.error)
        if not died:
            assert (after == before) is bool(then)
            break
    else:
        pytest.fail("it never ends")


def fork(root: Path, session: str) -> object:
    store = open_store(str(root))
    return Sessions(store, resolve(str(root.parent))).fork(session)


def purge(root: Path, session: str) -> object:
    store = open_store(str(root))
    return Sessions(store, resolve(str(root.parent))).purge(session)


def import_new(root: Path, session: str) -> object:
    return Importer(open_store(str(root))).take(read_sessions(str(root.parent / "other" / "storage")))


def import_more(root: Path, session: str) -> object:
    return Importer(open_store(str(root))).take(read_sessions(str(root.parent / "longer" / "storage")))


def migrate_tree(root: Path, session: str) -> object:
    return migrate(JsonTree(root), lambda worktree: "global")


def mend(root: Path, session: str) -> object:
    return repair(open_store(str(root)))


def normal(records: dict[str, bytes]) -> list[tuple[str, int]]:
    """The kinds of all records: the ids of a fork are new each time."""
    kinds = [path.split("/")[0] for path in records]
    return sorted((kind, kinds.count(kind)) for kind in set(kinds))


@pytest.mark.parametrize("act", [fork, purge, import_new, import_more, migrate_tree, mend])
def test_m1_l9_a_killed_operation_leaves_all_or_nothing_after_the_next_command(
    sample: Sample, terminal: Terminal, tmp_path: Path, points: range, act: Act
) -> None:
    talk = sample.talk("Work", answers=2)
    sample.talk("Other", answers=1)
    if act is mend:
        sample.write(("part", "msg_gone", "prt_a"), {"id": "prt_a"})
        sample.write(("part", "msg_gone", "prt_b"), {"id": "prt_b"})
    if act is migrate_tree:
        (sample.root / "migration").write_text("1")
        for title in ("First", "Second"):
            sample.session(title, summary={"diffs": [{"file": "a", "additions": 1, "deletions": 2}]})
    if act is import_more:
        shutil.copytree(sample.root, sample.root.parent / "longer" / "storage")
        longer = Sample(sample.root.parent / "longer" / "storage")
        longer.clock = sample.clock
        longer.prompt(talk, "And then?")
        longer.answer(talk, "Then that.")
    other = Sample(sample.root.parent / "other" / "storage")
    other.clock += 5_000_000
    other.talk("Elsewhere", answers=3)
    kept = tmp_path / "kept"
    shutil.copytree(sample.root, kept)
    before = normal(records_in(sample.root))
    act(sample.root, talk["id"])
    done = normal(records_in(sample.root))
    states: set[str] = set()
    for point in points:
        shutil.rmtree(sample.root)
        shutil.rmtree(paths.state(), ignore_errors=True)
        shutil.copytree(kept, sample.root)
        died = die_at(point, lambda: act(sample.root, talk["id"]))
        terminal.run("list")
        assert terminal.code == 0
        after = normal(records_in(sample.root))
        assert after in (before, done), (point, after)
        states.add("before" if after == before else "done")
        terminal.run("doctor")
        assert terminal.code == 0, (point, terminal.error)
        assert not list((Path(paths.state()) / "unfinished").glob("*")), point
        if not died:
            break
    else:
        pytest.fail("it never ends")
    assert states == {"before", "done"}


def test_m1_a_removal_from_two_stores_is_undone_in_both(tmp_path: Path, terminal: Terminal, points: range) -> None:
    data = tmp_path / "data"
    data.mkdir()
    fixture = Path(__file__).parents[1] / "fixtures" / "opencode-1.2" / "opencode.db"
    shutil.copy(fixture, data / "opencode.db")
    (data / "storage").mkdir()
    (entry, *_) = Library(str(data)).sessions()
    Importer(JsonTree(data / "storage")).take(
        source for source in read_sessions(str(data / "opencode.db")) if source.id == entry.id
    )
    kept = tmp_path / "kept"
    shutil.copytree(data, kept)

    def copies() -> list[int]:
        stores = (open_store(str(data / "opencode.db")), open_store(str(data / "storage")))
        return [len(store.messages(entry.id)) for store in stores]

    whole = copies()
    assert all(whole)
    states: set[tuple[int, ...]] = set()
    for point in points:
        shutil.rmtree(data)
        shutil.rmtree(paths.state(), ignore_errors=True)
        shutil.copytree(kept, data)
        died = die_at(point, lambda: remove(data, entry.id))
        terminal.run("list", "--store", str(data))
        assert terminal.code == 0
        states.add(tuple(copies()))
        if not died:
            break
    else:
        pytest.fail("it never ends")
    assert states == {tuple(whole), (0, 0)}


def open_database(folder: Path) -> Path:
    folder.mkdir()
    shutil.copy(Path(__file__).parents[1] / "fixtures" / "opencode-1.2" / "opencode.db", folder / "opencode.db")
    return folder / "opencode.db"


def rows_in(database: Path) -> dict[Key, object]:
    with OpencodeDB(database) as store:
        kinds = ("session", "message", "part", "todo")
        return {key: value for kind in kinds for key, value in store.scan((kind,), report=ignore_damage)}


@pytest.mark.parametrize("act", [remove, archive, move])
@pytest.mark.parametrize("then", [None, "restore"])
def test_a_killed_operation_on_a_database_leaves_no_trash_of_sessions_that_exist(
    terminal: Terminal, tmp_path: Path, points: range, act: Act, then: str | None
) -> None:
    database = open_database(tmp_path / "data")
    (entry, *_) = Library(str(database)).sessions()
    before = rows_in(database)
    kept = tmp_path / "kept"
    shutil.copytree(database.parent, kept)
    states: set[str] = set()
    for point in points:
        shutil.rmtree(database.parent)
        shutil.rmtree(paths.state(), ignore_errors=True)
        shutil.copytree(kept, database.parent)
        if then:
            act(database, entry.id)
            store = open_store(str(database))
            undo = trash.changes_made(store)[0]
            died = die_at(point, lambda undo=undo, store=store: trash.restore(undo, store=store))
        else:
            died = die_at(point, lambda: act(database, entry.id))
        terminal.run("list", "--store", str(database))
        assert terminal.code == 0
        assert not list((Path(paths.state()) / "unfinished").glob("*")), point
        after, undo_files = rows_in(database), trash.changes_made(open_store(str(database)))
        states.add("before" if after == before else "done")
        assert bool(undo_files) == (after != before), (point, terminal.error)
        if undo_files:
            assert trash.restore(undo_files[0]).left == []
            assert rows_in(database) == before
        if not died:
            break
    else:
        pytest.fail("it never ends")
    assert states == {"before", "done"}


def test_m1_a_trash_that_was_being_emptied_offers_nothing_that_is_gone(
    sample: Sample, terminal: Terminal, tmp_path: Path, points: range
) -> None:
    session = sample.talk("Work", answers=2)["id"]
    remove(sample.root, session)
    kept = tmp_path / "kept"
    shutil.copytree(paths.state(), kept)
    store = open_store(str(sample.root))
    for point in points:
        shutil.rmtree(paths.state())
        shutil.copytree(kept, paths.state())
        died = die_at(point, lambda: trash.empty(store))
        if trash.contents(store):
            terminal.run("session", "restore", session)
            assert terminal.code == 0, (point, terminal.error)
            assert sessions_in(sample.root) == [(session, 4)], point
            remove(sample.root, session)
        if not died:
            assert not trash.contents(store)
            break
    else:
        pytest.fail("it never ends")


def test_m1_a_journal_does_not_replace_what_was_changed_since(sample: Sample, terminal: Terminal) -> None:
    tree = JsonTree(sample.root)
    for name in ("a", "b"):
        tree.write(("session", "proj", f"ses_{name}"), {"id": f"ses_{name}", "title": "old"})

    def write() -> None:
        with tree.batch() as batch:
            for name in ("a", "b"):
                batch.write(("session", "proj", f"ses_{name}"), {"id": f"ses_{name}", "title": "new"})

    point = 0
    while (tree.read(("session", "proj", "ses_a"))["title"], tree.read(("session", "proj", "ses_b"))["title"]) != (
        "new",
        "old",
    ):
        point += 1
        assert die_at(point, write)
        if tree.read(("session", "proj", "ses_b"))["title"] == "new":
            pytest.fail("the state in between was never met")
        if tree.read(("session", "proj", "ses_a"))["title"] == "old":
            shutil.rmtree(os.path.join(paths.state(), "unfinished"), ignore_errors=True)
            for left in sample.root.rglob("*.tmp"):
                left.unlink()
    sample.path("session", "proj", "ses_b").write_text('{"id": "ses_b", "title": "by OpenCode, meanwhile"}')
    terminal.run("list")
    assert tree.read(("session", "proj", "ses_b"))["title"] == "by OpenCode, meanwhile"
    assert not list(sample.root.rglob("*.tmp"))


def test_m1_what_another_process_is_doing_is_left_alone(sample: Sample, terminal: Terminal) -> None:
    session = sample.talk("Work")["id"]
    remove(sample.root, session)
    terminal.run("session", "trash")
    assert "1 session in the trash" in terminal.error
    terminal.run("session", "restore", "last")
    assert terminal.code == 0
    assert len(sessions_in(sample.root)) == 1


def test_l8_archiving_a_session_that_is_being_run_is_refused(sample: Sample, terminal: Terminal) -> None:
    session = sample.talk("Work")["id"]
    with leases_of(open_store(str(sample.root))).acquire(session, "test"):
        terminal.run("session", "archive", session)
        assert terminal.code == 4, terminal.error
        terminal.run("session", "archive", session, "--undo")
    assert run(["session", "archive", session]) == 0


def test_m1_a_killed_operation_is_completed_in_a_folder_whose_name_is_not_utf_8(sample: Sample, tmp_path: Path) -> None:
    session = sample.talk("Work", answers=2)["id"]
    before = len(JsonTree(sample.root).list())
    root = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff/storage"))
    numbers: list[int] = []
    died = True
    while died:
        shutil.rmtree(root.parent, ignore_errors=True)
        shutil.copytree(sample.root, root)
        died = die_at(len(numbers) + 1, lambda: fork(root, session))
        tree = JsonTree(root)
        complete_journals(tree)
        numbers.append(len(tree.list()))
    assert before == numbers[0] < numbers[-1]
    assert set(numbers) == {before, numbers[-1]}


def killed_removal(sample: Sample) -> str:
    """Kill the removal of a session half way, and return the session."""
    session = sample.talk("Work", answers=2)["id"]
    complete = records_in(sample.root)
    point = 1
    while records_in(sample.root) == complete:
        assert die_at(point, lambda: run(["session", "remove", session, "--yes"]))
        point += 1
        if records_in(sample.root) == complete and unfinished.has_notes():
            settle(open_store(str(sample.root)))
    return session


async def open_in_engine(root: str) -> None:
    async with open_engine(store=root):
        pass


async def serve(root: str) -> None:
    async with http_server(ServerOptions(port=0, store=root, directory=root)):
        pass


USES: dict[str, Callable[[str], object]] = {
    "library": lambda root: list(Library(root).sessions()),
    "library of an open store": lambda root: list(Library(store=open_store(root)).sessions()),
    "search": lambda root: list(Library(root).search("Work")),
    "sessions": lambda root: Sessions.open(".", root),
    "sessions of an open store": lambda root: Sessions.open(".", open_store(root)),
    "engine": lambda root: asyncio.run(open_in_engine(root)),
    "server": lambda root: asyncio.run(serve(root)),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_m1_a_killed_operation_is_undone_for_programs_too(sample: Sample, use: Callable[[str], object]) -> None:
    killed_removal(sample)
    assert unfinished.has_notes()
    use(str(sample.root))
    assert not unfinished.has_notes()
    assert [messages for _, messages in sessions_in(sample.root)] == [4]


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'[{"folder":1}]', b"\xff", b"/no/such/folder\nsession/x.json"])
@pytest.mark.parametrize("name", ["undo-1", "20261118-051811-abcdef"])
def test_m1_a_damaged_note_is_removed(sample: Sample, name: str, content: bytes) -> None:
    sample.talk("Work")
    note = Path(unfinished.folder()) / name
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_bytes(content)
    assert len(sessions_in(sample.root)) == 1
    assert not unfinished.has_notes()


def test_m1_a_note_of_an_earlier_version_is_settled(sample: Sample) -> None:
    killed = killed_removal(sample)
    (note,) = Path(unfinished.folder()).glob("undo-*[0-9a-f]")
    (entry,) = json.loads(note.read_bytes())
    folder = base64.b64decode(entry["folder"])
    note.unlink()
    (note.parent / os.path.basename(os.fsdecode(folder))).write_bytes(folder)
    assert dict(sessions_in(sample.root))[killed] > 1
    assert not unfinished.has_notes()


def test_m1_what_cannot_be_settled_now_is_reported_and_stays(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    killed_removal(sample)

    def fail(*arguments: object, **options: object) -> None:
        raise WriteError("the disk is full")

    lines: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(undo, "take_back", fail)
        settle(open_store(str(sample.root)), lines.append)
    assert "the disk is full" in lines[0]
    assert unfinished.has_notes()


@pytest.mark.parametrize("command", [("remove", "--yes"), ("archive",), ("move", "/tmp")])
def test_operations_on_a_store_whose_path_is_not_utf_8_can_be_undone(
    sample: Sample, tmp_path: Path, terminal: Terminal, command: tuple[str, ...]
) -> None:
    session = sample.talk("Work", answers=2)["id"]
    root = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff/storage"))
    shutil.copytree(sample.root, root)
    before = records_in(root)
    action, *options = command
    assert run(["session", action, session, *options, "--store", str(root)]) == 0
    assert records_in(root) != before
    assert run(["session", "restore", "last", "--store", str(root)]) == 0
    assert records_in(root) == before
