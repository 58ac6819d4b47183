from __future__ import annotations

from pathlib import Path

import pytest

from opensesh.storage import open_store, paths
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.leases import leases_of
from opensesh.storage.paths import digest

from ..history.sample_stores import Database
from ..history.sample_tree import DAY, Sample, contents
from .running import Terminal


class Bulk(Terminal):
    """``opensesh session``, and what it said."""

    def run(self, *words: str) -> str:
        return super().run("session", *words)

    def refused(self, *words: str) -> str:
        assert not self.run(*words)
        assert self.code == 2
        return self.error


@pytest.fixture
def bulk(capfdbinary: pytest.CaptureFixture[bytes]) -> Bulk:
    return Bulk(capfdbinary)


def test_sessions_are_removed_by_what_they_have_in_common_and_come_back(bulk: Bulk, sample: Sample) -> None:
    old = sample.talk("old")
    sample.clock += 30 * DAY
    new, empty = sample.talk("new"), sample.session("empty")
    before = contents(sample.root)
    assert bulk.json("remove", "--before", "2026-10-01", "--dry-run")["sessions"] == [old["id"]]
    assert bulk.json("remove", "--empty", "--dry-run")["sessions"] == [empty["id"]]
    assert bulk.json("remove", "--larger", "1K", "--dry-run")["sessions"] == [new["id"], old["id"]]
    assert set(bulk.json("remove", "--project", "shop", "--dry-run")["sessions"]) == {old["id"], new["id"], empty["id"]}
    assert contents(sample.root) == before
    done = bulk.json("remove", "--before", "2026-10-01", "--yes")
    assert done["sessions"] == [old["id"]]
    assert done["files"] == 1 + 4 + 8
    assert list(bulk.json("trash")["trash"][0]["sessions"].values()) == ["old"]
    assert bulk.run("restore", "last") == "13 records restored.\n"
    assert contents(sample.root) == before
    assert bulk.json("trash")["trash"] == []


def test_what_was_done_is_printed_newest_first_across_projects(bulk: Bulk, sample: Sample) -> None:
    for number, project in enumerate(("b" * 40, "a" * 40, "b" * 40)):
        sample.clock += DAY
        sample.talk(f"number {number}", project=project)
    reported = bulk.run("remove", "--larger", "1", "--dry-run").splitlines()
    assert [line.split()[-1] for line in reported[:-1]] == ["2", "1", "0"]


def test_a_session_to_move_without_a_folder_is_asked_where_to(bulk: Bulk, sample: Sample) -> None:
    session = sample.talk()
    assert "opensesh session move last FOLDER" in bulk.refused("move", "last")
    assert f"move {session['id']} FOLDER" in bulk.refused("move", session["id"])


def test_nothing_is_removed_without_a_word(bulk: Bulk, sample: Sample) -> None:
    session = sample.talk()
    before = contents(sample.root)
    assert "name sessions" in bulk.refused("remove")
    assert "--dry-run to see" in bulk.refused("remove", "--before", "1m")
    assert "--dry-run to see" in bulk.refused("remove", session["id"])
    assert "not both" in bulk.refused("remove", session["id"], "--empty")
    for size in ("huge", "20KM", "1.5M"):
        assert "500K, 20M or 1G" in bulk.refused("remove", "--larger", size, "--yes")
    assert "name the new folder" in bulk.refused("move")
    assert contents(sample.root) == before
    bulk.run("restore", "last")
    assert (bulk.code, "to undo" in bulk.error) == (3, True)


def test_a_title_is_not_a_reason_to_remove(bulk: Bulk, sample: Sample) -> None:
    sample.talk("the orchard")
    bulk.run("remove", "--project", "orchard", "--yes")
    assert (bulk.code, "no project resembles" in bulk.error) == (3, True)


def test_one_of_several_removed_sessions_comes_back_alone(bulk: Bulk, sample: Sample) -> None:
    one, other = sample.talk("one"), sample.talk("other")
    before = contents(sample.root)
    bulk.run("remove", one["id"], other["id"], "--yes")
    assert bulk.run("restore", one["id"]) == "13 records restored.\n"
    assert {key[-1] for key in JsonTree(sample.root).list(("session",))} == {one["id"]}
    assert bulk.run("trash").count("ses_") == 1
    assert bulk.error == "1 session in the trash.\n"
    bulk.run("restore", one["id"])
    assert (bulk.code, "no session in the trash" in bulk.error) == (3, True)
    bulk.run("restore", "last")
    assert contents(sample.root) == before
    assert bulk.json("trash")["trash"] == []


