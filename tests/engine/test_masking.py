from __future__ import annotations

from typing import Any

import pytest

from opensesh.engine.session_history import History, masked_part_ids, record_masked, rejected_part_ids
from opensesh.errors import AuthFailedError, ContextExceededError, ModelError
from opensesh.models.model import scripted_model
from opensesh.storage.protocol import StoredMessage

MODEL = scripted_model("it")
PICTURE = "data:image/png;base64,iVBORw0KGgo="


def message(number: int, role: str, *parts: dict[str, Any]) -> StoredMessage:
    info: dict[str, Any] = {"id": f"msg_{number}", "role": role, "time": {"created": number}}
    if role == "assistant":
        info |= {"providerID": MODEL.provider_id, "modelID": MODEL.id}
    return StoredMessage(info, [{"id": f"prt_{number}_{at}"} | part for at, part in enumerate(parts)])


def tool(call: str, **state: Any) -> dict[str, Any]:
    done: dict[str, Any] = {"status": "completed", "input": {}, "output": "ok", "title": "", "metadata": {}, "time": {}}
    return {"type": "tool", "callID": call, "tool": "read", "state": done | state}


def history() -> History:
    text = {"type": "text", "text": "words"}
    attached = [{"mime": "image/png", "url": PICTURE}]
    result = History(
        [
            message(0, "user", text, {"type": "file", "mime": "image/png", "url": PICTURE}),
            message(1, "assistant", {"type": "reasoning", "text": "hm"}, tool("a"), tool("b", attachments=attached)),
            message(2, "user", text),
            message(3, "assistant", {"type": "reasoning", "text": "so"}, text),
            message(4, "user", text, {"type": "file", "mime": "image/png", "url": PICTURE}),
        ]
    )
    result.conversation(MODEL)
    return result


def refused(words: str, status: int = 400) -> ModelError:
    return ModelError(words, status=status)


# The turns: user 0, assistant 1, tool 1, (images of the tool) user 1, user 2, assistant 3, user 4.
@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("messages.0.content.1.image.source: bad", ["prt_0_1"]),
        ("messages.4.content.1.image.source: bad", ["prt_4_1"]),
        ("messages.2.content.0: image exceeds 5 MB", ["prt_1_2"]),
        ("Invalid 'messages[1].content[1].image_url'", ["prt_0_1"]),
        ("Invalid 'messages[8].content[1].image_url'", ["prt_4_1"]),
        ("contents[6].parts[1].inline_data: bad image", ["prt_4_1"]),
        ("Could not process image", ["prt_0_1", "prt_4_1", "prt_1_2"]),
        ("messages.3: image bad", ["prt_0_1", "prt_4_1", "prt_1_2"]),
        ("messages.1.content.0: Invalid `signature` in `thinking` block", ["prt_1_0"]),
        ("The encrypted content could not be verified", ["prt_1_0", "prt_3_0"]),
        ("messages.3.content.0: something is odd", ["prt_3_0", "prt_3_1"]),
        ("messages.4.content.0: something is odd", []),
        ("messages.99: something is odd", []),
        ("temperature: out of range", []),
    ],
)
def test_what_a_provider_complains_of_is_found_as_it_counts(words: str, parts: list[str]) -> None:
    assert rejected_part_ids(refused(words), history()) == parts


def test_the_body_of_a_refusal_counts_where_its_message_says_nothing() -> None:
    words = "messages.4.content.1.image.source: bad"
    assert rejected_part_ids(ModelError("Bad Request", status=400, body=words), history()) == ["prt_4_1"]


def test_what_an_answer_was_asked_for_without_is_noted_in_its_record_and_added_to() -> None:
    info: dict[str, Any] = {"id": "msg_1"}
    assert masked_part_ids(info) == []
    record_masked(info, ["prt_1"])
    record_masked(info, ["prt_2", "prt_3"])
    assert masked_part_ids(info) == ["prt_1", "prt_2", "prt_3"]
    assert info == {"id": "msg_1", "opensesh": {"masked": ["prt_1", "prt_2", "prt_3"]}}
    for odd in ("masked", {"masked": "prt_1"}, {}):
        assert masked_part_ids({"opensesh": odd}) == []


def test_only_refusals_of_the_request_itself_are_looked_into() -> None:
    words = "messages.0.content.1.image: bad"
    assert rejected_part_ids(refused(words, 500), history()) == []
    assert rejected_part_ids(AuthFailedError(words, status=400), history()) == []
    assert rejected_part_ids(ContextExceededError(words, status=400), history()) == []
    assert rejected_part_ids(KeyError(words), history()) == []


def test_what_is_left_out_already_is_not_suspected_again() -> None:
    seen = history()
    seen.mask(["prt_0_1"], MODEL.provider_id)
    seen.conversation(MODEL)
    assert rejected_part_ids(refused("bad image"), seen) == ["prt_4_1", "prt_1_2"]
