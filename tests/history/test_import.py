from __future__ import annotations

import json
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opensesh.errors import NotFoundError, RecordError, UsageError
from opensesh.history.import_export.destinations import to_stream
from opensesh.history.import_export.exporting import Export, Selection
from opensesh.history.import_export.import_sources import PathMap, read_sessions
from opensesh.history.import_export.importing import Importer, ImportResult, Relation, compare, normalise_2x_copies
from opensesh.history.stats.usage_stats import statistics
from opensesh.storage import open_store
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.leases import leases_of
from opensesh.storage.protocol import Damage, StoredMessage

from .generations import Generations
from .sample_tree import Json, Sample, contents

FIXTURES = Path(__file__).parents[1] / "fixtures"
TREE = FIXTURES / "opencode-1.1.65" / "storage"


def bring(place: Path | str, root: Path, **options: Any) -> list[ImportResult]:
    return Importer(JsonTree(root), **options).take(read_sessions(str(place)))


def acts(done: list[ImportResult]) -> dict[str, int]:
    result: dict[str, int] = {}
    for item in done:
        result[item.act] = result.get(item.act, 0) + 1
    return result


def exported(store: JsonTree, path: Path, *names: str) -> Path:
    stream = BytesIO()
    to_stream(Export(store, Selection(ids=names), "json"), stream, lambda done, total: None)
    path.write_bytes(stream.getvalue())
    return path


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path / "here" / "storage"


@pytest.fixture
def there(tmp_path: Path) -> Sample:
    root = tmp_path / "there" / "storage"
    root.mkdir(parents=True)
    return Sample(root)


def test_a_store_is_taken_over_to_the_byte(here: Path) -> None:
    assert acts(bring(TREE, here)) == {"added": 13}
    ours, theirs = contents(here), contents(TREE)
    left = {path for path in theirs if path not in ours}
    assert left == {"session_diff/ses_e1f503b12ffecZ9eyURW2MEo7V.json"}  # of a session that is gone
    assert {path: data for path, data in theirs.items() if path not in left} == ours


def test_an_export_comes_back_with_everything_it_held(here: Path, tmp_path: Path) -> None:
    assert acts(bring(exported(JsonTree(TREE), tmp_path / "all.json"), here)) == {"added": 13}
    store = JsonTree(here)
    for key, info in JsonTree(TREE).scan(("session",)):
        assert store.read(key) == info
        assert store.messages(key[-1]) == JsonTree(TREE).messages(key[-1])


@pytest.mark.parametrize("place", [TREE, FIXTURES / "opencode-1.18.33" / "opencode.db", FIXTURES / "opencode-1.2"])
def test_running_it_twice_changes_nothing(place: Path, here: Path) -> None:
    bring(place, here)
    before = contents(here)
    assert acts(bring(place, here)) == {"unchanged": 13}
    assert contents(here) == before


def test_what_went_on_elsewhere_is_caught_up_with(there: Sample, here: Path) -> None:
    session = there.talk()
    bring(there.root, here)
    there.prompt(session, "one more thing")
    there.write(("session", "proj", session["id"]), session | {"time": session["time"] | {"updated": there.clock}})
    [done] = bring(there.root, here)
    assert (done.act, done.records) == ("extended", 3)
    assert len(JsonTree(here).messages(session["id"])) == 5
    assert JsonTree(here).read(("session", "proj", session["id"]))["time"]["updated"] == there.clock


def test_what_went_on_here_stays(there: Sample, here: Path) -> None:
    session = there.talk()
    bring(there.root, here)
    ours = Sample(here)
    ours.clock = there.clock + 5000
    ours.prompt(session, "only here")
    before = contents(here)
    assert acts(bring(there.root, here)) == {"unchanged": 1}
    assert contents(here) == before


def test_a_session_that_was_renamed_and_moved_here_stays_so(there: Sample, here: Path) -> None:
    session = there.talk()
    bring(there.root, here)
    ours = JsonTree(here)
    moved = session | {"title": "Ours", "directory": "/srv/moved", "projectID": "other"}
    ours.remove(("session", "proj", session["id"]))
    later = {"time": session["time"] | {"updated": there.clock + 9_000}}
    ours.write(("session", "other", session["id"]), moved | later)
    there.prompt(session, "one more thing")
    assert acts(bring(there.root, here)) == {"extended": 1}
    assert ours.read(("session", "other", session["id"])) == moved | later
    latest = {"title": "Theirs", "time": session["time"] | {"updated": there.clock + 99_000}}
    there.write(("session", "proj", session["id"]), session | latest)
    assert acts(bring(there.root, here)) == {"extended": 1}
    assert ours.read(("session", "other", session["id"])) == moved | latest
    assert ours.list(("session",)) == [("session", "other", session["id"])]


