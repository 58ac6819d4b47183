from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from opensesh.cli.main import run

from ..history.sample_tree import Sample

PAGE = (Path(__file__).parents[2] / "docs" / "history.md").read_text()
COMMANDS = [
    line.removeprefix("$ opensesh ").split("  #")[0].strip()
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    data = tmp_path / "share"
    monkeypatch.setenv("XDG_DATA_HOME", str(data))
    sample = Sample(data / "opencode" / "storage")
    for number in range(3):
        session = sample.talk(f"Fix the parser error {number}")
        sample.tool(sample.messages(session)[1], "read", input={"filePath": "/srv/dev/shop/total.py"})
        sample.tool(sample.messages(session)[1], "bash", output="a parser error while parsing")
    work, other = tmp_path / "work", tmp_path / "other"
    work.mkdir()
    other.mkdir()
    for title in ("Write the notes", "Read the notes"):
        sample.talk(title, project="global", directory=str(work))
    sample.session("never used")
    fixture = Path(__file__).parents[1] / "fixtures" / "opencode-1.18.33" / "opencode.db"
    shutil.copy(fixture, other)
    monkeypatch.chdir(work)
    return work


def test_every_command_of_the_page_works_in_the_order_it_stands(
    home: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("duckdb")
    assert len(COMMANDS) > 45
    for command in COMMANDS:
        out = b""
        for word in command.split(" | opensesh "):
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(out)))
            code = run(shlex.split(word))
            sys.stdout.flush()
            out, error = capfdbinary.readouterr()
            assert code == 0, (command, out.decode(), error.decode())
            assert out or error, command
    for name in ("pages/index.html", "all.jsonl", "shop.json", "all.parquet", "rescued/import.sh"):
        assert os.path.getsize(name) > 0
    assert list(Path("traces").glob("ses_*.jsonl"))


def test_every_command_that_the_page_is_about_is_on_it() -> None:
    text = {command.split()[0] for command in COMMANDS}
    assert text == {"list", "projects", "show", "search", "stats", "export", "import", "session", "doctor"}


def test_the_python_of_the_page_works(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "history.md", "exec"), {})
    assert "Fix the parser error 2 4 0.5" in capsys.readouterr().out
