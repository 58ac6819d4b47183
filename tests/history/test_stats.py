from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from opensesh.history.cache.derived_cache import DerivedCache
from opensesh.history.stats.session_usage import SessionInfo
from opensesh.history.stats.tool_stats import by_tool
from opensesh.history.stats.usage_layer import UsageTable
from opensesh.history.stats.usage_stats import Statistics, StatsRow, UsageFilter, add_up, statistics
from opensesh.storage import Store, open_store
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.memory import Memory
from opensesh.storage.protocol import Damage

from .sample_tree import DAY, START, Sample

FIXTURES = Path(__file__).parents[1] / "fixtures"


def usage_of(store: Store, *, fresh: bool = False) -> UsageTable:
    return UsageTable(DerivedCache(store=store, temporary=fresh))


def rows(result: Statistics) -> dict[str, StatsRow]:
    return {row.key: row for row in result.rows}


def costs(result: Statistics) -> dict[str, float]:
    return {row.key: row.document()["cost"] for row in result.rows}


def age(root: Path, seconds: int = 60) -> None:
    """Make everything look as if it had been written a while ago, so that a cache may rely on it."""
    then = time.time() - seconds
    for base, folders, names in os.walk(root):
        for name in (*folders, *names):
            os.utime(os.path.join(base, name), (then, then))


def test_tokens_and_cost_add_up_in_their_buckets(sample: Sample) -> None:
    sample.talk(answers=3)
    total = statistics(JsonTree(sample.root)).total.document()
    assert total["tokens"] == {"input": 3000, "output": 300, "reasoning": 30, "cache": {"read": 1500, "write": 150}}
    assert (total["cost"], total["messages"], total["answers"], total["sessions"]) == (0.75, 6, 3, 1)


def test_money_is_summed_without_rounding_errors(sample: Sample) -> None:
    session = sample.session()
    for _ in range(10):
        sample.answer(session, cost=0.1)
    assert statistics(JsonTree(sample.root)).total.document()["cost"] == 1.0


def test_days_are_those_on_which_tokens_were_spent_not_those_of_the_session(sample: Sample) -> None:
    session = sample.session()
    sample.answer(session, cost=1)
    sample.clock += 3 * DAY
    sample.answer(session, cost=2)
    assert costs(statistics(JsonTree(sample.root), "day", utc=True)) == {"2026-09-21": 1, "2026-09-24": 2}


def test_months_are_made_of_those_days_and_stand_in_their_order(sample: Sample) -> None:
    session = sample.session()
    sample.answer(session, cost=9)
    sample.clock += 12 * DAY
    sample.answer(session, cost=1)
    assert list(costs(statistics(JsonTree(sample.root), "month", utc=True)).items()) == [("2026-09", 9), ("2026-10", 1)]


def test_since_and_until_count_single_messages(sample: Sample) -> None:
    session = sample.session()
    first = sample.answer(session, cost=1)["time"]["created"]
    second = sample.answer(session, cost=2)["time"]["created"]
    sample.answer(session, cost=4)
    store = JsonTree(sample.root)
    assert statistics(store, "day", UsageFilter(since=second)).total.document()["cost"] == 6
    assert statistics(store, "day", UsageFilter(until=second)).total.document()["cost"] == 1
    assert statistics(store, "day", UsageFilter(since=first + 1, until=second + 1)).total.document()["cost"] == 2


def test_groups_by_model_agent_and_project(sample: Sample) -> None:
    one, other = sample.session(), sample.session(project="global")
    sample.answer(one, cost=1, agent="plan", mode="plan")
    sample.answer(other, cost=2, modelID="gpt-5", providerID="openai")
    store = JsonTree(sample.root)
    assert {key: row.document()["cost"] for key, row in rows(statistics(store, "agent")).items()} == {
        "plan": 1,
        "build": 2,
    }
    assert set(rows(statistics(store, "model"))) == {"anthropic/claude-sonnet-4-5", "openai/gpt-5"}
    assert costs(statistics(store, "project")) == {"proj": 1, "/srv/dev/shop": 2}

    def in_the_shop(facts: SessionInfo | None) -> bool:
        return facts is not None and facts.project == "proj"

    assert statistics(store, "project", UsageFilter(session=in_the_shop)).total.document()["cost"] == 1


