from __future__ import annotations

import json
import os
import shutil
import sqlite3
import threading
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

import pytest

from opensesh.errors import NotFoundError, ReadOnlyStoreError
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.leases import ProcessLeases
from opensesh.storage.memory import Memory
from opensesh.storage.merged import MergedStore
from opensesh.storage.opencode_db.store import OpencodeDB
from opensesh.storage.protocol import RecordChange, SessionQueries
from opensesh.storage.queries import SessionQuery
from opensesh.testing import CONTRACTS, SEED, Contract, contracts_for, store_conformance
from opensesh.testing.samples import WRAP, Scribe

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from contextlib import AbstractContextManager

    from opensesh.storage.protocol import Damage, Key, Leases, Store, StoredMessage

    Make = Callable[[], AbstractContextManager[Store]]


def always(store: Store) -> Make:
    @contextmanager
    def opened() -> Generator[Store]:
        yield store

    return opened


@pytest.fixture
def tree(tmp_path: Path) -> JsonTree:
    return JsonTree(tmp_path / "storage", durability="relaxed")


def overwrite(store: Store, key: Key, data: bytes) -> None:
    Path(store.locate(key)).write_bytes(data)


@pytest.mark.parametrize("contract", contracts_for(damageable=True), ids=str)
def test_the_json_tree_keeps_its_promises(contract: Contract, tree: JsonTree) -> None:
    contract.run(always(tree), damage=overwrite)


@pytest.mark.parametrize("contract", contracts_for(), ids=str)
def test_memory_keeps_its_promises(contract: Contract) -> None:
    contract.run(always(Memory()))


@pytest.mark.parametrize("contract", contracts_for(), ids=str)
def test_a_union_keeps_its_promises(contract: Contract, tree: JsonTree) -> None:
    contract.run(always(MergedStore("here", [tree, Memory()])))


@pytest.mark.parametrize("contract", contracts_for(read_only=True), ids=str)
def test_a_union_of_a_divided_store_keeps_its_promises(contract: Contract, tree: JsonTree) -> None:
    other = Memory()
    for key, value in SEED.items():
        # A message stays together with its parts.
        owner = key[1] if key[0] == "part" else key[-1]
        (tree if sum(owner.encode()) % 2 else other).write(key, value)
    assert tree.list(("message",))
    assert other.list(("message",))
    contract.run(always(ReadOnly(MergedStore("here", [tree, other]))), read_only_seed=SEED)


@pytest.mark.parametrize("contract", contracts_for(read_only=True), ids=str)
@pytest.mark.parametrize("version", ["1.2", "1.18.33"])
def test_a_database_with_a_trigger_keeps_the_promises_of_a_read_only_store(
    contract: Contract, version: str, tmp_path: Path
) -> None:
    fixture = Path(__file__).parent.parent / "fixtures" / f"opencode-{version}" / "opencode.db"
    shutil.copy(fixture, tmp_path)
    with closing(sqlite3.connect(tmp_path / "opencode.db")) as connection:
        connection.execute("CREATE TRIGGER unknown AFTER INSERT ON part BEGIN SELECT 1; END")
    with OpencodeDB(tmp_path / "opencode.db") as database:
        contract.run(always(database), read_only_seed=dict(database.scan(())))


@pytest.mark.parametrize("contract", contracts_for(read_only=True), ids=str)
def test_what_opencode_wrote_is_read_as_promised(contract: Contract, corpus: Path, tmp_path: Path) -> None:
    root = tmp_path / "storage"
    shutil.copytree(corpus / "storage", root)
    seed = {
        tuple(os.fspath(path.relative_to(root).with_suffix("")).split(os.sep)): json.loads(path.read_bytes())
        for path in root.rglob("*.json")
    }
    contract.run(always(ReadOnly(JsonTree(root))), read_only_seed=seed)


def test_the_whole_suite_runs_without_pytest(tmp_path: Path) -> None:
    opened: list[str] = []

    @contextmanager
    def make() -> Generator[Store]:
        opened.append(str(tmp_path / str(len(opened))))
        yield JsonTree(opened[-1], durability="relaxed")

    store_conformance(make, damage=overwrite)
    assert len(opened) == len(contracts_for(damageable=True))


def test_every_contract_has_a_name_of_its_own_and_a_store_it_binds() -> None:
    names = [contract.name for contract in CONTRACTS]
    assert len(set(names)) == len(names)
    assert {*contracts_for(read_only=True), *contracts_for(damageable=True)} == set(CONTRACTS)


