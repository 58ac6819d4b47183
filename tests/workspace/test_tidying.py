from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from opensesh.cli.main import run
from opensesh.errors import SnapshotError
from opensesh.sessions import trash
from opensesh.storage import paths
from opensesh.storage.json_tree import JsonTree
from opensesh.storage.memory import Memory
from opensesh.storage.merged import MergedStore
from opensesh.storage.paths import digest
from opensesh.workspace import tidying as module
from opensesh.workspace.originals import Originals
from opensesh.workspace.repository import data_folder
from opensesh.workspace.tidying import disk_use, tidy_in_background, tidy_store

from ..engine.stage import stage
from .desk import Desk, call, contents, write, writes
from .test_quota import DAY, age, is_there, some_noise


@pytest.fixture
def state(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder of the desk, for those who find it by themselves."""
    monkeypatch.setenv("XDG_STATE_HOME", str(desk.home))
    (desk.home / "opensesh").mkdir(parents=True)
    (desk.home / "state").symlink_to(desk.home / "opensesh")
    return desk.home / "opensesh"


def older(path: Path, days: int) -> None:
    moment = time.time() - days * DAY
    for each in (path, *path.rglob("*")):
        os.utime(each, (moment, moment))


def overwritten(desk: Desk, originals: Originals, name: str, text: str) -> tuple[str, str, str]:
    """A session that wrote over a file: the session, its prompt, and the content that was put aside."""
    session = desk.session()
    prompt = desk.prompt(session)
    before = originals.put(str(desk.folder / name))
    assert before is not None

    def act(folder: Path) -> dict[str, object]:
        write(folder, {name: text})
        given = {"file": str(folder / name), "before": f"{before.mode} {before.oid}", "after": None}
        return call("write", {}, {"opensesh": {"writes": [given]}})

    desk.step(session, prompt, act)
    return session, prompt, before.oid


def test_every_store_has_its_snapshots_to_itself(tmp_path: Path) -> None:
    ours = JsonTree(tmp_path / "data" / "storage")
    bare, other = JsonTree(tmp_path / "tree"), JsonTree(tmp_path / "other")
    database = tmp_path / "copied" / "opencode.db"
    database.parent.mkdir()
    database.write_bytes(b"")
    assert data_folder(ours) == str(tmp_path / "data")
    assert data_folder(MergedStore(str(database.parent), [ours])) == str(database.parent)
    (database.parent / "storage").mkdir()
    assert (
        data_folder(MergedStore(str(database.parent), [ours]))
        == data_folder(Kept(str(database)))
        == str(database.parent)
    )
    assert len({data_folder(ours), data_folder(bare), data_folder(other), paths.data()}) == 4
    assert data_folder(bare).startswith(paths.state())


class Kept(Memory):
    """A store in a file."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self._where = place

    @property
    def place(self) -> str:
        return self._where


def test_what_a_session_or_the_trash_names_stays_and_the_rest_is_given_back(desk: Desk, state: Path) -> None:
    originals = Originals(desk.sessions.store)
    used, prompt, wanted = overwritten(desk, originals, "README.md", "new\n")
    thrown, second, thrown_away = overwritten(desk, originals, "src/main.py", "new\n")
    desk.reverts.revert(thrown, second)
    desk.reverts.cleanup(thrown)
    removed, _, in_trash = overwritten(desk, originals, "README.md", "newer\n")
    trash.remove(desk.sessions.store, [desk.sessions.get(removed)])
    write(desk.folder, {"nobody": "wants this"})
    unnamed = originals.put(str(desk.folder / "nobody"))
    assert unnamed is not None
    noise = some_noise(desk)
    age(desk, 8)
    older(Path(originals.folder), 8)
    before = disk_use(desk.sessions.store)
    done = tidy_store(desk.sessions)
    assert done.before == before
    assert done.after == disk_use(desk.sessions.store)
    assert done.after.snapshots < before.snapshots
    assert not is_there(desk.snapshots, noise)
    assert [originals.has(oid) for oid in (wanted, thrown_away, in_trash, unnamed.oid)] == [True, True, True, False]
    desk.reverts.revert(used, prompt, force=True)
    assert contents(desk.folder)["README.md"] == "hello\n"


@pytest.mark.parametrize("how", ["torn", "gone"])
def test_what_a_session_names_stays_though_its_record_is_lost(desk: Desk, state: Path, how: str) -> None:
    originals = Originals(desk.sessions.store)
    session, prompt, wanted = overwritten(desk, originals, "README.md", "new\n")
    desk.reverts.revert(session, prompt, force=True)
    taken = next(part["snapshot"] for each in desk.history(session) for part in each.parts if "snapshot" in part)
    record = Path(desk.sessions.store.locate(("session", desk.place.id, session)))
    kept = record.read_bytes()
    if how == "torn":
        record.write_bytes(b"")
    else:
        record.unlink()
    age(desk, 8)
    older(state, 8)
    tidy_store(desk.sessions)
    record.write_bytes(kept)
    assert originals.has(wanted)
    assert is_there(desk.snapshots, taken)
    desk.reverts.unrevert(session)
    assert contents(desk.folder)["README.md"] == "new\n"


def test_what_is_young_stays_though_it_is_not_named(desk: Desk, state: Path) -> None:
    originals = Originals(desk.sessions.store)
    found = originals.put(str(desk.folder / "README.md"))
    assert found is not None
    noise = some_noise(desk)
    tidy_store(desk.sessions)
    assert originals.has(found.oid)
    assert is_there(desk.snapshots, noise)
    older(Path(originals.folder), 8)
    assert originals.put(str(desk.folder / "README.md")) == found
    tidy_store(desk.sessions)
    assert originals.has(found.oid), "it was put aside anew just now"


def test_a_removed_session_takes_its_revert_along_and_brings_it_back(desk: Desk, state: Path) -> None:
    session = desk.session()
    first = desk.prompt(session)
    desk.step(session, first, writes({"a": "1"}))
    second = desk.prompt(session)
    desk.step(session, second, writes({"a": "2"}))
    third = desk.prompt(session)
    desk.step(session, third, writes({"a": "3"}))
    desk.reverts.revert(session, third)
    desk.reverts.cleanup(session)
    desk.reverts.revert(session, second)
    places = [state / kind / digest(desk.sessions.store.id) / session for kind in ("reverts", "trash")]
    assert all(place.is_dir() for place in places)

    bulk = trash.remove(desk.sessions.store, [desk.sessions.get(session)])
    assert not any(place.exists() for place in places)
    trash.restore(bulk.undo)
    assert all(place.is_dir() for place in places)
    desk.reverts.unrevert(session)
    assert contents(desk.folder)["a"] == "2"

    bulk = trash.remove(desk.sessions.store, [desk.sessions.get(session)])
    trash.restore(bulk.undo, session)
    assert places[1].is_dir()
    bulk = trash.remove(desk.sessions.store, [desk.sessions.get(session)])
    trash.empty(desk.sessions.store)
    assert not any(place.exists() for place in places)
    assert not os.path.exists(os.path.dirname(bulk.undo))


def test_journals_of_sessions_that_are_gone_for_good_are_dropped_after_a_week(desk: Desk, state: Path) -> None:
    session, other = desk.session(), desk.session()
    for each in (session, other):
        prompt = desk.prompt(each)
        desk.step(each, prompt, writes({each: "1"}))
        desk.reverts.revert(each, prompt)
    store = desk.sessions.store
    for key in [key for kind in ("session", "message") for key in store.list((kind,)) if other in key]:
        store.remove(key)  # as OpenCode does
    above = state / "reverts" / digest(desk.sessions.store.id)
    tidy_store(desk.sessions)
    assert {path.name for path in above.iterdir()} == {session, other}
    older(above, 8)
    tidy_store(desk.sessions)
    assert {path.name for path in above.iterdir()} == {session}


def test_it_is_done_in_the_background_once_a_day_and_never_waited_for(
    desk: Desk, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tidy_in_background(desk.sessions) is None, "there can be nothing old yet"
    assert tidy_in_background(desk.sessions) is None
    noise = some_noise(desk)
    age(desk, 8)
    older(state / "tidied", 2)
    thread = tidy_in_background(desk.sessions)
    assert thread is not None
    assert thread.daemon
    assert tidy_in_background(desk.sessions) is None, "someone is at it"
    thread.join(60)
    assert not is_there(desk.snapshots, noise)

    def refuse(*_: object, **__: object) -> None:
        raise SnapshotError("git is not installed")

    older(state / "tidied", 2)
    monkeypatch.setattr(module, "tidy_store", refuse)
    broken = tidy_in_background(desk.sessions)
    assert broken is not None
    broken.join(60)


async def test_a_run_that_ends_sees_to_it(isolated: Path) -> None:
    async with stage("SAY hi") as on:
        await on.ask()
        stamp = isolated / ".local" / "state" / "opensesh" / "tidied" / "global"
        assert stamp.exists()


def test_the_doctor_reports_disk_usage_and_frees_some(
    desk: Desk, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ["--store", str(desk.home / "data")]
    overwritten(desk, Originals(desk.sessions.store), "README.md", "new\n")
    some_noise(desk)
    age(desk, 8)
    assert run([*store, "doctor", "--json"]) == 0
    usage = json.loads(capsys.readouterr().out)["room"]
    assert set(usage) == {"snapshots", "kept", "journals"}
    assert usage["snapshots"] > 40_000
    assert usage["kept"] > 0
    assert run([*store, "doctor"]) == 0
    assert "--tidy deletes" in capsys.readouterr().out
    assert run([*store, "doctor", "--tidy", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["snapshots"] >= 1
    assert sum(told["after"].values()) < sum(told["before"].values())
    assert run([*store, "doctor", "--tidy"]) == 0
    assert "snapshots deleted" in capsys.readouterr().out
    assert run([*store, "doctor", "--tidy", "--fix"]) == 2