def test_a_removed_session_comes_back_with_its_children(bulk: Bulk, sample: Sample) -> None:
    one = sample.talk("one")
    child = sample.talk("child", parentID=one["id"])
    grandchild = sample.talk("grandchild", parentID=child["id"])
    before = contents(sample.root)
    bulk.run("remove", one["id"], "--yes")
    bulk.run("restore", child["id"])
    assert {key[-1] for key in JsonTree(sample.root).list(("session",))} == {child["id"], grandchild["id"]}
    bulk.run("restore", one["id"])
    assert contents(sample.root) == before


def test_sessions_are_archived_and_unarchived(bulk: Bulk, sample: Sample) -> None:
    one, other = sample.talk("one"), sample.talk("other")
    before = contents(sample.root)
    done = bulk.json("archive", "--project", "shop", "--yes")
    assert set(done["sessions"]) == {one["id"], other["id"]}
    assert "unarchived: one" in bulk.run("archive", one["id"], "--undo")
    tree = JsonTree(sample.root)
    assert "archived" not in tree.read(("session", "proj", one["id"]))["time"]
    assert set(bulk.json("remove", "--archived", "--dry-run")["sessions"]) == {other["id"]}
    assert bulk.json("archive", other["id"], "--undo")["sessions"] == [other["id"]]
    assert contents(sample.root) == before
    assert "--undo" not in bulk.refused("archive", "--undo")
    assert "Archived: 1 session, 1 record" in bulk.run("archive", one["id"])
    bulk.run("restore", "last")
    assert contents(sample.root) == before