def test_what_went_on_in_both_places_is_kept_twice(there: Sample, here: Path) -> None:
    session = there.talk()
    bring(there.root, here)
    there.answer(session, "said there", cost=1)
    ours = Sample(here)
    ours.clock = there.clock + 5000
    ours.answer(session, "said here", cost=2)
    before = contents(here)
    [done] = bring(there.root, here)
    assert done.act == "forked"
    assert done.id != session["id"]
    store = JsonTree(here)
    fork = store.read(("session", "proj", done.id))
    assert fork["title"] == "Work (fork #1)"
    assert [m.parts[-2].get("text") for m in store.messages(done.id) if m.info["role"] == "assistant"][
        -1
    ] == "said there"
    assert {path: data for path, data in contents(here).items() if path in before} == before
    again = contents(here)
    assert acts(bring(there.root, here)) == {"unchanged": 1}
    assert contents(here) == again
    assert statistics(store, fresh=True).total.document()["cost"] == 0.5 + 1 + 2


def test_a_fork_that_grew_is_caught_up_with_under_the_same_name(there: Sample, here: Path) -> None:
    session = there.talk()
    bring(there.root, here)
    there.answer(session, "said there")
    ours = Sample(here)
    ours.clock = there.clock + 5000
    ours.answer(session, "said here")
    [first] = bring(there.root, here)
    there.prompt(session, "and then")
    [second] = bring(there.root, here)
    assert (second.act, second.id) == ("forked", first.id)
    assert len(JsonTree(here).messages(first.id)) == 6
    assert acts(bring(there.root, here)) == {"unchanged": 1}


def test_a_fork_refers_to_its_own_messages_and_parts(there: Sample, here: Path) -> None:
    session = there.talk()
    kept = there.prompt(session, "kept after the compaction")
    compaction = there.prompt(session, "")
    there.part(compaction, type="compaction", auto=True, tail_start_id=kept["id"])
    answer = there.answer(session, "summary")
    rejected = [part["id"] for part in JsonTree(there.root).messages(session["id"])[-1].parts]
    bring(there.root, here)
    last = there.answer(session, "said there", opensesh={"masked": rejected})
    ours = Sample(here)
    ours.clock = there.clock + 5000
    ours.answer(session, "said here")
    [done] = bring(there.root, here)
    copies = JsonTree(here).messages(done.id)
    names = {message["id"]: copy.info["id"] for message, copy in zip(there.messages(session), copies, strict=True)}
    [part] = [part for message in copies for part in message.parts if part["type"] == "compaction"]
    assert part["tail_start_id"] == names[kept["id"]]
    copied = {message.info["id"]: message for message in copies}
    masked = [part["id"] for part in copied[names[answer["id"]]].parts]
    assert copied[names[last["id"]]].info["opensesh"]["masked"] == masked


def test_a_fork_answers_its_own_prompts_and_is_not_shared(there: Sample, here: Path) -> None:
    session = there.session(share={"url": "https://example.com/s"})
    prompt = there.prompt(session)
    bring(there.root, here)
    there.answer(session, "said there", parentID=prompt["id"])
    ours = Sample(here)
    ours.clock = there.clock + 5000
    ours.answer(session, "said here")
    [done] = bring(there.root, here)
    store = JsonTree(here)
    question, answer = (message.info for message in store.messages(done.id))
    assert answer["parentID"] == question["id"] != prompt["id"]
    assert "share" not in store.read(("session", "proj", done.id))


def test_a_copy_of_another_storage_generation_is_unchanged(tmp_path: Path) -> None:
    truth = Generations(tmp_path)
    truth.v2(tmp_path / "later", truth.sessions)
    truth.tree(tmp_path / "earlier")
    trees = tmp_path / "earlier" / "storage", tmp_path / "here" / "storage"
    bring(tmp_path / "later" / "opencode.db", trees[1])
    before = [_said(tree) for tree in trees]
    done = [
        *bring(tmp_path / "later" / "opencode.db", trees[0]),
        *bring(trees[0], trees[1]),
    ]
    assert "forked" not in acts(done)
    assert [_said(tree) for tree in trees] == before


