from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from opensesh.errors import NotFoundError
from opensesh.history.library import Library
from opensesh.history.session_changes import OpenedLines, prompt_changes, session_changes, unified_diff
from opensesh.history.session_figures import session_figures
from opensesh.history.session_outline import outline
from opensesh.history.session_turns import DamagedMessage, SessionTurns, TurnOrders, turn_id
from opensesh.history.stats.usage_stats import statistics
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.protocol import Damage, Key, log_damage

from .sample_tree import Json, Sample


def turns_of(sample: Sample, session: Json, orders: TurnOrders | None = None) -> SessionTurns:
    return SessionTurns(JsonTree(sample.root), session["id"], orders or TurnOrders())


def names(turns: SessionTurns, start: int, limit: int) -> list[str]:
    return [turn_id(turn) for turn in turns.read(start, limit)]


def test_any_turns_can_be_read_by_position(sample: Sample) -> None:
    session = sample.talk(answers=150)
    expected = [info["id"] for info in sample.messages(session)]
    turns = turns_of(sample, session)
    assert turns.total == 300
    assert names(turns, 0, 50) == expected[:50]
    assert names(turns, 120, 50) == expected[120:170]
    assert names(turns, 250, 100) == expected[250:]
    assert names(turns, 300, 50) == []
    assert [turns.position(expected[at]) for at in (0, 149, 299)] == [0, 149, 299]
    assert [len(getattr(turn, "parts", [])) for turn in turns.read(2, 2)] == [1, 3]
    with pytest.raises(NotFoundError):
        turns.position("msg_nothing")


def test_the_order_of_a_session_is_read_once_until_messages_are_added(sample: Sample) -> None:
    session = sample.talk(answers=120)
    orders = TurnOrders()
    scans: list[Key] = []

    class Counting(JsonTree):
        def scan(self, prefix: Key, *, report: Callable[[Damage], None] = log_damage) -> Iterator[tuple[Key, Any]]:
            scans.append(prefix)
            return super().scan(prefix, report=report)

    counting = Counting(sample.root)
    for _ in range(3):
        SessionTurns(counting, session["id"], orders).read(0, 10)
    assert scans.count(("message", session["id"])) == 1
    sample.prompt(session)
    assert SessionTurns(counting, session["id"], orders).read(0, 1)
    assert scans.count(("message", session["id"])) == 2


def test_a_message_made_by_another_clock_has_the_position_of_its_time(sample: Sample) -> None:
    session = sample.talk(answers=120)
    infos = sample.messages(session)
    moved: Json = infos[200] | {"time": {"created": infos[3]["time"]["created"] + 1}}
    sample.write(("message", session["id"], moved["id"]), moved)
    turns = turns_of(sample, session)
    assert names(turns, 0, 6)[4] == moved["id"]
    assert turns.position(moved["id"]) == 4


@pytest.mark.parametrize("answers", [5, 150])
def test_a_damaged_message_keeps_its_position(sample: Sample, answers: int) -> None:
    session = sample.talk(answers=answers)
    infos = sample.messages(session)
    path = sample.root / "message" / session["id"] / f"{infos[4]['id']}.json"
    path.write_text('{"id": "msg')
    turns = turns_of(sample, session)
    assert turns.total == 2 * answers
    damaged = turns.read(0, 10)[4]
    assert isinstance(damaged, DamagedMessage)
    assert (damaged.id, damaged.path) == (infos[4]["id"], str(path))
    assert damaged.reason
    assert names(turns, 0, 10) == [info["id"] for info in infos[:10]]


def test_a_damaged_part_is_reported(sample: Sample) -> None:
    session = sample.talk(answers=150)
    [part, *_] = (sample.root / "part" / sample.messages(session)[0]["id"]).glob("*.json")
    part.write_text("{")
    turns = turns_of(sample, session)
    turns.read(0, 5)
    assert [damage.path for damage in turns.damage] == [str(part)]


def test_a_part_is_found_by_its_id_alone(sample: Sample) -> None:
    session = sample.talk(answers=60)
    message = sample.messages(session)[31]
    part = sample.tool(message)  # made much later than its message
    turns = turns_of(sample, session)
    assert turns.find_part(part["id"]) == (message["id"], part)
    with pytest.raises(NotFoundError):
        turns.find_part("prt_nothing")


def test_a_revision_changes_when_earlier_messages_do(sample: Sample) -> None:
    session = sample.talk(answers=3)
    before = turns_of(sample, session)
    sample.prompt(session)
    assert turns_of(sample, session).revision(6) == before.revision(6)
    (sample.root / "message" / session["id"] / f"{sample.messages(session)[0]['id']}.json").unlink()
    assert turns_of(sample, session).revision(6) != before.revision(6)


def test_a_whole_id_is_found_without_reading_other_sessions(sample: Sample) -> None:
    session, other = sample.talk("one"), sample.talk("two")
    (sample.root / "session" / "proj" / f"{other['id']}.json").write_text("{")
    library = Library(store=JsonTree(sample.root))
    assert library.session(session["id"]).title == "one"
    assert library.damage == []


