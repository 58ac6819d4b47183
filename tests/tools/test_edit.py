from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from opensesh.errors import PermissionDeniedError, ToolFailedError
from opensesh.records import loads_object
from opensesh.tools.apply_patch import ApplyPatchTool
from opensesh.tools.bash import BashTool
from opensesh.tools.edit import EditTool, WriteTool
from opensesh.tools.filetimes import FileLocks, FileTimes
from opensesh.tools.glob import GlobTool
from opensesh.tools.grep import GrepTool
from opensesh.tools.read import ReadTool

from .bench import Bench


def stored(corpus: Path, tool: str) -> dict[str, Any]:
    for path in sorted(corpus.glob("storage/part/*/*.json")):
        part = loads_object(path.read_bytes())
        if part["type"] == "tool" and part["tool"] == tool and part["state"]["status"] == "completed":
            return part["state"]
    raise AssertionError(tool)


async def test_an_edit_is_as_opencode_stores_it(bench: Bench, corpus: Path) -> None:
    state = stored(corpus, "edit")
    path = bench.put("README.md", "hello\n", seen=True)
    arguments = {**state["input"], "filePath": path}
    answer = await bench.run(EditTool(), **arguments)
    assert bench.path("README.md").read_text() == state["metadata"]["filediff"]["after"]
    assert answer.output == state["output"]
    assert answer.title == state["title"]
    expected = str(state["metadata"]).replace(state["input"]["filePath"], path)
    assert str(answer.metadata) == expected
    assert bench.written == [path]
    assert bench.asked[0].permission == "edit"
    assert bench.asked[0].patterns == ["README.md"]
    assert bench.asked[0].metadata["diff"] == answer.metadata["diff"]


async def test_a_write_is_as_opencode_stores_it(bench: Bench, corpus: Path) -> None:
    state = stored(corpus, "write")
    path = str(bench.path("new.txt"))
    answer = await bench.run(WriteTool(), content=state["input"]["content"], filePath=path)
    assert bench.path("new.txt").read_text() == state["input"]["content"]
    assert (answer.output, answer.title) == (state["output"], state["title"])
    assert str(answer.metadata) == str(state["metadata"]).replace(state["input"]["filePath"], path)


async def test_a_file_must_have_been_read(bench: Bench) -> None:
    path = bench.put("a", "one")
    for tool, arguments in ((EditTool(), {"oldString": "one", "newString": "two"}), (WriteTool(), {"content": "two"})):
        with pytest.raises(ToolFailedError, match="has not been read"):
            await bench.run(tool, filePath=path, **arguments)
    await bench.run(ReadTool(), filePath=path)
    await bench.run(EditTool(), filePath=path, oldString="one", newString="two")
    await bench.run(WriteTool(), filePath=path, content="three")
    assert bench.path("a").read_text() == "three"


async def test_a_file_that_changed_meanwhile_must_be_read_again(bench: Bench) -> None:
    path = bench.put("a", "one", seen=True)
    bench.put("a", "other one")
    with pytest.raises(ToolFailedError, match="has changed since"):
        await bench.run(EditTool(), filePath=path, oldString="one", newString="two")
    bench.files = FileTimes(required=False)
    await bench.run(EditTool(), filePath=path, oldString="one", newString="two")
    assert bench.path("a").read_text() == "other two"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        (EditTool(), {"filePath": "a", "oldString": "one", "newString": "two"}),
        (WriteTool(), {"filePath": "a", "content": "two"}),
        (EditTool(), {"filePath": "new", "oldString": "", "newString": "two"}),
        (WriteTool(), {"filePath": "new", "content": "two"}),
        (ApplyPatchTool(), {"patchText": "*** Begin Patch\n*** Update File: a\n@@\n-one\n+two\n*** End Patch"}),
        (ApplyPatchTool(), {"patchText": "*** Begin Patch\n*** Add File: new\n+two\n*** End Patch"}),
    ],
)
async def test_what_changes_while_the_user_thinks_is_not_overwritten(
    bench: Bench, tool: EditTool | WriteTool | ApplyPatchTool, arguments: dict[str, Any]
) -> None:
    bench.put("a", "one\n", seen=True)

    def someone_else() -> None:
        if bench.permissions()[-1] == "edit":
            bench.put("a", "one, and mine\n")
            bench.put("new", "mine too\n")

    bench.while_asked = someone_else
    with pytest.raises(ToolFailedError, match="changed in the meantime"):
        await bench.run(tool, **arguments)
    assert bench.path("a").read_text() == "one, and mine\n"
    assert bench.path("new").read_text() == "mine too\n"