def test_sessions_move_with_their_folder_and_back(bulk: Bulk, sample: Sample, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    (new / "api").mkdir(parents=True)
    root = sample.talk("root", directory=str(old))
    child = sample.talk("child", directory=str(old), parent=root["id"])
    below = sample.talk("below", directory=str(old / "api"))
    gone = sample.talk("gone below", directory=str(old / "web"))
    other = sample.talk("other", directory=f"{old}er")
    before = contents(sample.root)
    plan = bulk.json("move", "--from", str(old), "--dry-run", str(new))
    assert set(plan["sessions"]) == {root["id"], child["id"], below["id"], gone["id"]}
    assert contents(sample.root) == before
    assert "Assigned to another folder: 4 sessions, 4 records" in bulk.run(
        "move", "--from", str(old), str(new), "--yes"
    )
    tree = JsonTree(sample.root)
    where = {key[-1]: (key[1], record["directory"]) for key, record in tree.scan(("session",))}
    assert where == {
        root["id"]: ("global", str(new)),
        child["id"]: ("global", str(new)),
        below["id"]: ("global", str(new / "api")),
        gone["id"]: ("global", str(new)),
        other["id"]: ("proj", f"{old}er"),
    }
    assert bulk.json("move", "--from", str(new), str(new), "--yes")["sessions"] == []
    assert bulk.run("restore", "last") == "4 records restored.\n"
    after = contents(sample.root)
    assert after.pop("project/global.json")
    assert after == before


def test_a_named_session_moves_to_the_project_of_the_folder(bulk: Bulk, sample: Sample, tmp_path: Path) -> None:
    session = sample.talk()
    assert bulk.json("move", session["id"], str(tmp_path))["sessions"] == [session["id"]]
    record = open_store(str(sample.root)).read(("session", "global", session["id"]))
    assert record == session | {"projectID": "global", "directory": str(tmp_path)}
    bulk.run("move", session["id"], str(tmp_path / "nowhere"))
    assert (bulk.code, "does not exist" in bulk.error) == (3, True)


def test_a_running_session_is_left_alone_and_reported(bulk: Bulk, sample: Sample) -> None:
    session = sample.talk()
    with leases_of(JsonTree(sample.root)).acquire(session["id"], "opensesh run"):
        bulk.run("remove", session["id"], "--yes")
    assert bulk.code == 4
    assert "not changed: being run by opensesh run" in bulk.error


def test_sessions_of_a_database_are_left_alone_and_reported_together(bulk: Bulk, sample: Sample) -> None:
    here = sample.talk()
    database = Database(sample.root.parent / "opencode.db")
    elsewhere = [database.session(f"ses_{number}") for number in range(3)]
    database.close()
    store = "--store", str(sample.root.parent)
    bulk.run("remove", "--before", "2030-01", "--yes", *store)
    assert bulk.code == 0
    assert bulk.error.startswith(
        "3 sessions not changed: in a database that is only read: its table message has an unknown"
    )
    assert bulk.error.count("not changed") == 1
    bulk.run("restore", here["id"], *store)
    left = bulk.json("remove", here["id"], *elsewhere, "--dry-run", *store)["left"]
    assert [item["sessionID"] for item in left] == elsewhere
    bulk.run("archive", elsewhere[0], *store)
    assert bulk.error.startswith("ses_0 not changed: in a database that is only read: its table message has an unknown")
    assert bulk.code == 5


def test_a_shared_session_says_that_it_is_still_shared(bulk: Bulk, sample: Sample) -> None:
    session = sample.talk(share={"url": "https://example.com/s/1"})
    bulk.run("remove", session["id"], "--yes")
    assert "Still shared: 1 session; " in bulk.error


def test_the_trash_is_emptied_only_when_asked(bulk: Bulk, sample: Sample) -> None:
    bulk.run("remove", sample.talk()["id"], "--yes")
    assert bulk.run("trash").count("ses_") == 1
    assert "--yes" in bulk.refused("trash", "--empty")
    assert bulk.json("trash", "--empty", "--yes", "--older", "30d")["trash"] == []
    assert len(bulk.json("trash", "--empty", "--yes")["trash"]) == 1
    assert bulk.json("trash")["trash"] == []


def test_a_removed_session_that_a_database_also_has_is_reported(bulk: Bulk, sample: Sample) -> None:
    session = sample.talk()
    database = Database(sample.root.parent / "opencode.db")
    database.session(session["id"])
    database.close()
    bulk.run("remove", session["id"], "--yes", "--store", str(sample.root.parent))
    assert "Also in an OpenCode database, and still listed from there: 1 session." in bulk.error


def test_each_store_has_a_trash_of_its_own(bulk: Bulk, sample: Sample, tmp_path: Path) -> None:
    here = sample.talk("here")
    other = tmp_path / "other" / "storage"
    other.mkdir(parents=True)
    there = Sample(other).talk("there")
    (tmp_path / "link").symlink_to(tmp_path / "other")
    bulk.run("remove", here["id"], "--yes")
    bulk.run("remove", there["id"], "--yes", "--store", str(other))
    assert [list(item["sessions"]) for item in bulk.json("trash")["trash"]] == [[here["id"]]]
    through = ("--store", str(tmp_path / "link"))
    assert [list(item["sessions"]) for item in bulk.json("trash", *through)["trash"]] == [[there["id"]]]
    bulk.run("restore", there["id"])
    assert (bulk.code, f"--store {other}" in bulk.error) == (3, True)
    bulk.run("restore", "last")
    assert [key[-1] for key in JsonTree(sample.root).list(("session",))] == [here["id"]]
    assert bulk.json("trash", "--empty", "--yes")["trash"] == []
    bulk.run("restore", "last")
    assert bulk.code == 3
    assert bulk.run("restore", there["id"], *through) == "13 records restored.\n"


def test_having_nothing_to_revert_is_reported(bulk: Bulk, sample: Sample) -> None:
    gone, session = sample.talk("gone"), sample.talk("one")
    before = contents(sample.root)
    assert "is not archived: one" in bulk.run("archive", session["id"], "--undo")
    assert bulk.code == 0
    assert bulk.json("archive", session["id"], "--undo")["sessions"] == []
    assert contents(sample.root) == before
    bulk.run("remove", gone["id"], "--yes")
    bulk.run("archive", session["id"])
    bulk.run("archive", session["id"], "--undo")
    assert bulk.run("restore", "last") == "13 records restored.\n"
    assert bulk.run("restore", "last") == ""
    assert (bulk.code, "to undo" in bulk.error) == (3, True)
    undo = bulk.json("archive", session["id"])["undo"]
    bulk.run("archive", session["id"], "--undo")
    assert bulk.run("restore", undo) == "There was nothing to restore.\n"
    assert contents(sample.root) == before


def test_an_undo_file_without_a_line_is_passed_over(bulk: Bulk, sample: Sample) -> None:
    one, other = sample.talk("one"), sample.talk("other")
    bulk.run("archive", one["id"])
    undo = Path(bulk.json("remove", other["id"], "--yes")["undo"])
    undo.write_text(undo.read_text().splitlines()[0])
    assert bulk.run("restore", "last") == "1 record restored.\n"
    assert bulk.run("restore", "last") == ""
    assert (bulk.code, "to undo" in bulk.error) == (3, True)
    assert len(list((undo.parent / "files").rglob("*.json"))) == 13


def test_the_doctor_takes_back_a_remove_with_all_that_went_along(
    bulk: Bulk, terminal: Terminal, sample: Sample
) -> None:
    session = sample.talk()
    journal = Path(paths.state(), "reverts", digest(str(sample.root.resolve())), session["id"])
    journal.mkdir(parents=True)
    (journal / "x.json").write_text("{}")
    undo = bulk.json("remove", session["id"], "--yes")["undo"]
    assert not journal.exists()
    assert terminal.json("doctor", "--undo", undo)["restored"] == 13
    assert (journal / "x.json").exists()
