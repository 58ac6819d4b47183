from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opensesh.history.import_export.import_sources import PathMap, SourceSession, read_sessions
from opensesh.history.import_export.importing import Importer, ImportResult
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.opencode_db.store import OpencodeDB
from opensesh.storage.protocol import Damage, StoredMessage

from ..storage.opencode_databases import V1_2, V1_18, assert_sound, empty_database, execute, select
from .sample_tree import Json, Sample

TREE = Path(__file__).parents[1] / "fixtures" / "opencode-1.1.65" / "storage"


def bring(place: Path, database: Path, **options: Any) -> list[ImportResult]:
    with OpencodeDB(database) as store:
        return Importer(store, **options).take(read_sessions(str(place)))


def acts(results: list[ImportResult]) -> list[str]:
    return [result.act for result in results]


@pytest.mark.parametrize("version", [V1_2, V1_18])
def test_a_tree_is_imported_completely_and_once(tmp_path: Path, version: Path) -> None:
    database = empty_database(tmp_path, version)
    assert acts(bring(TREE, database)) == ["added"] * 13
    assert_sound(database)
    assert acts(bring(TREE, database)) == ["unchanged"] * 13
    tree = JsonTree(TREE)
    with OpencodeDB(database) as store:
        for key, info in tree.scan(("session",)):
            assert store.read(key)["title"] == info["title"]
            assert gist(store.messages(key[-1])) == gist(tree.messages(key[-1]))


def gist(messages: Any) -> list[Any]:
    return [
        (info["id"], info["role"], info["time"], [(part["id"], part.get("text"), part.get("state")) for part in parts])
        for info, parts in messages
    ]


def test_an_import_that_was_interrupted_is_continued(tmp_path: Path) -> None:
    database = empty_database(tmp_path)
    first, *rest = read_sessions(str(TREE))
    with OpencodeDB(database) as store:
        assert acts(Importer(store).take([first])) == ["added"]
        assert acts(Importer(store).take([first, *rest])) == ["unchanged", *["added"] * 12]


def test_incomplete_records_of_an_old_tree_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))  # of the user's own data, the share is imported, too
    database = empty_database(tmp_path)
    sample = Sample(tmp_path / "opencode" / "old")
    session = old_session(sample)
    sample.write(("todo", session), [{"id": "1", "content": "look", "status": "pending"}])
    sample.write(("session_share", session), {"url": "https://share/x"})
    damage: list[Damage] = []
    assert acts(bring(sample.root, database, report=damage.append)) == ["added"]
    assert [entry.reason.startswith("session_share: ") for entry in damage] == [True]
    assert acts(bring(sample.root, database, report=damage.append)) == ["unchanged"]
    with OpencodeDB(database) as store:
        prompt, answer = store.messages(session)
        assert prompt.info["model"] == {"providerID": "unknown", "modelID": "unknown"}
        assert answer.info["parentID"] == "msg_1"
        assert [part["type"] for part in answer.parts] == ["text", "tool", "text"]
        assert store.read(("todo", session)) == [{"content": "look", "status": "pending", "priority": "medium"}]


def old_session(sample: Sample) -> str:
    session: Json = {"id": "ses_0000000000001oldoldoldoldo", "title": "Old", "time": {"created": 1_750_000_000_000}}
    session_id = str(session["id"])
    sample.write(("session", "proj", session_id), session | {"directory": "/srv/dev/shop"})
    sample.write(("message", session_id, "msg_1"), {"id": "msg_1", "role": "user", "time": {"created": 1}})
    sample.write(
        ("message", session_id, "msg_2"),
        {"id": "msg_2", "role": "assistant", "time": {"created": 2.5}, "error": {"name": "Unknown", "message": "flat"}},
    )
    parts: list[Json] = [
        {"type": "text"},
        {"type": "tool", "tool": "bash", "state": {"status": "completed", "input": {}, "output": "x"}},
        {"type": "from-the-future", "data": 1},
    ]
    for number, part in enumerate(parts):
        sample.write(("part", "msg_2", f"prt_{number}"), part | {"id": f"prt_{number}"})
    return session_id


def test_a_session_that_cannot_be_completed_is_skipped_whole_with_a_reason(tmp_path: Path) -> None:
    database = empty_database(tmp_path)
    sample = Sample(tmp_path / "old")
    good, bad = sample.talk("Good", directory="/srv"), old_session(sample)
    sample.write(("part", "msg_2", "prt_9"), {"id": "prt_9", "type": "file", "mime": 7, "url": "x"})
    for dry_run in (True, False):
        results = {result.id: result for result in bring(sample.root, database, dry_run=dry_run)}
        assert results[good["id"]].act == "added"
        assert (results[bad].act, "OpenCode could not read this part" in results[bad].reason) == ("skipped", True)
    assert select(database, "SELECT id FROM session") == [(good["id"],)]
    assert select(database, "SELECT count(*) FROM message WHERE session_id = ?", bad) == [(0,)]


def test_a_session_with_a_part_of_another_session_is_skipped_whole(tmp_path: Path) -> None:
    database = empty_database(tmp_path)
    sample = Sample(tmp_path / "old")
    session = old_session(sample)
    [source] = read_sessions(str(sample.root))
    messages = [
        StoredMessage(info | {"id": f"{info['id']}0", "sessionID": "ses_2"}, parts) for info, parts in source.messages()
    ]
    second = SourceSession("ses_2", "x", source.info | {"id": "ses_2"}, lambda: messages)
    with OpencodeDB(database) as store:
        assert acts(Importer(store).take([source, second])) == ["added", "skipped"]
    assert select(database, "SELECT id FROM session") == [(session,)]
    assert_sound(database)


def test_a_copy_that_was_continued_in_the_tree_extends_the_one_in_the_database(tmp_path: Path) -> None:
    database = empty_database(tmp_path)
    sample = Sample(tmp_path / "old")
    session = sample.talk("Talk", directory="/srv")
    bring(sample.root, database)
    execute(database, f"UPDATE session SET agent = 'plan' WHERE id = '{session['id']}'")
    time = session["time"] | {"updated": session["time"]["updated"] + 5}
    sample.write(("session", session["projectID"], session["id"]), session | {"title": "Renamed", "time": time})
    assert acts(bring(sample.root, database)) == ["extended"]
    assert select(database, "SELECT title, agent FROM session") == [("Renamed", "plan")]
    assert acts(bring(sample.root, database)) == ["unchanged"]


def test_sessions_are_filed_under_the_project_that_their_folder_has_now(tmp_path: Path) -> None:
    database = empty_database(tmp_path)
    sample = Sample(tmp_path / "old")
    (tmp_path / "shop").mkdir()
    here, gone = (sample.talk(directory=folder) for folder in (str(tmp_path / "shop"), "/nowhere"))
    bring(sample.root, database, paths=PathMap(identify=lambda folder: "by-remote", identify_all=True))
    projects = dict(select(database, "SELECT id, project_id FROM session"))
    assert projects == {here["id"]: "by-remote", gone["id"]: gone["projectID"]}
