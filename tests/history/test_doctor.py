from __future__ import annotations

import json
import os
import shutil
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from opensesh.errors import NotFoundError, RecordError, WriteError
from opensesh.history.library import Library
from opensesh.history.maintenance.doctor import Diagnosis, diagnose, repair
from opensesh.history.maintenance.findings import StoreContents, compare_stores
from opensesh.history.stats.usage_stats import statistics
from opensesh.sessions.undo import Change, perform, take_back, undo_files
from opensesh.storage import open_store, paths
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.leases import FileLeases
from opensesh.storage.locks import Locks

from ..storage.opencode_databases import copy_database, execute, select
from .sample_tree import Json, Sample, contents

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    root = tmp_path / "data" / "storage"
    root.mkdir(parents=True)
    made = Sample(root)
    (tmp_path / "shop").mkdir()
    made.write(("project", "proj"), {"id": "proj", "worktree": str(tmp_path / "shop"), "sandboxes": []})
    return made


def healthy(sample: Sample, **more: Any) -> Json:
    return sample.talk(directory=str(sample.root.parent.parent / "shop"), **more)


def kinds(result: Diagnosis) -> dict[str, list[str]]:
    reported: dict[str, list[str]] = {}
    for finding in result.findings:
        reported.setdefault(finding.kind, []).append(finding.path)
    return reported


def look(sample: Sample) -> dict[str, list[str]]:
    return kinds(diagnose(JsonTree(sample.root)))


def mend(sample: Sample) -> Diagnosis:
    """Repair; then see that it is repaired, that a second run changes nothing, and that all can be taken back."""
    tree = JsonTree(sample.root)
    before = contents(sample.root)
    result = repair(tree)
    after = contents(sample.root)
    again = repair(tree)
    assert not [finding for finding in again.findings if finding.fixable], again.findings
    assert again.undo == ""
    assert contents(sample.root) == after
    if result.undo:
        assert take_back(result.undo).left == []
        assert contents(sample.root) == before
        with pytest.raises(NotFoundError):
            take_back(result.undo)
        repair(tree)
        assert contents(sample.root).keys() == after.keys()
    return result


def test_a_sound_store_has_nothing_wrong_with_it(sample: Sample) -> None:
    session = healthy(sample)
    sample.write(("todo", session["id"]), [])
    sample.write(("session_diff", session["id"]), [])
    result = mend(sample)
    assert result.findings == []
    assert (result.holdings[0].sessions, result.holdings[0].messages, result.holdings[0].parts) == (1, 4, 8)
    assert not result.damaged


def test_a_torn_part_is_put_aside(sample: Sample) -> None:
    message = sample.messages(healthy(sample))[1]
    victim = next((sample.root / "part" / message["id"]).iterdir())
    victim.write_bytes(victim.read_bytes()[:30])
    location = os.path.relpath(victim, sample.root)
    assert look(sample) == {"torn": [location]}
    assert diagnose(JsonTree(sample.root)).damaged
    result = mend(sample)
    assert not result.damaged
    assert not victim.exists()


@pytest.mark.parametrize("junk", [b"", b"\0\0\0\0", b"[1]", b"\xff\xfe{}", b'{"id": "x"'])
def test_a_torn_message_is_made_again_from_its_parts(sample: Sample, junk: bytes) -> None:
    session = healthy(sample)
    prompt, answer = sample.messages(session)[:2]
    for info in (prompt, answer):
        sample.path("message", session["id"], info["id"]).write_bytes(junk)
    mend(sample)
    first, second = sample.messages(session)[:2]
    assert (first["role"], second["role"]) == ("user", "assistant")
    assert (second["cost"], second["tokens"]) == (answer["cost"], answer["tokens"])
    assert abs(first["time"]["created"] - prompt["time"]["created"]) <= 1
    assert second["modelID"] == answer["modelID"]
    assert statistics(JsonTree(sample.root), fresh=True).total.document()["cost"] == 0.5


def test_a_session_whose_record_is_torn_or_lost_is_made_again_from_its_messages(sample: Sample) -> None:
    torn, lost = healthy(sample), healthy(sample)
    sample.path("session", "proj", torn["id"]).write_bytes(b"{")
    sample.path("session", "proj", lost["id"]).unlink()
    root = str(sample.root.parent.parent / "shop")
    for session in (torn, lost):
        for info in sample.messages(session):
            if info["role"] == "assistant":
                path = {"cwd": root, "root": root}
                sample.write(("message", session["id"], info["id"]), info | {"path": path})
    assert set(look(sample)) == {"torn", "orphan"}
    mend(sample)
    for session in (torn, lost):
        record = json.loads(sample.path("session", "proj", session["id"]).read_bytes())
        assert (record["id"], record["projectID"], record["directory"]) == (session["id"], "proj", root)
        assert record["title"] == "Recovered session"


