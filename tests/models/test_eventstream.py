from __future__ import annotations

from struct import pack
from typing import Any
from uuid import UUID
from zlib import crc32

import pytest

from opensesh.errors import ModelConnectionError
from opensesh.models.bedrock import EventStreamDecoder, EventStreamMessage

from . import wire_bedrock as wire

DATA = b"".join(wire.FULL)


def decode(*chunks: bytes) -> list[EventStreamMessage]:
    decoder = EventStreamDecoder()
    return [message for chunk in chunks for message in decoder.feed(chunk)]


def framed(headers: bytes, payload: bytes = b"") -> bytes:
    prelude = pack("!II", 16 + len(headers) + len(payload), len(headers))
    body = prelude + pack("!I", crc32(prelude)) + headers + payload
    return body + pack("!I", crc32(body))


def test_messages_come_out_as_they_went_in() -> None:
    first, *_, last = decode(DATA)
    assert first.headers == {
        ":event-type": "messageStart",
        ":content-type": "application/json",
        ":message-type": "event",
    }
    assert first.payload == b'{"role": "assistant", "p": "abcdefghij"}'
    assert last.headers[":event-type"] == "metadata"
    assert len(decode(DATA)) == len(wire.FULL)


def test_a_cut_at_any_byte_changes_nothing() -> None:
    whole = decode(DATA)
    for at in range(len(DATA)):
        assert decode(DATA[:at], DATA[at:]) == whole, at


def test_headers_of_every_type_are_known_and_those_with_text_are_kept() -> None:
    uuid = UUID("12345678-1234-5678-1234-567812345678")
    headers = {
        b"yes": b"\x00",
        b"no": b"\x01",
        b"byte": b"\x02\xff",
        b"short": b"\x03\x01\x00",
        b"int": b"\x04\xff\xff\xff\xfe",
        b"long": b"\x05" + pack("!q", 1 << 40),
        b"bytes": b"\x06\x00\x02\x00\xff",
        b"text": b"\x07\x00\x02" + "é".encode(),
        b"time": b"\x08" + pack("!q", 1_763_240_400_000),
        b"uuid": b"\x09" + uuid.bytes,
    }
    data = b"".join(pack("!B", len(name)) + name + value for name, value in headers.items())
    assert decode(framed(data, b"x")) == [EventStreamMessage({"text": "é"}, b"x")]


def test_a_flipped_bit_anywhere_is_noticed() -> None:
    message = wire.START
    for at in range(len(message)):
        damaged = bytearray(message)
        damaged[at] ^= 0x10
        with pytest.raises(ModelConnectionError):
            decode(bytes(damaged))


@pytest.mark.parametrize(
    "data",
    [
        b'{"message":"not a stream at all"}',
        framed(b"\x01a\x0a"),
        framed(b"\x01a\x07\xff"),
        framed(b"\x01\xff\x00"),
        framed(b"\x09a"),
        pack("!II", 1 << 30, 0) + pack("!I", crc32(pack("!II", 1 << 30, 0))),
        pack("!II", 20, 9) + pack("!I", crc32(pack("!II", 20, 9))),
    ],
)
def test_invalid_messages_are_connection_errors(data: bytes) -> None:
    with pytest.raises(ModelConnectionError):
        decode(data)


def test_amazons_own_decoder_reads_the_fake_the_same_way() -> None:
    eventstream = pytest.importorskip("botocore.eventstream")
    theirs: Any = eventstream.EventStreamBuffer()
    theirs.add_data(DATA)
    assert [EventStreamMessage(event.headers, event.payload) for event in theirs] == decode(DATA)