def test_an_assertion_lists_every_problem() -> None:
    with pytest.raises(AssertionError) as failure:
        store_conformance(always(Unsorted()))
    text = str(failure.value)
    assert text.startswith("the store breaks ")
    assert "- list names every record in key order: the keys are not sorted" in text


class ReadOnly(MergedStore):
    """A store that may only be read, of any kind."""

    def __init__(self, store: Store) -> None:
        super().__init__(store.place, [store])

    def write(self, key: Key, value: Any) -> NoReturn:
        raise ReadOnlyStoreError("no")

    def update(self, key: Key, edit: Callable[[Any], None]) -> NoReturn:
        raise ReadOnlyStoreError("no")

    def remove(self, key: Key) -> NoReturn:
        raise ReadOnlyStoreError("no")

    def batch(self) -> NoReturn:
        raise ReadOnlyStoreError("no")

    @property
    def writable(self) -> bool:
        return False


class Unsorted(Memory):
    def list(self, prefix: Key = ()) -> Sequence[Key]:
        return super().list(prefix)[::-1]


class Sharing(Memory):
    def __init__(self) -> None:
        super().__init__()
        self.values: dict[Key, Any] = {}

    def read(self, key: Key) -> Any:
        return self.values.setdefault(key, super().read(key))


class Losing(Memory):
    def update(self, key: Key, edit: Callable[[Any], None]) -> Any:
        value = self.read(key)
        edit(value)
        threading.Event().wait(0.001)
        self.write(key, value)
        return value


class ByLetters(Memory):
    def list(self, prefix: Key = ()) -> Sequence[Key]:
        start = "/".join(prefix)
        return [key for key in super().list() if "/".join(key).startswith(start)]


class Creating(Memory):
    def update(self, key: Key, edit: Callable[[Any], None]) -> Any:
        try:
            return super().update(key, edit)
        except NotFoundError:
            self.write(key, {})
            return super().update(key, edit)


class ByName(Memory):
    def messages(
        self, session_id: str, *, last: int = 0, report: Callable[[Damage], None] = print
    ) -> list[StoredMessage]:
        result = sorted(super().messages(session_id, report=report), key=lambda message: message.info["id"])
        return result[-last:]


class Tidying(Memory):
    def write(self, key: Key, value: Any) -> None:
        super().write(key, json.loads(json.dumps(value, sort_keys=True)))


class Rounding(Memory):
    def read(self, key: Key) -> Any:
        return json.loads(json.dumps(super().read(key)), parse_float=lambda text: round(float(text), 6))


class Spoiling(Memory):
    def update(self, key: Key, edit: Callable[[Any], None]) -> Any:
        value = self.read(key)
        try:
            edit(value)
        finally:
            self.write(key, value)
        return value


class Trusting(JsonTree):
    def locate(self, key: Key) -> str:
        return os.path.join(self.root, *key) + ".json"


class Waiting(Memory):
    _busy = False

    def update(self, key: Key, edit: Callable[[Any], None]) -> Any:
        self._busy = True
        value = self.read(key)
        edit(value)
        self._records[key] = json.dumps(value).encode()
        self._busy = False
        return value

    def write(self, key: Key, value: Any) -> None:
        if self._busy:
            threading.Event().wait(60)
        super().write(key, value)


class Hiding(Memory):
    def scan(self, prefix: Key, *, report: Callable[[Damage], None] = print) -> Iterator[tuple[Key, Any]]:
        return (result for result in super().scan(prefix, report=report) if result[0][0] != "todo")


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (Unsorted, "list names every record in key order"),
        (Sharing, "changing a value after a read does not change the record"),
        (Losing, "updates of one record lose nothing"),
        (Losing, "a write during an update is not lost"),
        (ByLetters, "a prefix matches whole elements of a key"),
        (Creating, "update of a missing record is not found"),
        (ByName, "messages stay in order when ids wrap around"),
        (ByName, "messages come oldest first with their parts in order"),
        (Tidying, "a value is read as it was written"),
        (Rounding, "a value is read as it was written"),
        (Spoiling, "an edit that raises changes nothing"),
        (Hiding, "scan agrees with list and read"),
    ],
)
def test_a_broken_store_is_found_out(broken: type[Memory], promise: str) -> None:
    with pytest.raises(AssertionError, match=promise):
        contract(promise).run(always(broken()))


