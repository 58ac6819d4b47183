"""Conformance of change feeds: the same contract for every store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opensesh.history.library import Library
from opensesh.storage import Store
from opensesh.storage.change_feeds import UNSTABLE, ChangeFeed, ChangeFeedProvider, ScanFeed, feeds_of
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.memory import Memory
from opensesh.storage.merged import MergedStore

SESSION = {"id": "ses_1", "projectID": "p", "directory": "/d", "title": "Dig", "time": {"created": 1, "updated": 2}}
MESSAGE = {"id": "msg_1", "sessionID": "ses_1", "role": "user", "time": {"created": 1}}
PART = {"id": "prt_1", "messageID": "msg_1", "sessionID": "ses_1", "type": "text", "text": "gravel"}


class Plain:
    """A store of a third party, which offers no feed."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if name == "change_feed":
            raise AttributeError(name)
        return getattr(self._inner, name)


def fill(store: Store) -> None:
    store.write(("session", "p", "ses_1"), SESSION)
    store.write(("message", "ses_1", "msg_1"), MESSAGE)
    store.write(("part", "msg_1", "prt_1"), PART)


STORES: dict[str, Callable[[Path], Any]] = {
    "tree": lambda folder: JsonTree(folder / "storage", durability="relaxed"),
    "memory": lambda folder: Memory(),
    "plain": lambda folder: Plain(Memory()),
}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = STORES[request.param](tmp_path)
    fill(made)
    return made


@pytest.fixture
def feed(store: Any) -> ChangeFeed:
    (made,) = feeds_of(store)
    return made


def test_new_changed_and_removed_sessions_are_detected(store: Any, feed: ChangeFeed) -> None:
    first = feed.detect_changes(UNSTABLE, {})
    assert set(first.changed) == {"ses_1"}
    store.write(("session", "p", "ses_1"), SESSION | {"title": "Dig deeper"})
    again = feed.detect_changes(first.fingerprint, first.changed)
    assert set(again.changed) == {"ses_1"}
    store.remove(("session", "p", "ses_1"))
    store.remove(("message", "ses_1", "msg_1"))
    assert list(feed.detect_changes(again.fingerprint, again.changed).removed) == ["ses_1"]


def test_a_new_message_changes_its_session(store: Any, feed: ChangeFeed) -> None:
    first = feed.detect_changes(UNSTABLE, {})
    store.write(("message", "ses_1", "msg_2"), MESSAGE | {"id": "msg_2"})
    assert set(feed.detect_changes(first.fingerprint, first.changed).changed) == {"ses_1"}
    assert {state.id for state in feed.message_states("ses_1", {}, full=True)} == {"msg_1", "msg_2"}


def test_records_are_read_as_they_are_stored(feed: ChangeFeed) -> None:
    feed.detect_changes(UNSTABLE, {})
    head = feed.session("ses_1")
    assert head is not None
    assert (head.project_id, head.record) == ("p", SESSION)
    assert [record.document() for record in feed.messages("ses_1")] == [MESSAGE]
    assert [record.document() for record in feed.messages("ses_1", ["msg_1", "msg_9"])] == [MESSAGE]
    assert [record.document() for record in feed.parts("ses_1", [("msg_1", "prt_1")])] == [PART]
    (part,) = feed.message_parts("ses_1", ["msg_1"])
    assert (part.id, part.message_id, part.document()) == ("prt_1", "msg_1", PART)
    assert feed.part("ses_1", "msg_1", "prt_1") == PART
    assert feed.part("ses_1", "msg_1", "") == MESSAGE
    assert feed.session("ses_9") is None
    assert feed.part("ses_1", "msg_1", "prt_9") is None
    assert feed.damage == []


def test_an_unchanged_store_has_no_changes() -> None:
    store = Memory()
    fill(store)
    for feed in (*feeds_of(store), ScanFeed(store)):
        first = feed.detect_changes(UNSTABLE, {})
        again = feed.detect_changes(first.fingerprint, first.changed)
        assert (dict(again.changed), list(again.removed)) == ({}, [])


def test_fingerprints_that_end_with_the_process_are_not_persistent() -> None:
    assert [feed.persistent for feed in feeds_of(Memory())] == [False]
    assert ScanFeed(Memory()).persistent


def test_several_stores_offer_the_feeds_of_each(tmp_path: Path) -> None:
    tree = JsonTree(tmp_path / "storage")
    memory = Memory()
    store = MergedStore(str(tmp_path), [tree, memory])
    assert [feed.store_id for feed in feeds_of(store)] == [str(tree.root), memory.id]
    assert isinstance(tree, ChangeFeedProvider)
    assert not isinstance(Plain(tree), ChangeFeedProvider)


def test_every_store_can_be_searched_and_listed(store: Any) -> None:
    library = Library(store=store)
    assert [hit.part for hit in library.search("gravel").hits] == ["prt_1"]
    store.write(("part", "msg_1", "prt_2"), PART | {"id": "prt_2", "text": "gravel and sand"})
    assert {hit.part for hit in library.search("gravel").hits} == {"prt_1", "prt_2"}
    store.remove(("part", "msg_1", "prt_1"))
    assert [hit.part for hit in library.search("gravel").hits] == ["prt_2"]
    assert [session.id for session in library.sessions()] == ["ses_1"]
    library.cache.close()
