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
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.memory import Memory
from opensesh.storage.merged import MergedStore
from opensesh.storage.paths import digest
from opensesh.workspace import tidying as module
from opensesh.workspace.originals import Originals
from opensesh.workspace.repository import data_folder
from opensesh.workspace.tidying import disk_use, tidy_in_background, tidy_store

from ..engine.harness import open_harness
from .project_setup import Workspace, call, contents, write, writes
from .test_quota import DAY, age, is_there, some_noise


@pytest.fixture
def state(workspace: Workspace) -> Path:
    return workspace.state


def older(path: Path, days: int) -> None:
    moment = time.time() - days * DAY
    for item in (path, *path.rglob("*")):
        os.utime(item, (moment, moment))


def overwritten(workspace: Workspace, originals: Originals, name: str, text: str) -> tuple[str, str, str]:
    """A session that wrote over a file: the session, its prompt, and the content that was put aside."""
    session = workspace.session()
    prompt = workspace.prompt(session)
    before = originals.put(str(workspace.folder / name))
    assert before is not None

    def act(folder: Path) -> dict[str, object]:
        write(folder, {name: text})
        arguments = {"file": str(folder / name), "before": f"{before.mode} {before.oid}", "after": None}
        return call("write", {}, {"opensesh": {"writes": [arguments]}})

    workspace.step(session, prompt, act)
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


def test_what_a_session_or_the_trash_names_stays_and_the_rest_is_given_back(workspace: Workspace, state: Path) -> None:
    originals = Originals(workspace.sessions.store)
    used, prompt, expected = overwritten(workspace, originals, "README.md", "new\n")
    thrown, second, thrown_away = overwritten(workspace, originals, "src/main.py", "new\n")
    workspace.reverts.revert(thrown, second)
    workspace.reverts.cleanup(thrown)
    removed, _, in_trash = overwritten(workspace, originals, "README.md", "newer\n")
    trash.remove(workspace.sessions.store, [workspace.sessions.get(removed)])
    write(workspace.folder, {"nobody": "wants this"})
    unnamed = originals.put(str(workspace.folder / "nobody"))
    assert unnamed is not None
    noise = some_noise(workspace)
    age(workspace, 8)
    older(Path(originals.folder), 8)
    before = disk_use(workspace.sessions.store)
    done = tidy_store(workspace.sessions)
    assert done.before == before
    assert done.after == disk_use(workspace.sessions.store)
    assert done.after.snapshots < before.snapshots
    assert not is_there(workspace.snapshots, noise)
    assert [originals.has(oid) for oid in (expected, thrown_away, in_trash, unnamed.oid)] == [True, True, True, False]
    workspace.reverts.revert(used, prompt, force=True)
    assert contents(workspace.folder)["README.md"] == "hello\n"


@pytest.mark.parametrize("how", ["torn", "gone"])
def test_what_a_session_names_stays_though_its_record_is_lost(workspace: Workspace, state: Path, how: str) -> None:
    originals = Originals(workspace.sessions.store)
    session, prompt, expected = overwritten(workspace, originals, "README.md", "new\n")
    workspace.reverts.revert(session, prompt, force=True)
    taken = next(part["snapshot"] for item in workspace.history(session) for part in item.parts if "snapshot" in part)
    record = Path(workspace.sessions.store.locate(("session", workspace.place.id, session)))
    kept = record.read_bytes()
    if how == "torn":
        record.write_bytes(b"")
    else:
        record.unlink()
    age(workspace, 8)
    older(state, 8)
    tidy_store(workspace.sessions)
    record.write_bytes(kept)
    assert originals.has(expected)
    assert is_there(workspace.snapshots, taken)
    workspace.reverts.unrevert(session)
    assert contents(workspace.folder)["README.md"] == "new\n"


def test_what_is_young_stays_though_it_is_not_named(workspace: Workspace, state: Path) -> None:
    originals = Originals(workspace.sessions.store)
    result = originals.put(str(workspace.folder / "README.md"))
    assert result is not None
    noise = some_noise(workspace)
    tidy_store(workspace.sessions)
    assert originals.has(result.oid)
    assert is_there(workspace.snapshots, noise)
    older(Path(originals.folder), 8)
    assert originals.put(str(workspace.folder / "README.md")) == result
    tidy_store(workspace.sessions)
    assert originals.has(result.oid), "it was put aside anew just now"


