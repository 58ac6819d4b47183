from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opensesh.errors import NotFoundError, RecordError
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.memory import Memory
from opensesh.storage.merged import MergedStore
from opensesh.storage.protocol import Damage, store_ids

SESSION = ("session", "global", "ses_x")


def session(title: str, updated: int) -> dict[str, Any]:
    return {"id": "ses_x", "title": title, "time": {"created": 1, "updated": updated}}


def message(name: str, created: int, **more: Any) -> dict[str, Any]:
    return {"id": name, "sessionID": "ses_x", "role": "user", "time": {"created": created} | more}


def tool(status: str) -> dict[str, Any]:
    return {"id": "prt_2", "type": "tool", "tool": "bash", "state": {"status": status, "input": {}}}


@pytest.fixture
def old() -> Memory:
    return Memory()


@pytest.fixture
def tree(tmp_path: Path) -> JsonTree:
    return JsonTree(tmp_path / "storage", durability="relaxed")


@pytest.fixture
def union(tree: JsonTree, old: Memory, tmp_path: Path) -> MergedStore:
    return MergedStore(str(tmp_path), [tree, old])


def test_new_records_go_to_the_first_store_and_known_ones_stay(union: MergedStore, tree: JsonTree, old: Memory) -> None:
    old.write(("todo", "ses_x"), [1])
    union.write(("todo", "ses_x"), [2])
    union.write(("todo", "ses_y"), [3])
    union.update(("todo", "ses_x"), lambda todos: todos.append(4))
    assert (old.read(("todo", "ses_x")), tree.list()) == ([2, 4], [("todo", "ses_y")])
    union.remove(("todo", "ses_x"))
    assert old.list() == []
    with pytest.raises(NotFoundError):
        union.read(("todo", "ses_x"))


def test_a_record_is_located_in_the_store_that_holds_it(union: MergedStore, tree: JsonTree, old: Memory) -> None:
    old.write(("todo", "ses_x"), [1])
    assert union.locate(("todo", "ses_x")) == old.locate(("todo", "ses_x"))
    assert union.locate(("todo", "ses_y")) == tree.locate(("todo", "ses_y"))


def test_the_most_recently_updated_copy_of_a_session_counts(union: MergedStore, tree: JsonTree, old: Memory) -> None:
    tree.write(SESSION, session("stale", 5))
    old.write(SESSION, session("fresh", 9))
    assert union.read(SESSION)["title"] == "fresh"
    assert [value["title"] for _, value in union.scan(("session",))] == ["fresh"]
    union.update(SESSION, lambda record: record.update(title="renamed"))
    assert old.read(SESSION)["title"] == "renamed"
    assert tree.read(SESSION)["title"] == "stale"


def test_a_session_filed_under_two_projects_is_seen_once(union: MergedStore, tree: JsonTree, old: Memory) -> None:
    tree.write(("session", "abc", "ses_x"), session("fresh", 9))
    old.write(SESSION, session("stale", 5))
    assert [(key, value["title"]) for key, value in union.scan(("session",))] == [
        (("session", "abc", "ses_x"), "fresh")
    ]
    assert list(union.scan(("session", "abc"))) == list(union.scan(("session",)))
    assert list(union.scan(("session", "global"))) == []


def test_records_of_different_kinds_with_one_name_do_not_hide_each_other(
    union: MergedStore, tree: JsonTree, old: Memory
) -> None:
    tree.write(("todo", "ses_x"), [1])
    tree.write(("session_diff", "ses_x"), [2])
    old.write(SESSION, session("a", 9))
    assert [key for key, _ in union.scan(())] == [SESSION, ("session_diff", "ses_x"), ("todo", "ses_x")]


def test_a_scan_over_all_stores_is_in_key_order(union: MergedStore, tree: JsonTree, old: Memory) -> None:
    for number in range(10):
        (tree if number % 3 else old).write(("todo", f"ses_{number}"), [number])
    result = list(union.scan(("todo",)))
    assert [key for key, _ in result] == union.list(("todo",)) == [("todo", f"ses_{number}") for number in range(10)]
    origins = [store is tree for store, _, _ in union.origins(("todo",))]
    assert origins == [bool(number % 3) for number in range(10)]


def test_a_damaged_copy_does_not_hide_a_healthy_one(union: MergedStore, tree: JsonTree, old: Memory) -> None:
    for key in (SESSION, ("todo", "ses_x")):
        tree.write(key, {})
        Path(tree.locate(key)).write_bytes(b"{torn")
        old.write(key, session("healthy", 1))
        assert union.read(key)["title"] == "healthy"
        union.update(key, lambda record: record.update(title="edited"))
        assert old.read(key)["title"] == "edited"
        reports: list[Damage] = []
        assert [value["title"] for _, value in union.scan(key[:1], report=reports.append)] == ["edited"]
        assert [report.path for report in reports] == [tree.locate(key)]


def test_a_record_damaged_everywhere_is_named(union: MergedStore, tree: JsonTree) -> None:
    tree.write(SESSION, {})
    Path(tree.locate(SESSION)).write_bytes(b"{torn")
    with pytest.raises(RecordError, match="torn"):
        union.read(SESSION)
    with pytest.raises(RecordError, match="torn"):
        union.update(SESSION, print)


