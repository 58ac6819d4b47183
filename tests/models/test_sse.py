from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensesh.errors import ModelConnectionError
from opensesh.models.sse import ServerSentEvent, SSESplitter, json_payload

STREAM = (
    "\ufeffevent: greeting\ndata: héllo 日本 🚀\n\n"
    ": a comment\n\n"
    "id: 7\nretry: 10\ndata: first\ndata: second\ndata:\n\n\n"
    "data:no space\nevent:\n\n"
    "data:  two spaces\nunknown: x\n\n"
)
EVENTS = [
    ServerSentEvent("greeting", "héllo 日本 🚀"),
    ServerSentEvent("message", "first\nsecond\n"),
    ServerSentEvent("message", "no space"),
    ServerSentEvent("message", " two spaces"),
]
ENDINGS = ["\n", "\r\n", "\r"]


def split(*chunks: bytes) -> list[ServerSentEvent]:
    splitter = SSESplitter()
    events = [event for chunk in chunks for event in splitter.feed(chunk)]
    return events + splitter.close()


@pytest.mark.parametrize("ending", ENDINGS)
def test_events_are_split_with_every_line_ending(ending: str) -> None:
    assert split(STREAM.replace("\n", ending).encode()) == EVENTS


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_cut_at_any_byte_changes_nothing(ending: str) -> None:
    data = STREAM.replace("\n", ending).encode()
    for at in range(len(data)):
        assert split(data[:at], data[at:]) == EVENTS, at


@pytest.mark.parametrize("ending", ENDINGS)
def test_one_byte_at_a_time_changes_nothing(ending: str) -> None:
    data = STREAM.replace("\n", ending).encode()
    assert split(*(data[at : at + 1] for at in range(len(data)))) == EVENTS


@given(
    endings=st.lists(st.sampled_from(ENDINGS), min_size=STREAM.count("\n"), max_size=STREAM.count("\n")),
    places=st.lists(st.floats(0, 1), max_size=6),
)
def test_mixed_line_endings_cut_anywhere_change_nothing(endings: list[str], places: list[float]) -> None:
    lines = STREAM.split("\n")
    text = lines[0]
    for ending, line in zip(endings, lines[1:], strict=True):
        # A LF right after a CR would be the same line's end.
        text += ("\r\n" if ending == "\n" and text.endswith("\r") else ending) + line
    data = text.encode()
    cuts = sorted(round(path * len(data)) for path in places)
    assert split(*(data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True))) == EVENTS


def test_an_event_is_handed_on_as_soon_as_its_empty_line_has_come() -> None:
    splitter = SSESplitter()
    assert splitter.feed(b"data: a\n") == []
    assert splitter.feed(b"\n") == [ServerSentEvent("message", "a")]
    assert splitter.feed(b"data: b\r\n\r") == [ServerSentEvent("message", "b")]
    assert splitter.feed(b"\ndata: c\r\n\r\n") == [ServerSentEvent("message", "c")]


def test_a_last_event_without_its_empty_line_is_not_lost() -> None:
    assert split(b"data: [DONE]") == [ServerSentEvent("message", "[DONE]")]


def test_separators_that_only_unicode_knows_do_not_end_a_line() -> None:
    assert split("data: a\u2028b\x0bc\x85d\n\n".encode()) == [ServerSentEvent("message", "a\u2028b\x0bc\x85d")]


def test_bytes_that_are_not_utf8_are_replaced() -> None:
    assert split(b"data: a\xffb\n\n") == [ServerSentEvent("message", "a\ufffdb")]


def test_an_event_without_data_is_none() -> None:
    assert split(b"event: ping\n\ndata\n\n\n\n") == []


def test_a_payload_is_the_object_in_the_data() -> None:
    assert json_payload('{"a": [1, "é"]}') == {"a": [1, "é"]}


def test_pairs_of_surrogates_in_a_payload_are_joined_and_half_characters_are_kept_for_the_next() -> None:
    assert json_payload(r'{"a": "x\ud83d", "b": "\ud83d\ude80", "c": "\ude80"}') == {
        "a": "x\ud83d",
        "b": "🚀",
        "c": "\ude80",
    }


@pytest.mark.parametrize("data", ["{", "[1]", "null", "[DONE]", '{"a": ' * 20_000])
def test_anything_but_an_object_is_a_broken_stream(data: str) -> None:
    with pytest.raises(ModelConnectionError, match="other than a JSON object") as raised:
        json_payload(data, "https://user:pw@api.test/x?key=abcdefgh&alt=sse")
    assert raised.value.retryable
    assert raised.value.url == "https://api.test/x?alt=sse"
    assert len(str(raised.value)) < 200