def test_the_outline_says_what_each_message_is(sample: Sample) -> None:
    session = sample.session()
    sample.prompt(session, "Why   does\nit fail?")
    answer = sample.answer(session, "x" * 100)
    sample.tool(answer, "bash", metadata={"exit": 2}, output="y" * 50)
    failed = sample.answer(session, "", error={"name": "APIError", "data": {"message": "no"}})
    compacted = sample.prompt(session, "")
    sample.part(compacted, type="compaction", auto=True)
    rows = list(outline(JsonTree(sample.root).messages(session["id"])))
    assert [(row.role, row.size, row.flags, row.words) for row in rows] == [
        ("user", 19, "", "Why does it fail?"),
        ("assistant", 150, "ft", ""),
        ("assistant", 0, "e", ""),
        ("user", 0, "c", ""),
    ]
    assert rows[2].id == failed["id"]


def test_changes_are_those_that_were_recorded_or_those_of_the_calls(sample: Sample) -> None:
    session = sample.session()
    prompt = sample.prompt(session)
    answer = sample.answer(session)
    diff = "--- a\n+++ a\n@@ -1,1 +1,2 @@\n-old\n+new\n+more\n"
    sample.tool(answer, "edit", input={"filePath": "/srv/a.py"}, metadata={"diff": diff})
    sample.tool(answer, "edit", "error", input={"filePath": "/srv/b.py"}, error="no")
    second = sample.prompt(session, "then")
    store = JsonTree(sample.root)
    [called] = session_changes(store, session["id"], store.messages(session["id"]))
    assert (called.path, called.additions, called.deletions) == ("/srv/a.py", 2, 1)
    assert prompt_changes(store.messages(session["id"]), prompt["id"]) == [called]
    assert prompt_changes(store.messages(session["id"]), second["id"]) == []
    files = [
        {"file": "a.py", "before": "old\n", "after": "new\n", "additions": 1, "deletions": 1},
        {"file": "b.py", "before": "", "after": "x\n", "additions": 1, "deletions": 0},
        {"file": "c.py", "patch": "@@ -1 +0,0 @@\n-x\n", "additions": 0, "deletions": 1, "status": "deleted"},
        {"file": "d.bin", "additions": 0, "deletions": 0},
        "damaged",
    ]
    sample.write(("session_diff", session["id"]), files)
    recorded = session_changes(store, session["id"], [])
    assert [(file.path, file.status) for file in recorded] == [
        ("a.py", "modified"),
        ("b.py", "added"),
        ("c.py", "deleted"),
        ("d.bin", "modified"),
    ]
    assert recorded[0].diff == "--- a.py\n+++ a.py\n@@ -1,1 +1,1 @@\n-old\n+new\n"
    assert recorded[3].diff == ""


def test_a_diff_of_two_texts_has_three_lines_of_context_and_says_what_has_no_end() -> None:
    before = "".join(f"{number}\n" for number in range(30))
    after = before.replace("5\n", "five\n", 1).replace("25\n", "") + "end"
    lines = unified_diff("f", before, after).split("\n")
    assert lines[2] == "@@ -3,7 +3,7 @@"
    assert [line for line in lines if line.startswith(("+", "-"))][2:] == ["-5", "+five", "-25", "+end"]
    assert lines[-2] == "\\ No newline at end of file"
    assert unified_diff("f", "x", "x") == ""
    same = [line[1:] for line in unified_diff("f", before, after, [(0, 99)]).split("\n") if line.startswith(" ")]
    assert same == [str(number) for number in range(30) if number not in (5, 25)]


def test_the_diff_of_a_file_has_all_of_its_lines_where_they_are_recorded(sample: Sample) -> None:
    session = sample.session()
    lines = "".join(f"line {number}\n" for number in range(100))
    record = {"file": "a.py", "before": lines, "after": lines.replace("50", "fifty"), "additions": 1, "deletions": 1}
    patched = {"file": "b.py", "patch": "--- b.py\n+++ b.py\n@@ -1,1 +1,1 @@\n-x\n+y\n"}
    added = record | {"file": "c.py", "before": ""}
    sample.write(("session_diff", session["id"]), [record, patched, added])
    store = JsonTree(sample.root)
    short = session_changes(store, session["id"], [])
    whole = session_changes(store, session["id"], [], OpenedLines("a.py", ((0, 1000),)))
    assert [file.old_lines for file in short] == [100, 0, 0]
    assert " line 99\n" not in short[0].diff
    assert " line 0\n" in whole[0].diff
    assert " line 99\n" in whole[0].diff
    assert [file.document() for file in whole[1:]] == [file.document() for file in short[1:]]


