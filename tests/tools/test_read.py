from __future__ import annotations

import base64
import os
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest

from opensesh.errors import PermissionDeniedError, ToolFailedError
from opensesh.records import loads_object
from opensesh.tools.read import ReadTool

from .bench import Bench

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


async def test_the_answer_is_the_one_opencode_stored(bench: Bench, corpus: Path) -> None:
    stored = [
        loads_object(path.read_bytes())["state"]
        for path in sorted(corpus.glob("storage/part/*/*.json"))
        if b'"tool": "read"' in path.read_bytes()
    ]
    completed = next(state for state in stored if state["status"] == "completed")
    path = bench.put("README.md", "hello\n")
    answer = await bench.run(ReadTool(), filePath=path)
    assert answer.output == completed["output"].replace("/srv/dev/eastore/README.md", path)
    assert answer.title == completed["title"]
    assert answer.metadata == completed["metadata"]
    failed = next(state for state in stored if state["status"] == "error")
    with pytest.raises(ToolFailedError) as caught:
        await bench.run(ReadTool(), filePath=failed["input"]["filePath"])
    assert f"Error: {caught.value.message}" == failed["error"]


async def test_long_files_are_read_a_page_at_a_time(bench: Bench) -> None:
    path = bench.put("big.txt", "".join(f"{number}\n" for number in range(1, 3001)))
    first = await bench.run(ReadTool(), filePath=path)
    assert "\n2000: 2000\n\n(The file goes on after line 2000. To read on, use offset 2001)\n</content>" in first.output
    assert first.metadata["truncated"] is True
    assert first.metadata["preview"].split("\n") == [str(number) for number in range(1, 21)]
    last = await bench.run(ReadTool(), filePath=path, offset=2999)
    assert "<content>2999: 2999\n3000: 3000\n3001: \n\n(End of file - total 3001 lines)\n</content>" in last.output
    assert last.metadata["truncated"] is False
    some = await bench.run(ReadTool(), filePath=path, offset="10", limit="2")
    assert "<content>10: 10\n11: 11\n\n(The file goes on after line 11." in some.output


async def test_wide_files_are_cut_by_bytes_and_long_lines_by_characters(bench: Bench) -> None:
    wide = await bench.run(ReadTool(), filePath=bench.put("wide.txt", ("y" * 100 + "\n") * 1500))
    assert "(Cut at 51200 bytes, after line 506. To read on, use offset 507)" in wide.output
    long = await bench.run(ReadTool(), filePath=bench.put("long.txt", "é" * 3000))
    assert "1: " + "é" * 2000 + "...\n" in long.output


async def test_a_line_without_end_takes_no_memory(bench: Bench) -> None:
    path = bench.put("long.txt", "first\n")
    with open(path, "ab") as file:
        file.writelines("é".encode() * (1 << 16) for _ in range(256))
        file.write(b"\nlast")
    tracemalloc.start()
    try:
        answer = await bench.run(ReadTool(), filePath=path)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert f"1: first\n2: {'é' * 2000}...\n3: last\n\n(End of file - total 3 lines)" in answer.output


@pytest.mark.parametrize("offset", [0, -3])
async def test_lines_are_counted_from_one(bench: Bench, offset: int) -> None:
    path = bench.put("a", "x")
    with pytest.raises(ToolFailedError, match=r"`offset` should be a whole number >= 1"):
        await bench.run(ReadTool(), filePath=path, offset=offset)


async def test_an_offset_beyond_the_end_fails_with_the_number_of_lines(bench: Bench) -> None:
    path = bench.put("a", "x\ny\n")
    with pytest.raises(ToolFailedError, match=r"Offset 100 is out of range for this file \(3 lines\)"):
        await bench.run(ReadTool(), filePath=path, offset=100)


async def test_an_empty_file_has_one_empty_line(bench: Bench) -> None:
    answer = await bench.run(ReadTool(), filePath=bench.put("a", ""))
    assert "<content>1: \n\n(End of file - total 1 lines)\n</content>" in answer.output


async def test_directories_are_listed(bench: Bench) -> None:
    bench.put("src/b.py", "")
    bench.put("src/A.py", "")
    bench.put("src/sub/x", "")
    os.symlink(bench.path("src/sub"), bench.path("src/link"))
    answer = await bench.run(ReadTool(), filePath="src")
    listed = (
        f"<path>{bench.path('src')}</path>\n<type>directory</type>\n<entries>\nA.py\nb.py\nlink/\nsub/\n\n(4 entries)"
    )
    assert answer.output == f"{listed}\n</entries>"
    assert answer.metadata == {"preview": "A.py\nb.py\nlink/\nsub/", "truncated": False, "loaded": []}
    page = await bench.run(ReadTool(), filePath="src", offset=2, limit=2)
    assert "<entries>\nb.py\nlink/\n\n(2 of 4 entries. To read on, use offset 4)\n</entries>" in page.output


async def test_images_and_pdfs_are_attached(bench: Bench) -> None:
    answer = await bench.run(ReadTool(), filePath=bench.put("p.png", PNG))
    (attached,) = answer.attachments
    assert attached["mime"] == "image/png"
    assert attached["url"] == "data:image/png;base64," + base64.b64encode(PNG).decode()
    assert (attached["type"], attached["sessionID"], attached["messageID"]) == ("file", "ses_1", "msg_1")
    assert attached["id"].startswith("prt_")
    pdf = await bench.run(ReadTool(), filePath=bench.put("p.pdf", b"%PDF-1.4 x"))
    assert pdf.attachments[0]["mime"] == "application/pdf"