def test_a_session_includes_its_subagents_and_the_total_counts_them_once(sample: Sample) -> None:
    root = sample.talk("root", 2)
    child = sample.talk("child", 1, parent=root["id"])
    grandchild = sample.talk("grandchild", 1, parent=child["id"])
    result = rows(statistics(JsonTree(sample.root), "session"))
    own = {key: row.document()["cost"] for key, row in result.items()}
    inclusive = {key: row.document()["inclusive"]["cost"] for key, row in result.items()}
    assert own == {root["id"]: 0.5, child["id"]: 0.25, grandchild["id"]: 0.25}
    assert inclusive == {root["id"]: 1.0, child["id"]: 0.5, grandchild["id"]: 0.25}
    assert statistics(JsonTree(sample.root), "session").total.document()["cost"] == 1.0


def test_a_parent_that_spent_nothing_still_has_a_row_with_its_children(sample: Sample) -> None:
    root = sample.session("root")
    sample.talk("child", 1, parent=root["id"])
    result = rows(statistics(JsonTree(sample.root), "session"))[root["id"]].document()
    assert (result["cost"], result["inclusive"]["cost"]) == (0, 0.25)


def test_a_circle_of_parents_ends(sample: Sample) -> None:
    one = sample.talk("one", 1)
    other = sample.talk("other", 1, parent=one["id"])
    sample.write(("session", "proj", one["id"]), one | {"parentID": other["id"]})
    result = statistics(JsonTree(sample.root), "session")
    assert result.total.document()["cost"] == 0.5


def test_stored_and_repriced_cost_stand_side_by_side_with_the_table_named(sample: Sample) -> None:
    sample.answer(sample.session(), cost=0.25)
    document = statistics(JsonTree(sample.root), "model").document()
    row = document["rows"][0]
    # 1000 at 3, 100 and 10 at 15, 500 at 0.30 and 50 at 3.75 dollars a million
    assert row["cost"] == 0.25
    assert row["repriced"] == pytest.approx(0.0049875)
    assert document["prices"]["date"] >= "2026-01-01"
    assert document["prices"]["table"]


def test_reasoning_that_a_provider_counted_as_output_is_not_priced_twice(sample: Sample) -> None:
    tokens = {"total": 1100, "input": 1000, "output": 100, "reasoning": 40, "cache": {"read": 0, "write": 0}}
    sample.answer(sample.session(), tokens=tokens)
    row = statistics(JsonTree(sample.root), "model").document()["rows"][0]
    assert row["repriced"] == pytest.approx((1000 * 3 + 100 * 15) / 1e6)
    assert row["tokens"]["output"] == 100


def test_what_has_no_price_is_unknown_and_not_nothing(sample: Sample) -> None:
    session = sample.session()
    sample.answer(session, cost=0, providerID="nobody", modelID="nothing")
    sample.answer(session, cost=0.5)
    total = statistics(JsonTree(sample.root), "model").total.document()
    assert total["repriced"] is None
    assert total["repricedKnown"] > 0
    assert (total["unpriced"], total["costless"]) == (1, 1)


def test_an_answer_of_several_steps_counts_the_tokens_of_all_of_them(sample: Sample) -> None:
    session = sample.session()
    message = sample.answer(session, cost=0.5)
    message.pop("finish")
    sample.write(("message", session["id"], message["id"]), message)
    sample.part(message, type="step-finish", reason="stop", cost=0.25, tokens=message["tokens"])
    assert statistics(JsonTree(sample.root)).total.document()["tokens"]["input"] == 2000