def _said(tree: Path) -> dict[str, bytes]:
    return contents(tree / "message") | contents(tree / "part")


def test_a_session_that_went_on_in_a_newer_generation_is_caught_up_with(there: Sample, here: Path) -> None:
    session = there.session("Long")
    prompt = there.prompt(session, "First")
    asked = there.prompt(session, "")
    summary = there.answer(session, "All so far", summary=True, parentID=asked["id"])
    bring(there.root, here)
    ours = JsonTree(here).messages(session["id"])
    made = [_of_two(prompt["id"]), _of_two(asked["id"]), _of_two(f"{asked['id']}-summary")]
    made[-1].info.update(role="assistant", parentID=asked["id"], summary=True)
    theirs = [*made, _of_two("msg_zzz")]
    words = normalise_2x_copies(ours, theirs)
    assert [word.info["id"] for word in words] == [prompt["id"], asked["id"], summary["id"], "msg_zzz"]
    assert compare(ours, words) is Relation.AHEAD
    assert normalise_2x_copies(made, ours) == made


def _of_two(name: str) -> StoredMessage:
    info = {"id": name, "role": "user", "time": {"created": 1}, "v2": {"type": "user"}}
    return StoredMessage(info, [{"id": f"prt_{name}-00000", "type": "text", "text": "Hello."}])


def test_what_is_missing_beside_a_session_is_filled_in(there: Sample, here: Path) -> None:
    session = there.talk()
    bring(there.root, here)
    todos = [{"content": "dig", "status": "pending", "priority": "high", "id": "1"}]
    there.write(("todo", session["id"]), todos)
    [done] = bring(there.root, here)
    assert (done.act, done.records) == ("extended", 1)
    assert JsonTree(here).read(("todo", session["id"])) == todos


def test_the_checkouts_of_a_project_are_mapped_with_it(there: Sample, here: Path) -> None:
    there.write(("project", "proj"), {"id": "proj", "worktree": "/old/shop", "sandboxes": ["/old/shop-2", "/else"]})
    there.talk(directory="/old/shop")
    bring(there.root, here, paths=PathMap({"/old": "/new"}))
    project = JsonTree(here).read(("project", "proj"))
    assert (project["worktree"], project["sandboxes"]) == ("/new/shop", ["/new/shop-2", "/else"])


def test_one_message_that_says_two_things_makes_a_fork(there: Sample, here: Path) -> None:
    session = there.talk()
    bring(there.root, here)
    message = there.messages(session)[-1]
    [text] = [path for path in (there.root / "part" / message["id"]).iterdir() if b"Answer" in path.read_bytes()]
    text.write_bytes(text.read_bytes().replace(b"Answer", b"Lies"))
    [done] = bring(there.root, here)
    assert done.act == "forked"


def test_a_folder_that_is_elsewhere_here_is_mapped(there: Sample, here: Path, tmp_path: Path) -> None:
    session = there.talk(directory="/srv/dev/shop/web")
    (tmp_path / "shop" / "web").mkdir(parents=True)
    mapped = PathMap({"/srv/dev/shop": str(tmp_path / "shop")}, identify=lambda folder: "newproject")
    for act in ("added", "unchanged"):
        [done] = bring(there.root, here, paths=mapped)
        assert done.act == act
    store = JsonTree(here)
    info = store.read(("session", "newproject", session["id"]))
    assert info["directory"] == str(tmp_path / "shop" / "web")
    assert store.read(("project", "newproject"))["worktree"] == str(tmp_path / "shop")
    answer = store.messages(session["id"])[1].info
    assert answer["path"] == {"cwd": str(tmp_path / "shop"), "root": str(tmp_path / "shop")}
    assert PathMap({"/a": "/b"}).folder("/abc") == "/abc"
    assert PathMap({"C:\\Users\\me": "/home/me"}).folder("C:\\Users\\me\\dev\\x") == "/home/me/dev/x"
    assert PathMap({"C:\\": "/mnt/c"}).folder("C:\\dev\\x") == "/mnt/c/dev/x"
    assert PathMap({"/old": "/"}).folder("/old/x") == "/x"
    assert PathMap({"/old": "/"}).folder("/old") == "/"
    assert PathMap({"/": "/mnt"}).folder("/srv") == "/mnt/srv"