@pytest.mark.parametrize("time", [None, "soon", {}, {"created": "soon", "updated": 7}, {"created": [1]}])
def test_a_record_without_a_time_gets_the_one_that_its_name_tells(sample: Sample, time: object) -> None:
    session = healthy(sample, title="Kept")
    info = next(iter(sample.messages(session)))
    keys: list[tuple[str, ...]] = [("session", "proj", session["id"]), ("message", session["id"], info["id"])]
    for key in keys:
        record = json.loads(sample.path(*key).read_bytes())
        sample.write(
            key, record | {"time": time} if time is not None else {k: v for k, v in record.items() if k != "time"}
        )
    assert look(sample)["torn"] == [str(sample.path(*key).relative_to(sample.root)) for key in keys]
    mend(sample)
    library = Library(store=JsonTree(sample.root))
    assert [(item.id, item.title, item.time.created) for _, item in library.records()] == [
        (session["id"], "Kept", session["time"]["created"])
    ]
    messages = library.store.messages(session["id"])
    assert [
        (message.info["id"], message.info["time"]["created"])
        for message in messages
        if message.info["id"] == info["id"]
    ] == [(info["id"], info["time"]["created"])]


def test_the_valid_fields_of_an_invalid_record_are_kept(sample: Sample) -> None:
    session = healthy(sample, title="Kept", share="yes", permission=[{"action": "maybe"}], mine=1)
    sample.write(("project", "proj"), {"id": "proj", "worktree": "/srv", "sandboxes": 7})
    assert look(sample)["torn"] == ["project/proj.json", f"session/proj/{session['id']}.json"]
    mend(sample)
    kept = json.loads(sample.path("session", "proj", session["id"]).read_bytes())
    assert kept == {name: value for name, value in session.items() if name not in ("share", "permission")}
    assert json.loads(sample.path("project", "proj").read_bytes()) == {"id": "proj", "worktree": "/srv"}


def test_a_record_that_cannot_be_repaired_is_reported_and_kept(sample: Sample) -> None:
    session = healthy(sample)
    sample.path("session", "proj", session["id"]).write_text('{"time": {"created": 1}, "\\ud83c": 1}')
    path = f"session/proj/{session['id']}.json"
    assert look(sample)["torn"] == [path]
    [finding] = [item for item in mend(sample).findings if item.kind == "torn"]
    assert not finding.fixable


def test_a_torn_session_without_messages_takes_its_leftovers_with_it(sample: Sample) -> None:
    session = sample.session()
    sample.path("session", "proj", session["id"]).write_bytes(b"")
    sample.write(("todo", session["id"]), [])
    assert set(look(sample)) == {"torn", "orphan"}
    mend(sample)
    assert not sample.path("todo", session["id"]).exists()


def test_what_belongs_to_nothing_is_put_aside(sample: Sample) -> None:
    session = healthy(sample)
    gone = sample.messages(session)[0]
    sample.path("message", session["id"], gone["id"]).unlink()
    for kind in ("session_diff", "todo", "session_share"):
        sample.write((kind, "ses_gone"), {} if kind == "session_share" else [])
    assert sorted(look(sample)["orphan"]) == [
        f"part/{gone['id']}",
        "session_diff/ses_gone.json",
        "session_share/ses_gone.json",
        "todo/ses_gone.json",
    ]
    mend(sample)
    assert not (sample.root / "part" / gone["id"]).exists()


def test_of_two_copies_the_one_that_counts_is_kept(sample: Sample) -> None:
    session, other = healthy(sample), healthy(sample)
    older = session | {"projectID": "old", "time": {"created": 1, "updated": 2}}
    sample.write(("session", "old", session["id"]), older)
    info = sample.messages(session)[0]
    sample.write(("message", other["id"], info["id"]), info)
    assert look(sample) == {
        "duplicate": [f"session/old/{session['id']}.json", f"message/{other['id']}/{info['id']}.json"]
    }
    mend(sample)
    assert sample.path("session", "proj", session["id"]).exists()
    assert sample.path("message", session["id"], info["id"]).exists()


