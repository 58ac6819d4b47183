from __future__ import annotations

import os
from pathlib import Path

import pytest

from opensesh.errors import PermissionDeniedError, ToolFailedError
from opensesh.tools.apply_patch import ApplyPatchTool

from .bench import Bench


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


async def apply(bench: Bench, *lines: str) -> str:
    return (await bench.run(ApplyPatchTool(), patchText=patch(*lines))).output


async def test_a_patch_adds_updates_moves_and_deletes(bench: Bench) -> None:
    bench.put("src/b.py", "import os\nprint(os)\n")
    bench.put("gone.txt", "x\n")
    bench.put("old.txt", "needle 4\n")
    answer = await bench.run(
        ApplyPatchTool(),
        patchText=patch(
            "*** Add File: added.txt",
            "+hello",
            "+you",
            "*** Update File: src/b.py",
            "@@",
            " import os",
            "-print(os)",
            "+print(os, 1)",
            "*** Delete File: gone.txt",
            "*** Update File: old.txt",
            "*** Move to: sub/new.txt",
            "@@",
            "-needle 4",
            "+needle four",
        ),
    )
    assert answer.output == (
        "Success. Updated the following files:\nA added.txt\nM src/b.py\nD gone.txt\nM sub/new.txt"
    )
    assert answer.title == answer.output
    assert bench.path("added.txt").read_text() == "hello\nyou\n"
    assert bench.path("src/b.py").read_text() == "import os\nprint(os, 1)\n"
    assert bench.path("sub/new.txt").read_text() == "needle four\n"
    assert not bench.path("gone.txt").exists()
    assert not bench.path("old.txt").exists()
    files = answer.metadata["files"]
    assert [file["type"] for file in files] == ["add", "update", "delete", "move"]
    assert files[3]["movePath"] == str(bench.path("sub/new.txt"))
    assert (files[1]["additions"], files[1]["deletions"]) == (1, 1)
    assert files[1]["before"] == "import os\nprint(os)\n"
    assert answer.metadata["diff"].count("Index: ") == 4
    assert bench.patterns("edit") == ["added.txt", "src/b.py", "gone.txt", "old.txt", "sub/new.txt"]
    assert bench.permissions() == ["read", "edit"]
    assert bench.patterns("read") == [str(bench.path("src/b.py")), str(bench.path("old.txt"))]


async def test_nothing_is_touched_if_anything_does_not_fit_or_is_refused(bench: Bench) -> None:
    bench.put("a", "one\n")
    with pytest.raises(ToolFailedError, match="does not contain these lines"):
        await apply(bench, "*** Add File: new", "+x", "*** Update File: a", "@@", "-two", "+three")
    assert not bench.path("new").exists()
    bench.refuse["edit"] = PermissionDeniedError("no")
    with pytest.raises(PermissionDeniedError):
        await apply(bench, "*** Add File: new", "+x", "*** Delete File: a")
    assert not bench.path("new").exists()
    assert bench.path("a").exists()


async def test_a_place_below_a_file_is_found_out_before_anything_is_touched(bench: Bench) -> None:
    bench.put("a", "one\n")
    text = "*** Begin Patch\n*** Update File: a\n@@\n-one\n+two\n*** Add File: a/b/c\n+x\n*** End Patch"
    with pytest.raises(ToolFailedError, match="a is not a directory"):
        await bench.run(ApplyPatchTool(), patchText=text)
    assert bench.path("a").read_text() == "one\n"


async def test_a_failure_reports_what_was_done_before_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def get_in_the_way(path: str) -> None:
        bench.path("b").mkdir(exist_ok=True)

    monkeypatch.setattr(bench, "after_write", get_in_the_way)
    text = "*** Begin Patch\n*** Add File: a\n+x\n*** Add File: b\n+x\n*** Add File: c\n+x\n*** End Patch"
    with pytest.raises(ToolFailedError, match=r"b cannot be written: .* not applied further; done before: a$"):
        await bench.run(ApplyPatchTool(), patchText=text)
    assert not bench.path("c").exists()


async def test_context_and_order_tell_places_apart(bench: Bench) -> None:
    bench.put("a.py", "def f():\n    x\n    return 1\n\ndef g():\n    x\n    return 1\n")
    await apply(bench, "*** Update File: a.py", "@@ def g():", "     x", "-    return 1", "+    return 2")
    assert bench.path("a.py").read_text() == "def f():\n    x\n    return 1\n\ndef g():\n    x\n    return 2\n"
    await apply(bench, "*** Update File: a.py", "@@", "-    x", "+    y", "@@", "-    x", "+    z")
    assert bench.path("a.py").read_text() == "def f():\n    y\n    return 1\n\ndef g():\n    z\n    return 2\n"


async def test_a_chunk_can_be_anchored_to_the_end_of_the_file(bench: Bench) -> None:
    bench.put("a", "x\ny\nx\ny\n")
    await apply(bench, "*** Update File: a", "@@", " x", "-y", "+z", "*** End of File")
    assert bench.path("a").read_text() == "x\ny\nx\nz\n"
    with pytest.raises(ToolFailedError):
        await apply(bench, "*** Update File: a", "@@", "-x", "+q", "*** End of File")


