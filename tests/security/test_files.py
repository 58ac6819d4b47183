from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from opensesh.config import Skill, rule
from opensesh.errors import PermissionDeniedError, ToolFailedError
from opensesh.storage.disk import Disk
from opensesh.tools import file_search, path_access, real_files
from opensesh.tools.apply_patch import ApplyPatchTool
from opensesh.tools.edit import EditTool, WriteTool
from opensesh.tools.grep import GrepTool
from opensesh.tools.read import ReadTool
from opensesh.tools.skill import SkillTool
from opensesh.workspace.revert import Reverts

from ..engine.harness import open_harness
from ..tools.bench import Bench

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX files")
OLD = "old text\n" * 2_000


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    (tmp_path / "project").mkdir()
    return Bench(tmp_path / "project")


def patch(*lines: str) -> dict[str, str]:
    return {"patchText": "\n".join(("*** Begin Patch", *lines, "*** End Patch"))}


CHANGES: list[tuple[Any, dict[str, Any]]] = [
    (WriteTool(), {"filePath": "a", "content": "new"}),
    (EditTool(), {"filePath": "a", "oldString": "first", "newString": "1st"}),
    (ApplyPatchTool(), patch("*** Update File: a", "@@", "-first", "+1st")),
]


class FullDisk:
    """Lets writes fail after a number of bytes, as a disk does that fills up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, code: int = errno.ENOSPC) -> None:
        self.room = 1 << 62
        self.code = code
        self._write = os.write
        monkeypatch.setattr(real_files.os, "write", self.write)

    def write(self, descriptor: int, data: Any) -> int:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return self._write(descriptor, data)
        if self.room == 0:
            self.room = 1 << 62  # what is written again afterwards has its place on the disk
            raise OSError(self.code, os.strerror(self.code))
        count = self._write(descriptor, bytes(data)[: self.room])
        self.room -= count
        return count


@pytest.mark.parametrize(("tool", "arguments"), CHANGES)
@pytest.mark.parametrize("links", [1, 2])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
async def test_h4_a_write_that_fails_leaves_the_file_as_it_was(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tool: Any, arguments: dict[str, Any], links: int, code: int
) -> None:
    path = bench.put("a", "first\n" + OLD, seen=True)
    if links == 2:
        os.link(path, bench.path("b"))
    disk = FullDisk(monkeypatch, code)
    disk.room = 2
    with pytest.raises(ToolFailedError, match="cannot be written"):
        await bench.run(tool, **arguments)
    assert Path(path).read_text() == "first\n" + OLD
    assert bench.written == [path], "counts as a write"
    assert sorted(os.listdir(bench.directory)) == ["a", "b"][:links]


@pytest.mark.skipif(shutil.which("mount") is None or os.geteuid() != 0, reason="mounts a small disk")
async def test_h4_a_full_disk_does_not_cost_the_file(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", str(small)], check=False)
    if mounted.returncode != 0:
        pytest.skip("may not mount")
    try:
        bench = Bench(small)
        bench.outputs = Bench(tmp_path).outputs
        path = bench.put("big.txt", "x" * 1_700_000, seen=True)
        with pytest.raises(ToolFailedError, match="No space left"):
            await bench.run(WriteTool(), filePath=path, content="y" * 5_000_000)
        assert Path(path).read_text() == "x" * 1_700_000
        os.link(path, small / "other")
        with pytest.raises(ToolFailedError, match="No space left"):
            await bench.run(WriteTool(), filePath=path, content="y" * 5_000_000)
        assert Path(path).read_text() == "x" * 1_700_000
    finally:
        subprocess.run(["umount", str(small)], check=True)


async def test_h4_what_a_failed_write_destroyed_is_reverted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a").write_text(OLD)
    os.link("a", "b")

    class Broken(Disk):
        def write(self, descriptor: int, data: bytes) -> None:
            super().write(descriptor, b"bad")
            raise OSError(errno.EIO, "the disk is broken")

    script = 'CALL read {"filePath":"a"}\n---\nCALL write {"filePath":"a","content":"new"}\n---\nSAY end'
    async with open_harness(script, rules=[rule("*", "allow")]) as harness:
        with monkeypatch.context() as patched:
            patched.setattr(real_files, "Disk", Broken)
            await harness.ask()
        assert [part["state"]["status"] for part in harness.parts("tool")] == ["completed", "error"]
        assert Path("a").read_text() != OLD
        reverts = Reverts(harness.engine.sessions, harness.engine.components.snapshots)
        reverts.revert(harness.session, str(harness.messages()[0].info["id"]))
    assert Path("a").read_text() == OLD


@pytest.mark.parametrize(("tool", "arguments"), CHANGES)
async def test_h4_l4_mode_links_and_hard_links_are_kept(bench: Bench, tool: Any, arguments: dict[str, Any]) -> None:
    path = bench.put("target", "first\n", seen=True)
    os.chmod(path, 0o754)
    os.symlink("target", bench.path("a"))
    await bench.run(tool, **arguments)
    assert os.readlink(bench.path("a")) == "target"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o754
    assert Path(path).read_text() != "first\n"

    bench.path("a").unlink()
    path = bench.put("a", "first\n", seen=True)
    os.link(path, bench.path("other"))
    await bench.run(tool, **arguments)
    assert os.path.samefile(path, bench.path("other"))
    assert bench.path("other").read_text() != "first\n"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="changes owners")
async def test_h4_the_owner_is_kept(bench: Bench) -> None:
    path = bench.put("a", "first\n", seen=True)
    os.chown(path, 1234, 4321)
    await bench.run(WriteTool(), filePath=path, content="new")
    assert (os.stat(path).st_uid, os.stat(path).st_gid) == (1234, 4321)


@contextmanager
def flipping(folder: Path, link: Path) -> Generator[None]:
    """Keep exchanging a folder and a link, without a moment in which either is missing."""
    exchange = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if exchange is None:
        pytest.skip("needs renameat2")
    done = threading.Event()

    def flip() -> None:
        while not done.is_set():
            exchange(-100, os.fsencode(folder), -100, os.fsencode(link), 2)

    thread = threading.Thread(target=flip)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("name", ["write", "read", "edit", "patch", "delete", "grep", "list"])
async def test_m12_a_folder_that_becomes_a_link_meanwhile_leads_nowhere_else(bench: Bench, name: str) -> None:
    outside = Path(bench.directory).parent / "outside"
    outside.mkdir()
    bench.path("d").mkdir()
    bench.put("d/a", "inside\n", seen=True)
    (outside / "a").write_text("outside\n")
    (outside / "secret-name").touch()
    bench.refuse["external_directory"] = PermissionDeniedError("no", permission="external_directory")
    calls: dict[str, tuple[Any, Callable[[int], dict[str, Any]]]] = {
        "write": (WriteTool(), lambda turn: {"filePath": f"d/new{turn}", "content": "x"}),
        "read": (ReadTool(), lambda turn: {"filePath": "d/a"}),
        "edit": (EditTool(), lambda turn: {"filePath": f"d/edit{turn}", "oldString": "", "newString": "x"}),
        "patch": (ApplyPatchTool(), lambda turn: patch(f"*** Add File: d/patch{turn}", "+x")),
        "delete": (ApplyPatchTool(), lambda turn: patch("*** Delete File: d/a")),
        "grep": (GrepTool(), lambda turn: {"pattern": "outside", "path": "d"}),
        "list": (ReadTool(), lambda turn: {"filePath": "d"}),
    }
    tool, arguments = calls[name]
    bench.path("link").symlink_to(outside)
    with flipping(bench.path("d"), bench.path("link")):
        for turn in range(25 if name == "grep" else 200):
            try:
                output = (await bench.run(tool, **arguments(turn))).output
            except (ToolFailedError, PermissionDeniedError, OSError):
                continue
            assert "outside\n" not in output
            assert "Line 1: outside" not in output
            assert "secret-name" not in output
    assert sorted(path.name for path in outside.iterdir()) == ["a", "secret-name"]
    assert (outside / "a").read_text() == "outside\n"


async def test_m12_a_link_in_the_place_of_a_checked_folder_is_not_followed(bench: Bench) -> None:
    outside = Path(bench.directory).parent / "outside"
    outside.mkdir()
    (outside / "a").write_text("outside\n")
    bench.put("d/a", "inside\n")

    def replace() -> None:
        if not bench.path("real").exists():
            os.rename(bench.path("d"), bench.path("real"))
            os.symlink(outside, bench.path("d"))

    bench.while_asked = replace
    with pytest.raises(ToolFailedError, match="replaced by a link"):
        await bench.run(ReadTool(), filePath="d/a")


async def test_m12_deleting_a_link_outside_that_leads_into_the_project_asks(bench: Bench) -> None:
    bench.put("a", "x\n")
    link = Path(bench.directory).parent / "link"
    link.symlink_to(bench.path("a"))
    await bench.run(ApplyPatchTool(), **patch(f"*** Delete File: {link}"))
    assert bench.patterns("external_directory") == [f"{link.parent}/*"]


async def test_m13_a_patch_obeys_the_rules_about_reading(bench: Bench) -> None:
    bench.put(".env", "KEY=1\n")
    bench.refuse["read"] = PermissionDeniedError("no", permission="read")
    for lines in (
        ("*** Update File: .env", "*** Move to: plain.txt"),
        ("*** Update File: .env", "*** Move to: plain.txt", "@@", "-KEY=1", "+KEY=2"),
        ("*** Update File: .env", "@@", "-KEY=1", "+KEY=2"),
    ):
        with pytest.raises(PermissionDeniedError):
            await bench.run(ApplyPatchTool(), **patch(*lines))
    assert bench.patterns("read")[0] == str(bench.path(".env"))
    assert os.listdir(bench.directory) == [".env"]


async def test_m13_a_patch_asks_about_the_target_of_a_link(bench: Bench) -> None:
    bench.put(".env", "KEY=1\n")
    os.symlink(".env", bench.path("plain"))
    await bench.run(ApplyPatchTool(), **patch("*** Update File: plain", "@@", "-KEY=1", "+KEY=2"))
    assert bench.patterns("read") == [str(bench.path("plain")), str(bench.path(".env"))]


def test_file_tools_compare_the_spelling_of_very_long_paths(bench: Bench) -> None:
    path = str(bench.path("a/" * 3_000 + "b"))
    assert path_access.names(bench, path) == [path]


@pytest.mark.parametrize("name", ["pipe", "zero"])
async def test_file_tools_search_no_special_files(bench: Bench, name: str) -> None:
    os.mkfifo(bench.path("pipe"))
    bench.path("zero").symlink_to("/dev/zero")
    with pytest.raises(ToolFailedError, match="special file"):
        await bench.run(GrepTool(), pattern="x", path=name)


@pytest.mark.parametrize(("name", "offered"), [("plain", True), ("a*", False), ("a?b", False)])
async def test_always_is_offered_for_a_folder_without_wildcards(bench: Bench, name: str, offered: bool) -> None:
    folder = bench.path("..").resolve() / name
    folder.mkdir()
    (folder / "file").write_text("x")
    await bench.run(ReadTool(), filePath=str(folder / "file"))
    (asked,) = [asked for asked in bench.asked if asked.permission == "external_directory"]
    assert asked.patterns == [f"{folder}/*"]
    assert asked.always == ([f"{folder}/*"] if offered else [])


async def test_always_is_offered_for_a_skill_without_wildcards(bench: Bench) -> None:
    bench.skills.list = [Skill("*", "everything", str(bench.path("SKILL.md")), "text")]
    await bench.run(SkillTool(), name="*")
    assert bench.asked[0].always == []


@pytest.fixture
def giant(bench: Bench) -> Path:
    """A file of some gigabytes, which takes no space on the disk."""
    path = bench.path("giant.txt")
    with path.open("wb") as file:
        file.write(b"needle\n")
        file.truncate(8 << 30)
    return path


@pytest.mark.parametrize(("tool", "arguments"), CHANGES)
async def test_m10_a_giant_file_is_not_changed(bench: Bench, giant: Path, tool: Any, arguments: dict[str, Any]) -> None:
    giant.rename(bench.path("a"))
    bench.files.note(str(bench.path("a")))
    with pytest.raises(ToolFailedError, match="too large"):
        await bench.run(tool, **arguments)


def test_m10_a_giant_file_is_searched_line_by_line(bench: Bench, giant: Path) -> None:
    match = file_search.Match(str(giant), 1, "needle")
    assert file_search.confirmed([match], bench.directory, bench.directory) == [match]


async def test_m10_a_giant_file_with_a_byte_order_mark_is_read_line_by_line(bench: Bench) -> None:
    path = bench.path("giant.txt")
    with path.open("wb") as file:
        file.write("\ufefffirst\nsecond\n".encode("utf-16-le"))
        file.truncate(8 << 30)
    result = await bench.run(ReadTool(), filePath=str(path), limit=1)
    assert "1: first" in result.output