def test_a_removed_session_takes_its_revert_along_and_brings_it_back(workspace: Workspace, state: Path) -> None:
    session = workspace.session()
    first = workspace.prompt(session)
    workspace.step(session, first, writes({"a": "1"}))
    second = workspace.prompt(session)
    workspace.step(session, second, writes({"a": "2"}))
    third = workspace.prompt(session)
    workspace.step(session, third, writes({"a": "3"}))
    workspace.reverts.revert(session, third)
    workspace.reverts.cleanup(session)
    workspace.reverts.revert(session, second)
    places = [state / kind / digest(workspace.sessions.store.id) / session for kind in ("reverts", "trash")]
    assert all(location.is_dir() for location in places)

    bulk = trash.remove(workspace.sessions.store, [workspace.sessions.get(session)])
    assert not any(location.exists() for location in places)
    trash.restore(bulk.undo)
    assert all(location.is_dir() for location in places)
    workspace.reverts.unrevert(session)
    assert contents(workspace.folder)["a"] == "2"

    bulk = trash.remove(workspace.sessions.store, [workspace.sessions.get(session)])
    trash.restore(bulk.undo, session)
    assert places[1].is_dir()
    bulk = trash.remove(workspace.sessions.store, [workspace.sessions.get(session)])
    trash.empty(workspace.sessions.store)
    assert not any(location.exists() for location in places)
    assert not os.path.exists(os.path.dirname(bulk.undo))


def test_journals_of_sessions_that_are_gone_for_good_are_dropped_after_a_week(
    workspace: Workspace, state: Path
) -> None:
    session, other = workspace.session(), workspace.session()
    for item in (session, other):
        prompt = workspace.prompt(item)
        workspace.step(item, prompt, writes({item: "1"}))
        workspace.reverts.revert(item, prompt)
    store = workspace.sessions.store
    for key in [key for kind in ("session", "message") for key in store.list((kind,)) if other in key]:
        store.remove(key)  # as OpenCode does
    above = state / "reverts" / digest(workspace.sessions.store.id)
    tidy_store(workspace.sessions)
    assert {path.name for path in above.iterdir()} == {session, other}
    older(above, 8)
    tidy_store(workspace.sessions)
    assert {path.name for path in above.iterdir()} == {session}


def test_it_is_done_in_the_background_once_a_day_and_never_waited_for(
    workspace: Workspace, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tidy_in_background(workspace.sessions) is None, "there can be nothing old yet"
    assert tidy_in_background(workspace.sessions) is None
    noise = some_noise(workspace)
    age(workspace, 8)
    older(state / "tidied", 2)
    thread = tidy_in_background(workspace.sessions)
    assert thread is not None
    assert thread.daemon
    assert tidy_in_background(workspace.sessions) is None, "someone is at it"
    thread.join(60)
    assert not is_there(workspace.snapshots, noise)

    def refuse(*_: object, **__: object) -> None:
        raise SnapshotError("git is not installed")

    older(state / "tidied", 2)
    monkeypatch.setattr(module, "tidy_store", refuse)
    broken = tidy_in_background(workspace.sessions)
    assert broken is not None
    broken.join(60)


async def test_a_run_that_ends_sees_to_it(isolated: Path) -> None:
    async with open_harness("SAY hi") as harness:
        await harness.ask()
        stamp = isolated / ".local" / "state" / "opensesh" / "tidied" / "global"
        assert stamp.exists()


def test_the_doctor_reports_disk_usage_and_frees_some(
    workspace: Workspace, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ["--store", str(workspace.home / "data")]
    overwritten(workspace, Originals(workspace.sessions.store), "README.md", "new\n")
    some_noise(workspace)
    age(workspace, 8)
    assert run([*store, "doctor", "--json"]) == 0
    usage = json.loads(capsys.readouterr().out)["room"]
    assert set(usage) == {"snapshots", "kept", "journals"}
    assert usage["snapshots"] > 40_000
    assert usage["kept"] > 0
    assert run([*store, "doctor"]) == 0
    assert "--tidy deletes" in capsys.readouterr().out
    assert run([*store, "doctor", "--tidy", "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["snapshots"] >= 1
    assert sum(reported["after"].values()) < sum(reported["before"].values())
    assert run([*store, "doctor", "--tidy"]) == 0
    assert "snapshots deleted" in capsys.readouterr().out
    assert run([*store, "doctor", "--tidy", "--fix"]) == 2
