from __future__ import annotations

import json
import os
import re
import sqlite3
import sys
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from opensesh.errors import NotFoundError, OpenseshError, UsageError
from opensesh.history.formats import FORMATS, FormatOptions, find_format
from opensesh.history.import_export.destinations import export_fingerprint, to_file, to_folder, to_stream
from opensesh.history.import_export.exporting import MAX_MESSAGES_AT_ONCE, Export, Selection, read_messages
from opensesh.history.stats.session_usage import SessionInfo
from opensesh.redaction import Redactor
from opensesh.storage import open_store
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.protocol import Damage, Store

from .sample_tree import Sample

FIXTURES = Path(__file__).parents[1] / "fixtures"
TREE = FIXTURES / "opencode-1.1.65" / "storage"
PARENT, CHILD = "ses_e1f50577fffejV6VGQt622W6kl", "ses_e1f505771ffeo3ptRkUuHl1Hjm"
BUSY = "ses_e1f505ae8ffev56KO8VQGT1kHX"


def silent(done: int, total: int) -> None:
    assert 0 < done <= total


def written(store: Store, form: str, selection: Selection | None = None, **options: Any) -> bytes:
    stream = BytesIO()
    to_stream(Export(store, selection or Selection(), form, FormatOptions(**options)), stream, silent)
    return stream.getvalue()


@pytest.fixture
def store() -> JsonTree:
    return JsonTree(TREE)


# -- one line a session -------------------------------------------------------------------------------------------


