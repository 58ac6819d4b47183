from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from opensesh import history
from opensesh.errors import AmbiguousError, NotFoundError
from opensesh.history.library import Library, SessionFilter
from opensesh.storage.memory import Memory
from opensesh.storage.protocol import Damage, Key, log_damage

from .sample_stores import START, Database, Tree

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "opencode" / "storage")


@pytest.fixture
def library(tree: Tree) -> Library:
    tree.root.mkdir(parents=True)
    return history.open(str(tree.root.parent))


def test_the_front_door_is_as_documented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(FIXTURES / "opencode-1.1.65" / "storage", tmp_path / "opencode" / "storage")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    result = [(session.title, session.cost) for session in history.open().sessions(project="eastore")]
    assert len(result) == 11
    assert all(isinstance(cost, Decimal) for _, cost in result)
    assert any(cost > 0 for _, cost in result)


def test_sessions_come_newest_first_without_children_and_archived(tree: Tree, library: Library) -> None:
    first, second = tree.session(), tree.session()
    child = tree.session(parentID=first)
    away = tree.session(time={"created": START, "updated": START + 9_000_000, "archived": 5})
    assert [item.id for item in library.sessions()] == [second, first]
    assert [item.id for item in library.sessions(session_filter=SessionFilter(children=True))] == [child, second, first]
    assert [item.id for item in library.sessions(session_filter=SessionFilter(archived=True))] == [away, second, first]
    assert [item.id for item in library.sessions(limit=1)] == [second]
    assert [item.id for item in library.session(first).children()] == [child]
    moment = library.session(second).updated
    assert [item.id for item in library.sessions(session_filter=SessionFilter(since=moment))] == [second]
    assert [item.id for item in library.sessions(session_filter=SessionFilter(until=moment))] == [first]


def test_an_entry_has_what_an_index_of_sessions_has(tree: Tree, library: Library) -> None:
    name = tree.session(title="Dig", summary={"additions": 142, "deletions": 23, "files": 5})
    tree.text(name, "first question")
    tree.text(name, "an answer", "assistant")
    message, _ = tree.text(name, "unseen", synthetic=True)
    tree.part(name, message, type="text", text="last question")
    for cost in (0.1, 0.2, 0.0034):
        tree.message(name, "assistant", cost=cost)
    entry = library.session(name)
    assert (entry.title, entry.messages, entry.totals.prompts) == ("Dig", 6, 2)
    assert entry.cost == Decimal("0.3034")
    assert (entry.first_prompt, entry.last_prompt) == ("first question", "last question")
    assert entry.summary is not None
    assert (entry.summary.additions, entry.summary.files) == (142, 5)
    assert entry.origin == str(tree.path("session", "global", name))
    assert entry.origins == [str(tree.root)]
    empty = library.session(tree.session())
    assert (empty.messages, empty.cost, empty.first_prompt, empty.last_prompt) == (0, 0, "", "")


def test_prompts_are_first_and_last_by_time_not_by_name(tree: Tree, library: Library) -> None:
    name = tree.session()
    for order, (number, text) in enumerate([(9, "first"), (2, "second"), (5, "third")]):
        message = f"msg_{number:012x}zz"
        info = {"id": message, "sessionID": name, "role": "user", "time": {"created": START + order}}
        tree.write(("message", name, message), info)
        tree.part(name, message, type="text", text=text)
    assert (library.session(name).first_prompt, library.session(name).last_prompt) == ("first", "third")


def test_a_message_goes_by_where_it_is_filed_not_by_the_id_it_has(tree: Tree, library: Library) -> None:
    name = tree.session()
    for message, own in (("msg_one", "../../up"), ("msg_two", None)):
        tree.write(("message", name, message), {"id": own, "role": "user", "time": {"created": 1}, "cost": True})
        tree.part(name, message, type="text", text=f"words of {message}")
    entry = library.session(name)
    assert {entry.first_prompt, entry.last_prompt} == {"words of msg_one", "words of msg_two"}
    assert (entry.messages, entry.cost) == (2, 0)


def test_half_of_a_migration_is_one_history(tree: Tree, library: Library) -> None:
    database = Database(tree.root.parent / "opencode.db")
    channel = Database(tree.root.parent / "opencode-dev.db")
    for number in range(6):
        name = tree.session(f"ses_{number}", title=f"title {number}")
        message = tree.message(name)
        tree.part(name, message, type="text", text=f"prompt {number}")
        if number % 2:
            database.session(name, title=f"newer {number}")
            database.message(name, message)
            database.message(name, f"msg_db{number}", role="assistant", cost=0.5)
    channel.session("ses_dev", title="of another channel")
    database.session("ses_5b", title="only there")
    result = {item.id: item for item in library.sessions()}
    assert sorted(result) == ["ses_0", "ses_1", "ses_2", "ses_3", "ses_4", "ses_5", "ses_5b", "ses_dev"]
    assert [result[f"ses_{number}"].title for number in range(6)] == [
        "title 0", "newer 1", "title 2", "newer 3", "title 4", "newer 5",
    ]  # fmt: skip
    assert [result[f"ses_{number}"].messages for number in range(6)] == [1, 2, 1, 2, 1, 2]
    assert result["ses_1"].cost == Decimal("0.5")
    assert result["ses_1"].first_prompt == "prompt 1"
    assert result["ses_1"].origins == [str(tree.root), str(database.path)]
    assert result["ses_1"].origin == f"{database.path}#session/ses_1"
    assert result["ses_0"].origins == [str(tree.root)]
    assert result["ses_dev"].origins == [str(channel.path)]
    (reading,) = result["ses_1"].transcript().messages
    assert reading.blocks[0][0] == "prompt 1"
    for item in (database, channel):
        item.close()


