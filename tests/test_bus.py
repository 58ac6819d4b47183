from __future__ import annotations

import asyncio
import threading

from opensesh import events
from opensesh.bus import Bus, Envelope, Subscription


def touched(number: int) -> events.SessionIdle:
    return events.SessionIdle(session_id=f"ses_{number}")


async def take(subscription: Subscription, count: int) -> list[Envelope]:
    result: list[Envelope] = []
    async for envelope in subscription:
        result.append(envelope)
        if len(result) == count:
            break
    return result


async def test_a_subscriber_receives_everything_from_now_on_in_order() -> None:
    bus = Bus()
    bus.publish(touched(0))
    async with bus.subscribe() as subscription:
        for number in range(1, 4):
            bus.publish(touched(number))
        assert [item.sequence for item in await take(subscription, 3)] == [2, 3, 4]


async def test_joining_after_a_number_misses_nothing() -> None:
    bus = Bus()
    for number in range(10):
        bus.publish(touched(number))
    received = await take(bus.subscribe(after=4), 6)
    assert [item.sequence for item in received] == [5, 6, 7, 8, 9, 10]


async def test_a_slow_subscriber_gets_the_number_it_missed_and_continues() -> None:
    bus = Bus(keep=10)
    slow = bus.subscribe(after=0)
    for number in range(100):
        bus.publish(touched(number))
    missed, *rest = await take(slow, 11)
    assert missed.event == events.Missed(first=1, last=90)
    assert [item.sequence for item in rest] == list(range(91, 101))


async def test_publishing_from_threads_wakes_a_waiting_subscriber_and_loses_nothing() -> None:
    bus = Bus(keep=10_000)
    subscription = bus.subscribe()

    def work() -> None:
        for number in range(500):
            bus.publish(touched(number))

    threads = [threading.Thread(target=work) for _ in range(4)]
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        reader = group.create_task(take(subscription, 2_000))
        await asyncio.sleep(0)
        for thread in threads:
            thread.start()
    assert [item.sequence for item in reader.result()] == list(range(1, 2_001))


async def test_closing_ends_a_subscriber_that_waits() -> None:
    bus = Bus()
    subscription = bus.subscribe()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(take(subscription, 1))
        await asyncio.sleep(0.01)
        subscription.close()
    assert bus.publish(touched(1)) == 1


def test_a_listener_that_fails_stops_no_other() -> None:
    bus = Bus()
    received: list[int] = []

    def broken(_: Envelope) -> None:
        raise ValueError("mine")

    bus.listen(broken)
    stop = bus.listen(lambda envelope: received.append(envelope.sequence))
    bus.publish(touched(1))
    stop()
    stop()
    bus.publish(touched(2))
    assert received == [1]


def test_events_carry_opencodes_names_and_payloads() -> None:
    assert Envelope(1, events.PartRemoved(session_id="s", message_id="m", part_id="p")).document == {
        "type": "message.part.removed",
        "properties": {"sessionID": "s", "messageID": "m", "partID": "p"},
    }
    assert events.PartUpdated(part={"id": "p"}).properties == {"part": {"id": "p"}}
    assert events.PartUpdated(part={"id": "p"}, delta="").properties == {"part": {"id": "p"}, "delta": ""}
    assert events.ProjectUpdated(info={"id": "x"}).properties == {"id": "x"}
    assert events.Other(name="lsp.updated", payload={}).type == "lsp.updated"
    assert events.SessionError(error={"name": "UnknownError", "data": {}}).properties == {
        "error": {"name": "UnknownError", "data": {}}
    }


async def test_a_subscription_can_end_after_a_number() -> None:
    bus = Bus()
    subscription = bus.subscribe()
    for number in range(5):
        bus.publish(touched(number))
    subscription.close_after(3)
    assert [envelope.sequence async for envelope in subscription] == [1, 2, 3]


async def test_a_subscription_that_waits_ends_at_the_last_number() -> None:
    bus = Bus()
    subscription = bus.subscribe()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        reader = group.create_task(take(subscription, 99))
        await asyncio.sleep(0.01)
        bus.publish(touched(1))
        subscription.close_after(1)
    assert [envelope.sequence for envelope in reader.result()] == [1]
