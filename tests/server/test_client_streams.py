from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from opensesh.bus import Bus
from opensesh.events import PartDelta, PartRemoved, PartUpdated, SessionIdle
from opensesh.server.client_streams import ClientChannels, ClientStream
from opensesh.server.event_streams import EventStreams

DIRECTORY = "/p"
SECONDS = 20


def channels_of(bus: Bus) -> ClientChannels:
    return ClientChannels(EventStreams(bus))


async def read_until(chunks: AsyncGenerator[bytes], count: int) -> list[Any]:
    """Read events until ``count`` sessions were idle."""
    events: list[Any] = []
    async with asyncio.timeout(SECONDS):
        while sum(event["type"] == "session.idle" for event in events) < count:
            chunk = await anext(chunks)
            events += [json.loads(line[6:]) for line in chunk.split(b"\n") if line.startswith(b"data: ")]
    return events


def idle(bus: Bus, number: int, padding: int = 0) -> None:
    bus.publish(SessionIdle(session_id=f"ses_{number}" + "x" * padding), directory=DIRECTORY)


def text_part(text: str, **time: int) -> dict[str, Any]:
    return {"id": "prt_1", "messageID": "msg_1", "sessionID": "ses_1", "type": "text", "text": text, "time": time}


def grow(bus: Bus, text: str) -> None:
    bus.publish(PartDelta(session_id="ses_1", message_id="msg_1", part_id="prt_1", delta=text), directory=DIRECTORY)


def check_text(events: list[Any]) -> str:
    """Check that every update is the text before and its delta; return the last text."""
    text = ""
    for event in events:
        if event["type"] == "message.part.updated":
            if text and "delta" in event["properties"]:
                assert event["properties"]["part"]["text"] == text + event["properties"]["delta"]
            text = event["properties"]["part"]["text"]
    return text


async def test_clients_that_are_up_to_date_are_sent_the_same_bytes() -> None:
    bus = Bus()
    channels = channels_of(bus)
    async with (
        aclosing(aiter(ClientStream(channels, DIRECTORY))) as one,
        aclosing(aiter(ClientStream(channels, DIRECTORY))) as two,
    ):
        await anext(one)
        await anext(two)
        idle(bus, 1)
        async with asyncio.timeout(SECONDS):
            assert await anext(one) is await anext(two)


async def test_a_client_that_does_not_read_gets_everything_later_and_nothing_is_kept_for_it() -> None:
    bus = Bus(keep=10_000)
    channels = channels_of(bus)
    stream = ClientStream(channels, DIRECTORY)
    async with (
        aclosing(aiter(stream)) as slow,
        aclosing(aiter(ClientStream(channels, DIRECTORY))) as fast,
    ):
        await anext(slow)
        await anext(fast)
        bus.publish(PartUpdated(part=text_part("a", start=1), delta="a"), directory=DIRECTORY)
        events: list[Any] = []
        for number in range(60):
            grow(bus, f" {number}")
            idle(bus, number, padding=100_000)
            events += await read_until(fast, 1)
        channel = channels.get(DIRECTORY, with_ids=False)
        assert channel.kept_bytes < 3_000_000
        late = await read_until(slow, 60)
        expected = [f"ses_{number}" + "x" * 100_000 for number in range(60)]
        for received in (events, late):
            assert [one["properties"]["sessionID"] for one in received if one["type"] == "session.idle"] == expected
        assert len([one for one in late if one["type"] == "message.part.updated"]) < 10
        # From here on both are sent the same again.
        grow(bus, " end")
        idle(bus, 60)
        events += await read_until(fast, 1)
        late += await read_until(slow, 1)
        bus.publish(PartUpdated(part=text_part("end", start=1, end=2)), directory=DIRECTORY)
        idle(bus, 61)
        async with asyncio.timeout(SECONDS):
            assert await anext(slow) is await anext(fast)
        assert check_text(late) == check_text(events) == "a" + "".join(f" {number}" for number in range(60)) + " end"