def test_a_store_that_lets_keys_out_is_found_out(tmp_path: Path) -> None:
    promise = contract("no key is written that could leave the store")
    with pytest.raises(AssertionError, match=r"(should have raised|not) InvalidKeyError"):
        promise.run(always(Trusting(tmp_path / "a" / "b")))


def test_a_store_that_waits_for_itself_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opensesh.testing.contracts_writing.TIMEOUT_SECONDS", 0.2)
    with pytest.raises(AssertionError, match="waits forever"):
        contract("an edit that calls the store is refused or safe").run(always(Waiting()))


def test_a_store_that_may_be_written_is_not_only_read() -> None:
    memory = Memory()
    for key, value in SEED.items():
        memory.write(key, value)
    with pytest.raises(AssertionError, match="should have raised ReadOnlyStoreError"):
        store_conformance(always(memory), read_only_seed=SEED)


def test_a_tree_that_fails_at_damage_is_found_out(tree: JsonTree) -> None:
    def half(store: Store, key: Key, data: bytes) -> None:
        overwrite(store, key, b"{}")

    with pytest.raises(AssertionError, match="should have raised RecordError"):
        contract("a damaged record is reported and not changed").run(always(tree), damage=half)


def contract(name: str) -> Contract:
    return next(item for item in CONTRACTS if item.name == name)


class Wandering(JsonTree):
    @property
    def id(self) -> str:
        return os.getcwd()


class Eager(Memory):
    """Applies each operation of a batch at once."""

    @contextmanager
    def batch(self) -> Generator[Any]:
        yield EagerBatch(self)


class EagerBatch:
    def __init__(self, store: Memory) -> None:
        self._store = store

    def write(self, key: Key, value: Any) -> None:
        with Memory.batch(self._store) as batch:
            batch.write(key, value)

    def remove(self, key: Key) -> None:
        with Memory.batch(self._store) as batch:
            batch.remove(key)


class Backwards(Memory):
    @contextmanager
    def batch(self) -> Generator[Any]:
        with super().batch() as batch:
            yield batch
            cast("Any", batch).operations.reverse()


class Careless(Memory):
    """Gives every runner a lease."""

    def leases(self) -> Leases:
        return ProcessLeases()


class Forgetful(Memory):
    def query_sessions(self, query: SessionQuery, *, report: Any = None) -> list[tuple[Key, Any]]:
        return super().query_sessions(query._replace(archived=True, children=True, projects=None))


class Miscounting(Memory):
    def count_sessions(self, query: SessionQuery) -> int:
        return len(self.query_sessions(query))


class Hasty(Memory):
    """Reports a change before it is applied."""

    def remove(self, key: Key) -> None:
        self._notify([RecordChange(key, removed=True, own=True)])
        self._records.pop(key, None)


class Quiet(Memory):
    def update(self, key: Key, edit: Callable[[Any], None]) -> Any:
        subscribers, self._subscribers = self._subscribers, []
        try:
            return super().update(key, edit)
        finally:
            self._subscribers = subscribers


class Denying(Memory):
    writable = False


@pytest.mark.parametrize(
    ("store", "name"),
    [
        (Wandering, "the id does not depend on the current directory"),
        (Eager, "a batch is not applied if its block raises"),
        (Eager, "a batch with a bad value or key changes nothing"),
        (Eager, "a batch keeps no reference and is invisible until it ends"),
        (Backwards, "a batch applies operations in order"),
        (Careless, "a session has one lease at a time"),
        (Forgetful, "queries agree with a scan"),
        (Miscounting, "queries agree with a scan"),
        (Hasty, "subscribers receive every change after it can be read"),
        (Quiet, "subscribers receive every change after it can be read"),
        (Denying, "a store that can be written is writable"),
    ],
)
def test_a_store_that_breaks_a_contract_about_identity_batches_or_capabilities_is_caught(
    store: Callable[..., Store], name: str, tmp_path: Path
) -> None:
    made = store(tmp_path) if store is Wandering else store()
    with pytest.raises(AssertionError, match=name):
        contract(name).run(always(made))


def test_queries_are_offered_by_stores_that_have_them_and_not_by_merged_ones(tmp_path: Path) -> None:
    assert isinstance(Memory(), SessionQueries)
    assert not isinstance(MergedStore("here", [JsonTree(tmp_path), Memory()]), SessionQueries)
    assert not isinstance(JsonTree(tmp_path), SessionQueries)


def test_records_made_at_the_same_time_by_many_writers_have_different_ids() -> None:
    assert len({Scribe(WRAP).message("ses_1")[0] for _ in range(300)}) == 300
