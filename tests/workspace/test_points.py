from __future__ import annotations

from pathlib import Path

import pytest

from opensesh.errors import NotFoundError
from opensesh.records import Revert
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.protocol import StoredMessage
from opensesh.workspace.revert_plan import RevertPoint, find_point, recorded_point


def message(name: str, role: str, *kinds: str) -> StoredMessage:
    parts = [{"id": f"prt_{name}{number}", "type": kind} for number, kind in enumerate(kinds)]
    return StoredMessage({"id": f"msg_{name}", "role": role}, parts)


HISTORY = [
    message("u1", "user", "text"),
    message("a1", "assistant", "step-start", "text", "tool", "step-finish", "patch"),
    message("a2", "assistant", "step-start", "reasoning", "tool", "text", "step-finish"),
    message("u2", "user", "text", "file"),
    message("a3", "assistant"),
]


@pytest.mark.parametrize(
    ("message_id", "part_id", "point"),
    [
        ("msg_u1", None, RevertPoint(0)),
        ("msg_u2", None, RevertPoint(3)),
        ("msg_a1", None, RevertPoint(0)),
        ("msg_a2", None, RevertPoint(0)),
        ("msg_a3", None, RevertPoint(3)),
        ("msg_a1", "prt_a12", RevertPoint(1, 2)),
        ("msg_a1", "prt_a14", RevertPoint(1, 4)),
        ("msg_a1", "prt_a11", RevertPoint(0)),
        ("msg_a2", "prt_a22", RevertPoint(0)),
        ("msg_a2", "prt_a23", RevertPoint(2, 3)),
        ("msg_u2", "prt_u21", RevertPoint(3, 1)),
        ("msg_u2", "prt_u20", RevertPoint(3)),
    ],
)
def test_a_point_is_where_the_user_means(message_id: str, part_id: str | None, point: RevertPoint) -> None:
    assert find_point(HISTORY, message_id, part_id) == point


def test_an_answer_without_a_prompt_stands_for_itself() -> None:
    assert find_point(HISTORY[1:3], "msg_a2") == RevertPoint(1)


def test_what_is_not_there_cannot_be_gone_back_to() -> None:
    with pytest.raises(NotFoundError, match="msg_x"):
        find_point(HISTORY, "msg_x")
    with pytest.raises(NotFoundError, match="prt_x"):
        find_point(HISTORY, "msg_u1", "prt_x")


def test_a_point_is_recorded_and_found_again() -> None:
    assert RevertPoint(3).record(HISTORY) == {"messageID": "msg_u2"}
    assert RevertPoint(1, 2).record(HISTORY) == {"messageID": "msg_a1", "partID": "prt_a12"}
    assert recorded_point(HISTORY, Revert(message_id="msg_u2")) == RevertPoint(3)
    assert recorded_point(HISTORY, Revert(message_id="msg_a1", part_id="prt_a12")) == RevertPoint(1, 2)
    assert recorded_point(HISTORY, Revert(message_id="msg_a1", part_id="prt_gone")) == RevertPoint(1, 5)
    assert recorded_point(HISTORY, Revert(message_id="msg_gone")) is None


def test_identifiers_that_have_wrapped_do_not_move_a_point(wrap_corpus: Path) -> None:
    store = JsonTree(wrap_corpus / "storage")
    (key,) = store.list(("session",))
    history = store.messages(key[-1])
    prompts = [path for path, item in enumerate(history) if item.info["role"] == "user"]
    names = [history[path].info["id"] for path in prompts]
    assert names != sorted(names)
    assert [find_point(history, name).message for name in names] == prompts
