from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from opensesh.cli import session_diff, session_revert, terminal
from opensesh.cli.main import command_parser
from opensesh.errors import NotFoundError, RevertConflictError, UsageError

from .project_setup import Workspace, contents, creates, deletes, write, writes


class Console:
    """Runs an action as ``opensesh session`` will, on the sessions of a workspace."""

    def __init__(self, workspace: Workspace, capture: pytest.CaptureFixture[str]) -> None:
        self.workspace = workspace
        self._capture = capture
        self.code = 0
        self.errors = ""

    def run(self, action: str, *words: str) -> str:
        options = command_parser("session")[1].parse([action, *words])
        module = session_diff if action == "diff" else session_revert
        self.code = module.run(options, self.workspace.sessions)
        printed = self._capture.readouterr()
        self.errors = printed.err
        return printed.out

    def diff(self, *words: str) -> str:
        return self.run("diff", *words)

    def revert(self, *words: str) -> str:
        return self.run("revert", *words)

    def unrevert(self, *words: str) -> str:
        return self.run("unrevert", *words)


@pytest.fixture
def console(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> Console:
    return Console(workspace, capsys)


def story(workspace: Workspace) -> tuple[str, str, str]:
    session = workspace.session()
    first = workspace.prompt(session)
    workspace.step(session, first, writes({"a.txt": "1\n", "b.txt": "1\n"}))
    second = workspace.prompt(session)
    workspace.step(session, second, writes({"a.txt": "2\n"}), deletes("b.txt", "README.md"))
    return session, first, second


def kept_by(console: Console) -> dict[str, str]:
    folder = console.errors.rstrip("\n").rpartition(" kept in ")[2]
    return contents(Path(folder))


def test_the_diff_is_shown_as_git_shows_it(console: Console) -> None:
    session, first, second = story(console.workspace)
    shown = console.diff(session)
    assert "+++ b/a.txt\n@@ -0,0 +1 @@\n+2\n" in shown
    assert "deleted file mode 100644\n" in shown
    assert "-1\n+2" in console.diff(session, "--message", second)
    assert "README.md" not in console.diff(session, "--message", first)
    with pytest.raises(NotFoundError, match="msg_none"):
        console.diff(session, "--message", "msg_none")


def test_the_diff_can_be_counted_and_read_by_programs(console: Console) -> None:
    session, _, _ = story(console.workspace)
    lines = console.diff(session, "--stat").splitlines()
    assert lines[1].split() == ["+0", "-1", "deleted", "README.md"]
    assert lines[-1] == "2 files, 1 line added, 1 removed"
    result = json.loads(console.diff(session, "--json"))
    assert [item["file"] for item in result] == ["README.md", "a.txt"]


def test_the_diff_of_a_folder_without_git_comes_from_the_tools(
    plain: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(plain, capsys)
    session = plain.session()
    assert (console.diff(session), console.errors) == ("", "No files were changed.\n")
    plain.step(session, plain.prompt(session), creates("a.txt", "one\n"))
    assert "+one\n" in console.diff(session)


def test_when_the_snapshots_are_gone_what_was_stored_is_shown(console: Console) -> None:
    workspace = console.workspace
    session = workspace.session()
    prompt = workspace.prompt(session)
    step = workspace.open_step(session, prompt)
    workspace.part(session, step, {"type": "step-start", "snapshot": "1" * 40})
    workspace.part(session, step, {"type": "step-finish", "snapshot": "2" * 40})
    stored: list[dict[str, Any]] = [
        {"file": "x", "before": "old\n", "after": "new\n", "additions": 1, "deletions": 1, "status": "modified"}
    ]
    workspace.sessions.store.write(("session_diff", session), stored)
    assert "-old\n+new\n" in console.diff(session)
    assert console.errors == "These are the changes stored when the session ran: its snapshots are gone.\n"
    with pytest.raises(NotFoundError, match="were not stored, and its snapshots are gone"):
        console.diff(session, "--message", prompt)


def test_when_the_folder_is_gone_what_was_stored_is_shown(console: Console) -> None:
    workspace = console.workspace
    session = workspace.session()
    prompt = workspace.prompt(session)
    workspace.step(session, prompt, writes({"a.txt": "1\n"}))
    shown = console.diff(session)
    assert console.errors == ""
    shutil.rmtree(workspace.folder)
    with pytest.raises(NotFoundError, match=r"were not stored, and .* does not exist any more"):
        console.diff(session)
    stored: list[dict[str, Any]] = [
        {"file": "a.txt", "before": "", "after": "1\n", "additions": 1, "deletions": 0, "status": "added"},
        {"file": "b.txt", "patch": "--- b.txt\n+++ b.txt\n+newer\n", "additions": 1, "deletions": 0},
    ]
    workspace.sessions.store.write(("session_diff", session), stored)
    assert "+1\n" in shown
    shown = console.diff(session)
    assert "+1\n" in shown
    assert "+newer\n" in shown
    assert (
        console.errors
        == f"These are the changes stored when the session ran: {workspace.folder} does not exist any more.\n"
    )
    assert json.loads(console.diff(session, "--json")) == stored
    assert console.diff(session, "--stat").splitlines()[-1] == "2 files, 2 lines added, 0 removed"


def test_when_the_folder_is_not_a_repository_any_more_what_was_stored_is_shown(console: Console) -> None:
    workspace = console.workspace
    session = workspace.session()
    workspace.step(session, workspace.prompt(session), writes({"a.txt": "1\n"}))
    shutil.rmtree(workspace.folder / ".git")
    with pytest.raises(NotFoundError, match="were not stored, and there are no snapshots outside"):
        console.diff(session)
    stored = [{"file": "a.txt", "before": "", "after": "1\n", "additions": 1, "deletions": 0, "status": "added"}]
    workspace.sessions.store.write(("session_diff", session), stored)
    assert "+1\n" in console.diff(session)
    assert "stored when the session ran: there are no snapshots outside of a git repository" in console.errors


@pytest.mark.parametrize("whole", [None, []])
def test_where_nothing_of_the_whole_was_stored_each_prompt_tells(console: Console, whole: list[Any] | None) -> None:
    workspace = console.workspace
    session = workspace.session()
    stored = [
        {"file": "a.txt", "before": "", "after": "1\n", "additions": 1, "deletions": 0},
        {"file": "a.txt", "patch": "--- a.txt\n+++ a.txt\n-1\n+2\n", "additions": 1, "deletions": 1},
    ]
    for item in stored:
        prompt = workspace.prompt(session)
        workspace.sessions.store.update(
            ("message", session, prompt), lambda info, told=item: info.update(summary={"diffs": [told]})
        )
    if whole is not None:
        workspace.sessions.store.write(("session_diff", session), whole)
    shutil.rmtree(workspace.folder)
    assert json.loads(console.diff(session, "--json")) == stored
    assert console.diff(session, "--stat").splitlines()[-1] == "1 file, 2 lines added, 1 removed"
    shown = console.diff(session)
    assert shown.index("+1\n") < shown.index("-1\n+2\n")


def test_going_back_prompt_by_prompt_and_forth_at_once(console: Console) -> None:
    session, first, _ = story(console.workspace)
    after = contents(console.workspace.folder)
    assert console.revert(session, "--yes") == f"{session} reverted: 3 files changed\n"
    assert contents(console.workspace.folder)["a.txt"] == "1\n"
    console.revert(session, "--yes")
    assert "a.txt" not in contents(console.workspace.folder)
    assert console.workspace.sessions.get(session).document["revert"]["messageID"] == first
    with pytest.raises(NotFoundError, match=f"before its first prompt; 'opensesh session unrevert {session}'"):
        console.revert(session, "--yes")
    assert console.unrevert(session, "--yes") == f"{session} unreverted: 2 files changed\n"
    assert contents(console.workspace.folder) == after
    with pytest.raises(NotFoundError, match="not reverted"):
        console.unrevert(session, "--yes")


def test_a_dry_run_shows_and_touches_nothing(console: Console) -> None:
    session, first, _ = story(console.workspace)
    before = contents(console.workspace.folder)
    assert console.revert(session, "--dry-run").splitlines() == [
        "2 messages would be hidden",
        "  + README.md",
        "  ~ a.txt",
        "  + b.txt",
    ]
    shown = json.loads(console.revert(session, first, "--dry-run", "--json"))
    assert [(item["file"], item["action"]) for item in shown["files"]] == [
        ("README.md", "create"),
        ("a.txt", "delete"),
        ("b.txt", "keep"),
    ]
    assert contents(console.workspace.folder) == before


def test_without_a_terminal_nothing_is_reverted_without_confirmation(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, _, _ = story(console.workspace)
    with pytest.raises(UsageError, match="--yes"):
        console.revert(session)
    monkeypatch.setattr(terminal, "can_ask", lambda: True)
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\ny\n"))
    assert console.revert(session) == ""
    assert console.code == 1
    assert "  ~ a.txt" in console.errors
    assert console.errors.endswith("[y/N] Nothing was changed.\n")
    assert console.workspace.sessions.get(session).revert is None
    console.revert(session)
    assert console.workspace.sessions.get(session).revert is not None


def test_a_conflict_is_named_and_can_be_forced(console: Console) -> None:
    session, _, _ = story(console.workspace)
    write(console.workspace.folder, {"a.txt": "mine\n"})
    with pytest.raises(RevertConflictError, match=r"a\.txt .*--force overwrites"):
        console.revert(session, "--yes")
    console.revert(session, "--yes", "--force")
    assert contents(console.workspace.folder)["a.txt"] == "1\n"
    assert kept_by(console) == {"a.txt": "mine\n"}


def test_what_is_forced_over_after_a_revert_is_kept_and_named(console: Console) -> None:
    session, first, _ = story(console.workspace)
    after = contents(console.workspace.folder)
    console.revert(session, "--yes")
    assert console.errors == ""
    write(console.workspace.folder, {"a.txt": "mine\n", "src/main.py": "not the session's\n"})
    with pytest.raises(RevertConflictError, match="--force overwrites"):
        console.revert(session, first, "--yes")
    console.revert(session, first, "--yes", "--force")
    assert kept_by(console) == {"a.txt": "mine\n"}
    write(console.workspace.folder, {"a.txt": "mine again\n"})
    with pytest.raises(RevertConflictError, match="--force overwrites"):
        console.unrevert(session, "--yes")
    done = json.loads(console.unrevert(session, "--yes", "--force", "--json"))
    assert kept_by(console) == {"a.txt": "mine again\n"} == contents(Path(done["kept"]))
    assert contents(console.workspace.folder) == after | {"src/main.py": "not the session's\n"}


def test_a_session_without_a_prompt_has_nothing_to_go_back_to(console: Console) -> None:
    with pytest.raises(NotFoundError, match="no prompt to revert"):
        console.revert(console.workspace.session(), "--yes")


def test_the_conversation_alone_goes_back_without_asking_about_files(console: Console) -> None:
    session, _, second = story(console.workspace)
    write(console.workspace.folder, {"a.txt": "mine\n"})
    console.revert(session, "--yes", "--keep-files")
    assert contents(console.workspace.folder)["a.txt"] == "mine\n"
    assert console.workspace.sessions.get(session).document["revert"] == {"messageID": second}


def test_files_that_could_not_be_reverted_make_the_command_fail(
    plain: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(plain, capsys)
    write(plain.folder, {"a.txt": "one\n"})
    session = plain.session()
    plain.step(session, plain.prompt(session), creates("a.txt", "two\n"), creates("b.txt", "b\n"))
    console.revert(session, "--yes")
    assert console.code == 1
    assert console.errors.startswith("not reverted: a.txt (")


def test_a_session_whose_folder_is_gone_says_so(console: Console) -> None:
    session, _, _ = story(console.workspace)
    console.workspace.folder.rename(console.workspace.home / "elsewhere")
    with pytest.raises(NotFoundError, match=r"does not exist; .*opensesh session move ses_\w+ FOLDER"):
        console.revert(session, "--yes")