def test_fields_that_contradict_the_path_are_corrected(sample: Sample) -> None:
    session = healthy(sample)
    info = sample.messages(session)[0]
    sample.write(("session", "proj", session["id"]), session | {"projectID": "another"})
    sample.write(("message", session["id"], info["id"]), info | {"sessionID": "ses_other"})
    part = next((sample.root / "part" / info["id"]).iterdir())
    part.write_text(json.dumps(json.loads(part.read_text()) | {"messageID": "msg_other", "sessionID": "ses_other"}))
    assert len(look(sample)["misplaced"]) == 3
    mend(sample)
    assert json.loads(part.read_bytes())["sessionID"] == session["id"]
    assert sample.messages(session)[0]["sessionID"] == session["id"]
    assert json.loads(sample.path("session", "proj", session["id"]).read_bytes())["projectID"] == "proj"


def test_a_file_with_the_wrong_name_gets_its_own(sample: Sample) -> None:
    session = healthy(sample)
    info = sample.messages(session)[0]
    path = sample.path("message", session["id"], info["id"])
    path.rename(path.with_name("msg_renamed.json"))
    assert look(sample) == {"misplaced": [f"message/{session['id']}/msg_renamed.json"]}
    mend(sample)
    assert path.exists()
    assert len(JsonTree(sample.root).messages(session["id"])[0].parts) == 1


def test_a_copy_under_another_name_is_put_aside(sample: Sample) -> None:
    session = healthy(sample)
    info = sample.messages(session)[0]
    path = sample.path("message", session["id"], info["id"])
    shutil.copy(path, path.with_name("msg_copy.json"))
    shutil.copy(path, path.with_name("msg_x copy.json"))
    path.with_name("notes.tmp").write_text("x")
    result = look(sample)
    assert result["misplaced"] == [f"message/{session['id']}/msg_copy.json"]
    assert len(result["foreign"]) == 2
    mend(sample)
    assert len(sample.messages(session)) == 4


def old(path: Path, days: float = 2) -> None:
    then = time.time() - days * 86_400
    os.utime(path, (then, then))


def test_what_will_never_finish_is_brought_to_an_end(sample: Sample) -> None:
    session = healthy(sample)
    first, last = (info for info in sample.messages(session) if info["role"] == "assistant")
    sample.tool(first, "bash", "running", time={"start": 5})
    current = sample.tool(last, "bash", "pending")
    del last["time"]["completed"]
    path = sample.write(("message", session["id"], last["id"]), last)
    assert len(look(sample)["stale"]) == 1
    old(path)
    old(sample.path("part", last["id"], current["id"]))
    assert len(look(sample)["stale"]) == 3
    with FileLeases.of(JsonTree(sample.root)).acquire(session["id"], "opensesh run"):
        assert "stale" not in look(sample)
    result = repair(JsonTree(sample.root))
    assert len(kinds(result)["stale"]) == 3
    states = [
        part["state"] for m in JsonTree(sample.root).messages(session["id"]) for part in m.parts if "state" in part
    ]
    assert [state["status"] for state in states] == ["error", "error"]
    assert states[0]["time"]["start"] == 5
    assert sample.messages(session)[-1]["time"]["completed"] >= last["time"]["created"]
    assert repair(JsonTree(sample.root)).undo == ""


@pytest.mark.parametrize("summary", [False, True])
@pytest.mark.parametrize("has_step", [False, True])
def test_an_answer_that_is_brought_to_an_end_has_the_outcome_of_its_last_step(
    sample: Sample, *, summary: bool, has_step: bool
) -> None:
    session = healthy(sample)
    info = sample.messages(session)[-1]
    step = next(
        part for part in JsonTree(sample.root).messages(session["id"])[-1].parts if part["type"] == "step-finish"
    )
    if has_step:
        sample.write(("part", info["id"], step["id"]), step | {"reason": "tool-calls", "cost": 0.75})
    else:
        sample.path("part", info["id"], step["id"]).unlink()
    unfinished = {name: value for name, value in info.items() if name != "finish"} | {"cost": 0}
    unfinished |= {"time": {"created": info["time"]["created"]}} | ({"summary": True} if summary else {})
    old(sample.write(("message", session["id"], info["id"]), unfinished))
    repair(JsonTree(sample.root))
    closed = sample.messages(session)[-1]
    # A summary with a finish reason would hide everything before it.
    assert closed.get("finish") == ("tool-calls" if has_step else None if summary else "unknown")
    assert closed["cost"] == (0.75 if has_step else 0)


