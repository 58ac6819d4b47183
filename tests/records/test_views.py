from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensesh import records
from opensesh.errors import RecordError
from opensesh.records import codec

FIXTURES = Path(__file__).parents[1] / "fixtures"


def read_session(document: Any, path: str = "") -> records.Session:
    return records.view(document, records.Session, path)


def read_project(document: Any, path: str = "") -> records.Project:
    return records.view(document, records.Project, path)


READERS: dict[str, Callable[[Any, str], records.Record]] = {
    "message": records.read_message,
    "part": records.read_part,
    "session": read_session,
    "project": read_project,
}


def test_a_view_built_into_a_document_is_what_opencode_wrote() -> None:
    differing: list[str] = []
    for kind, read in READERS.items():
        for file in sorted(FIXTURES.glob(f"*/storage/{kind}/**/*.json")):
            data = file.read_bytes()
            record = read(codec.loads(data), str(file))
            assert record.document == codec.loads(data)
            if codec.dumps(records.document_of(record)) != data:
                differing.append(file.stem)
    # The subagent's session orders the members of one permission rule differently.
    assert differing == ["ses_e1f505771ffeo3ptRkUuHl1Hjm"]


def test_unknown_fields_stay_at_every_level() -> None:
    document: dict[str, Any] = {
        "id": "msg_1", "future": {"a": [1]}, "role": "assistant", "time": {"created": 1, "later": 2},
        "tokens": {"input": 1, "cache": {"read": 1, "warm": 9}, "audio": 3},
    }  # fmt: skip
    message = records.read_message(document)
    assert isinstance(message, records.AssistantMessage)
    assert message.tokens.cache.read == 1
    assert message.document is document


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"name": "APIError", "data": {"message": "no", "statusCode": 429, "isRetryable": True}}, records.APIError),
        ({"name": "APIError", "message": "no", "statusCode": 429, "isRetryable": True}, records.APIError),
        ({"name": "Unknown", "message": "what"}, records.UnknownError),
        ({"name": "MessageOutputLengthError", "data": {}}, records.MessageOutputLengthError),
        ({"name": "MessageOutputLengthError"}, records.MessageOutputLengthError),
        ({"name": "FromTheFuture", "data": {"message": "hm"}}, records.OtherError),
    ],
)
def test_errors_are_read_nested_and_flat(document: dict[str, Any], expected: type) -> None:
    failure = records.read_failure(document)
    assert isinstance(failure, expected)
    written = records.write_failure(failure)
    assert set(written) == {"name", "data"}
    assert records.read_failure(written) == failure


def test_old_records_are_read_with_what_they_lack() -> None:
    session = records.view(
        {"id": "ses_1", "time": {"created": 5, "archived": None}, "summary": {"additions": 1, "deletions": 2}},
        records.Session,
    )
    assert (session.updated, session.archived, session.slug) == (5, False, "")
    assert session.summary is not None
    assert session.summary.files == 0
    assistant = records.read_message({"id": "msg_1", "role": "assistant", "mode": "build", "time": {"created": 1}})
    assert isinstance(assistant, records.AssistantMessage)
    assert assistant.agent_name == "build"
    user = records.read_message(
        {
            "id": "msg_1",
            "role": "user",
            "time": {"created": 1},
            "model": {"providerID": "a", "modelID": "b", "variant": "high"},
        }
    )
    assert isinstance(user, records.UserMessage)
    assert user.effort == "high"
    project = records.view({"id": "x", "vcsDir": "/x/.git", "time": {"created": 1}}, records.Project)
    assert project.sandboxes == ()
    tool = records.read_part(
        {"id": "prt_1", "type": "tool", "tool": "read", "state": {"status": "completed", "input": {}, "output": "x"}}
    )
    assert isinstance(tool, records.ToolPart)
    assert isinstance(tool.state, records.Completed)


def test_a_part_of_an_unknown_kind_is_kept() -> None:
    document = {"id": "prt_1", "type": "hologram", "beam": 3}
    part = records.read_part(document)
    assert isinstance(part, records.OtherPart)
    assert part.document == document


@pytest.mark.parametrize(
    ("read", "document", "place"),
    [
        (records.read_message, {"id": "msg_1", "role": "user", "time": {"created": "now"}}, "$.time.created"),
        (records.read_message, {"id": "msg_1", "role": "robot", "time": {"created": 1}}, "$.role"),
        (records.read_part, {"id": "prt_1", "type": "tool", "state": {"status": "dreaming"}}, "$.state.status"),
        (records.read_part, {"id": "prt_1"}, "$.type"),
        (read_session, {"id": 7, "time": {"created": 1}}, "$.id"),
        (read_session, [], "$"),
    ],
)
def test_a_wrong_record_names_the_file_and_the_field(read: Any, document: Any, place: str) -> None:
    with pytest.raises(RecordError) as caught:
        read(document, "the/file.json")
    assert caught.value.place == place
    assert str(caught.value).startswith(f"the/file.json at {place}: ")


@pytest.mark.parametrize(
    ("title", "default"),
    [
        ("New session - 2026-02-13T05:51:04.123Z", True),
        ("Child session - 2026-02-13T05:51:04.123Z", True),
        ("New session - 2026-02-13T05:51:04.123Z\n", False),
        ("New session - ٢٠٢٦-02-13T05:51:04.123Z", False),
        ("My session", False),
    ],
)
def test_default_titles_are_told_from_given_ones(title: str, default: bool) -> None:
    session = records.view({"id": "ses_1", "title": title, "time": {"created": 1}}, records.Session)
    assert session.has_default_title is default


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 9)), min_size=1, max_size=12, unique=True))
def test_messages_and_parts_are_in_true_order_across_the_wrap(moments: list[tuple[int, int]]) -> None:
    from opensesh import ids

    wrap = 26 * ids.ERA_MS
    mint = ids.Minter(clock=lambda: now)
    documents: list[dict[str, Any]] = []
    for minute, _ in sorted(moments):
        now = wrap + minute * 60_000
        documents.append({"id": mint.ascending("msg"), "time": {"created": now}})
    assert records.in_order(reversed(documents)) == documents
    parts = [{"id": document["id"].replace("msg", "prt")} for document in documents]
    assert records.parts_in_order(reversed(parts), wrap) == parts