async def test_lines_can_be_added_at_the_end_or_after_a_line(bench: Bench) -> None:
    bench.put("a", "one\ntwo")
    await apply(bench, "*** Update File: a", "@@", "+three")
    assert bench.path("a").read_text() == "one\ntwo\nthree\n"
    await apply(bench, "*** Update File: a", "@@ one", "+one and a half")
    assert bench.path("a").read_text() == "one\none and a half\ntwo\nthree\n"


@pytest.mark.parametrize(
    ("text", "old"),
    [
        ("a  \n", "a"),
        ("   a\n", "a"),
        ("it\u2019s \u201chere\u201d \u2013 now\n", 'it\'s "here" - now'),
        ("a\u00a0b\n", "a b"),
    ],
)
async def test_lines_are_matched_with_looser_and_looser_comparisons(bench: Bench, text: str, old: str) -> None:
    bench.put("f", text)
    await apply(bench, "*** Update File: f", "@@", f"-{old}", "+new")
    assert bench.path("f").read_text() == "new\n"


async def test_an_empty_line_for_the_eye_is_forgiven(bench: Bench) -> None:
    bench.put("f", "a\nb\n")
    await apply(bench, "*** Update File: f", "@@", "-a", "+c", "", "*** Add File: g", "+x")
    assert bench.path("f").read_text() == "c\nb\n"


async def test_line_ends_and_marks_stay(bench: Bench) -> None:
    bench.put("f", b"\xef\xbb\xbfone\r\ntwo\r\nthree\nfour\r\n")
    await apply(bench, "*** Update File: f", "@@", " one", "-two", "+2", "+2b", " three")
    assert bench.path("f").read_bytes() == b"\xef\xbb\xbfone\r\n2\r\n2b\r\nthree\nfour\r\n"


async def test_the_last_line_gets_the_end_that_the_others_have(bench: Bench) -> None:
    bench.put("f", b"one\r\ntwo")
    await apply(bench, "*** Update File: f", "@@", "-one", "+1")
    assert bench.path("f").read_bytes() == b"1\r\ntwo\r\n"


async def test_a_file_under_two_names_is_not_changed_as_if_it_were_two(bench: Bench) -> None:
    bench.put("f", "a\nb\n")
    bench.path("link").symlink_to("f")
    with pytest.raises(ToolFailedError, match="are the same file"):
        await apply(bench, "*** Update File: f", "@@", "-a", "+1", "*** Update File: link", "@@", "-b", "+2")
    assert bench.path("f").read_text() == "a\nb\n"


async def test_a_file_may_give_way_to_a_directory_in_one_patch(bench: Bench) -> None:
    bench.put("f", "a\n")
    await apply(bench, "*** Delete File: f", "*** Add File: f/g", "+x")
    assert bench.path("f/g").read_text() == "x\n"
    with pytest.raises(ToolFailedError, match="is not a directory"):
        await apply(bench, "*** Add File: new", "+x", "*** Add File: new/g", "+x")
    assert not bench.path("new").exists()


async def test_a_file_may_occur_twice(bench: Bench) -> None:
    bench.put("f", "a\nb\n")
    await apply(bench, "*** Update File: f", "@@", "-a", "+c", "*** Update File: f", "@@", " c", "-b", "+d")
    assert bench.path("f").read_text() == "c\nd\n"
    await apply(bench, "*** Delete File: f", "*** Add File: f", "+new")
    assert bench.path("f").read_text() == "new\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("junk", "Invalid patch"),
        (patch(), "empty"),
        (patch("something", "else"), "empty"),
        (patch("*** Delete File: missing"), "does not exist"),
        (patch("*** Update File: missing", "@@", "-a", "+b"), "does not exist"),
        (patch("*** Add File: there", "+x"), "exists"),
        (patch("*** Update File: there", "*** Move to: other", "@@", "-t", "+u"), "exists"),
        (patch("*** Update File: there", "@@ nowhere", "-t", "+u"), "no line like"),
        (patch("*** Add File:", "+x"), "names no file"),
    ],
)
async def test_what_cannot_be_applied_is_explained(bench: Bench, text: str, message: str) -> None:
    bench.put("there", "t\n")
    bench.put("other", "o\n")
    with pytest.raises(ToolFailedError, match=message):
        await bench.run(ApplyPatchTool(), patchText=text)
    assert bench.path("there").read_text() == "t\n"
    assert bench.path("other").read_text() == "o\n"


async def test_a_shells_wrapping_is_taken_off(bench: Bench) -> None:
    for number, form in enumerate(["<<'EOF'\n{}\nEOF", "cat <<EOF\n{}\nEOF\n", "Here it is:\n{}\nDone."]):
        await bench.run(ApplyPatchTool(), patchText=form.format(patch(f"*** Add File: f{number}", "+x")))
        assert bench.path(f"f{number}").read_text() == "x\n"


async def test_every_place_outside_is_asked_for(bench: Bench, tmp_path: Path) -> None:
    bench.put("f", "a\n")
    bench.refuse["external_directory"] = PermissionDeniedError("no")
    outside = [
        ("*** Add File: ../out", "+x"),
        ("*** Update File: f", "*** Move to: ../out", "@@", "-a", "+b"),
    ]
    for lines in outside:
        with pytest.raises(PermissionDeniedError):
            await apply(bench, *lines)
    assert not (tmp_path / "out").exists()
    assert bench.patterns("external_directory") == [f"{os.path.realpath(tmp_path)}/*"] * 2
