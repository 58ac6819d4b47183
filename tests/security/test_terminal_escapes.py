from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from opensesh.cli.terminal import EscapingStream, escape_except_colours
from tests.cli.running import Screen, Terminal
from tests.history.sample_tree import Sample

HOSTILE = "/home/x\x1b]52;c;UFdORUQ=\x07\x1b]0;PWNED\x07\x9b31m\u202e\x1b[2J\x7f"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_DANGEROUS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
Start = Callable[..., Screen]


def is_clean(text: str) -> bool:
    without_colours = _COLOURS.sub("", text).replace("\x1b[K", "")
    return _DANGEROUS.search(without_colours) is None


@pytest.fixture
def hostile(sample: Sample) -> str:
    session = sample.session(f"Title {HOSTILE}", directory=HOSTILE, slug=HOSTILE)
    sample.prompt(session, f"Question {HOSTILE}")
    sample.answer(session, f"Answer {HOSTILE}", agent=HOSTILE, modelID=HOSTILE)
    sample.write(("todo", session["id"]), [{"content": HOSTILE, "status": "pending"}])
    sample.write(("project", "proj"), {"id": "proj", "worktree": HOSTILE, "name": HOSTILE})
    (sample.root / "message" / session["id"] / f"msg_{HOSTILE.replace('/', '')}.json").write_text("{")
    return str(session["id"])


@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("list", "--json"),
        ("projects",),
        ("show", "last"),
        ("search", "Answer"),
        ("stats", "--by", "session"),
        ("stats", "--by", "session", "--csv"),
        ("doctor",),
        ("session", "diff", "last"),
        ("session", "revert", "last", "--yes"),
        ("export", "--format", "markdown"),
        ("export", "--format", "jsonl"),
        ("show", HOSTILE),
        ("import", HOSTILE),
        ("tools", HOSTILE),
        (HOSTILE,),
        ("list", "--store", HOSTILE),
        ("run", "--session", HOSTILE, "hi"),
    ],
    ids=lambda words: " ".join("HOSTILE" if word == HOSTILE else word for word in words),
)
def test_m5_l16_no_record_and_no_argument_sends_escapes_to_a_terminal(
    hostile: str, screen: Start, words: tuple[str, ...]
) -> None:
    shown = screen(*words, PAGER="cat")
    shown.end()
    assert shown.raw
    assert is_clean(shown.raw), shown.raw


def test_m5_json_on_a_terminal_stays_json(hostile: str, screen: Start) -> None:
    shown = screen("list", "--json", PAGER="cat")
    shown.end()
    assert json.JSONDecoder().raw_decode(shown.raw)[0]["sessions"][0]["directory"] == HOSTILE.replace("\x7f", "␡")


def test_m5_every_write_to_a_terminal_is_escaped() -> None:
    written = io.BytesIO()
    stream = EscapingStream(io.TextIOWrapper(written, encoding="utf-8", write_through=True))
    stream.write(HOSTILE)
    stream.writelines([HOSTILE, "\n"])
    stream.buffer.write(HOSTILE.encode())
    stream.flush()
    assert is_clean(written.getvalue().decode())


def test_m5_colours_stay_and_other_sequences_do_not() -> None:
    assert escape_except_colours("\x1b[1;31mred\x1b[0m\x1b[2J\ttab\n") == "\x1b[1;31mred\x1b[0m␛[2J\ttab\n"
    for style in ("8", "1;8", "30", "30;40", "38;5;0", "38;2;0;0;0", "7", "28;8"):
        assert "\x1b" not in escape_except_colours(f"\x1b[{style}m")


@pytest.mark.parametrize("command", [["plugins"], ["plugins", "--trust"], ["config", "mcp"]])
def test_m5_no_style_hides_what_a_project_would_run(
    screen: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["sh", "-c", "echo ok \x1b[8m; touch ran\x1b[0m \x1b[30;40m; touch ran"]
    (tmp_path / "opencode.json").write_text(json.dumps({"mcp": {"x": {"type": "local", "command": words}}}))
    shown = screen(*command, PAGER="cat")
    shown.end()
    assert "touch ran" in shown.raw
    assert "\x1b[8m" not in shown.raw
    assert "\x1b[30" not in shown.raw


@pytest.mark.parametrize(
    "title", ['=HYPERLINK("http://evil","x")', "=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", " =1", "\t=1", "＝1"]
)
def test_m6_titles_are_no_formulas_in_csv(sample: Sample, terminal: Terminal, title: str) -> None:
    session = sample.talk(title)
    rows = list(csv.DictReader(io.StringIO(terminal.run("stats", "--by", "session", "--csv"))))
    assert [row["title"] for row in rows if row["session"] == session["id"]] == [f"'{title}"]


def test_m6_names_of_tools_and_models_are_no_formulas_in_csv(sample: Sample, terminal: Terminal) -> None:
    session = sample.session("Work")
    sample.prompt(session)
    sample.tool(sample.answer(session, modelID="=1", providerID="=p"), "=cmd")
    assert "'=cmd" in terminal.run("stats", "--by", "tool", "--csv")
    assert "'=p/=1" in terminal.run("stats", "--by", "model", "--csv")


def test_m5_piped_output_is_left_as_it_is(hostile: str, terminal: Terminal) -> None:
    assert terminal.json("list")["sessions"][0]["directory"] == HOSTILE
    assert HOSTILE in terminal.run("show", "last")
