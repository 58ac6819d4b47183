from __future__ import annotations

from pathlib import Path

import pytest

from opensesh.project import resolve
from opensesh.records import Document, view
from opensesh.records.message import UserMessage
from opensesh.sessions import Sessions
from opensesh.storage import keys, open_store
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.protocol import StoredMessage
from opensesh.workspace.diffs import (
    history_diffs,
    record_summary,
    snapshot_range,
    summarize,
    totals,
    turn_messages,
)

from ..storage.opencode_databases import V1_2, V1_18, empty_database
from .project_setup import Workspace, call, creates, edits, write, writes


def message(identifier: str, *parts: dict[str, str], role: str = "assistant", parent: str = "") -> StoredMessage:
    return StoredMessage({"id": identifier, "role": role, "parentID": parent}, list(parts))


def test_a_session_reaches_from_its_first_snapshot_to_its_last() -> None:
    history = [
        message("u", {"type": "text"}, role="user"),
        message("a", {"type": "step-start"}, {"type": "step-finish"}),
        message("b", {"type": "step-start", "snapshot": "1"}, {"type": "step-finish", "snapshot": "2"}),
        message("c", {"type": "step-start", "snapshot": "3"}, {"type": "step-finish", "snapshot": "4"}),
        message("d", {"type": "step-start", "snapshot": "5"}),
    ]
    assert snapshot_range(history) == ("1", "4")
    assert snapshot_range(history[:2]) is None
    assert snapshot_range(history[4:]) is None


def test_a_turn_is_a_prompt_and_what_answers_it() -> None:
    history = [
        message("u1", role="user"),
        message("a1", parent="u1"),
        message("u2", role="user"),
        message("a2", parent="u2"),
        message("late", parent="u1"),
    ]
    assert [item.info["id"] for item in turn_messages(history, "u1")] == ["u1", "a1", "late"]


def test_totals_add_up() -> None:
    result = [{"file": "a", "additions": 2, "deletions": 1}, {"file": "b", "additions": 3, "deletions": 0}]
    assert totals(result) == {"additions": 5, "deletions": 1, "files": 2}
    assert totals([]) == {"additions": 0, "deletions": 0, "files": 0}


def test_summaries_are_stored_as_opencode_stores_them_and_published(workspace: Workspace) -> None:
    session = workspace.session()
    first = workspace.prompt(session)
    workspace.step(session, first, writes({"a.txt": "1\n"}))
    workspace.step(session, first, writes({"a.txt": "1\n2\n"}))
    second = workspace.prompt(session)
    workspace.step(session, second, writes({"b.txt": "1\n"}))
    received = workspace.bus.last
    result = summarize(workspace.sessions, workspace.snapshots, session, second, publish=workspace.bus.publish)

    assert [diff["file"] for diff in result] == ["a.txt", "b.txt"]
    assert workspace.sessions.diff(session) == result
    assert workspace.sessions.get(session).document["summary"] == {"additions": 3, "deletions": 0, "files": 2}
    stored = view(workspace.sessions.store.read(keys.message(session, second)), UserMessage)
    assert stored.summary is not None
    assert [diff.file for diff in stored.summary.diffs] == ["b.txt"]
    reported = [
        envelope.event.type
        for number in range(received, workspace.bus.last)
        if (envelope := workspace.bus.next_after(number))
    ]
    assert reported == ["session.diff", "session.updated", "message.updated"]


def test_a_title_that_a_turn_has_stays(workspace: Workspace) -> None:
    session = workspace.session()
    prompt = workspace.prompt(session)
    workspace.step(session, prompt, writes({"a.txt": "1\n"}))
    workspace.sessions.store.update(keys.message(session, prompt), lambda info: info.update(summary={"title": "Mine"}))
    summarize(workspace.sessions, workspace.snapshots, session, prompt, publish=workspace.bus.publish)
    summary = workspace.sessions.store.read(keys.message(session, prompt))["summary"]
    assert (summary["title"], len(summary["diffs"])) == ("Mine", 1)


def test_a_snapshot_that_is_gone_costs_the_list_and_no_more(workspace: Workspace) -> None:
    session = workspace.session()
    prompt = workspace.prompt(session)
    step = workspace.open_step(session, prompt)
    workspace.part(session, step, {"type": "step-start", "snapshot": "1" * 40})
    workspace.part(session, step, {"type": "step-finish", "snapshot": "2" * 40})
    assert summarize(workspace.sessions, workspace.snapshots, session, prompt, publish=workspace.bus.publish) == []
    assert workspace.sessions.get(session).document["summary"]["files"] == 0
    assert summarize(workspace.sessions, workspace.snapshots, session, "msg_gone", publish=workspace.bus.publish) == []


def test_outside_of_git_the_tools_own_records_tell(plain: Workspace) -> None:
    write(plain.folder, {"a.txt": "1\n2\n"})
    session = plain.session()
    prompt = plain.prompt(session)
    plain.step(session, prompt, edits("a.txt", "1\nx\n"), creates("new.txt", "n\n"))
    plain.step(session, prompt, edits("a.txt", "1\nx\n3\n"), edits("new.txt", "n\n"))
    assert history_diffs(plain.history(session), plain.snapshots) == [
        {
            "file": "a.txt",
            "before": "1\n2\n",
            "after": "1\nx\n3\n",
            "additions": 2,
            "deletions": 1,
            "status": "modified",
        },
        {"file": "new.txt", "before": "", "after": "n\n", "additions": 1, "deletions": 0, "status": "added"},
    ]