def test_what_only_a_later_store_has_and_cannot_read_is_reported_there(tree: JsonTree, tmp_path: Path) -> None:
    second = JsonTree(tmp_path / "second", durability="relaxed")
    union = MergedStore(str(tmp_path), [tree, second])
    for key in (SESSION, ("message", "ses_x", "msg_1")):
        second.write(key, {})
        Path(second.locate(key)).write_bytes(b"{torn")
    with pytest.raises(RecordError, match="torn") as caught:
        union.read(SESSION)
    assert caught.value.path == second.locate(SESSION)
    reports: list[Damage] = []
    assert list(union.messages("ses_x", report=reports.append)) == []
    assert [report.path for report in reports] == [second.locate(("message", "ses_x", "msg_1"))]


def test_stores_are_known_by_where_they_are_the_one_that_is_written_first(tree: JsonTree, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(tmp_path)
    second = JsonTree(tmp_path / "alias" / "second")
    assert store_ids(MergedStore(str(tmp_path), [tree, second])) == [
        tree.place,
        str(tmp_path / "second"),
        str(tmp_path),
    ]
    assert store_ids(tree) == [tree.place]


def test_messages_of_all_stores_come_together_by_time(union: MergedStore, tree: JsonTree, old: Memory) -> None:
    for number in range(12):
        name = f"msg_{number:012x}0"
        (tree if number % 3 else old).write(("message", "ses_x", name), message(name, 12 - number))
    result = [item.info["time"]["created"] for item in union.messages("ses_x")]
    assert result == list(range(1, 13))
    for last in range(1, 14):
        assert [item.info["time"]["created"] for item in union.messages("ses_x", last=last)] == result[-last:]


def test_of_two_copies_the_fuller_one_counts_record_by_record(union: MergedStore, tree: JsonTree, old: Memory) -> None:
    tree.write(("message", "ses_x", "msg_1"), message("msg_1", 1))
    old.write(("message", "ses_x", "msg_1"), message("msg_1", 1, completed=2))
    (result,) = union.messages("ses_x")
    assert result.info["time"] == {"created": 1, "completed": 2}
    tree.write(("part", "msg_1", "prt_1"), {"id": "prt_1", "type": "text", "text": "all of it"})
    tree.write(("part", "msg_1", "prt_2"), tool("running"))
    old.write(("part", "msg_1", "prt_1"), {"id": "prt_1", "type": "text", "text": "all"})
    old.write(("part", "msg_1", "prt_2"), tool("completed"))
    old.write(("part", "msg_1", "prt_3"), {"id": "prt_3", "type": "step-finish"})
    (result,) = union.messages("ses_x")
    assert result.info["time"] == {"created": 1, "completed": 2}
    assert [part.get("text") or part.get("state", {}).get("status") for part in result.parts] == [
        "all of it",
        "completed",
        None,
    ]
    assert union.read(("part", "msg_1", "prt_2"))["state"]["status"] == "completed"
    assert union.locate(("part", "msg_1", "prt_1")) == tree.locate(("part", "msg_1", "prt_1"))
    assert [value["id"] for _, value in union.scan(("part", "msg_1"))] == ["prt_1", "prt_2", "prt_3"]


def text(words: str, **time: int) -> dict[str, Any]:
    return {"id": "prt_1", "type": "text", "text": words} | ({"time": time} if time else {})


@pytest.mark.parametrize(
    ("key", "lesser", "fuller"),
    [
        (SESSION, {"time": {"created": 1}}, {"time": {"created": 2}}),
        (SESSION, {"time": {"created": 1, "updated": "soon"}}, {"time": {"created": 1, "updated": 2}}),
        (SESSION, "no session", {"time": {"created": 1}}),
        (("message", "ses_x", "msg_1"), message("msg_1", 1) | {"more": 1}, message("msg_1", 1, completed=2)),
        (
            ("message", "ses_x", "msg_1"),
            message("msg_1", 1) | {"cost": 1, "more": 1},
            message("msg_1", 1) | {"error": {"name": "x"}},
        ),
        (("message", "ses_x", "msg_1"), message("msg_1", 1), message("msg_1", 1) | {"more": 1}),
        (("part", "msg_1", "prt_1"), text("a longer one", start=1), text("ended", start=1, end=2)),
        (("part", "msg_1", "prt_1"), text("short"), text("longer")),
        (("part", "msg_1", "prt_2"), tool("pending") | {"text": "more"}, tool("running")),
        (("part", "msg_1", "prt_2"), tool("running"), tool("error")),
        (
            ("part", "msg_1", "prt_2"),
            {"id": "prt_2", "state": {"status": "completed", "output": "a"}},
            {"id": "prt_2", "state": {"status": "completed", "output": "all"}},
        ),
        (
            ("part", "msg_1", "prt_2"),
            {"id": "prt_2", "state": {"status": "error", "error": "a"}},
            {"id": "prt_2", "state": {"status": "error", "error": "all"}},
        ),
    ],
)
def test_the_fuller_copy_is_read_whichever_store_has_it(
    union: MergedStore, tree: JsonTree, old: Memory, key: Any, lesser: Any, fuller: Any
) -> None:
    for first, second in ((lesser, fuller), (fuller, lesser)):
        tree.write(key, first)
        old.write(key, second)
        assert union.read(key) == fuller
        assert [value for _, value in union.scan(key[:1])] == [fuller]


def test_of_two_lists_the_first_store_has_the_one_that_counts(union: MergedStore, tree: JsonTree, old: Memory) -> None:
    tree.write(("todo", "ses_x"), [1])
    old.write(("todo", "ses_x"), [1, 2])
    assert union.read(("todo", "ses_x")) == [1]


def test_a_write_goes_to_the_first_store_that_has_the_record_but_a_session_follows_its_newest(
    union: MergedStore, tree: JsonTree, old: Memory
) -> None:
    part = ("part", "msg_1", "prt_2")
    tree.write(part, tool("running"))
    old.write(part, tool("completed"))
    union.write(part, tool("error"))
    assert (tree.read(part), old.read(part)) == (tool("error"), tool("completed"))
    tree.write(SESSION, session("stale", 5))
    old.write(SESSION, session("fresh", 9))
    union.write(SESSION, session("written", 10))
    assert (tree.read(SESSION)["title"], old.read(SESSION)["title"]) == ("stale", "written")


def test_a_damaged_record_is_located_and_written_where_it_is(tree: JsonTree, tmp_path: Path) -> None:
    second = JsonTree(tmp_path / "second", durability="relaxed")
    union = MergedStore(str(tmp_path), [tree, second])
    second.write(SESSION, {})
    Path(second.locate(SESSION)).write_bytes(b"{torn")
    assert union.locate(SESSION) == second.locate(SESSION)
    union.write(SESSION, session("mended", 1))
    assert second.read(SESSION)["title"] == "mended"
    assert tree.list() == []


def test_a_session_filed_twice_hides_neither_its_todos_nor_a_readable_copy(
    union: MergedStore, tree: JsonTree, old: Memory
) -> None:
    moved = ("session", "abc", "ses_x")
    tree.write(moved, session("moved", 9))
    old.write(SESSION, session("before", 9))
    old.write(("todo", "ses_x"), [1])
    assert [key for key, _ in union.scan(())] == [moved, ("todo", "ses_x")]
    Path(tree.locate(moved)).write_bytes(b"{torn")
    reports: list[Damage] = []
    assert [key for key, _ in union.scan(("session",), report=reports.append)] == [SESSION]
    assert [report.path for report in reports] == [tree.locate(moved)]


def test_the_store_of_a_copy_can_be_found(union: MergedStore, tree: JsonTree, old: Memory) -> None:
    tree.write(SESSION, session("stale", 5))
    old.write(SESSION, session("fresh", 9))
    assert union.stores_with(SESSION) == [tree, old]
    assert union.stores_with(("session", "global", "ses_y")) == []
    assert [store for store, _, _ in union.origins(("session",))] == [old]


def test_what_the_newest_generation_keeps_without_names_is_not_listed_beside_what_has_them(
    union: MergedStore, tree: JsonTree, old: Memory
) -> None:
    def text(name: str, words: str) -> dict[str, Any]:
        return {"id": name, "messageID": "msg_1", "type": "text", "text": words}

    tree.write(("message", "ses_x", "msg_1"), message("msg_1", 1))
    tree.write(("part", "msg_1", "prt_named"), text("prt_named", "Hello."))
    old.write(("message", "ses_x", "msg_1"), message("msg_1", 1) | {"v2": {"type": "user"}})
    old.write(("part", "msg_1", "prt_1-00000"), text("prt_1-00000", "Hello."))
    old.write(("message", "ses_x", "msg_2"), message("msg_2", 2) | {"v2": {"type": "user"}})
    old.write(("part", "msg_2", "prt_2-00000"), text("prt_2-00000", "And?"))
    reported = [("msg_1", ["prt_named"]), ("msg_2", ["prt_2-00000"])]
    assert [(info["id"], [part["id"] for part in parts]) for info, parts in union.messages("ses_x")] == reported
    keys = [("part", "msg_1", "prt_named"), ("part", "msg_2", "prt_2-00000")]
    assert union.list(("part",)) == keys
    assert [key for key, _ in union.scan(("part",))] == keys


@pytest.mark.parametrize("named", [True, False])
def test_a_compaction_has_one_summary_whichever_generation_tells_of_it(
    union: MergedStore, tree: JsonTree, old: Memory, named: bool
) -> None:
    for name, created in (("msg_1", 1), ("msg_1-summary", 2)):
        old.write(("message", "ses_x", name), message(name, created))
    second = "msg_2" if named else "msg_1-summary"
    for name, created in (("msg_1", 1), (second, 2)):
        tree.write(("message", "ses_x", name), message(name, created))
    assert [item.info["id"] for item in union.messages("ses_x")] == ["msg_1", second]
    assert [key[-1] for key in union.list(("message", "ses_x"))] == ["msg_1", second]
    assert [key[-1] for key, _ in union.scan(("message",))] == ["msg_1", second]