def test_torn_files_cost_only_themselves(sample: Sample) -> None:
    session, other = sample.talk(answers=3), sample.talk(answers=1)
    victim = sample.path("message", session["id"], sample.messages(session)[1]["id"])
    victim.write_bytes(victim.read_bytes()[:70])
    sample.path("session", "proj", other["id"]).write_bytes(b"")
    damage: list[Damage] = []
    result = statistics(JsonTree(sample.root), "project", report=damage.append)
    assert result.total.document()["cost"] == 0.75
    assert costs(result) == {"proj": 0.5, "(unknown)": 0.25}
    assert {Path(item.path).name for item in damage} == {victim.name, f"{other['id']}.json"}


def test_a_field_of_the_wrong_type_affects_only_that_field(sample: Sample) -> None:
    session = sample.session()
    sample.answer(session, cost=0.25, agent=7, tokens={"input": "many"})
    sample.answer(session, cost=0.5)
    total = statistics(JsonTree(sample.root)).total.document()
    assert (total["cost"], total["tokens"]["input"]) == (0.75, 1000)


def test_counts_that_were_not_numbers_when_they_were_stored_cost_themselves_alone(sample: Sample) -> None:
    session = sample.session()
    sample.answer(session, tokens={"input": None, "output": 5, "reasoning": None, "cache": {"read": None, "write": 7}})
    sample.answer(session, tokens={"input": 11, "output": 13, "cache": None})
    total = statistics(JsonTree(sample.root)).total.document()
    assert total["tokens"] == {"input": 11, "output": 18, "reasoning": 0, "cache": {"read": 0, "write": 7}}


def test_calls_beside_a_message_count_even_if_the_message_is_wrong(sample: Sample) -> None:
    call = {"time": {"created": START}, "providerID": "anthropic", "modelID": "claude-haiku-4-5", "cost": 0.125}
    sample.prompt(sample.session(), agent=7, opensesh={"calls": [call]})
    assert statistics(JsonTree(sample.root)).total.document()["cost"] == 0.125


@pytest.mark.parametrize("utc", [True, False])
@pytest.mark.parametrize("created", [10**20, -(10**20), 1e300, START * 1000])
def test_a_moment_that_no_calendar_has_is_on_an_unknown_day(sample: Sample, created: float, utc: bool) -> None:
    session = sample.session()
    sample.answer(session, cost=1, time={"created": created, "completed": created})
    sample.answer(session, cost=2)
    assert sorted(costs(statistics(JsonTree(sample.root), "day", utc=utc)).values()) == [1, 2]
    assert costs(statistics(JsonTree(sample.root), "day", utc=utc))["(unknown)"] == 1
    assert costs(statistics(JsonTree(sample.root), "month", utc=utc))["(unknown)"] == 1


def test_what_was_made_before_1970_counts_as_long_as_no_time_is_asked_for(sample: Sample) -> None:
    sample.answer(sample.session(), cost=1, time={"created": -DAY, "completed": -DAY})
    store = JsonTree(sample.root)
    assert costs(statistics(store, "day", utc=True)) == {"1969-12-31": 1}
    assert statistics(store, "day", UsageFilter(since=0)).rows == []


def test_copies_that_people_make_in_the_tree_are_not_counted(sample: Sample) -> None:
    session = sample.talk(answers=1)
    folder = sample.root / "message" / session["id"]
    shutil.copytree(folder, folder.with_name(f"{session['id']} copy"))
    for path in list(folder.glob("*.json")):
        shutil.copy(path, path.with_name(f"{path.stem} (1).json"))
    assert statistics(JsonTree(sample.root)).total.document()["cost"] == 0.25


def test_every_generation_is_counted_and_what_is_in_several_once() -> None:
    expected = statistics(open_store(str(FIXTURES / "opencode-1.1.65" / "storage")), fresh=True).total.document()
    again = statistics(open_store(str(FIXTURES / "opencode-1.2" / "opencode.db")), fresh=True).total.document()
    assert again == expected
    storage = FIXTURES / "opencode-1.1.65" / "storage"
    sessions = [json.loads(path.read_bytes()) for path in storage.glob("session/*/*.json")]
    originals = [session["id"] for session in sessions if not session["title"].endswith("(fork #1)")]
    messages = [json.loads(path.read_bytes()) for name in originals for path in (storage / "message" / name).iterdir()]
    assert len(originals) == len(sessions) - 2
    assert expected["cost"] == pytest.approx(sum(message.get("cost", 0) for message in messages))
    assert expected["messages"] == len(messages)


