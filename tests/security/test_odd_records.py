from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, cast

import pytest

from opensesh.cli.main import run
from opensesh.errors import OpenseshError
from opensesh.history.library import Library
from opensesh.storage import open_store
from tests.cli.running import Terminal
from tests.history.sample_tree import Sample

ODD_NUMBERS: tuple[Any, ...] = (
    1e308,
    -1e308,
    10**400,
    -(10**400),
    2**63,
    2**64,
    1e20,
    -1,
    0.5,
    True,
    None,
    "x",
    [],
    {},
    9e15,
)
ODD_IDS: tuple[Any, ...] = (
    "../../../x",
    "a/b",
    "",
    "CON",
    "\ufffe",
    "x" * 300,
    "ses_\u0000",
    "\ud800",
    None,
    7,
    [],
    {},
    "\x1b]0;x\x07",
)
ODD_TEXTS: tuple[Any, ...] = (None, 7, [], {}, [{}], True, "\ud800", "\x00\x1b[2J", "x" * 5000, {"$ref": "#"})
COMMANDS = (
    ("list",),
    ("list", "--json"),
    ("list", "--limit", "0", "--children", "--archived"),
    ("projects",),
    ("projects", "--json"),
    ("show", "last"),
    ("show", "last", "--json"),
    ("show", "last", "--context"),
    ("search", "Answer"),
    ("search", "Answer", "--json"),
    *(("stats", "--by", by) for by in ("day", "month", "project", "model", "agent", "tool", "session")),
    ("stats", "--json"),
    ("stats", "--bytes"),
    ("stats", "--csv", "--by", "session"),
    *(("export", "--format", name) for name in ("json", "jsonl", "prompts")),
    *(("export", "--format", name, "--split", "out", "--restart") for name in ("markdown", "html")),
    ("doctor",),
    ("doctor", "--json"),
    ("session", "trash"),
)
EXIT_CODES = {"doctor": (0, 1, 5), "show": (0, 3, 5)}