async def test_an_image_is_known_by_what_it_is(bench: Bench) -> None:
    answer = await bench.run(ReadTool(), filePath=bench.put("really.jpg", PNG))
    assert answer.attachments[0]["mime"] == "image/png"
    drawing = await bench.run(ReadTool(), filePath=bench.put("d.svg", "<svg/>"))
    assert "1: <svg/>" in drawing.output


@pytest.mark.parametrize(
    ("name", "content"), [("a.txt", b"a\0b"), ("a.zip", b"PK"), ("a.txt", bytes(range(1, 9)) * 100), ("x.pyc", b"")]
)
async def test_binary_files_are_refused(bench: Bench, name: str, content: bytes) -> None:
    path = bench.put(name, content)
    with pytest.raises(ToolFailedError, match="Cannot read binary file"):
        await bench.run(ReadTool(), filePath=path)


async def test_marks_and_other_encodings_are_understood(bench: Bench) -> None:
    marked = await bench.run(ReadTool(), filePath=bench.put("a", b"\xef\xbb\xbfhello\r\nyou"))
    assert "<content>1: hello\n2: you\n" in marked.output
    wide = await bench.run(ReadTool(), filePath=bench.put("b", "hällo\nyou".encode("utf-16")))
    assert "<content>1: hällo\n2: you\n" in wide.output
    broken = await bench.run(ReadTool(), filePath=bench.put("c", b"caf\xe9\n"))
    assert "1: caf\ufffd" in broken.output


async def test_a_missing_file_has_neighbours(bench: Bench) -> None:
    bench.put("src/a.py", "")
    with pytest.raises(ToolFailedError) as caught:
        await bench.run(ReadTool(), filePath="src/A")
    expected = f"File not found: {bench.path('src/A')}\n\nDid you mean one of these?\n{bench.path('src/a.py')}"
    assert caught.value.message == expected
    with pytest.raises(ToolFailedError, match="File not found"):
        await bench.run(ReadTool(), filePath="nowhere/at/all")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
async def test_what_might_never_end_is_not_read(bench: Bench) -> None:
    os.mkfifo(bench.path("pipe"))
    with pytest.raises(ToolFailedError, match="special file"):
        await bench.run(ReadTool(), filePath="pipe")


async def test_instructions_nearby_are_shown_with_the_file(bench: Bench) -> None:
    bench.instructions.list = [("/p/AGENTS.md", "Be kind.")]
    answer = await bench.run(ReadTool(), filePath=bench.put("a", "x"))
    assert answer.output.endswith(
        "</content>\n\n<system-reminder>\nInstructions from: /p/AGENTS.md\nBe kind.\n</system-reminder>"
    )
    assert answer.metadata["loaded"] == ["/p/AGENTS.md"]


async def test_permission_is_asked_by_path_and_by_where_it_leads(bench: Bench, tmp_path: Path) -> None:
    secret = bench.put("secret.env", "x")
    os.symlink(secret, bench.path("innocent"))
    await bench.run(ReadTool(), filePath="innocent")
    assert bench.patterns("read") == [str(bench.path("innocent")), secret]
    assert "external_directory" not in bench.permissions()


async def test_a_rule_holds_however_a_file_is_spelled_that_is_the_same(bench: Bench) -> None:
    secret = bench.put("secrets/.env", "x")
    bench.path("SECRETS").mkdir(exist_ok=True)
    with suppress(FileExistsError):  # where the file system does not tell the two apart
        os.link(secret, bench.path("SECRETS/.env"))
        os.link(secret, bench.path("SECRETS/.ENV"))
    await bench.run(ReadTool(), filePath="SECRETS/.ENV")
    assert any(name.endswith("/.env") for name in bench.patterns("read"))
    bench.asked.clear()
    bench.put("other.txt", "x")
    await bench.run(ReadTool(), filePath="other.txt")
    assert bench.patterns("read") == [str(bench.path("other.txt"))]


async def test_every_path_that_leads_outside_is_asked_for_first(bench: Bench, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("x")
    os.symlink(outside, bench.path("link"))
    for way in (str(outside / "f"), "../outside/f", "link/f"):
        bench.asked.clear()
        await bench.run(ReadTool(), filePath=way)
        assert bench.permissions() == ["external_directory", "read"]
        assert bench.patterns("external_directory") == [f"{os.path.realpath(outside)}/*"]
    bench.refuse["external_directory"] = PermissionDeniedError("no")
    with pytest.raises(PermissionDeniedError):
        await bench.run(ReadTool(), filePath="link/f")


async def test_the_worktree_is_inside_and_the_file_system_root_is_not(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    bench.worktree = str(tmp_path)
    await bench.run(ReadTool(), filePath=str(tmp_path / "f"))
    assert bench.permissions() == ["read"]
    bench.worktree = "/"
    await bench.run(ReadTool(), filePath=str(tmp_path / "f"))
    assert bench.permissions()[1:] == ["external_directory", "read"]