def test_a_partial_migration_is_complete(tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(FIXTURES / "opencode-1.1.65" / "storage", data / "storage")
    shutil.copy(FIXTURES / "opencode-1.2" / "opencode.db", data / "opencode.db")
    whole = statistics(open_store(str(data)), "session", fresh=True)
    for path in list((data / "storage" / "session").glob("*/*.json"))[::2]:
        shutil.rmtree(data / "storage" / "message" / path.stem)
        path.unlink()
    half = statistics(open_store(str(data)), "session", fresh=True)
    assert half.document() == whole.document()
    tree_alone = statistics(JsonTree(data / "storage"), "session", fresh=True)
    assert tree_alone.total.document()["cost"] < half.total.document()["cost"]


def test_a_session_that_two_stores_hold_differently_is_united(tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(FIXTURES / "opencode-1.1.65" / "storage", data / "storage")
    shutil.copy(FIXTURES / "opencode-1.2" / "opencode.db", data / "opencode.db")
    before = statistics(open_store(str(data)), fresh=True).total.document()
    folder = data / "storage" / "message" / "ses_e1f505ae8ffev56KO8VQGT1kHX"
    sorted(folder.glob("*.json"))[2].unlink()
    sample = Sample(data / "storage")
    sample.answer({"id": folder.name}, cost=1)
    after = statistics(open_store(str(data)), fresh=True).total.document()
    assert after["cost"] == pytest.approx(before["cost"] + 1)
    assert after["messages"] == before["messages"] + 1


def test_asking_again_gives_the_same_answer_from_the_cache(sample: Sample) -> None:
    for _ in range(3):
        sample.talk()
    sample.fork(sample.talk("forked"))
    age(sample.root)
    store = JsonTree(sample.root)
    first = statistics(store, "session").document()
    folder = sample.root / "message"
    hidden = folder.with_name("elsewhere")
    kept = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    folder.rename(hidden)
    for path, changed in kept.items():
        path.mkdir(parents=True)
        os.utime(path, ns=(changed, changed))
    assert statistics(store, "session").document() == first
    shutil.rmtree(folder)
    hidden.rename(folder)
    assert statistics(store, "session", fresh=True).document() == first


def test_what_is_new_or_finished_meanwhile_is_seen_at_once(sample: Sample) -> None:
    session = sample.talk(answers=1)
    running = sample.answer(session, cost=0)
    del running["time"]["completed"]
    path = sample.write(("message", session["id"], running["id"]), running)
    age(sample.root)
    store = JsonTree(sample.root)
    assert statistics(store).total.document()["cost"] == 0.25
    before = path.parent.stat().st_mtime_ns
    running["time"]["completed"], running["cost"] = START + DAY, 0.5
    path.write_bytes(json.dumps(running).encode())
    assert path.parent.stat().st_mtime_ns == before
    assert statistics(store).total.document()["cost"] == 0.75
    sample.answer(session, cost=1)
    assert statistics(store).total.document()["cost"] == 1.75
    shutil.rmtree(sample.root / "message" / session["id"])
    assert statistics(store).total.document()["cost"] == 0


def test_a_cache_that_is_damaged_or_cannot_be_written_is_not_a_reason_to_fail(sample: Sample, isolated: Path) -> None:
    sample.talk()
    age(sample.root)
    store = JsonTree(sample.root)
    expected = statistics(store).document()
    [cache] = (isolated / ".cache" / "opensesh").glob("index-*.db")
    for junk in (b"", b"\x00" * 100, cache.read_bytes()[:50]):
        cache.write_bytes(junk)
        assert statistics(store).document() == expected
    shutil.rmtree(cache.parent)
    cache.parent.write_text("in the way")
    assert statistics(store).document() == expected


def test_any_store_has_statistics() -> None:
    store = Memory()
    store.write(("session", "global", "ses_1"), {"id": "ses_1", "title": "t", "time": {"created": 1}})
    store.write(("message", "ses_1", "msg_1"), {"role": "assistant", "time": {"created": 2}, "cost": 3})
    store.write(("message", "ses_1", "msg_2"), {"role": "stranger", "time": {"created": 2}})
    damage: list[Damage] = []
    assert statistics(store, report=damage.append).total.document()["cost"] == 3
    assert len(damage) == 1


def test_tools_are_counted_with_errors_and_time_and_copies_once(sample: Sample) -> None:
    session = sample.talk(answers=2)
    first, second = (info for info in sample.messages(session) if info["role"] == "assistant")
    sample.tool(first)
    sample.tool(first, "read", "error")
    sample.tool(second)
    sample.tool(second, "edit", "running")
    sample.fork(session)
    age(sample.root)
    store = JsonTree(sample.root)
    for _ in range(2):
        result = {row.calls.tool: row.document() for row in by_tool(usage_of(store), UsageFilter())}
        assert {tool: (row["calls"], row["errors"], row["open"]) for tool, row in result.items()} == {
            "bash": (2, 0, 0),
            "read": (1, 1, 0),
            "edit": (1, 0, 1),
        }
        assert (result["bash"]["seconds"], result["bash"]["characters"], result["bash"]["cost"]) == (0.4, 8, None)
    late = UsageFilter(since=second["time"]["created"])
    assert {row.calls.tool for row in by_tool(usage_of(store), late)} == {"bash", "edit"}
    sample.tool(first, "write")
    assert "write" in {row.calls.tool for row in by_tool(usage_of(store), UsageFilter())}


def test_tools_of_a_database_are_those_of_the_tree_it_was_made_from() -> None:
    tree = usage_of(open_store(str(FIXTURES / "opencode-1.1.65" / "storage")), fresh=True)
    database = usage_of(open_store(str(FIXTURES / "opencode-1.2" / "opencode.db")), fresh=True)
    expected = [row.document() for row in by_tool(tree, UsageFilter())]
    assert [row.document() for row in by_tool(database, UsageFilter())] == expected
    assert expected[0]["calls"] == 4


def test_usage_can_be_added_up_in_several_ways(sample: Sample) -> None:
    sample.talk()
    usage = usage_of(JsonTree(sample.root))
    assert (
        add_up(usage, "day", UsageFilter()).total.document() == add_up(usage, "agent", UsageFilter()).total.document()
    )


def test_tools_of_a_message_that_does_not_say_when_are_counted() -> None:
    store = Memory()
    store.write(("message", "ses_1", "msg_1"), {"role": "assistant", "time": {"created": "yesterday"}})
    store.write(("part", "msg_1", "prt_1"), {"type": "tool", "tool": "bash", "state": {"status": "completed"}})
    [row] = by_tool(usage_of(store), UsageFilter())
    assert (row.calls.tool, row.calls.calls) == ("bash", 1)


def test_tool_calls_are_not_read_again_while_nothing_changes(sample: Sample) -> None:
    session = sample.talk()
    answer = sample.messages(session)[1]
    sample.tool(answer)
    age(sample.root)
    assert [row.calls.calls for row in by_tool(usage_of(JsonTree(sample.root)), UsageFilter())] == [1]
    shutil.rmtree(sample.root / "part" / answer["id"])
    assert [row.calls.calls for row in by_tool(usage_of(JsonTree(sample.root)), UsageFilter())] == [1]
    assert by_tool(usage_of(JsonTree(sample.root), fresh=True), UsageFilter()) == []


@pytest.mark.parametrize("cost", [True, "much", None, [], 1e400])
def test_a_cost_that_is_not_a_number_is_nothing(sample: Sample, cost: object) -> None:
    session = sample.session()
    message = sample.answer(session)
    path = sample.path("message", session["id"], message["id"])
    path.write_text(json.dumps(message | {"cost": cost}).replace("Infinity", "1e400"))
    sample.answer(session, cost=0.5)
    total = statistics(JsonTree(sample.root)).total.document()
    assert (total["cost"], total["tokens"]["input"]) == (0.5, 2000)
