from __future__ import annotations

import sqlite3
from collections.abc import Collection
from decimal import Decimal
from pathlib import Path

import pytest

from opensesh.history.cache.derived_cache import DerivedCache
from opensesh.history.library import Library
from opensesh.history.search.text_layer import TEXT
from opensesh.history.search.text_search import Query, search
from opensesh.history.stats.usage_stats import statistics
from opensesh.storage import open_store
from opensesh.storage.locations import find_stores
from opensesh.storage.protocol import Damage

from .generations import CHILDREN, MONEY, SESSIONS, Generations, tear
from .sample_tree import Json


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Generations:
    return Generations(tmp_path_factory.mktemp("generations"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def seen(data: Path) -> set[str]:
    """Every session that a list with children shows."""
    return {item.id for _, item in Library(str(data)).records()}


def money(data: Path) -> Decimal:
    total = statistics(open_store(str(data)), "session").total.document()["cost"]
    return Decimal(str(total)).quantize(Decimal("0.000001"))


def found(data: Path) -> tuple[int, int]:
    """How many answers a search for a word of every one finds, and in how many sessions."""
    index = DerivedCache(find_stores(str(data)))
    index.refresh(TEXT)
    hits = search(index, Query("answer", limit=0)).hits
    index.close()
    return len(hits), len({hit.session for hit in hits})


def said(data: Path, session: Json) -> list[str]:
    store = open_store(str(data))
    return [part["text"] for _, parts in store.messages(session["id"]) for part in parts if part["type"] == "text"]


def assert_whole(data: Path, truth: Generations) -> None:
    assert seen(data) == {session["id"] for session in truth.sessions}
    assert money(data) == MONEY
    answers = sum(info["role"] == "assistant" for messages in truth.messages.values() for info in messages)
    assert found(data) == (answers, SESSIONS)
    store = open_store(str(data))
    for session in truth.sessions:
        messages = store.messages(session["id"])
        assert [message.info["id"] for message in messages] == [
            message["id"] for message in truth.messages[session["id"]]
        ]
    assert said(data, truth.sessions[0]) == said(truth.sample.root.parent, truth.sessions[0])


def test_the_truth_is_as_described(truth: Generations) -> None:
    assert len(truth.sessions) == SESSIONS
    assert sum("parentID" in session for session in truth.sessions) == CHILDREN
    answers = [info for messages in truth.messages.values() for info in messages if info["role"] == "assistant"]
    assert sum(Decimal(str(info["cost"])) for info in answers) == MONEY


def test_the_json_tree(truth: Generations, data: Path) -> None:
    truth.tree(data)
    assert_whole(data, truth)


def test_the_tables_of_one(truth: Generations, data: Path) -> None:
    truth.v1(data, truth.sessions)
    assert_whole(data, truth)


def test_the_tables_of_two(truth: Generations, data: Path) -> None:
    truth.v2(data, truth.sessions)
    assert_whole(data, truth)


def test_the_same_sessions_in_both_tables(truth: Generations, data: Path) -> None:
    truth.v1(data, truth.sessions)
    truth.v2(data, truth.sessions)
    assert_whole(data, truth)


def test_the_same_sessions_in_the_tree_and_the_newest_tables(truth: Generations, data: Path) -> None:
    truth.tree(data)
    truth.v2(data, truth.sessions)
    assert_whole(data, truth)


def test_sessions_begun_after_the_move_to_the_new_tables(truth: Generations, data: Path) -> None:
    truth.v1(data, truth.sessions)
    truth.v2(data, truth.sessions[:40])
    assert_whole(data, truth)


def test_all_three_generations_at_once_and_another_channel(truth: Generations, data: Path) -> None:
    truth.tree(data)
    truth.v1(data, truth.sessions)
    truth.v2(data, truth.sessions)
    (data / "opencode.db").rename(data / "opencode-dev.db")
    truth.v1(data, truth.sessions[:20])
    assert_whole(data, truth)


@pytest.mark.parametrize("whole", [30, 0, 59])
def test_a_migration_that_stopped_on_the_way(truth: Generations, data: Path, whole: int) -> None:
    truth.tree(data)
    truth.v1(data, truth.sessions[: whole + 1], cut=truth.sessions[whole]["id"])
    assert_whole(data, truth)


def test_a_migration_whose_first_half_was_deleted_from_the_tree(truth: Generations, data: Path) -> None:
    tree = truth.tree(data)
    for session in truth.sessions[:30]:
        tree.path("session", "proj", session["id"]).unlink()
        for info in truth.messages[session["id"]]:
            tree.path("message", session["id"], info["id"]).unlink()
    truth.v1(data, truth.sessions[:30])
    assert_whole(data, truth)


def test_three_forks_are_billed_once(truth: Generations, data: Path) -> None:
    tree = truth.tree(data)
    forks = [tree.fork(session) for session in truth.sessions[10:13]]
    assert seen(data) == {item["id"] for item in (*truth.sessions, *forks)}
    assert money(data) == MONEY


def test_three_forks_in_a_database_are_billed_once(truth: Generations, data: Path) -> None:
    truth.v1(data, truth.sessions)
    with sqlite3.connect(data / "opencode.db") as database:
        for session in truth.sessions[10:13]:
            _copy(database, session, truth.sample.clock)
    database.close()
    assert len(seen(data)) == SESSIONS + 3
    assert money(data) == MONEY


def _copy(database: sqlite3.Connection, session: Json, clock: int) -> None:
    name = session["id"] + "f"
    database.execute(
        "INSERT INTO session SELECT ?, project_id, parent_id, slug, directory, title || ' (fork #1)', version, ?, ?, "
        "null FROM session WHERE id = ?",
        (name, clock, clock, session["id"]),
    )
    database.execute(
        "INSERT INTO message SELECT id || 'f', ?, time_created, time_updated, data FROM message WHERE session_id = ?",
        (name, session["id"]),
    )


def test_torn_files_cost_only_themselves(truth: Generations, data: Path) -> None:
    tree = truth.tree(data)
    one, two, three, four = truth.sessions[20:24]
    answers = {
        item["id"]: [info for info in truth.messages[item["id"]] if info["role"] == "assistant"]
        for item in truth.sessions
    }
    tear(tree.path("session", "proj", one["id"]))
    messages = [answers[item["id"]][0] for item in (two, three)]
    for info in messages:
        tear(tree.path("message", info["sessionID"], info["id"]))
    parts = [_last_part(tree.root / "part" / answers[item["id"]][-1]["id"]) for item in (four, truth.sessions[24])]
    for path in parts:
        tear(path)
    assert money(data) == MONEY - sum(Decimal(str(info["cost"])) for info in messages)
    assert seen(data) == {item["id"] for item in truth.sessions} - {one["id"]}
    assert _damaged_files(data, truth.sessions) == {
        tree.path("session", "proj", one["id"]),
        *(tree.path("message", info["sessionID"], info["id"]) for info in messages),
        *parts,
    }
    store = open_store(str(data))
    for session in truth.sessions:
        kept = [message.info["id"] for message in store.messages(session["id"], report=lambda damage: None)]
        torn = {info["id"] for info in messages}
        assert kept == [info["id"] for info in truth.messages[session["id"]] if info["id"] not in torn]


def _last_part(folder: Path) -> Path:
    return max(folder.glob("*.json"))


def _damaged_files(data: Path, sessions: Collection[Json]) -> set[Path]:
    """The files that reading everything complains of."""
    library, damage = Library(str(data)), list[Damage]()
    library.damage = damage
    list(library.records())
    for session in sessions:
        library.store.messages(session["id"], report=damage.append)
    return {Path(path) for path, _ in damage}
