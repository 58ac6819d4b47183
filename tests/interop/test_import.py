from __future__ import annotations

import json
import subprocess
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from opensesh.cli.main import run
from opensesh.history.import_export.destinations import to_stream
from opensesh.history.import_export.exporting import Export, Selection
from opensesh.history.import_export.import_sources import read_sessions
from opensesh.history.import_export.importing import Importer
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.opencode_db.store import OpencodeDB

from ..history.sample_tree import Json, Sample
from .opencode import DATABASE, JSON_FILES, OpenCode

pytestmark = pytest.mark.interop

FIXTURES = Path(__file__).parents[1] / "fixtures"
NOWHERE = "http://127.0.0.1:9/v1"
CHOSEN = (
    "ses_e1f505ae8ffev56KO8VQGT1kHX",  # tools, reasoning, a failure
    "ses_e1f503e11ffeoFX2kmqVZc0QVn",  # compaction
    "ses_e1f503c12ffe9hysFnD2O0iqAc",  # attachments
    "ses_e1f5053f7ffePoPBsHEwUL9uqE",  # an error
)


def exported(session: str, form: str, path: Path) -> dict[str, Any]:
    stream = BytesIO()
    store = JsonTree(FIXTURES / "opencode-1.1.65" / "storage")
    to_stream(Export(store, Selection(ids=(session,)), form), stream, lambda done, total: None)
    path.write_bytes(stream.getvalue())
    return json.loads(stream.getvalue())


@pytest.mark.parametrize(
    ("version", "form", "sessions"),
    [
        (JSON_FILES, "json", CHOSEN),
        (DATABASE, "opencode", CHOSEN[:2]),
        pytest.param(JSON_FILES, "opencode", CHOSEN, marks=pytest.mark.slow),
        pytest.param(DATABASE, "opencode", CHOSEN[2:], marks=pytest.mark.slow),
        pytest.param(DATABASE, "json", CHOSEN, marks=pytest.mark.slow),
    ],
)
def test_opencode_imports_what_opensesh_exports(
    tmp_path: Path, version: str, form: str, sessions: tuple[str, ...]
) -> None:
    opencode = OpenCode(tmp_path / "opencode", NOWHERE, version=version)
    for session in sessions:
        document = exported(session, form, tmp_path / "x.json")
        assert opencode.import_file(tmp_path / "x.json") == f"Imported session: {session}\n"
        again = opencode.export(session)
        assert again["info"]["title"] == document["info"]["title"]
        assert [_gist(message) for message in again["messages"]] == [_gist(item) for item in document["messages"]]
        if version == JSON_FILES:
            assert again["messages"] == document["messages"]


def _gist(message: dict[str, Any]) -> Any:
    """What must survive any import: who, when, how much, and what was said and done."""
    info = message["info"]
    parts = [(part["id"], part["type"], part.get("text"), part.get("state")) for part in message["parts"]]
    return info["id"], info["role"], info["time"], info.get("tokens"), info.get("cost"), parts


def test_a_stranded_tree_of_any_vintage_is_rescued_into_the_newest_opencode(tmp_path: Path) -> None:
    opencode = OpenCode(tmp_path / "opencode", NOWHERE, version=DATABASE)
    sample = Sample(tmp_path / "stranded")
    where = str(opencode.directory)
    whole = sample.talk("Whole", directory=where)
    child = sample.talk("Child", parent=whole["id"], directory=where)
    started = 1_750_000_000_000
    old: Json = {"id": "ses_0000000000001oldoldoldoldo", "title": "Old", "time": {"created": started}}
    sample.write(("session", "proj", old["id"]), old | {"directory": where})
    sample.write(("message", old["id"], "msg_1"), {"id": "msg_1", "role": "user", "time": {"created": started + 1}})
    answer = {
        "id": "msg_2",
        "role": "assistant",
        "time": {"created": started + 2.5},
        "system": ["gone since"],
        "error": {"name": "Unknown", "message": "flat"},
        "mode": "build",
    }
    sample.write(("message", old["id"], "msg_2"), answer)
    parts: list[Json] = [
        {"type": "text"},
        {"type": "reasoning", "text": "hm"},
        {"type": "tool", "tool": "bash", "state": {"status": "completed", "input": {}, "output": "x"}},
        {"type": "tool", "tool": "bash", "state": {"status": "pending"}},
        {"type": "tool", "tool": "bash", "state": {"status": "nonsense"}},
        {"type": "step-finish"},
        {"type": "snapshot"},
        {"type": "patch"},
        {"type": "file"},
        {"type": "agent"},
        {"type": "subtask"},
        {"type": "retry"},
        {"type": "compaction"},
        {"type": "from-the-future", "data": 1},
    ]
    for number, part in enumerate(parts):
        sample.write(("part", "msg_2", f"prt_{number:02d}"), part | {"id": f"prt_{number:02d}"})

    folder = tmp_path / "rescued"
    assert run(["export", "--format", "opencode", "--split", str(folder), "--store", str(sample.root)]) == 0
    script = ["sh", str(folder / "import.sh")]
    environment = opencode.environment | {"PATH": f"{opencode.binary.parent}:{opencode.environment['PATH']}"}
    for _ in range(2):  # the second time changes nothing
        done = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("Imported session: ") == 3
    with OpencodeDB(opencode.database) as store:
        assert {key[-1] for key in store.list(("session",))} == {whole["id"], child["id"], old["id"]}
        assert len(store.messages(whole["id"])) == 4
        assert len(store.messages(old["id"])[1].parts) == len(parts)
    assert {item["title"] for item in opencode.session_list()} == {"Whole", "Old"}


def test_opencode_shows_what_opensesh_imported_into_its_database(tmp_path: Path) -> None:
    opencode = OpenCode(tmp_path / "opencode", NOWHERE, version=DATABASE)
    opencode.session_list()  # makes the database
    with OpencodeDB(opencode.database) as store:
        results = Importer(store).take(read_sessions(str(FIXTURES / "opencode-1.1.65" / "storage")))
    assert {result.act for result in results} == {"added"}
    with opencode:
        for session in CHOSEN:
            document = exported(session, "json", tmp_path / "x.json")
            assert opencode.get(session)["title"] == document["info"]["title"]
            shown = opencode.messages(session)
            assert [_gist(message) for message in shown] == [_gist(item) for item in document["messages"]]
    assert opencode.export(CHOSEN[0])["info"]["id"] == CHOSEN[0]


@pytest.mark.parametrize("version", [JSON_FILES, DATABASE])
def test_opensesh_imports_what_opencode_exports(tmp_path: Path, version: str) -> None:
    opencode = OpenCode(tmp_path / "opencode", NOWHERE, version=version)
    exported(CHOSEN[0], "json", tmp_path / "x.json")
    opencode.import_file(tmp_path / "x.json")
    theirs = opencode.export(CHOSEN[0])
    (tmp_path / "theirs.json").write_text(json.dumps(theirs))
    tree = JsonTree(tmp_path / "ours")
    for act in ("added", "unchanged"):
        [done] = Importer(tree).take(read_sessions(str(tmp_path / "theirs.json")))
        assert done.act == act
    ours = [{"info": message.info, "parts": message.parts} for message in tree.messages(CHOSEN[0])]
    assert ours == theirs["messages"]