async def test_nothing_is_written_that_was_refused(bench: Bench) -> None:
    path = bench.put("a", "one", seen=True)
    bench.refuse["edit"] = PermissionDeniedError("no")
    for tool, arguments in ((EditTool(), {"oldString": "one", "newString": "two"}), (WriteTool(), {"content": "two"})):
        with pytest.raises(PermissionDeniedError):
            await bench.run(tool, filePath=path, **arguments)
    with pytest.raises(PermissionDeniedError):
        await bench.run(WriteTool(), filePath="made/up", content="x")
    assert bench.path("a").read_text() == "one"
    assert not bench.path("made").exists()


async def test_an_empty_old_string_makes_a_file_but_never_overwrites_one(bench: Bench) -> None:
    await bench.run(EditTool(), filePath="new/file.txt", oldString="", newString="a\nb\n")
    assert bench.path("new/file.txt").read_text() == "a\nb\n"
    with pytest.raises(ToolFailedError, match="exists"):
        await bench.run(EditTool(), filePath="new/file.txt", oldString="", newString="c")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("return", "yield", "more than one part"),
        ("missing", "x", "not found"),
        ("same", "same", "nothing to change"),
    ],
)
async def test_what_cannot_be_edited_is_explained(bench: Bench, old: str, new: str, message: str) -> None:
    path = bench.put("a.py", "return 1\nreturn 2\n", seen=True)
    with pytest.raises(ToolFailedError, match=message):
        await bench.run(EditTool(), filePath=path, oldString=old, newString=new)


async def test_all_places_can_be_changed_at_once(bench: Bench) -> None:
    path = bench.put("a.py", "x = x + x\n", seen=True)
    await bench.run(EditTool(), filePath=path, oldString="x", newString="y", replaceAll=True)
    assert bench.path("a.py").read_text() == "y = y + y\n"


async def test_marks_line_ends_and_odd_bytes_stay(bench: Bench) -> None:
    path = bench.put("a", b"\xef\xbb\xbfone\r\ntwo\r\nthr\xe9e\r\nfour\n", seen=True)
    answer = await bench.run(EditTool(), filePath=path, oldString="one\ntwo", newString="1\n2\n2b")
    assert bench.path("a").read_bytes() == b"\xef\xbb\xbf1\r\n2\r\n2b\r\nthr\xe9e\r\nfour\n"
    assert answer.metadata["filediff"]["before"] == "one\r\ntwo\r\nthr\ufffde\r\nfour\n"
    assert (answer.metadata["filediff"]["additions"], answer.metadata["filediff"]["deletions"]) == (3, 2)


async def test_lenient_matches_keep_line_ends_too(bench: Bench) -> None:
    path = bench.put("a", b"def f():\r\n    one\r\n    two\r\nend\r\n", seen=True)
    await bench.run(EditTool(), filePath=path, oldString="one\ntwo\n", newString="    1\n    2\n")
    assert bench.path("a").read_bytes() == b"def f():\r\n    1\r\n    2\r\nend\r\n"


async def test_other_encodings_are_written_as_they_were(bench: Bench) -> None:
    path = bench.put("a", b"\xff\xfe" + "hällo\r\n".encode("utf-16-le"), seen=True)
    await bench.run(EditTool(), filePath=path, oldString="hällo", newString="漢字")
    assert bench.path("a").read_bytes() == b"\xff\xfe" + "漢字\r\n".encode("utf-16-le")


async def test_half_a_utf_16_character_is_kept_as_bytes(bench: Bench) -> None:
    path = bench.put("a", b"\xff\xfea\x00b", seen=True)
    with pytest.raises(ToolFailedError, match="not found in the file"):
        await bench.run(EditTool(), filePath=path, oldString="ab", newString="c")
    assert bench.path("a").read_bytes() == b"\xff\xfea\x00b"


