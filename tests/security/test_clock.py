from __future__ import annotations

from pathlib import Path

from opensesh import ids
from opensesh.storage.memory import Memory
from opensesh.storage.protocol import StoredMessage
from tests.engine.harness import EngineHarness, open_harness

AHEAD_MS = 30_000


def write_by_a_clock_ahead(harness: EngineHarness) -> list[str]:
    """Give the messages of the session the ids and times of a clock that is ahead, as another process had it."""
    ahead = ids.IdGenerator(lambda: ids.now_ms() + AHEAD_MS)
    names: dict[str, str] = {}
    for message in harness.messages():
        harness.engine.sessions.remove_message(harness.session, message.info["id"])
        name = names[message.info["id"]] = ahead.ascending("msg")
        time = {field: moment + AHEAD_MS for field, moment in message.info["time"].items()}
        parent = {"parentID": names[message.info["parentID"]]} if "parentID" in message.info else {}
        info = message.info | {"id": name, "time": time} | parent
        parts = [part | {"messageID": name} for part in message.parts]
        harness.engine.sessions.add_message(StoredMessage(info, parts))
    return list(names.values())


async def test_m3_messages_stay_in_order_when_the_clock_steps_back() -> None:
    script = "SAY one\n---\nCALL echo {}\n---\nSAY two\n---\nSAY three"
    store = Memory()
    async with open_harness(script, store=store) as harness:
        await harness.ask("First.")
        earlier = write_by_a_clock_ahead(harness)
        await harness.ask("Second.")
        await harness.ask("Third.")
        messages = harness.messages()
        names = [message.info["id"] for message in messages]
        assert names[: len(earlier)] == earlier
        prompts = [message.parts[0]["text"] for message in messages if message.info["role"] == "user"]
        assert prompts == ["First.", "Second.", "Third."]
        assert names == sorted(names), "OpenCode compares identifiers"
        times = [message.info["time"]["created"] for message in messages]
        assert times == sorted(set(times))
        for message in messages:
            assert message.info["time"].get("completed", 2**60) >= message.info["time"]["created"]
        harness.assert_sound()


async def test_m3_the_last_prompt_is_reverted_when_the_clock_has_stepped_back() -> None:
    write = 'CALL write {{"filePath":"{name}","content":"x"}}\n---\nSAY ok'
    script = "\n---\n".join(write.format(name=name) for name in ("one.txt", "two.txt"))
    async with open_harness(script, store=Memory(), config={"permission": "allow"}) as harness:
        await harness.ask("First.")
        write_by_a_clock_ahead(harness)
        await harness.ask("Second.")
        last = [message for message in harness.messages() if message.info["role"] == "user"][-1]
        await harness.engine.revert(harness.session, last.info["id"])
        assert Path("one.txt").exists()
        assert not Path("two.txt").exists()