def test_the_lease_of_a_dead_runner_is_released(sample: Sample) -> None:
    session = healthy(sample)
    leases = FileLeases.of(JsonTree(sample.root))
    lease = leases.acquire(session["id"], "opensesh run")
    lease.close_in_child()
    assert set(look(sample)) == {"lease"}
    repair(JsonTree(sample.root))
    assert leases.abandoned() == []
    assert look(sample) == {}


def test_temporary_files_of_dead_writers_are_moved_aside_and_those_of_running_ones_stay(sample: Sample) -> None:
    session = healthy(sample)
    folder = sample.root / "message" / session["id"]
    (folder / ".msg_a.json.4194399.0123abcd.tmp").write_text("{")
    (folder / ".msg_c.json.99999999999999999999.0123abcd.tmp").write_text("{")
    (folder / f".msg_b.json.{os.getpid()}.0123abcd.tmp").write_text("{")
    assert [Path(path).name for path in look(sample)["leftover"]] == [
        ".msg_a.json.4194399.0123abcd.tmp",
        ".msg_c.json.99999999999999999999.0123abcd.tmp",
    ]
    mend(sample)


def test_permissions_that_are_too_wide_or_too_narrow_are_set_right(sample: Sample) -> None:
    session = healthy(sample)
    record = sample.path("session", "proj", session["id"])
    record.chmod(0o666)
    (sample.root / "part").joinpath(sample.messages(session)[0]["id"]).chmod(0o777)
    unreadable = sample.path("message", session["id"], sample.messages(session)[0]["id"])
    unreadable.chmod(0o200)
    assert len(look(sample)["permissions"]) == 3
    before = {path: stat.S_IMODE(path.stat().st_mode) for path in (record, unreadable)}
    result = repair(JsonTree(sample.root))
    assert stat.S_IMODE(record.stat().st_mode) == 0o664
    assert stat.S_IMODE(unreadable.stat().st_mode) == 0o600
    assert repair(JsonTree(sample.root)).undo == ""
    take_back(result.undo)
    assert {path: stat.S_IMODE(path.stat().st_mode) for path in before} == before


def test_a_missing_folder_and_a_renamed_project_are_reported(sample: Sample, tmp_path: Path) -> None:
    import subprocess

    sample.talk()
    work = tmp_path / "repo"
    work.mkdir()
    (work / "a").write_text("a")
    for words in (("init", "-q"), ("add", "a"), ("commit", "-qm", "first")):
        subprocess.run(["git", *words], cwd=work, check=True)
    sample.write(("project", "oldname"), {"id": "oldname", "worktree": str(work), "sandboxes": []})
    healthy(sample, project="oldname")
    result = {finding.kind: finding for finding in diagnose(JsonTree(sample.root)).findings}
    assert result["folder"].path == "/srv/dev/shop"
    assert result["project"].message.startswith("stored under oldname, which is now ")
    assert result["project"].message.endswith(f": 1 session of {work}")
    assert not result["project"].fixable


def test_a_tree_that_was_never_migrated_is_reported(sample: Sample) -> None:
    healthy(sample)
    (sample.root / "migration").write_text("1")
    [finding] = diagnose(JsonTree(sample.root)).findings
    assert (finding.kind, "--migrate" in finding.remedy) == ("migration", True)