def test_a_dry_run_writes_nothing_and_says_the_same(there: Sample, here: Path) -> None:
    there.talk()
    [would] = bring(there.root, here, dry_run=True)
    assert not here.exists()
    [done] = bring(there.root, here)
    assert (would.act, would.records) == (done.act, done.records)


def test_a_session_that_runs_here_is_left_alone(there: Sample, here: Path) -> None:
    session = there.talk()
    bring(there.root, here)
    there.prompt(session, "more")
    with leases_of(JsonTree(here)).acquire(session["id"], "opensesh run"):
        [done] = bring(there.root, here)
    assert done.act == "skipped"
    assert "opensesh run" in done.reason


def test_damage_at_the_source_affects_only_its_record(there: Sample, here: Path) -> None:
    session = there.talk(answers=3)
    victim = there.path("message", session["id"], there.messages(session)[2]["id"])
    victim.write_bytes(b"{")
    damage: list[Damage] = []
    done = Importer(JsonTree(here)).take(read_sessions(str(there.root), report=damage.append))
    assert acts(done) == {"added": 1}
    assert [item.path for item in damage] == [str(victim)]
    assert len(JsonTree(here).messages(session["id"])) == 5


def test_what_is_damaged_here_is_healed(there: Sample, here: Path) -> None:
    session = there.talk(answers=3)
    bring(there.root, here)
    before = contents(here)
    message = there.messages(session)[1]["id"]
    for path in (here / "message" / session["id"] / f"{message}.json", next((here / "part" / message).iterdir())):
        path.write_bytes(b"")
        assert acts(bring(there.root, here)) == {"extended": 1}
        assert contents(here) == before
    (here / "session" / "proj" / f"{session['id']}.json").write_bytes(b"{")
    assert acts(bring(there.root, here)) == {"extended": 1}
    assert contents(here) == before


def test_files_may_hold_one_document_an_array_or_one_a_line(there: Sample, here: Path, tmp_path: Path) -> None:
    sessions = [there.talk(f"number {number}") for number in range(3)]
    store = JsonTree(there.root)
    one = exported(store, tmp_path / "one.json", sessions[0]["id"])
    every = json.loads(exported(store, tmp_path / "all.json").read_bytes())
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps(item) + "\n" for item in every[1:]) + '{"info": {"id')
    assert acts(bring(one, here)) == {"added": 1}
    damage: list[Damage] = []
    done = Importer(JsonTree(here)).take(read_sessions(str(tmp_path / "lines.jsonl"), report=damage.append))
    assert acts(done) == {"added": 2}
    assert "cut off" in damage[0].reason
    assert acts(bring(tmp_path / "all.json", here)) == {"unchanged": 3}
    folder = tmp_path / "folder"
    folder.mkdir()
    shutil.copy(one, folder)
    assert acts(bring(folder, here)) == {"unchanged": 1}


def test_an_export_that_was_cut_off_is_reported_once(there: Sample, here: Path, tmp_path: Path) -> None:
    session = there.talk(answers=3)
    folder = tmp_path / "folder"
    folder.mkdir()
    whole = exported(JsonTree(there.root), folder / "whole.json", session["id"]).read_bytes()
    (folder / "cut.json").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RecordError, match=r"cut\.json at byte \d+: torn: it ends in the middle; export it again"):
        bring(folder / "cut.json", here)
    damage: list[Damage] = []
    assert acts(Importer(JsonTree(here)).take(read_sessions(str(folder), report=damage.append))) == {"added": 1}
    assert [item.path for item in damage] == [str(folder / "cut.json")]


def test_what_is_not_lossless_is_refused_with_what_is(there: Sample, here: Path, tmp_path: Path) -> None:
    there.talk()
    stream = BytesIO()
    to_stream(Export(JsonTree(there.root), Selection(), "jsonl"), stream, lambda done, total: None)
    (tmp_path / "x.jsonl").write_bytes(stream.getvalue())
    with pytest.raises(UsageError, match=r"conversation as JSONL.* opencode\.db"):
        bring(tmp_path / "x.jsonl", here)
    (tmp_path / "x.json").write_text('{"a": 1}')
    with pytest.raises(UsageError, match="this is not an OpenCode session"):
        bring(tmp_path / "x.json", here)
    (tmp_path / "x.json").write_text('{"a": ')
    with pytest.raises(RecordError):
        bring(tmp_path / "x.json", here)
    with pytest.raises(NotFoundError):
        bring(tmp_path / "nothing", here)
    assert not here.exists()