def test_a_torn_record_affects_only_itself(tree: Tree, library: Library) -> None:
    names = [tree.session() for _ in range(3)]
    path = tree.path("session", "global", names[0])
    path.write_bytes(path.read_bytes()[:20])
    tree.write(("session", "global", names[1]), {"id": names[1]})
    message, _ = tree.text(names[2], "words")
    tree.path("message", names[2], "msg_torn").write_bytes(b"{")
    tree.path("part", message, "prt_torn").write_bytes(b"")
    (entry,) = library.sessions()
    assert (entry.messages, entry.first_prompt) == (1, "words")
    assert len(library.damage) >= 4
    assert str(path) in [damage.path for damage in library.damage]


def test_a_session_left_in_two_projects_is_seen_once(tree: Tree, library: Library) -> None:
    name = tree.session()
    tree.session(name, project="abc")
    assert [item.id for item in library.sessions()] == [name]


def test_a_copy_of_a_record_under_another_name_is_not_an_obstacle(tree: Tree, library: Library) -> None:
    name = tree.session()
    tree.write(("session", "global", f"{name}-copy"), library.session(name).record.document | {"title": "a copy"})
    assert [item.id for item in library.overview(SessionFilter()).sessions] == [name, f"{name}-copy"]
    assert library.overview(SessionFilter(), limit=1).total == 2
    assert library.session(name).id == name


def test_one_session_is_found_by_many_names(tree: Tree, library: Library) -> None:
    one, two = tree.session("ses_0000abcdef11xyz"), tree.session("ses_0000abcdef22uvw")
    for word in (one, "0000abcdef11", "ses_0000abcdef11", "xyz", f"slug-{one}"):
        assert library.session(word).id == one
    assert library.session("last").id == two
    with pytest.raises(AmbiguousError):
        library.session("ses_0000")
    with pytest.raises(NotFoundError):
        library.session("zz")


def test_a_store_of_ones_own_can_be_read(tree: Tree) -> None:
    store = Memory()
    store.write(("session", "global", "ses_m"), {"id": "ses_m", "title": "kept", "time": {"created": 1}})
    assert [session.title for session in Library(store=store).sessions()] == ["kept"]


def test_searching_brings_the_index_up_to_date(tree: Tree, library: Library) -> None:
    name = tree.session()
    _, part = tree.text(name, "gravel")
    assert [hit.part for hit in library.search("gravel").hits] == [part]
    tree.text(name, "more gravel")
    assert library.search("gravel").total == 2
    tree.text(tree.session(directory="/srv/quarry"), "gravel")
    assert library.search("gravel", project="quarry").total == 1
    with pytest.raises(NotFoundError):
        library.search("gravel", project="qqqqqqq")
    library.cache.close()


def test_damage_is_reported_once_however_often_it_is_met(tree: Tree, library: Library) -> None:
    message, part = tree.text(tree.session(), "gravel")
    tree.path("part", message, part).write_bytes(b"{")
    for _ in range(2):
        library.search("gravel")
    assert [Path(damage.path).stem for damage in library.damage] == [part]
    library.cache.close()


def test_the_corpora_cost_what_their_servers_say() -> None:
    path = FIXTURES / "opencode-1.18.33"
    api = json.loads((path / "api.json").read_text())
    library = history.open(str(path))
    for theirs in api["/session"]:
        ours = float(library.session(theirs["id"]).cost)
        if "(fork #" in theirs["title"]:  # OpenCode counts what a fork copied once more
            assert ours < theirs["cost"]
        else:
            assert ours == pytest.approx(theirs["cost"])


def test_nothing_heavy_is_loaded_before_it_is_needed() -> None:
    code = "import sys; from opensesh import history; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"msgspec", "sqlite3", "rich", "json", "asyncio"} & set(loaded)


def test_a_store_that_was_named_and_is_missing_is_not_an_empty_history(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no store at"):
        history.open(str(tmp_path / "nowhere"))
    assert list(history.open(str(tmp_path)).sessions()) == []


class _CountingStore(Memory):
    """Counts the scans of the library, which reports damage; the store scans its own records for a query."""

    scans = 0

    def scan(self, prefix: Key, *, report: Callable[[Damage], None] = log_damage) -> Iterator[tuple[Key, Any]]:
        self.scans += prefix == ("session",) and report is not log_damage
        return super().scan(prefix, report=report)


def test_a_store_that_answers_queries_is_not_scanned_for_a_list() -> None:
    store = _CountingStore()
    for number in range(30):
        times = {"created": number + 1, "updated": number + 1} | ({"archived": 1} if number == 29 else {})
        parent = {"parentID": "ses_00"} if number == 28 else {}
        record = {"id": f"ses_{number:02}", "projectID": "p", "directory": "/d", "title": "Dig", "time": times}
        store.write(("session", "p", f"ses_{number:02}"), record | parent)
    library = Library(store=store)
    assert [session.id for session in library.sessions(limit=2)] == ["ses_27", "ses_26"]
    overview = library.overview(SessionFilter(), 2)
    assert [session.id for session in overview.sessions] == ["ses_27", "ses_26"]
    assert (overview.total, overview.children, overview.archived) == (28, 1, 1)
    assert store.scans == 0
    assert library.overview(SessionFilter(), 0) == library.overview(SessionFilter(), 99)
    assert library.overview(SessionFilter(children=True), 1).archived == 1
    assert library.overview(SessionFilter(archived=True), 1).children == 1