def iso(moment: int) -> str:
    return datetime.fromtimestamp(moment / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_by_hand(storage: Path, session: dict[str, Any]) -> dict[str, Any]:
    """What a line should say, from the raw files and nothing else."""
    infos = [json.loads(path.read_bytes()) for path in (storage / "message" / session["id"]).glob("*.json")]
    parts = {
        info["id"]: [json.loads(path.read_bytes()) for path in sorted((storage / "part" / info["id"]).glob("*.json"))]
        for info in infos
    }
    return expected_line(session, sorted(infos, key=lambda info: info["time"]["created"]), parts)


def read_rows_by_hand(database: Path) -> list[dict[str, Any]]:
    """The same, from the rows of a database and nothing else."""
    connection = sqlite3.connect(database)
    lines: list[dict[str, Any]] = []
    for name, project, created, updated in connection.execute(
        "SELECT id, project_id, time_created, time_updated FROM session"
    ):
        rows = connection.execute(
            "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id", (name,)
        )
        infos = [{"id": message} | json.loads(data) for message, data in rows]
        expected = "SELECT data FROM part WHERE message_id = ? ORDER BY id"
        parts = {
            info["id"]: [json.loads(data) for (data,) in connection.execute(expected, (info["id"],))] for info in infos
        }
        session = {"id": name, "projectID": project, "time": {"created": created, "updated": updated}}
        lines.append(expected_line(session, infos, parts))
    connection.close()
    return lines


def expected_line(
    session: dict[str, Any], infos: list[dict[str, Any]], every: dict[str, list[dict[str, Any]]]
) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for info in infos:
        parts = every[info["id"]]
        thoughts = [
            {"subject": "Thinking", "description": part["text"], "timestamp": iso(part["time"]["start"])}
            for part in parts
            if part["type"] == "reasoning"
        ]
        messages.append(
            {
                "role": info["role"],
                "timestamp": iso(info["time"]["created"]),
                "model": info.get("modelID"),
                "content": "".join(part["text"] for part in parts if part["type"] == "text"),
                "thoughts": thoughts,
                "tokens": info.get("tokens"),
            }
        )
    return {
        "session_id": session["id"],
        "project_hash": session["projectID"],
        "start_time": iso(session["time"]["created"]),
        "last_updated": iso(session["time"]["updated"]),
        "source": "opencode",
        "messages": messages,
    }


def assert_same_lines(exported: bytes, expected: list[dict[str, Any]]) -> None:
    """Field by field: values, names and their order."""
    lines = {line["session_id"]: line for line in map(json.loads, exported.decode().splitlines())}
    assert lines.keys() == {line["session_id"] for line in expected}
    for theirs in expected:
        ours = lines[theirs["session_id"]]
        assert ours == theirs
        assert list(ours) == list(theirs)
        for text, received in zip(ours["messages"], theirs["messages"], strict=True):
            assert list(text) == list(received)
            assert [list(thought) for thought in text["thoughts"]] == [list(item) for item in received["thoughts"]]


@pytest.mark.parametrize("corpus", ["opencode-1.1.65", "id-wrap"])
def test_a_line_a_session_as_the_raw_files_have_it(corpus: str) -> None:
    storage = FIXTURES / corpus / "storage"
    sessions = [json.loads(path.read_bytes()) for path in storage.glob("session/*/*.json")]
    assert_same_lines(written(JsonTree(storage), "jsonl"), [read_by_hand(storage, session) for session in sessions])


@pytest.mark.parametrize("corpus", ["opencode-1.2", "opencode-1.18.33"])
def test_a_line_a_session_as_the_raw_rows_have_it(corpus: str) -> None:
    database = FIXTURES / corpus / "opencode.db"
    assert_same_lines(written(open_store(str(database)), "jsonl"), read_rows_by_hand(database))


def test_the_database_of_the_same_afternoon_gives_the_same_lines(store: JsonTree) -> None:
    database = open_store(str(FIXTURES / "opencode-1.2" / "opencode.db"))
    assert written(database, "jsonl") == written(store, "jsonl")


def test_tools_are_left_out_or_compacted_in_a_line(store: JsonTree) -> None:
    [skipped] = written(store, "jsonl", Selection(ids=(BUSY,)), tools="skip").splitlines()
    assert "[bash]" not in skipped.decode()
    [summed] = written(store, "jsonl", Selection(ids=(BUSY,)), tools="summary").splitlines()
    contents = [message["content"] for message in json.loads(summed)["messages"]]
    assert contents[1] == "I will read the file.\n[read] /srv/dev/eastore/README.md\n"
    assert contents[2] == "[bash] echo hi; ls\n[write] /srv/dev/eastore/new.txt\n"
    assert "[read] /nonexistent: Error: File not found" in contents[3]


def test_an_invalid_time_affects_only_itself(sample: Sample) -> None:
    odd, other = sample.talk("Odd"), sample.talk("Other")
    path = sample.root / "session" / "proj" / f"{odd['id']}.json"
    path.write_text(re.sub(r'"updated": ?\d+', '"updated": 1e999', path.read_text()))
    lines = [json.loads(line) for line in written(JsonTree(sample.root), "jsonl").splitlines()]
    assert {line["session_id"] for line in lines} == {odd["id"], other["id"]}


def test_odd_records_still_make_valid_lines(sample: Sample) -> None:
    session = sample.session(time={"created": 5})
    message = sample.prompt(session)
    sample.part(message, type="text", text=None)
    sample.part(message, type="text", text='quotes " and \u2028 and \ud83d\ude00')
    sample.part(message, type="reasoning", text="why", metadata={"subject": "Plan"})
    sample.write(("session", "proj", "ses_old"), {"id": "ses_old", "time": {"created": 7, "updated": None}})
    lines = [json.loads(line) for line in written(JsonTree(sample.root), "jsonl").splitlines()]
    assert [line["session_id"] for line in lines] == [session["id"], "ses_old"]
    assert lines[0]["last_updated"] == lines[0]["start_time"] == "1970-01-01T00:00:00.005Z"
    [thought] = lines[0]["messages"][0]["thoughts"]
    assert (thought["subject"], thought["timestamp"]) == ("Plan", lines[0]["messages"][0]["timestamp"])
    assert lines[0]["messages"][0]["content"].endswith('quotes " and \u2028 and \U0001f600')
    assert lines[1]["project_hash"] == "proj"


# -- as OpenCode exports it ---------------------------------------------------------------------------------------


def test_json_is_what_opencodes_own_server_answers(store: JsonTree) -> None:
    api = json.loads((FIXTURES / "opencode-1.1.65" / "api.json").read_text())
    asked = [path.split("/")[2] for path in api if path.endswith("/message")]
    for session in asked:
        document = json.loads(written(store, "json", Selection(ids=(session,))))
        assert document["messages"] == api[f"/session/{session}/message"]
        assert document["info"] in api["/session"]


def test_json_is_indented_as_opencode_prints_it(store: JsonTree) -> None:
    text = written(store, "json", Selection(ids=(BUSY,))).decode()
    assert text == json.dumps(json.loads(text), indent=2, ensure_ascii=False) + "\n"


def test_several_sessions_make_an_array_and_one_stands_alone(store: JsonTree, sample: Sample) -> None:
    assert len(json.loads(written(store, "json"))) == 13
    empty = sample.session()
    document = json.loads(written(JsonTree(sample.root), "json"))
    assert document == {"info": empty, "messages": []}
    assert json.loads(written(JsonTree(sample.root), "json", Selection(since=empty["time"]["updated"] + 1))) == []


def test_what_is_to_be_imported_elsewhere_is_filled_in_and_otherwise_as_stored(sample: Sample, store: JsonTree) -> None:
    old = {"id": "ses_old", "title": "Old", "time": {"created": 7.5}, "summary": {"additions": 1}}
    sample.write(("session", "proj", "ses_old"), old)
    sample.write(("message", "ses_old", "msg_1"), {"id": "msg_1", "role": "user", "time": {"created": 8}})
    answer = {"id": "msg_2", "role": "assistant", "time": {"created": 9}, "error": {"name": "Odd", "message": "x"}}
    sample.write(("message", "ses_old", "msg_2"), answer)
    sample.write(("part", "msg_2", "prt_1"), {"id": "prt_1", "type": "reasoning", "text": "hm"})
    sample.write(("part", "msg_2", "prt_2"), {"id": "prt_2", "type": "brand-new", "x": 1})
    sample.write(
        ("part", "msg_2", "prt_3"), {"id": "prt_3", "type": "tool", "tool": "x", "state": {"status": "completed"}}
    )
    document = json.loads(written(JsonTree(sample.root), "opencode"))
    info, (user, assistant) = document["info"], document["messages"]
    assert info["time"] == {"created": 7, "updated": 7}
    assert info["summary"] == {"additions": 1, "deletions": 0, "files": 0}
    assert (info["projectID"], info["directory"], info["version"]) == ("proj", "/", "unknown")
    assert user["info"]["model"] == {"providerID": "unknown", "modelID": "unknown"}
    assert assistant["info"]["parentID"] == "msg_1"
    assert assistant["info"]["error"] == {"name": "UnknownError", "data": {"message": "x"}}
    reasoning, unknown, tool = assistant["parts"]
    assert reasoning["time"] == {"start": 9}
    assert (unknown["type"], unknown["ignored"], '"x":1' in unknown["text"]) == ("text", True, True)
    assert tool["state"]["time"] == {"start": 9, "end": 9}
    for session in (BUSY, PARENT, CHILD):
        chosen = Selection(ids=(session,))
        stored = json.loads(written(store, "json", chosen))
        stored.pop("opensesh", None)  # todos and diffs, which OpenCode's export does not have
        assert json.loads(written(store, "opencode", chosen)) == stored


def test_what_is_null_counts_as_missing_for_an_import_elsewhere(sample: Sample) -> None:
    session = {"id": "old-1", "title": None, "parentID": None, "revert": None, "time": {"created": 7, "updated": None}}
    sample.write(("session", "proj", "old-1"), session)
    info = {"id": "msg_1", "role": "assistant", "time": {"created": 8}, "error": None, "cost": None, "summary": None}
    sample.write(("message", "old-1", "msg_1"), info)
    for kind in ("text", "tool", ["odd"]):
        nothing = {"text": None, "time": None, "state": None, "tool": None, "metadata": None}
        sample.part(info | {"sessionID": "old-1"}, type=kind, **nothing)
    document = json.loads(written(JsonTree(sample.root), "opencode"))
    [message] = document["messages"]
    assert document["info"]["id"] == message["info"]["sessionID"] == "ses_old-1"
    assert (document["info"]["title"], document["info"]["time"]) == ("Untitled", {"created": 7, "updated": 7})
    assert "error" not in message["info"]
    text, tool, odd = message["parts"]
    assert text == {**sample_head(text), "type": "text", "text": ""}
    assert (tool["tool"], tool["state"]["status"]) == ("unknown", "error")
    assert odd["text"].startswith("[['odd']] {")
    for record in (document["info"], message["info"], *message["parts"]):
        assert None not in record.values()


def test_rules_and_attachments_are_as_an_import_elsewhere_takes_them(sample: Sample) -> None:
    rule = {"permission": "bash", "pattern": "*", "action": "ask"}
    session = sample.session(permission=[rule, rule | {"action": "perhaps"}, None])
    message = sample.answer(session)
    sample.tool(message, attachments=[{"mime": "image/png"}, None])
    document = json.loads(written(JsonTree(sample.root), "opencode"))
    assert document["info"]["permission"] == [rule]
    [attached] = document["messages"][0]["parts"][-1]["state"]["attachments"]
    assert (attached["type"], attached["mime"], attached["url"]) == ("file", "image/png", "")
    assert attached["messageID"] == message["id"]


def sample_head(part: dict[str, Any]) -> dict[str, Any]:
    return {name: part[name] for name in ("id", "sessionID", "messageID")}


# -- to read ------------------------------------------------------------------------------------------------------


def test_markdown_reads_like_the_session_with_subagents_in_their_place(store: JsonTree) -> None:
    text = written(store, "markdown", Selection(ids=(PARENT,), children=True)).decode()
    parts = ("# Custom title here", "**task**", "### sub thing", "\nfrom the child\n\n## ", "\nparent done")
    positions = [text.index(part) for part in parts]
    assert positions == sorted(positions)
    assert "### sub thing (@general subagent)" in text
    assert "### sub thing" not in written(store, "markdown", Selection(ids=(PARENT,))).decode()


def test_a_subagent_that_two_calls_mention_is_shown_once_and_synthetic_text_is_not(sample: Sample) -> None:
    parent = sample.session("parent")
    child = sample.talk("the child", parent=parent["id"])
    message = sample.prompt(parent)
    for _ in range(2):
        sample.tool(message, "task", metadata={"sessionId": child["id"]})
    sample.part(message, type="text", text="added by the program", synthetic=True)
    sample.part(message, type="text", text="left by the program", ignored=True)
    text = written(JsonTree(sample.root), "markdown").decode()
    assert text.count("### the child") == 1
    assert "by the program" not in text


def test_a_list_of_things_to_do_reads_as_one(sample: Sample) -> None:
    todos = [{"content": "dig", "status": "completed"}, {"content": "<fill>", "status": "pending"}]
    message = sample.answer(sample.session())
    sample.tool(message, "todowrite", input={"todos": todos}, output=json.dumps(todos))
    text = written(JsonTree(sample.root), "markdown").decode()
    assert "**todowrite** `1 of 2 done`\n\n- [x] dig\n- [ ] <fill>\n\n" in text
    page = written(JsonTree(sample.root), "html").decode()
    assert "<li>[x] dig</li><li>[ ] &lt;fill&gt;</li>" in page
    for item in (text, page):
        assert "status" not in item


def test_markdown_cannot_be_broken_by_what_it_quotes(sample: Sample) -> None:
    session = sample.session("A title\n# not a heading")
    message = sample.prompt(session)
    sample.tool(message, output="```\nend of code?\n````\n", input={"command": "echo `x` ``y``"})
    text = written(JsonTree(sample.root), "markdown").decode()
    assert text.startswith("# A title # not a heading\n")
    assert "`````text\n```\nend of code?\n````\n`````" in text
    assert "**bash** ``` echo `x` ``y`` ```\n" in text


def test_prompts_are_what_was_asked_and_nothing_else(store: JsonTree) -> None:
    text = written(store, "prompts", Selection(ids=(BUSY,))).decode()
    assert "SAY second turn answer" in text
    assert "\nsecond turn answer" not in text
    assert "let me see the tree first" in text  # it is part of the prompt, too
    assert text.count("[2026-11-15") == 2


def test_traces_follow_the_format_of_the_hub(store: JsonTree) -> None:
    header, *lines = map(json.loads, written(store, "hf", Selection(ids=(BUSY,))).splitlines())
    assert (header["type"], header["harness"], header["id"]) == ("session", "opencode", BUSY)
    assert all(line["type"] == "message" and {"role", "content"} <= set(line["message"]) for line in lines)
    messages = [line["message"] for line in lines]
    assert {message["role"] for message in messages} == {"user", "assistant", "tool"}
    calls = {call["id"] for message in messages for call in message.get("toolCalls", ())}
    results = [message["toolCallId"] for message in messages if message["role"] == "tool"]
    assert set(results) == calls
    assert len(results) == len(calls) == 6
    first = messages[1]
    assert first["reasoningContent"] == "let me see the tree first"
    assert json.loads(first["toolCalls"][0]["function"]["arguments"]) == {"filePath": "/srv/dev/eastore/README.md"}
    assert isinstance(first["timestamp"], int)


def test_a_form_that_holds_one_session_refuses_several(store: JsonTree) -> None:
    for form in ("hf", "html", "opencode"):
        with pytest.raises(UsageError, match="--split DIR"):
            written(store, form)


def test_a_format_for_one_session_reports_that_there_is_none(sample: Sample) -> None:
    with pytest.raises(NotFoundError, match="no sessions match"):
        written(JsonTree(sample.root), "html")


def test_an_unknown_format_is_refused() -> None:
    assert {find_format(name).suffix for name in FORMATS} <= {".jsonl", ".json", ".md", ".html", ".txt", ".parquet"}
    with pytest.raises(UsageError, match="available: jsonl"):
        find_format("docx")


# -- for analysis -------------------------------------------------------------------------------------------------


def test_a_table_has_a_row_a_part_and_adds_up(store: JsonTree, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "parts.parquet"
    assert to_file(Export(store, Selection(), "parquet"), str(path), silent) == 13
    [[rows, sessions, cost, tools]] = duckdb.sql(
        f"SELECT count(part_id), count(DISTINCT session_id), sum(cost), count(tool) FROM '{path}'"
    ).fetchall()
    assert rows == len(list(TREE.glob("part/*/*.json")))
    assert sessions == 13
    assert cost == pytest.approx(0.891939)
    assert tools == 22
    assert sorted(os.listdir(tmp_path)) == ["parts.parquet"]


def test_a_number_that_no_table_holds_is_left_out_of_it(sample: Sample, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "parts.parquet"
    sample.answer(sample.session(), tokens={"input": 10**30, "output": 5, "reasoning": True})
    to_file(Export(JsonTree(sample.root), Selection(), "parquet"), str(path), silent)
    columns = "max(tokens_input), max(tokens_output), max(tokens_reasoning)"
    assert duckdb.sql(f"SELECT {columns} FROM '{path}'").fetchall() == [(None, 5, None)]


def test_without_its_library_the_table_names_what_to_install(store: JsonTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(OpenseshError, match=re.escape("DuckDB: pip install duckdb (")):
        to_file(Export(store, Selection(), "parquet"), "x.parquet", silent)


# -- which sessions -----------------------------------------------------------------------------------------------


def in_the_world(facts: SessionInfo) -> bool:
    return facts.project == "global"


def test_sessions_are_chosen_by_name_time_and_project(sample: Sample) -> None:
    root = sample.talk("root")
    child = sample.talk("child", parent=root["id"])
    other = sample.talk("other", project="global")
    tree = JsonTree(sample.root)

    def names(selection: Selection) -> list[str]:
        return [item.id for item in Export(tree, selection, "json").selected]

    assert names(Selection()) == [root["id"], child["id"], other["id"]]
    assert names(Selection(children=False)) == [root["id"], other["id"]]
    assert names(Selection(ids=(root["id"],))) == [root["id"]]
    assert names(Selection(ids=(root["id"],), children=True)) == [root["id"], child["id"]]
    assert names(Selection(since=other["time"]["updated"])) == [other["id"]]
    assert names(Selection(until=root["time"]["updated"] + 1)) == [root["id"]]
    assert names(Selection(matches=in_the_world)) == [other["id"]]
    assert [item.id for item in Export(tree, Selection(), "markdown").selected] == [root["id"], other["id"]]


def test_a_session_whose_subagents_run_in_a_circle_is_still_exported(sample: Sample) -> None:
    one = sample.talk("one")
    other = sample.talk("other", parent=one["id"])
    sample.write(("session", "proj", one["id"]), one | {"parentID": other["id"]})
    text = written(JsonTree(sample.root), "markdown").decode()
    assert "# one" in text
    assert "# other" in text


def test_a_session_of_thousands_is_read_message_by_message(sample: Sample) -> None:
    session = sample.session()
    for number in range(310):
        sample.prompt(session, f"number {number}")
    tree = JsonTree(sample.root)
    document = json.loads(written(tree, "json"))
    assert [message["parts"][0]["text"] for message in document["messages"]] == [f"number {n}" for n in range(310)]
    victim = next((sample.root / "message" / session["id"]).iterdir())
    victim.write_bytes(b"{")
    damage: list[Damage] = []
    to_stream(Export(tree, Selection(), "json", report=damage.append), BytesIO(), silent)
    assert [item.path for item in damage] == [str(victim)]


# -- where to -----------------------------------------------------------------------------------------------------


class Interrupted(Exception):
    pass


def interrupt_after(count: int) -> Any:
    def step(done: int, total: int) -> None:
        if done == count:
            raise Interrupted

    return step


@pytest.mark.parametrize("form", ["jsonl", "json", "markdown", "prompts"])
@pytest.mark.parametrize("count", [1, 5, 11])
def test_an_interrupted_file_is_continued(store: JsonTree, tmp_path: Path, form: str, count: int) -> None:
    path = str(tmp_path / "out")
    expected = written(store, form)
    with pytest.raises(Interrupted):
        to_file(Export(store, Selection(), form), path, interrupt_after(count), fingerprint="m")
    assert not os.path.exists(path)
    with open(f"{path}.part", "ab") as file:
        file.write(b"half a session, and long enough to show behind the end of a short one" * 9_000)
    seen: list[int] = []
    to_file(Export(store, Selection(), form), path, lambda done, total: seen.append(done), fingerprint="m")
    assert seen[0] == count + 1
    assert Path(path).read_bytes() == expected
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize(("mark", "restart"), [("other", False), ("m", True)])
def test_a_file_of_another_export_is_started_again(store: JsonTree, tmp_path: Path, mark: str, restart: bool) -> None:
    path = str(tmp_path / "out")
    with pytest.raises(Interrupted):
        to_file(Export(store, Selection(), "jsonl"), path, interrupt_after(3), fingerprint="m")
    seen: list[int] = []
    export = Export(store, Selection(), "jsonl")
    to_file(export, path, lambda done, total: seen.append(done), fingerprint=mark, restart=restart)
    assert seen[0] == 1
    assert Path(path).read_bytes() == written(store, "jsonl")
    assert export_fingerprint("a", 1) != export_fingerprint("a", 2)


def test_a_file_that_is_shorter_than_recorded_is_continued_from_what_exists(store: JsonTree, tmp_path: Path) -> None:
    path = str(tmp_path / "out")
    with pytest.raises(Interrupted):
        to_file(Export(store, Selection(), "jsonl"), path, interrupt_after(5), fingerprint="m")
    with open(f"{path}.part", "r+b") as file:
        file.truncate(os.path.getsize(f"{path}.part") // 2)
    to_file(Export(store, Selection(), "jsonl"), path, silent, fingerprint="m")
    assert Path(path).read_bytes() == written(store, "jsonl")


def test_a_file_of_several_sessions_is_not_continued_as_a_file_of_one(sample: Sample, tmp_path: Path) -> None:
    first, second = sample.talk("first"), sample.talk("second")
    tree, path = JsonTree(sample.root), tmp_path / "out"
    with pytest.raises(Interrupted):
        to_file(Export(tree, Selection(), "json"), str(path), interrupt_after(1), fingerprint="m")
    sample.path("session", "proj", second["id"]).unlink()
    to_file(Export(tree, Selection(), "json"), str(path), silent, fingerprint="m")
    assert json.loads(path.read_bytes())["info"] == first


def test_a_file_whose_first_session_was_removed_is_continued(sample: Sample, tmp_path: Path) -> None:
    gone, *kept = [sample.talk(name) for name in ("gone", "kept", "last")]
    tree, path = JsonTree(sample.root), tmp_path / "out"
    export = Export(tree, Selection(), "json")
    record = sample.path("session", "proj", gone["id"])
    retained = record.read_bytes()
    record.unlink()
    with pytest.raises(Interrupted):
        to_file(export, str(path), interrupt_after(1), fingerprint="m")
    record.write_bytes(retained)
    to_file(Export(tree, Selection(), "json"), str(path), silent, fingerprint="m")
    assert [load["info"] for load in json.loads(path.read_bytes())] == kept


def test_a_page_is_written_again_when_subagents_come_into_it(sample: Sample, tmp_path: Path) -> None:
    parent = sample.talk("parent")
    child = sample.talk("the child", parent=parent["id"])
    tree, page = JsonTree(sample.root), tmp_path / f"{parent['id']}.html"
    alone = Selection(ids=(parent["id"],))
    for selection, written in ((alone, 1), (alone, 0), (alone._replace(children=True), 1)):
        assert to_folder(Export(tree, selection, "html"), str(tmp_path), silent) == written
    assert "the child" in page.read_text()
    later = child | {"title": "renamed", "time": child["time"] | {"updated": sample.clock + 1}}
    sample.write(("session", "proj", child["id"]), later)
    to_folder(Export(tree, Selection(), "html"), str(tmp_path), silent)
    assert "renamed" in page.read_text()


def test_a_session_that_went_away_meanwhile_is_not_on_the_index(sample: Sample, tmp_path: Path) -> None:
    kept, gone = sample.talk("kept"), sample.talk("gone")
    export = Export(JsonTree(sample.root), Selection(), "html")
    sample.path("session", "proj", gone["id"]).unlink()
    assert to_folder(export, str(tmp_path), silent) == 1
    index = (tmp_path / "index.html").read_text()
    assert kept["id"] in index
    assert gone["id"] not in index


def test_half_a_character_prevents_no_format(sample: Sample, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    half = "cut \ud83d"  # as by a program that counts in UTF-16
    session = sample.session(half, directory=f"/srv/{half}")
    message = sample.prompt(session, half)
    sample.tool(message, output=half, input={"command": half})
    for form in FORMATS:
        export = Export(JsonTree(sample.root), Selection(), form)
        to_file(export, str(tmp_path / form), silent)
        if form != "parquet":
            assert to_folder(export, str(tmp_path / f"{form}s"), silent) == 1
            assert to_folder(export, str(tmp_path / f"{form}s"), silent) == 0
    assert "cut ?</a>" in (tmp_path / "htmls" / "index.html").read_text()
    assert json.loads((tmp_path / "json").read_bytes())["info"] == session
    assert duckdb.sql(f"SELECT DISTINCT title FROM read_parquet('{tmp_path / 'parquet'}')").fetchall() == [("cut ?",)]


def test_a_folder_is_brought_up_to_date(sample: Sample, tmp_path: Path) -> None:
    first, second = sample.talk("first"), sample.talk("second")
    tree, folder = JsonTree(sample.root), tmp_path / "out"
    assert to_folder(Export(tree, Selection(), "html"), str(folder), silent) == 2
    assert {path.stem for path in folder.glob("*.html")} == {"index", first["id"], second["id"]}
    assert to_folder(Export(tree, Selection(), "html"), str(folder), silent) == 0
    sample.write(("session", "proj", first["id"]), first | {"title": "renamed", "time": {"created": 1, "updated": 2}})
    (folder / f"{second['id']}.html").unlink()
    assert to_folder(Export(tree, Selection(), "html"), str(folder), silent) == 2
    index = (folder / "index.html").read_text()
    assert ">renamed</a>" in index
    assert ">first</a>" not in index
    assert to_folder(Export(tree, Selection(), "html"), str(folder), silent, restart=True) == 2


def test_an_interrupted_folder_is_continued(sample: Sample, tmp_path: Path) -> None:
    for number in range(5):
        sample.talk(f"Talk {number}")
    export = Export(JsonTree(sample.root), Selection(), "html")
    with pytest.raises(Interrupted):
        to_folder(export, str(tmp_path), interrupt_after(3))
    assert len(list(tmp_path.glob("ses_*.html"))) == 3
    steps: list[int] = []
    assert to_folder(export, str(tmp_path), lambda done, total: steps.append(done)) == 2
    assert steps == [4, 5]
    assert (tmp_path / "index.html").read_text().count("Talk ") == 5


def test_a_folder_to_be_imported_elsewhere_comes_with_a_script(store: JsonTree, tmp_path: Path) -> None:
    assert to_folder(Export(store, Selection(), "opencode"), str(tmp_path), silent) == 13
    assert len(list(tmp_path.glob("ses_*.json"))) == 13
    script = (tmp_path / "import.sh").read_text()
    assert script.count("opencode import") == 13
    assert "cd /srv/dev/eastore" in script


@pytest.mark.parametrize("form", sorted(set(FORMATS) - {"parquet"}))
@pytest.mark.parametrize("tools", ["", "summary", "skip"])
def test_a_part_of_an_odd_type_prevents_no_format(sample: Sample, form: str, tools: str) -> None:
    message = sample.prompt(sample.session())
    for kind in (None, 5, ["text"], {"a": 1}, "brand-new"):
        sample.part(message, type=kind, text=kind, state=[])
    sample.part(message, type="tool", tool=None, state={"status": None, "input": None, "metadata": None, "time": None})
    for redactor in (None, Redactor()):
        stream = BytesIO()
        export = Export(JsonTree(sample.root), Selection(), form, FormatOptions(tools=tools), redactor=redactor)
        assert to_stream(export, stream, silent) == 1
        assert b"Why?" in stream.getvalue()


def test_secrets_are_redacted_in_every_format(sample: Sample, tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    session = sample.session(f"Use {secret}")
    message = sample.prompt(session, f"my token is {secret}")
    sample.tool(
        message, output=f"{secret}", input={"command": f"curl -H 'X: {secret}'"}, metadata={"diff": f"+{secret}"}
    )
    sample.part(message, type="reasoning", text=secret, time={"start": 1})
    for form in FORMATS:
        redactor = Redactor()
        export = Export(JsonTree(sample.root), Selection(), form, redactor=redactor)
        path = tmp_path / f"out-{form}"
        to_file(export, str(path), silent)
        assert secret.encode() not in path.read_bytes(), form
        # of forms that leave something out, only what is in them counts
        assert redactor.counts["github-token"] >= {"jsonl": 3, "prompts": 2}.get(form, 6)


def test_a_long_session_is_exported_with_records_that_do_not_contain_their_id(sample: Sample) -> None:
    session = sample.session()
    *_, message = (sample.prompt(session, f"prompt {number}") for number in range(MAX_MESSAGES_AT_ONCE + 2))
    [part] = (sample.root / "part" / message["id"]).iterdir()
    for path in (part, sample.path("message", session["id"], message["id"])):
        record = json.loads(path.read_bytes())
        del record["id"]
        path.write_text(json.dumps(record))
    store = JsonTree(sample.root)
    assert list(read_messages(store, session["id"])) == store.messages(session["id"])