def test_a_name_that_would_leave_the_store_is_skipped(here: Path, tmp_path: Path) -> None:
    document: Json = {"info": {"id": "../../evil", "title": "x", "time": {"created": 1}}, "messages": []}
    (tmp_path / "x.json").write_text(json.dumps(document))
    damage: list[Damage] = []
    [done] = Importer(JsonTree(here), report=damage.append).take(read_sessions(str(tmp_path / "x.json")))
    assert done.act == "skipped"
    assert len(damage) == 1
    assert not here.exists()


def test_records_without_a_usable_name_cost_themselves_alone(there: Sample, here: Path, tmp_path: Path) -> None:
    session = there.talk(answers=1)
    store = JsonTree(there.root)
    document = json.loads(exported(store, tmp_path / "x.json").read_bytes())
    question, answer = document["messages"]
    question["parts"] += [None, {"type": "text"}, {"id": "../up", "type": "text"}, {"id": "\ud83d", "type": "text"}]
    document["messages"] += [None, {"info": {"id": "../up", "role": "user", "time": {"created": 1}}, "parts": []}]
    (tmp_path / "x.json").write_text(json.dumps(document))
    damage: list[Damage] = []
    done = Importer(JsonTree(here), report=damage.append).take(
        read_sessions(str(tmp_path / "x.json"), report=damage.append)
    )
    assert acts(done) == {"added": 1}
    assert JsonTree(here).messages(session["id"]) == store.messages(session["id"])
    assert [item.reason for item in damage] == [
        f"4 parts without a usable id in {question['info']['id']}",
        "a message without a usable id",
        "a message without a usable id",
    ]
    there.write(("part", answer["info"]["id"], "prt_nameless"), {"type": "text", "text": "nobody"})
    assert acts(bring(there.root, here)) == {"extended": 1}
    (nameless,) = (part for part in JsonTree(here).messages(session["id"])[-1].parts if part.get("text") == "nobody")
    assert nameless["id"] == "prt_nameless"  # the name of its file


def test_a_project_that_cannot_be_stored_leaves_nothing_behind(here: Path, tmp_path: Path) -> None:
    info = {"id": "ses_a", "projectID": "../../evil", "time": {"created": 1}}
    part = {"id": "prt_a", "type": "text", "text": "x"}
    message: Json = {"info": {"id": "msg_a", "role": "user", "time": {"created": 1}}, "parts": [part]}
    (tmp_path / "x.json").write_text(json.dumps({"info": info, "messages": [message]}))
    assert acts(bring(tmp_path / "x.json", here)) == {"skipped": 1}
    assert not here.exists()


def test_a_file_that_cannot_be_read_does_not_cost_the_others_in_its_folder(
    there: Sample, here: Path, tmp_path: Path
) -> None:
    there.talk()
    folder = tmp_path / "folder"
    folder.mkdir()
    exported(JsonTree(there.root), folder / "m.json")
    (folder / "a.json").write_text('{"info": ')
    (folder / "b.json").write_text('{"name": "package"}')
    damage: list[Damage] = []
    done = Importer(JsonTree(here)).take(read_sessions(str(folder), report=damage.append))
    assert acts(done) == {"added": 1}
    assert [(Path(item.path).name, re.split("[.;]", item.reason)[0]) for item in damage] == [
        ("a.json", "torn: it ends in the middle"),
        ("b.json", "this is not an OpenCode session"),
    ]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_file_that_windows_wrote_is_read(there: Sample, here: Path, tmp_path: Path, encoding: str) -> None:
    session = there.talk("Überraschung")
    path = exported(JsonTree(there.root), tmp_path / "x.json")
    path.write_text(path.read_text("utf-8"), encoding=encoding)
    assert acts(bring(path, here)) == {"added": 1}
    assert JsonTree(here).read(("session", "proj", session["id"])) == session


def test_a_pipe_is_read_once(there: Sample, here: Path, tmp_path: Path) -> None:
    there.talk()
    data = exported(JsonTree(there.root), tmp_path / "x.json").read_bytes()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(pipe.write_bytes, data)
        assert acts(bring(pipe, here)) == {"added": 1}


def test_a_session_without_a_title_has_none(here: Path, tmp_path: Path) -> None:
    info = {"id": "ses_a", "title": None, "time": {"created": 1}}
    (tmp_path / "x.json").write_text(json.dumps({"info": info, "messages": []}))
    assert [done.title for done in bring(tmp_path / "x.json", here)] == [""]