@pytest.fixture(autouse=True)
def folder_for_exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    members: Any = ()
    if isinstance(value, (dict, list)):
        members = cast("Any", value).items() if isinstance(value, dict) else enumerate(cast("Any", value))
    for key, item in members:
        yield from paths_in(item, (*path, key))


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    document = deepcopy(document)
    inner: Any = document
    for key in path[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return document


def mutations(document: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    for path in paths_in(document):
        if path:
            yield path, ...
        for value in (*ODD_NUMBERS, *ODD_IDS, *ODD_TEXTS):
            yield path, value


def make(sample: Sample) -> dict[str, Any]:
    sample.talk("Healthy")
    session = sample.session(
        "Odd", share={"url": "https://example.com/s"}, summary={"additions": 1, "deletions": 2, "files": 3}
    )
    prompt = sample.prompt(session, "Question")
    answer = sample.answer(session, "Answer")
    sample.tool(answer, "bash", input={"command": "ls"}, output="x", time={"start": 1, "end": 2})
    sample.part(answer, type="step-finish", reason="stop", cost=0.5, tokens={"input": 1, "output": 1})
    sample.write(("todo", session["id"]), [{"content": "c", "status": "pending", "priority": "high"}])
    files: dict[str, Any] = {}
    for kind in ("session", "message", "part", "todo", "project"):
        for path in sorted((sample.root / kind).rglob("*.json")):
            if (
                session["id"] in str(path)
                or kind == "project"
                or prompt["id"] in str(path)
                or answer["id"] in str(path)
            ):
                files[str(path)] = json.loads(path.read_bytes())
    return files


def every_mutation(files: dict[str, Any]) -> list[tuple[str, tuple[Any, ...], Any]]:
    return [(path, location, value) for path, document in files.items() for location, value in mutations(document)]


def check(terminal: Terminal, mutation: str) -> None:
    for words in COMMANDS:
        shutil.rmtree("out", ignore_errors=True)
        output = terminal.run(*words)
        context = f"{mutation}: {' '.join(words)}: {terminal.error}"
        assert "internal error" not in terminal.error, context
        assert "Traceback" not in terminal.error, context
        assert terminal.code in EXIT_CODES.get(words[0], (0,)), context
        if words[0] == "list" and "Odd" not in output:
            assert "Healthy" in output, context


def check_library(root: Path, mutation: str) -> None:
    library = Library(str(root))
    for entry in library.sessions():
        try:
            assert entry.totals.messages >= 0
            _ = entry.inclusive_cost, entry.first_prompt, entry.last_prompt, entry.origin, entry.origins
            list(entry.children())
            entry.transcript(children=True)
        except OpenseshError:
            raise
        except Exception as error:
            raise AssertionError(f"{mutation}: {error!r}") from error


def attack(sample: Sample, terminal: Terminal, number: int | None) -> None:
    files = make(sample)
    chosen = every_mutation(files)
    random.Random(14).shuffle(chosen)
    for path, location, value in chosen[:number]:
        mutation = f"{Path(path).relative_to(sample.root)} {location} = {str(value)[:50]!r}"
        document = changed(files[path], location, value)
        Path(path).write_text(json.dumps(document), encoding="utf-8")
        check(terminal, mutation)
        check_library(sample.root, mutation)
        Path(path).write_text(json.dumps(files[path]), encoding="utf-8")


def test_h6_odd_records_take_no_command_down(
    sample: Sample, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack(sample, terminal, 25)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_h6_no_odd_record_takes_any_command_down(
    sample: Sample, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack(sample, terminal, None)


FOUND: list[tuple[str, tuple[str, ...], Any]] = [
    *(("session", ("id",), value) for value in ODD_IDS),
    ("session", ("projectID",), "../../x"),
    *(("session", ("directory",), value) for value in ("x" * 5000, "ses_\0", "\ud800", "/\udcff/x")),
    *(("session", ("time", "updated"), value) for value in (1e308, 10**400)),
    *(("message", ("tokens", "input"), value) for value in (10**400, "x")),
    *(("message", ("cost",), value) for value in (1e308, 10**400)),
    *(("message", ("time", "created"), value) for value in (1e308, 10**400)),
    ("message", ("id",), ...),
    ("message", ("modelID",), []),
    ("message", ("agent",), [[]]),
]


@pytest.mark.parametrize(
    ("kind", "place", "value"), FOUND, ids=lambda value: str(value)[:20].encode("ascii", "replace").decode()
)
def test_h6_what_was_found_to_take_commands_down(
    sample: Sample, terminal: Terminal, kind: str, place: tuple[str, ...], value: Any
) -> None:
    files = make(sample)
    path = [name for name in files if f"/{kind}/" in name][-1]
    Path(path).write_text(json.dumps(changed(files[path], place, value)), encoding="utf-8")
    check(terminal, f"{kind} {place}")
    check_library(sample.root, f"{kind} {place}")
    session = Path(path).stem if kind == "session" else Path(path).parent.name
    terminal.run("session", "fork", session)
    assert terminal.code in (0, 5), terminal.error
    assert "internal error" not in terminal.error
    terminal.run("session", "remove", session, "--yes")
    assert (terminal.code, "internal error" in terminal.error) == (0, False), terminal.error


@pytest.mark.parametrize("value", [10**400, 1e308, -1, "x"], ids=["long", "large", "negative", "text"])
def test_h6_an_impossible_time_of_a_tool_call_is_not_counted(sample: Sample, terminal: Terminal, value: Any) -> None:
    files = make(sample)
    path = next(name for name, document in files.items() if "/part/" in name and document["type"] == "tool")
    Path(path).write_text(json.dumps(changed(files[path], ("state", "time", "end"), value)), encoding="utf-8")
    check(terminal, f"tool time {value}")


def test_h6_an_import_reports_numbers_that_cannot_be(sample: Sample, terminal: Terminal, tmp_path: Path) -> None:
    sample.talk("Healthy")
    session = {"id": "ses_x", "title": "Odd", "time": {"created": 1, "updated": 1e308}}
    (tmp_path / "x.json").write_text(json.dumps({"info": session, "messages": []}))
    terminal.run("import", str(tmp_path / "x.json"))
    assert "$.time.updated" in terminal.error
    assert "Odd" in terminal.run("list")
    assert "$.time.updated" in terminal.run("doctor")


def test_h6_the_python_api_reads_odd_sessions(sample: Sample, tmp_path: Path) -> None:
    session = sample.talk("Odd")
    path = sample.path("session", "proj", session["id"])
    path.write_text(json.dumps(session | {"id": "../x", "time": {"created": 10**400, "updated": 1e308}}))
    copy = tmp_path / "copy" / "storage"
    shutil.copytree(sample.root, copy)
    (entry,) = Library(str(copy)).sessions()
    assert (entry.id, entry.created, entry.updated, entry.messages) == (session["id"], 0, 0, 4)
    assert open_store(str(copy)).read(("session", "proj", session["id"]))["id"] == "../x"
    assert run(["list", "--store", str(copy)]) == 0
