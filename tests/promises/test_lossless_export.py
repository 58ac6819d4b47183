from __future__ import annotations

import json
from pathlib import Path

import pytest

from opensesh.storage import open_store
from tests.cli.running import Terminal
from tests.history.sample_tree import Sample

CHANGED = {"file": "a", "before": "", "after": "x", "additions": 1, "deletions": 0}


@pytest.mark.parametrize("diffs", [[CHANGED], []], ids=["a file changed", "no file changed"])
def test_promise_15_an_export_as_json_keeps_todos_and_diffs(
    sample: Sample, terminal: Terminal, tmp_path: Path, diffs: list[dict[str, object]]
) -> None:
    session = sample.talk("Work")["id"]
    todos = [{"content": "c", "status": "pending", "priority": "high", "id": "1"}]
    sample.write(("todo", session), todos)
    sample.write(("session_diff", session), diffs)
    terminal.run("export", session, "--format", "json", "-o", str(tmp_path / "x.json"))
    copy = str(tmp_path / "new" / "storage")
    terminal.run("import", str(tmp_path / "x.json"), "--store", copy)
    assert terminal.code == 0
    assert open_store(copy).read(("todo", session)) == todos
    assert open_store(copy).read(("session_diff", session)) == diffs


@pytest.mark.parametrize("kind", ["session", "message", "part"])
def test_promise_15_the_file_name_is_the_id_in_every_command(sample: Sample, terminal: Terminal, kind: str) -> None:
    session = sample.talk("Nameless")["id"]
    for path in sample.root.joinpath(kind).rglob("*.json"):
        record = json.loads(path.read_text())
        del record["id"]
        path.write_text(json.dumps(record))
    assert session in terminal.run("list")
    assert "Answer 1" in terminal.run("show", session)
    assert "Answer 1" in terminal.run("export", session, "--format", "jsonl")
    (document,) = json.loads(terminal.run("export", session, "--format", "json").join("[]"))
    assert document["info"]["id"] == session
    assert all(message["info"]["id"].startswith("msg_") for message in document["messages"])
    assert session in terminal.run("search", "Answer")
    assert terminal.run("doctor", "--all").count("has no id") == len(list(sample.root.joinpath(kind).rglob("*.json")))
