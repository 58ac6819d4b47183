from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from opensesh.records import dumps, loads

from .running import Terminal

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "storage"
    shutil.copytree(FIXTURES / "opencode-1.1.65" / "storage", folder)
    return folder


def records(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.json"))}


def test_what_was_exported_comes_back_to_the_byte_and_only_once(
    terminal: Terminal, store: Path, tmp_path: Path
) -> None:
    sessions = terminal.json("list", "--children", "--archived", "--limit", "0", "--store", str(store))["sessions"]
    new = tmp_path / "new" / "storage"
    for entry in sessions:
        file = tmp_path / f"{entry['id']}.json"
        terminal.run("export", entry["id"], "--format", "json", "-o", str(file), "--store", str(store))
        assert terminal.code == 0, terminal.error
        terminal.run("import", str(file), "--store", str(new))
        assert terminal.code == 0, terminal.error
    before, after = records(store), records(new)
    for name, data in after.items():
        if name.startswith(("message", "part")):
            assert before[name] == data
    stored = [name for name in before if name.startswith(("session/", "message/", "part/"))]
    assert {name.split("/")[-1] for name in stored} <= {name.split("/")[-1] for name in after}
    terminal.run("import", str(tmp_path / f"{sessions[0]['id']}.json"), "--store", str(new))
    assert records(new) == after


def test_a_sound_store_has_nothing_to_mend_and_mending_twice_changes_nothing(terminal: Terminal, store: Path) -> None:
    terminal.run("doctor", "--fix", "--store", str(store))
    once = records(store)
    terminal.run("doctor", "--fix", "--store", str(store))
    assert records(store) == once


def test_damage_is_found_quarantined_and_healthy_records_stay(terminal: Terminal, store: Path) -> None:
    part = sorted(store.glob("part/*/*.json"))[3]
    torn = part.read_bytes()[:30]
    part.write_bytes(torn)
    stale = next(path for path in sorted(store.glob("part/*/*.json")) if b'"type": "tool"' in path.read_bytes())
    document = loads(stale.read_bytes())
    document["state"] = {"status": "running", "input": {}, "time": {"start": 1}}
    stale.write_bytes(dumps(document))
    result = terminal.run("doctor", "--store", str(store))
    assert part.name.removesuffix(".json") in result
    healthy = {name: data for name, data in records(store).items() if name.endswith(".json")}
    terminal.run("doctor", "--fix", "--store", str(store))
    kept = records(store)
    lost = {name for name in healthy if name not in kept}
    assert lost <= {str(part.relative_to(store)), *(name for name in lost if name.startswith("session_diff"))}
    assert terminal.run("list", "--store", str(store), "--limit", "0").count("ses_") == 11
