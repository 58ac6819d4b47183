from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opensesh.records import as_object
from opensesh.storage import open_store
from tests.cli.running import Terminal
from tests.history.sample_tree import Sample

ALLOWING = {"permission": "*", "pattern": "*", "action": "allow"}
DENYING = {"permission": "webfetch", "pattern": "*", "action": "deny"}


@pytest.fixture
def export(sample: Sample, terminal: Terminal, tmp_path: Path) -> Path:
    sample.talk("Theirs")
    file = tmp_path / "theirs.json"
    file.write_text(terminal.run("export", "last", "--format", "json"))
    return file


def with_rules(export: Path, **fields: Any) -> dict[str, Any]:
    document = json.loads(export.read_text())
    document["info"] |= fields
    export.write_text(json.dumps(document))
    return document["info"]


def rules_of(sample: Sample, session_id: str) -> object:
    store = open_store(str(sample.root))
    (key,) = [key for key in store.list(("session",)) if key[-1] == session_id]
    return (as_object(store.read(key)) or {}).get("permission")


def test_rules_of_an_imported_session_allow_nothing(sample: Sample, terminal: Terminal, export: Path) -> None:
    info = with_rules(export, id="ses_2222222222222222222222222a", permission=[ALLOWING, DENYING])
    terminal.run("import", str(export), "--keep-paths")
    assert terminal.code == 0, terminal.error
    assert "rules of the session that allow something without asking are left out" in terminal.error
    assert rules_of(sample, info["id"]) == [DENYING]
    terminal.run("import", str(export), "--keep-paths")
    assert rules_of(sample, info["id"]) == [DENYING]


def test_an_import_does_not_change_the_rules_of_a_session_that_exists(
    sample: Sample, terminal: Terminal, export: Path
) -> None:
    own = sample.session("Mine", permission=[ALLOWING])
    sample.prompt(own)
    file = export.with_name("mine.json")
    file.write_text(terminal.run("export", own["id"], "--format", "json"))
    with_rules(file, permission=[DENYING], time={**own["time"], "updated": own["time"]["updated"] + 1000})
    terminal.run("import", str(file), "--keep-paths")
    assert terminal.code == 0, terminal.error
    assert rules_of(sample, own["id"]) == [ALLOWING]