def test_two_halves_of_a_history_make_a_whole(tmp_path: Path, here: Path) -> None:
    halves = [tmp_path / "a" / "storage", tmp_path / "b" / "storage"]
    names = sorted(path.stem for path in TREE.glob("session/*/*.json"))
    for number, half in enumerate(halves):
        shutil.copytree(TREE, half)
        for name in names[number::2][:5]:
            for path in half.glob(f"session/*/{name}.json"):
                path.unlink()
    for half in halves:
        bring(half, here)
    assert sorted(key[-1] for key in open_store(str(here)).list(("session",))) == names


# -- how two copies stand to each other ---------------------------------------------------------------------------


def message(text: str = "hello", *, status: str = "completed", **info: Any) -> StoredMessage:
    base: Json = {"id": "msg_1", "role": "assistant", "time": {"created": 1, "completed": 2}, "cost": 1}
    parts: list[Json] = [
        {"id": "prt_1", "type": "text", "text": text},
        {"id": "prt_2", "type": "tool", "state": {"status": status, "input": {}}},
    ]
    return StoredMessage(base | info, parts)


@pytest.mark.parametrize(
    ("ours", "theirs", "relation"),
    [
        (message(), message(), Relation.SAME),
        (message("hel"), message("hello"), Relation.AHEAD),
        (message("hello"), message("hel"), Relation.BEHIND),
        (message("hello  "), message("hello"), Relation.SAME),
        (message("hello"), message("goodbye"), Relation.DIVERGED),
        (message(status="running"), message(status="completed"), Relation.AHEAD),
        (message(status="error"), message(status="completed"), Relation.DIVERGED),
        (message(time={"created": 1}, cost=0), message(), Relation.AHEAD),
        (message(cost=2), message(), Relation.DIVERGED),
        (message("hel"), message("hello", time={"created": 1}), Relation.DIVERGED),
        (message(path={"cwd": "/a"}), message(path={"cwd": "/b"}), Relation.SAME),
        (message(summary={"title": "a"}), message(summary={"title": "b"}), Relation.SAME),
        (message(), message(summary={"title": "b"}), Relation.AHEAD),
    ],
)
def test_a_copy_is_the_same_ahead_behind_or_apart(
    ours: StoredMessage, theirs: StoredMessage, relation: Relation
) -> None:
    assert compare([ours], [theirs]) is relation
    opposite = {Relation.AHEAD: Relation.BEHIND, Relation.BEHIND: Relation.AHEAD}
    assert compare([theirs], [ours]) is opposite.get(relation, relation)


steps = st.lists(st.sampled_from(["prompt", "answer", "session", "tool", "fork"]), max_size=4)


def act_out(sample: Sample, sessions: list[Json], acts: list[str]) -> None:
    for act in acts:
        match act:
            case "session":
                sessions.append(sample.talk("new", 1))
            case "prompt":
                sample.prompt(sessions[-1], f"at {sample.clock}")
            case "fork":
                sessions.append(sample.fork(sessions[0]))
            case "tool":
                sample.tool(sample.messages(sessions[-1])[-1], output=f"at {sample.clock}")
            case _:
                sample.answer(sessions[-1], f"at {sample.clock}")


@settings(max_examples=25)
@given(before=steps, ours=steps, theirs=steps)
def test_any_two_histories_can_be_united_and_nothing_is_lost(
    before: list[str], ours: list[str], theirs: list[str]
) -> None:
    with TemporaryDirectory() as folder:
        there = Sample(Path(folder, "there"))
        shared = [there.talk("shared", 1)]
        act_out(there, shared, before)
        shutil.copytree(there.root, Path(folder, "here"))
        here = Sample(Path(folder, "here"))
        here.clock = there.clock + 10_000_000
        act_out(there, list(shared), theirs)
        act_out(here, list(shared), ours)
        kept = contents(here.root)
        bring(there.root, here.root)
        after = contents(here.root)
        assert {path: data for path, data in after.items() if path in kept and path.startswith("part")} == {
            path: data for path, data in kept.items() if path.startswith("part")
        }
        text = {json.loads(data).get("text") for path, data in contents(there.root).items() if path.startswith("part")}
        assert text <= {json.loads(data).get("text") for path, data in after.items() if path.startswith("part")}
        assert set(acts(bring(there.root, here.root))) <= {"unchanged"}
        assert contents(here.root) == after
