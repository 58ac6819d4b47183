from __future__ import annotations

import os

import pytest

from opensesh.errors import SnapshotError
from opensesh.workspace import diffs
from opensesh.workspace.diffs import line_counts

from .project_setup import Workspace, git, write


def snapshot(workspace: Workspace) -> str:
    result = workspace.snapshots.track()
    assert result is not None
    return result


def test_files_are_listed_as_opencode_keeps_them(workspace: Workspace) -> None:
    write(workspace.folder, {"edited.txt": "one\ntwo\nthree\n", "gone.txt": "bye\n"})
    before = snapshot(workspace)
    write(workspace.folder, {"edited.txt": "one\n2\nthree\nfour\n", "new.txt": "hi\n"})
    (workspace.folder / "gone.txt").unlink()
    assert workspace.snapshots.diff(before, snapshot(workspace)) == [
        {
            "file": "edited.txt",
            "before": "one\ntwo\nthree\n",
            "after": "one\n2\nthree\nfour\n",
            "additions": 2,
            "deletions": 1,
            "status": "modified",
        },
        {"file": "gone.txt", "before": "bye\n", "after": "", "additions": 0, "deletions": 1, "status": "deleted"},
        {"file": "new.txt", "before": "", "after": "hi\n", "additions": 1, "deletions": 0, "status": "added"},
    ]


def test_the_fields_stand_in_opencodes_order(workspace: Workspace) -> None:
    before = snapshot(workspace)
    write(workspace.folder, {"new.txt": "hi\n"})
    (result,) = workspace.snapshots.diff(before, snapshot(workspace))
    assert list(result) == ["file", "before", "after", "additions", "deletions", "status"]


def test_a_file_that_is_not_text_has_neither_texts_nor_counts(workspace: Workspace) -> None:
    (workspace.folder / "image.png").write_bytes(b"\x89PNG\0\1\2")
    before = snapshot(workspace)
    (workspace.folder / "image.png").write_bytes(b"\x89PNG\0\3\4\5")
    assert workspace.snapshots.diff(before, snapshot(workspace)) == [
        {"file": "image.png", "before": "", "after": "", "additions": 0, "deletions": 0, "status": "modified"}
    ]


def test_a_renamed_file_is_one_that_went_and_one_that_came(workspace: Workspace) -> None:
    before = snapshot(workspace)
    (workspace.folder / "README.md").rename(workspace.folder / "READ.md")
    result = workspace.snapshots.diff(before, snapshot(workspace))
    assert [(diff["file"], diff["status"]) for diff in result] == [("READ.md", "added"), ("README.md", "deleted")]


def test_a_link_is_shown_by_its_target(workspace: Workspace) -> None:
    before = snapshot(workspace)
    (workspace.folder / "README.md").unlink()
    (workspace.folder / "README.md").symlink_to("src/main.py")
    (result,) = workspace.snapshots.diff(before, snapshot(workspace))
    assert (result["before"], result["after"], result["status"]) == ("hello\n", "src/main.py", "modified")


def test_text_in_no_known_encoding_is_shown_as_far_as_it_goes(workspace: Workspace) -> None:
    before = snapshot(workspace)
    (workspace.folder / "latin.txt").write_bytes("café\n".encode("latin-1"))
    (result,) = workspace.snapshots.diff(before, snapshot(workspace))
    assert (result["after"], result["additions"]) == ("caf\ufffd\n", 1)


def test_of_a_very_large_text_only_the_counts_are_kept(workspace: Workspace) -> None:
    before = snapshot(workspace)
    write(workspace.folder, {"large.txt": "line\n" * 300_000, "small.txt": "line\n"})
    large, small = workspace.snapshots.diff(before, snapshot(workspace))
    assert (large["additions"], large["after"]) == (300_000, "")
    assert small["after"] == "line\n"


def test_all_texts_of_one_list_share_a_limit(workspace: Workspace) -> None:
    before = snapshot(workspace)
    write(workspace.folder, {f"{number}.txt": "0123456789" for number in range(4)})
    result = diffs.file_diffs(workspace.snapshots.repository.reader(), before, snapshot(workspace), max_total_bytes=25)
    assert [bool(diff["after"]) for diff in result] == [True, True, False, False]


def test_submodules_are_not_files(workspace: Workspace) -> None:
    link = "160000 commit 0123456789012345678901234567890123456789\tmodule\0"
    with_module = workspace.snapshots.git.run("mktree", "-z", stdin=link.encode()).decode().strip()
    empty = workspace.snapshots.git.run("mktree", "-z", stdin=b"").decode().strip()
    assert workspace.snapshots.diff(empty, with_module) == []
    assert workspace.snapshots.changed(with_module, empty).files == ()


def test_the_text_for_people_is_what_git_shows(workspace: Workspace) -> None:
    before = snapshot(workspace)
    write(workspace.folder, {"README.md": "bye\n"})
    text = workspace.snapshots.text(before, snapshot(workspace))
    assert text == git(workspace.folder, "diff", "HEAD")
    assert text.endswith("-hello\n+bye")


def test_the_users_taste_in_diffs_does_not_change_ours(workspace: Workspace) -> None:
    for name, value in (("diff.external", "false"), ("diff.noprefix", "true"), ("color.ui", "always")):
        git(workspace.folder, "config", "--global", name, value)
    before = snapshot(workspace)
    write(workspace.folder, {"README.md": "bye\n"})
    assert workspace.snapshots.text(before, snapshot(workspace)).startswith("diff --git a/README.md b/README.md\n")


def test_a_snapshot_that_is_gone_cannot_be_compared(workspace: Workspace) -> None:
    with pytest.raises(SnapshotError):
        workspace.snapshots.diff("1" * 40, snapshot(workspace))


@pytest.mark.parametrize(
    ("before", "after", "counts"),
    [
        ("", "", (0, 0)),
        ("a\nb\n", "a\nb\n", (0, 0)),
        ("a\nb\n", "a\nc\nb\n", (1, 0)),
        ("a\nb\nc\n", "a\nc\n", (0, 1)),
        ("a\nb\nc\nd\n", "b\nx\nd\n", (1, 2)),
        ("a" + os.linesep, "b" + os.linesep, (1, 1)),
        ("1\u20282\n", "1\u20283\n", (1, 1)),
        ("", "a", (1, 0)),
        ("a", "", (0, 1)),
        ("a\n", "a", (1, 1)),
        ("a\nb", "a\nb\nc\n", (2, 1)),
    ],
)
def test_lines_are_counted_where_git_cannot(before: str, after: str, counts: tuple[int, int]) -> None:
    assert line_counts(before, after) == counts


def test_lines_of_texts_that_have_nothing_in_common_are_counted_without_waiting() -> None:
    before, after = ("\n".join(f"{word} {number}" for number in range(20_000)) for word in ("old", "new"))
    assert line_counts(before, after) == (20_000, 20_000)