async def test_a_resumed_client_shares_the_channel_after_what_it_missed() -> None:
    bus = Bus()
    channels = channels_of(bus)
    bus.publish(PartUpdated(part=text_part("a", start=1), delta="a"), directory=DIRECTORY)
    grow(bus, " b")
    last_id = channels.streams.event_id(bus.last)
    idle(bus, 1)
    grow(bus, " c")
    idle(bus, 2)
    stream = ClientStream(channels, DIRECTORY, last_event_id=last_id)
    async with (
        aclosing(aiter(stream)) as resumed,
        aclosing(aiter(ClientStream(channels, DIRECTORY))) as other,
    ):
        await anext(other)
        events = await read_until(resumed, 2)
        updates = [one["properties"] for one in events if one["type"] == "message.part.updated"]
        assert [(update["part"]["text"], update["delta"]) for update in updates] == [("a b c", " c")]
        grow(bus, " d")
        idle(bus, 3)
        assert (await read_until(resumed, 1)) == (await read_until(other, 1))


@pytest.mark.parametrize(
    ("directory", "expected"),
    [(DIRECTORY, ["server.instance.disposed"]), (None, ["global.disposed", "server.instance.disposed"])],
)
@pytest.mark.parametrize("is_restarted", [True, False])
async def test_a_client_that_missed_events_reads_everything_again(
    directory: str | None, expected: list[str], is_restarted: bool
) -> None:
    bus = Bus(keep=4)
    channels = channels_of(bus)
    idle(bus, 0)
    last_id = "another.1" if is_restarted else channels.streams.event_id(bus.last)
    for number in range(8):
        idle(bus, number)
    async with aclosing(aiter(ClientStream(channels, directory, last_event_id=last_id, with_ids=True))) as chunks:
        content = await anext(chunks)
        if not is_restarted:
            content += await anext(chunks)
    events = [json.loads(line[6:]) for line in content.split(b"\n") if line.startswith(b"data: ")]
    kinds = [event.get("payload", event)["type"] for event in events]
    assert kinds == ["server.connected", *expected, *["session.idle"] * (0 if is_restarted else 4)]


async def test_the_last_client_that_leaves_ends_its_channel() -> None:
    channels = channels_of(Bus())
    stream = ClientStream(channels, DIRECTORY)
    first = channels.get(DIRECTORY, with_ids=False)
    async with aclosing(aiter(stream)) as chunks:
        await anext(chunks)
        assert channels.get(DIRECTORY, with_ids=False) is first
    assert channels.get(DIRECTORY, with_ids=False) is not first


async def test_a_text_that_ends_before_it_could_be_sent_is_sent_as_a_delta_too() -> None:
    bus = Bus()
    async with aclosing(aiter(ClientStream(channels_of(bus), DIRECTORY))) as chunks:
        await anext(chunks)
        bus.publish(PartUpdated(part=text_part("a", start=1), delta="a"), directory=DIRECTORY)
        grow(bus, " b")
        grow(bus, " c")
        bus.publish(PartUpdated(part=text_part("a b c", start=1, end=2)), directory=DIRECTORY)
        idle(bus, 1)
        updates = [event["properties"] for event in (await read_until(chunks, 1))[:-1]]
    assert "".join(update.get("delta", "") for update in updates) == "a b c"
    assert updates[-2:] == [
        {"part": text_part("a b c", start=1), "delta": " b c"},
        {"part": text_part("a b c", start=1, end=2)},
    ]


async def test_nothing_is_kept_of_texts_that_are_not_streamed() -> None:
    bus = Bus()
    channels = channels_of(bus)
    async with aclosing(aiter(ClientStream(channels, DIRECTORY))) as chunks:
        await anext(chunks)
        bus.publish(PartUpdated(part=text_part("a prompt")), directory=DIRECTORY)
        bus.publish(PartUpdated(part=text_part("a", start=1) | {"id": "prt_2"}, delta="a"), directory=DIRECTORY)
        bus.publish(PartRemoved(session_id="ses_1", message_id="msg_1", part_id="prt_2"), directory=DIRECTORY)
        idle(bus, 1)
        await read_until(chunks, 1)
        assert channels.get(DIRECTORY, with_ids=False).position.sent == {}
