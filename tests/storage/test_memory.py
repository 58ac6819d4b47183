from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from opensesh.errors import InvalidKeyError, NotFoundError, StoreError
from opensesh.storage.memory import Memory
from opensesh.storage.protocol import Damage

if TYPE_CHECKING:
    from collections.abc import Callable

    from opensesh.storage.protocol import Key


def test_it_says_that_it_is_nowhere() -> None:
    assert Memory().place == ":memory:"
    assert Memory().locate(("todo", "ses_x")) == ":memory:/todo/ses_x"


def test_two_of_them_share_nothing() -> None:
    one, other = Memory(), Memory()
    one.write(("todo", "ses_x"), [1])
    assert other.list() == []


def test_an_update_within_an_update_is_refused_and_the_record_left() -> None:
    store = Memory()
    store.write(("todo", "ses_x"), [1])
    with pytest.raises(StoreError, match="would wait forever"):
        store.update(("todo", "ses_x"), lambda value: store.write(("todo", "ses_y"), []))
    assert store.read(("todo", "ses_x")) == [1]
    assert store.list() == [("todo", "ses_x")]


def test_another_thread_waits_while_one_updates() -> None:
    store = Memory()
    store.write(("todo", "ses_x"), [])
    writer = threading.Thread(target=lambda: store.write(("todo", "ses_y"), []))

    def edit(value: list[int]) -> None:
        writer.start()
        writer.join(0.05)
        assert writer.is_alive()
        assert store.read(("todo", "ses_x")) == []
        value.append(1)

    assert store.update(("todo", "ses_x"), edit) == [1]
    writer.join(60)
    assert store.list() == [("todo", "ses_x"), ("todo", "ses_y")]


def test_a_message_that_is_none_is_reported_and_the_others_are_found() -> None:
    store = Memory()
    store.write(("message", "ses_x", "msg_1"), [])
    store.write(("message", "ses_x", "msg_2"), {"id": "msg_2"})
    store.write(("message", "ses_x", "msg_3"), {"time": {"created": 3}})
    store.write(("message", "ses_x", "msg_4"), {"id": "msg_4", "time": {"created": 2}})
    store.write(("part", "msg_4", "prt_1"), {"id": "prt_1"})
    store.write(("part", "msg_4", "prt_2"), "no part")
    reports: list[Damage] = []
    result = store.messages("ses_x", report=reports.append)
    # A record without an id has that of its key, as in a tree.
    assert [(message.info["id"], len(message.parts)) for message in result] == [("msg_4", 1), ("msg_3", 0)]
    assert reports == [
        Damage(":memory:/message/ses_x/msg_1", "$: expected an object"),
        Damage(":memory:/message/ses_x/msg_2", "$.time.created: expected milliseconds, found nothing"),
        Damage(":memory:/part/msg_4/prt_2", "$: expected an object"),
    ]


def test_a_record_removed_during_a_scan_is_passed_over() -> None:
    store = Memory()
    for name in ("ses_a", "ses_b", "ses_c"):
        store.write(("todo", name), [name])
    scan = store.scan(("todo",))
    assert next(scan) == (("todo", "ses_a"), ["ses_a"])
    store.remove(("todo", "ses_b"))
    assert list(scan) == [(("todo", "ses_c"), ["ses_c"])]


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(NotFoundError, match=":memory:/todo/ses_x") as caught:
        Memory().read(("todo", "ses_x"))
    assert caught.value.data == {"key": ["todo", "ses_x"]}


def test_a_record_is_not_removed_while_it_is_updated() -> None:
    store = Memory()
    store.write(("todo", "ses_x"), [])
    remover = threading.Thread(target=lambda: store.remove(("todo", "ses_x")))

    def edit(value: list[int]) -> None:
        remover.start()
        remover.join(0.05)
        assert remover.is_alive()

    store.update(("todo", "ses_x"), edit)
    remover.join(60)
    assert store.list() == []


def test_a_bad_key_is_refused_before_anything_happens() -> None:
    store = Memory()
    acts: list[Callable[[Key], object]] = [
        store.read,
        store.remove,
        store.list,
        lambda key: store.write(key, 1),
        lambda key: store.update(key, print),
    ]
    for act in acts:
        with pytest.raises(InvalidKeyError) as caught:
            act(("a", ".."))
        assert caught.value.data == {"key": ["a", ".."]}
    with pytest.raises(InvalidKeyError, match="cannot be empty") as caught:
        store.read(())
    assert caught.value.data == {"key": []}
    assert store.list() == []