def test_what_each_generation_holds_and_what_only_one_has(tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(FIXTURES / "opencode-1.1.65" / "storage", data / "storage")
    shutil.copy(FIXTURES / "opencode-1.2" / "opencode.db", data / "opencode.db")
    gone = next((data / "storage" / "session").glob("*/*.json"))
    shutil.rmtree(data / "storage" / "message" / gone.stem)
    gone.unlink()
    sample = Sample(data / "storage")
    sample.talk(directory="/")
    result = diagnose(open_store(str(data)))
    database, tree = result.holdings
    assert (tree.sessions, tree.only, database.sessions, database.only) == (13, 1, 13, 1)
    [stranded] = [finding for finding in result.findings if finding.kind == "stores"]
    assert stranded.path == tree.place
    assert stranded.remedy.endswith(f"'opensesh import {tree.place}' copies them to {database.place}")
    victim = next((data / "storage" / "message").glob("*/msg_1e0afa*.json"))
    victim.unlink()
    assert compare(data)[0].only_messages >= 1


def test_a_tree_that_does_not_exist_beside_a_database_is_not_shown(tmp_path: Path) -> None:
    database = copy_database(tmp_path / "data")
    (tmp_path / "data" / "storage" / "session_diff").mkdir(parents=True)
    result = diagnose(open_store(str(tmp_path / "data")))
    assert [summary.place for summary in result.holdings] == [str(database)]
    assert {finding.kind for finding in result.findings} == {"folder"}


def test_the_diffs_of_sessions_in_a_database_stay_in_the_tree_beside_it(tmp_path: Path) -> None:
    database = copy_database(tmp_path / "data")
    diffs = tmp_path / "data" / "storage" / "session_diff"
    diffs.mkdir(parents=True)
    [session] = select(database, "SELECT id FROM session LIMIT 1")[0]
    for name in (session, "ses_gone"):
        (diffs / f"{name}.json").write_text("[]")
    orphans = kinds(diagnose(open_store(str(tmp_path / "data"))))["orphan"]
    assert orphans == ["session_diff/ses_gone.json"]
    assert "orphan" not in kinds(diagnose(JsonTree(diffs.parent))), "the database was not read"


def test_an_unwritable_database_is_copied_to_the_tree(tmp_path: Path) -> None:
    database = copy_database(tmp_path / "data")
    execute(database, "CREATE TRIGGER other AFTER INSERT ON session BEGIN SELECT 1; END")
    Sample(tmp_path / "data" / "storage").talk(directory="/")
    result = diagnose(open_store(str(tmp_path / "data")))
    [note] = [finding for finding in result.findings if finding.kind == "stores"]
    assert note.remedy.endswith(f"'opensesh import {database}' copies them to {tmp_path / 'data' / 'storage'}")


def compare(data: Path) -> list[Any]:
    return diagnose(open_store(str(data))).holdings


def test_the_summary_of_a_compaction_that_another_generation_has_is_not_there_alone() -> None:
    reported = {"msg_1": "ses_1", "msg_2": "ses_1"}
    tree = StoreContents("storage", {"ses_1"}, reported, 0)
    newer = StoreContents("opencode.db", {"ses_1"}, reported | {"msg_1-summary": "ses_1", "msg_3": "ses_1"}, 0)
    assert [store.only_messages for store in compare_stores([tree, newer])] == [0, 1]


def test_the_real_tree_is_repaired_and_opens_as_before(tmp_path: Path) -> None:
    root = tmp_path / "data" / "storage"
    shutil.copytree(FIXTURES / "opencode-1.1.65" / "storage", root)
    before = statistics(JsonTree(root), fresh=True).document()
    result = repair(JsonTree(root))
    assert set(kinds(result)) == {"orphan", "folder"}
    assert statistics(JsonTree(root), fresh=True).document() == before


def test_of_a_message_in_two_sessions_the_parts_stay_with_the_one_that_counts(sample: Sample) -> None:
    first, second = sorted((healthy(sample), healthy(sample)), key=lambda session: session["id"])
    for session, other in ((first, second), (second, first)):
        info = sample.messages(session)[0]
        sample.write(("message", other["id"], info["id"]), info)
    assert {kind: len(paths) for kind, paths in look(sample).items()} == {"duplicate": 2}
    mend(sample)
    for session in (first, second):
        assert {info["sessionID"] for info in sample.messages(session)} == {session["id"]}


def test_a_copy_in_a_session_that_is_not_there_makes_no_session(sample: Sample) -> None:
    info = sample.messages(healthy(sample))[0]
    sample.write(("message", "ses_zzz", info["id"]), info)
    assert look(sample) == {"duplicate": [f"message/ses_zzz/{info['id']}.json"]}
    mend(sample)
    assert not sample.path("session", "global", "ses_zzz").exists()


@pytest.mark.parametrize("lost", [True, False])
def test_a_session_of_which_everything_is_torn_is_made_again_at_once(sample: Sample, lost: bool) -> None:
    session = healthy(sample)
    sample.write(("todo", session["id"]), [])
    infos = sample.messages(session)
    record = sample.path("session", "proj", session["id"])
    record.unlink() if lost else record.write_bytes(b"{")
    for info in infos:
        sample.path("message", session["id"], info["id"]).write_bytes(b"")
    mend(sample)
    made = json.loads(sample.path("session", "global" if lost else "proj", session["id"]).read_bytes())
    assert abs(made["time"]["created"] - infos[0]["time"]["created"]) <= 1
    assert [info["role"] for info in sample.messages(session)] == [info["role"] for info in infos]
    assert sample.path("todo", session["id"]).exists()


def test_what_is_torn_in_two_places_is_made_again_in_one(sample: Sample) -> None:
    session = healthy(sample)
    info = sample.messages(session)[0]
    for key in (("session", "proj", session["id"]), ("session", "old", session["id"])):
        sample.write(key, {}).write_bytes(b"")
    for key in (("message", session["id"], info["id"]), ("message", "ses_zzz", info["id"])):
        sample.write(key, {}).write_bytes(b"")
    mend(sample)
    tree = JsonTree(sample.root)
    assert len(tree.list(("session",))) == 1
    assert len(tree.list(("message",))) == 4


def test_of_two_files_with_one_name_of_their_own_one_gets_it_and_none_is_lost(sample: Sample) -> None:
    session = healthy(sample)
    info = sample.messages(session)[0]
    path = sample.path("message", session["id"], info["id"])
    shutil.copy(path, path.with_name("msg_one.json"))
    path.rename(path.with_name("msg_two.json"))
    result = mend(sample)
    assert len(kinds(result)["misplaced"]) == 2
    assert len(sample.messages(session)) == 4


def test_a_file_with_the_wrong_name_that_says_it_belongs_elsewhere_is_set_right_at_once(sample: Sample) -> None:
    session = healthy(sample)
    info = sample.messages(session)[0]
    path = sample.write(("message", session["id"], info["id"]), info | {"sessionID": "ses_other"})
    path.rename(path.with_name("msg_renamed.json"))
    mend(sample)
    assert json.loads(path.read_bytes()) == info


@pytest.mark.parametrize("torn", [True, False])
def test_the_parts_of_a_message_that_is_mended_are_set_right_with_it(sample: Sample, torn: bool) -> None:
    session = healthy(sample)
    info = sample.messages(session)[1]
    part = sample.part(info | {"sessionID": "ses_other"}, type="text", text="x")
    path = sample.path("message", session["id"], info["id"])
    path.write_bytes(b"") if torn else path.rename(path.with_name("msg_renamed.json"))
    mend(sample)
    assert json.loads(sample.path("part", info["id"], part["id"]).read_bytes())["sessionID"] == session["id"]


def test_a_copy_under_another_name_of_what_is_filed_elsewhere_is_put_aside(sample: Sample) -> None:
    session = healthy(sample)
    info = sample.messages(session)[0]
    path = sample.path("message", session["id"], info["id"])
    shutil.copy(path, path.with_name("foo.json"))
    (sample.root / "message" / "zzz").mkdir()
    path.rename(sample.root / "message" / "zzz" / path.name)
    record = sample.path("session", "proj", session["id"])
    shutil.copy(record, record.with_name("ses_copy.json"))
    (sample.root / "session" / "old").mkdir()
    record.rename(sample.root / "session" / "old" / record.name)
    mend(sample)
    tree = JsonTree(sample.root)
    assert [key[-1] for key in tree.list(("message",))].count(info["id"]) == 1
    assert [key[-1] for key in tree.list(("session",))].count(session["id"]) == 1


def test_records_that_were_swapped_stay_both(sample: Sample) -> None:
    one, other = healthy(sample), healthy(sample)
    paths = [sample.path("session", "proj", session["id"]) for session in (one, other)]
    records = [path.read_bytes() for path in paths]
    for path, record in zip(paths, reversed(records), strict=True):
        path.write_bytes(record)
    mend(sample)
    assert [json.loads(path.read_bytes())["id"] for path in paths] == [one["id"], other["id"]]
    assert {json.loads(path.read_bytes())["title"] for path in paths} == {one["title"]}


def test_a_link_to_a_record_is_not_taken_for_one_with_odd_permissions(sample: Sample, tmp_path: Path) -> None:
    record = sample.path("session", "proj", healthy(sample)["id"])
    record.rename(tmp_path / "elsewhere.json")
    record.symlink_to(tmp_path / "elsewhere.json")
    assert look(sample) == {}


def test_a_file_that_cannot_be_read_is_left_where_it_is(sample: Sample) -> None:
    session = healthy(sample)
    info = sample.messages(session)[1]
    path = sample.path("message", session["id"], info["id"])
    os.truncate(path, 1 << 30)  # more than is ever read
    tree = JsonTree(sample.root)
    result = repair(tree)
    assert [(finding.kind, finding.fixable) for finding in result.findings] == [("torn", False)]
    assert "then run this again" in result.findings[0].remedy
    assert (result.damaged, result.undo, path.stat().st_size) == (True, "", 1 << 30)


@pytest.mark.parametrize("kind", ["session", "message"])
def test_nothing_is_taken_to_be_gone_that_may_be_in_a_folder_that_cannot_be_listed(
    sample: Sample, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = healthy(sample)
    sample.write(("todo", session["id"]), [])
    closed = sample.root / kind / ("proj" if kind == "session" else session["id"])
    scan = os.scandir

    def scandir(path: str) -> Any:
        if Path(path) == closed:
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert look(sample) == {"torn": [os.path.relpath(closed, sample.root)]}
    assert repair(JsonTree(sample.root)).undo == ""


def test_files_of_another_user_are_reported_and_not_changed(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    record = sample.path("session", "proj", healthy(sample)["id"])
    record.chmod(0o666)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 12_345)
    result = repair(JsonTree(sample.root))
    assert any("of another user" in finding.message for finding in result.findings)
    assert (result.undo, stat.S_IMODE(record.stat().st_mode)) == ("", 0o666)


def test_repairing_and_taking_back_count_the_same_files(sample: Sample) -> None:
    session = healthy(sample)
    first, second = sample.messages(session)[:2]
    sample.path("message", session["id"], first["id"]).unlink()
    sample.path("message", session["id"], second["id"]).write_bytes(b"")
    result = repair(JsonTree(sample.root))
    parts = len(list((sample.root / "part" / second["id"]).iterdir()))
    assert (result.files, parts) == (2, 3)  # its one part put aside, and the message made again
    assert take_back(result.undo).restored == result.files


# -- undo -----------------------------------------------------------------------------------------------------------


def test_what_was_changed_again_since_is_left_alone(sample: Sample, tmp_path: Path) -> None:
    session = healthy(sample)
    first, second, third = (os.path.join("x", name) for name in ("a", "b", "c"))
    for name in (first, second):
        sample.root.joinpath(name).parent.mkdir(exist_ok=True)
        sample.root.joinpath(name).write_text("before")
    tree = JsonTree(sample.root)
    changes = [Change(path=first, aside=True), Change(path=second, data=b"after"), Change(path=third, data=b"new")]
    undo = perform(tree, "doctor", changes)
    assert perform(tree, "doctor", []) == ""
    for name in (first, second, third):
        sample.root.joinpath(name).write_text("someone else's")
    done = take_back(undo)
    assert (done.restored, len(done.left)) == (0, 3)
    assert sample.root.joinpath(first).read_text() == "someone else's"
    sample.root.joinpath(first).unlink()
    sample.root.joinpath(second).write_text("after")
    done = take_back(os.path.dirname(undo))
    assert (done.restored, [Path(item.path).name for item in done.left]) == (2, ["c"])
    assert sample.root.joinpath(first).read_text() == sample.root.joinpath(second).read_text() == "before"
    assert len(JsonTree(sample.root).messages(session["id"])) == 4


def test_an_undo_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "undo.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(RecordError, match="not an undo file"):
        take_back(str(tmp_path / "undo.jsonl"))
    with pytest.raises(NotFoundError):
        take_back(str(tmp_path / "none.jsonl"))


def test_a_session_that_is_filed_twice_worked_in_its_folder_once(sample: Sample) -> None:
    session = sample.talk(directory="/gone/away")
    sample.write(("session", "other", session["id"]), session)
    reported = {finding.kind: finding.message for finding in diagnose(JsonTree(sample.root)).findings}
    assert reported["folder"] == "the folder of 1 session does not exist any more"
    assert "second copy" in reported["duplicate"]


def test_an_undo_file_that_was_copied_elsewhere_takes_nothing_from_there(sample: Sample, tmp_path: Path) -> None:
    undo = perform(JsonTree(sample.root), "doctor", [Change(path="x/a.json", data=b"{}")])
    elsewhere = tmp_path / "home"
    (elsewhere / "files").mkdir(parents=True)
    (elsewhere / "files" / "precious").write_text("mine")
    copy = str(shutil.copy(undo, elsewhere))
    assert take_back(copy).restored == 1
    assert take_back(copy).restored == 0
    assert contents(elsewhere).keys() == {"undo.jsonl", "files/precious"}


def test_files_that_no_line_of_an_undo_file_names_are_kept(sample: Sample) -> None:
    for name in ("a", "b"):
        sample.write(("x", name), name)
    changes = [Change(path="x/a.json", aside=True), Change(path="x/b.json", data=b"new")]
    undo = Path(perform(JsonTree(sample.root), "doctor", changes))
    undo.write_text(undo.read_text().splitlines()[0])
    assert take_back(str(undo)).restored == 0
    kept = contents(undo.parent)
    assert (kept["files/x/a.json"], kept["before/x/b.json"]) == (b'"a"', b'"b"')


@pytest.mark.parametrize("line", [{"path": "/etc/x", "kept": "files/x"}, {"path": "x", "kept": "../../x"}])
def test_an_undo_file_that_reaches_outside_is_refused(sample: Sample, line: Json) -> None:
    undo = Path(perform(JsonTree(sample.root), "doctor", [Change(path="x/a.json", data=b"{}")]))
    undo.write_text(undo.read_text() + json.dumps(line) + "\n")
    with pytest.raises(RecordError, match="outside of the store"):
        take_back(str(undo))


def test_a_line_of_an_undo_file_that_says_nothing_does_nothing(sample: Sample) -> None:
    undo = Path(perform(JsonTree(sample.root), "doctor", [Change(path="x/a.json", data=b"{}")]))
    undo.write_text(undo.read_text() + '{"path": "y"}\n')
    assert take_back(str(undo)).restored == 1
    assert not sample.root.joinpath("y").exists()


def test_a_rename_does_not_write_over_what_has_come_there_meanwhile(sample: Sample) -> None:
    for name in ("a", "b"):
        sample.write(("x", name), name)
    perform(JsonTree(sample.root), "doctor", [Change(path="x/a.json", to="x/b.json")])
    assert {path: data for path, data in contents(sample.root).items() if path.startswith("x")} == {
        "x/a.json": b'"a"',
        "x/b.json": b'"b"',
    }


def test_changes_that_fail_half_way_are_undone(sample: Sample) -> None:
    for name in ("a", "b", "c"):
        sample.write(("x", name), name)
    before = contents(sample.root)
    changes = [Change(path="x/a.json", aside=True), Change(path="x/b.json", to="x/c.json/b.json")]
    with pytest.raises(WriteError) as raised:
        perform(JsonTree(sample.root), "doctor", changes)
    assert "undo" not in raised.value.data
    assert contents(sample.root) == before
    assert not list(undo_files("doctor"))


def test_changes_that_fail_half_way_and_cannot_be_undone_say_where_they_are_kept(sample: Sample) -> None:
    for name in ("a", "b", "c"):
        sample.write(("x", name), name)
    before = contents(sample.root)

    class Failing(JsonTree):
        """A tree that another program writes to before the undo."""

        @property
        def locks(self) -> Locks:
            if not os.path.exists(sample.path("x", "a")):
                sample.write(("x", "a"), "new")
            return super().locks

    changes = [Change(path="x/a.json", aside=True), Change(path="x/b.json", to="x/c.json/b.json")]
    with pytest.raises(WriteError, match="can be undone: ") as raised:
        perform(Failing(sample.root), "doctor", changes)
    os.unlink(sample.path("x", "a"))
    assert take_back(raised.value.data["undo"]).restored == 1
    assert contents(sample.root) == before


def test_changes_that_cannot_be_noted_leave_no_trace(sample: Sample) -> None:
    sample.write(("x", "a"), "a")
    os.truncate(sample.path("x", "a"), 1 << 30)  # more than is ever read
    with pytest.raises(OSError, match="too large"):
        perform(JsonTree(sample.root), "doctor", [Change(path="x/a.json", data=b"{}")])
    assert list(Path(paths.state(), "quarantine").iterdir()) == []


def test_a_lease_that_another_process_took_over_is_not_released(sample: Sample) -> None:
    session = healthy(sample)
    leases = FileLeases.of(JsonTree(sample.root))
    leases.acquire(session["id"], "opensesh run").close_in_child()
    [finding] = diagnose(JsonTree(sample.root)).findings
    assert finding.act is not None
    with leases.acquire(session["id"], "another"):
        finding.act()
        holder = leases.holder(session["id"])
        assert holder is not None
        assert holder.owner == "another"