def test_opened_lines_belong_to_the_hunk_beside_them() -> None:
    before = "".join(f"{number}\n" for number in range(1, 101))
    after = before.replace("30\n", "thirty\n").replace("80\n", "eighty\n")

    def hunks(*opened: tuple[int, int]) -> list[str]:
        return [line for line in unified_diff("f", before, after, opened).split("\n") if line.startswith("@@")]

    assert hunks() == ["@@ -27,7 +27,7 @@", "@@ -77,7 +77,7 @@"]
    assert hunks((33, 53)) == ["@@ -27,27 +27,27 @@", "@@ -77,7 +77,7 @@"]
    assert hunks((56, 76)) == ["@@ -27,7 +27,7 @@", "@@ -57,27 +57,27 @@"]
    assert hunks((83, 1000), (0, 26)) == ["@@ -1,33 +1,33 @@", "@@ -77,24 +77,24 @@"]
    assert hunks((33, 60), (50, 76)) == ["@@ -27,57 +27,57 @@"]
    assert hunks((40, 50)) == hunks()


def test_the_patch_of_a_newer_opencode_is_shown_like_both_texts(sample: Sample) -> None:
    before = "".join(f"{number}\n" for number in range(40)) + "end"
    after = before.replace("20\n", "twenty\n").replace("end", "END")
    body = "".join(f" {number}\n" for number in range(20)) + "-20\n+twenty\n"
    body += "".join(f" {number}\n" for number in range(21, 40))
    body += "-end\n\\ No newline at end of file\n+END\n\\ No newline at end of file\n"
    patch = f"Index: f\n{'=' * 67}\n--- f\t\n+++ f\t\n@@ -1,41 +1,41 @@\n{body}"
    session = sample.talk()
    for record in (
        {"before": before, "after": after},
        {"patch": patch},
        {"patch": "--- f\n+++ f\n@@ -1 +1 @@\n-a\n+b\n"},
    ):
        sample.write(("session_diff", session["id"]), [{"file": "f", "additions": 2, "deletions": 2} | record])
        (change,) = session_changes(JsonTree(sample.root), session["id"], [])
        if record.get("patch", patch) == patch:
            assert change.diff == unified_diff("f", before, after)
            assert change.old_lines == 41
        else:
            assert change.diff == record["patch"]


def test_figures_add_up_what_the_session_used(sample: Sample) -> None:
    session = sample.talk(answers=2)
    child = sample.session("child", parent=session["id"])
    sample.answer(child, cost=0.5)
    sample.write(("todo", session["id"]), [{"content": "dig", "status": "pending"}, 5])
    library = Library(store=JsonTree(sample.root))
    entry = library.session(session["id"])
    figures = session_figures(library, entry, library.store.messages(entry.id))
    assert (figures.usage.input, figures.usage.cache_read) == (2000, 1000)
    assert (str(entry.cost), str(figures.inclusive)) == ("0.50", "1.00")
    assert figures.context == 1650
    assert figures.window > 0
    assert [agent.title for agent in figures.subagents] == ["child"]
    assert figures.todos == [{"content": "dig", "status": "pending"}]
    assert figures.repriced is not None


def test_figures_are_those_of_statistics_for_old_answers_of_several_calls_and_for_forks(sample: Sample) -> None:
    session = sample.talk(answers=1)
    old = sample.answer(session, finish=None)
    sample.part(old, type="step-finish", tokens={"input": 7, "output": 3, "reasoning": 0, "cache": {}})
    fork = sample.fork(session)
    sample.answer(fork, cost=0.5)
    store = JsonTree(sample.root)
    library = Library(store=store)
    counted = {row.key: row.totals for row in statistics(store, "session").rows}
    for one in (session, fork):
        figures = session_figures(library, library.session(one["id"]), store.messages(one["id"]))
        assert figures.usage == counted[one["id"]]
    assert counted[session["id"]].input == 2007
    assert counted[fork["id"]].input == 1000


def test_of_a_repeated_key_the_last_value_counts_wherever_a_record_is_read(sample: Sample) -> None:
    session = sample.talk(answers=1)
    prompt, answer = sample.messages(session)
    path = sample.path("message", session["id"], answer["id"])
    repeated = '"role": "user", "cost": 9, "role": "assistant", "cost": 2'
    path.write_text(path.read_text().replace('"cost": 0.25', repeated))
    store = JsonTree(sample.root)
    turns = SessionTurns(store, session["id"], TurnOrders()).read(0, 2)
    assert [turn.info["role"] for turn in turns if not isinstance(turn, DamagedMessage)] == ["user", "assistant"]
    rows = outline(store.messages(session["id"]))
    assert [(row.id, row.cost) for row in rows] == [(prompt["id"], 0), (answer["id"], 2)]
    assert statistics(store).total.document()["cost"] == 2


def test_messages_that_are_added_after_the_positions_were_read_do_not_shift_them(sample: Sample) -> None:
    session = sample.talk("Growing", answers=3)
    turns = turns_of(sample, session)
    before = names(turns, 0, turns.total)
    sample.prompt(session, "And then?")
    assert names(turns, 0, turns.total) == before
    assert turns.position(before[0]) == 0