async def test_a_write_keeps_the_mark_and_nothing_else(bench: Bench) -> None:
    path = bench.put("a", b"\xef\xbb\xbfone\r\n", seen=True)
    await bench.run(WriteTool(), filePath=path, content="two\n")
    assert bench.path("a").read_bytes() == b"\xef\xbb\xbftwo\n"


async def test_links_and_modes_survive(bench: Bench) -> None:
    target = bench.put("target", "one", seen=True)
    os.chmod(target, 0o750)
    os.symlink(target, bench.path("link"))
    await bench.run(EditTool(), filePath="link", oldString="one", newString="two")
    assert bench.path("link").is_symlink()
    assert bench.path("target").read_text() == "two"
    assert os.stat(target).st_mode & 0o777 == 0o750
    assert bench.patterns("edit") == ["link", "target"]


async def test_edits_of_one_file_wait_for_each_other(bench: Bench) -> None:
    path = bench.put("a", " ".join(f"w{number}" for number in range(20)), seen=True)
    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(
                bench.run(
                    EditTool(), filePath=path, oldString=f"w{number}", newString=f"W{number:02}", replaceAll=number == 1
                )
                if number != 1
                else bench.run(EditTool(), filePath=path, oldString="w1 ", newString="W01 ")
            )
    assert bench.path("a").read_text() == " ".join(f"W{number:02}" for number in range(20))


async def test_sessions_that_share_locks_wait_for_each_other_too(tmp_path: Path) -> None:
    locks = FileLocks()
    one, other = FileTimes(locks=locks), FileTimes(locks=locks)
    (tmp_path / "f").write_text("")
    os.symlink(tmp_path / "f", tmp_path / "link")
    order: list[str] = []
    async with asyncio.TaskGroup() as group, one.lock(str(tmp_path / "f"), str(tmp_path / "g")):

        async def second() -> None:
            async with other.lock(str(tmp_path / "g"), str(tmp_path / "link")):
                order.append("second")

        group.create_task(second())
        await asyncio.sleep(0.02)
        order.append("first")
    assert order == ["first", "second"]


async def test_directories_and_missing_files_are_not_edited(bench: Bench) -> None:
    bench.path("sub").mkdir()
    with pytest.raises(ToolFailedError, match="is a directory"):
        await bench.run(EditTool(), filePath="sub", oldString="a", newString="b")
    with pytest.raises(ToolFailedError, match="File not found"):
        await bench.run(EditTool(), filePath="gone", oldString="a", newString="b")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
async def test_a_special_file_is_not_opened(bench: Bench) -> None:
    os.mkfifo(bench.path("pipe"))
    patch = "*** Begin Patch\n*** Update File: pipe\n@@\n-a\n+b\n*** End Patch"
    for call in (
        bench.run(WriteTool(), filePath="pipe", content="x"),
        bench.run(EditTool(), filePath="pipe", oldString="a", newString="b"),
        bench.run(ApplyPatchTool(), patchText=patch),
        bench.run(WriteTool(), filePath="/dev/zero", content="x"),
    ):
        with pytest.raises(ToolFailedError, match="special file"):
            await call


async def test_a_path_cannot_hold_a_nul(bench: Bench) -> None:
    for call in (
        bench.run(WriteTool(), filePath="a\0b", content="x"),
        bench.run(ReadTool(), filePath="a\0b"),
        bench.run(GlobTool(), pattern="/a\0/*"),
        bench.run(GrepTool(), pattern="x", path="a\0b"),
        bench.run(GrepTool(), pattern="a\0b"),
        bench.run(BashTool(), command="true", workdir="a\0b"),
    ):
        with pytest.raises(ToolFailedError, match="NUL"):
            await call
    assert not {"external_directory", "read", "edit", "bash"} & set(bench.permissions())


async def test_a_failed_write_is_reported(bench: Bench) -> None:
    bench.put("file", "x")
    with pytest.raises(ToolFailedError, match="cannot be written"):
        await bench.run(WriteTool(), filePath="file/below", content="x")