def test_patches_and_rows_of_edits_are_published_too(plain: Workspace) -> None:
    folder = plain.folder
    patch = call(
        "apply_patch",
        {},
        {
            "files": [
                {"filePath": str(folder / "a"), "type": "add", "before": "", "after": "1\n"},
                {"filePath": str(folder / "b"), "type": "delete", "before": "1\n", "after": ""},
                {
                    "filePath": str(folder / "c"),
                    "movePath": str(folder / "d"),
                    "type": "move",
                    "before": "1\n",
                    "after": "2\n",
                },
            ]
        },
    )
    row = call(
        "multiedit",
        {},
        {
            "results": [
                {"filediff": {"file": str(folder / "e"), "before": "1\n", "after": "2\n"}},
                {"filediff": {"file": str(folder / "e"), "before": "2\n", "after": "3\n"}},
            ]
        },
    )
    failed = call("edit", {}, {"filediff": {"file": str(folder / "f"), "before": "1\n", "after": "2\n"}})
    failed["state"]["status"] = "error"
    session = plain.session()
    plain.step(session, plain.prompt(session), lambda _: patch, lambda _: row, lambda _: failed)
    result = {
        diff["file"]: (diff["status"], diff["before"], diff["after"])
        for diff in history_diffs(plain.history(session), plain.snapshots)
    }
    assert result == {
        "a": ("added", "", "1\n"),
        "b": ("deleted", "1\n", ""),
        "c": ("deleted", "1\n", ""),
        "d": ("added", "", "2\n"),
        "e": ("modified", "1\n", "3\n"),
    }


def test_sessions_of_the_real_opencode_have_their_snapshots_where_they_are_looked_for(corpus: Path) -> None:
    store = JsonTree(corpus / "storage")
    spans = [snapshot_range(store.messages(key[-1])) for key in store.list(("session",))]
    assert sum(result is not None for result in spans) >= 10
    assert all(len(snapshot) == 40 for result in spans if result for snapshot in result)


def changed(name: str, before: str, after: str, additions: int, deletions: int, status: str) -> Document:
    return {
        "file": name,
        "before": before,
        "after": after,
        "additions": additions,
        "deletions": deletions,
        "status": status,
    }


_NUMBERS = [f"{number}\n" for number in range(20)]
DIFFS = [
    changed("bin.dat", "", "", 0, 0, "modified"),
    changed("crlf.txt", "", "win\r\nlines\r\n", 2, 0, "added"),
    changed("empty.txt", "", "", 0, 0, "added"),
    changed("gone.txt", "g\n", "", 0, 1, "deleted"),
    changed("large.txt", "", "", 7, 7, "modified"),
    changed("long.txt", "".join(_NUMBERS), "".join([*_NUMBERS[:9], "X\n", *_NUMBERS[10:]]), 1, 1, "modified"),
    changed("nonl.txt", "one", "two", 1, 1, "modified"),
]
PATCHES = {
    "bin.dat": None,
    "crlf.txt": "@@ -0,0 +1,2 @@\n+win\r\n+lines\r\n",
    "empty.txt": "",
    "gone.txt": "@@ -1,1 +0,0 @@\n-g\n",
    "large.txt": None,
    "long.txt": "@@ -1,20 +1,20 @@\n"
    + "".join(f" {line}" for line in _NUMBERS[:9])
    + "-9\n+X\n"
    + "".join(f" {line}" for line in _NUMBERS[10:]),
    "nonl.txt": "@@ -1,1 +1,1 @@\n-one\n\\ No newline at end of file\n+two\n\\ No newline at end of file\n",
}
"""The patches that OpenCode 1.18.34 stores for these changes, without their headers; none for texts that it omits."""


@pytest.mark.parametrize(("source", "patches"), [(V1_18, True), (V1_2, False)], ids=["1.18", "1.2"])
def test_a_database_has_the_changes_of_a_file_in_the_form_of_its_opencode(
    tmp_path: Path, source: Path, patches: bool
) -> None:
    store = open_store(str(empty_database(tmp_path, source).parent))
    sessions = Sessions(store, resolve(tmp_path, store=store))
    session = sessions.create(title="T").id
    record_summary(sessions, session, DIFFS, publish=lambda event: None)
    if not patches:
        assert sessions.diff(session) == DIFFS
        return
    rule = "=" * 67
    for diff, stored in zip(DIFFS, sessions.diff(session), strict=True):
        name, hunks = diff["file"], PATCHES[diff["file"]]
        patch = "" if hunks is None else f"Index: {name}\n{rule}\n--- {name}\t\n+++ {name}\t\n{hunks}"
        rest = {key: diff[key] for key in ("additions", "deletions", "status")}
        assert stored == {"file": name, "patch": patch, **rest}


def test_a_session_of_a_tree_beside_a_database_keeps_both_texts(tmp_path: Path) -> None:
    tree = JsonTree(tmp_path / "storage")
    session = Sessions(tree, resolve(tmp_path)).create(title="T").id
    empty_database(tmp_path)
    store = open_store(str(tmp_path))
    record_summary(Sessions(store, resolve(tmp_path, store=store)), session, DIFFS, publish=lambda event: None)
    assert Sessions(tree, resolve(tmp_path)).diff(session) == DIFFS
