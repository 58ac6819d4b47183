from __future__ import annotations

from pathlib import Path

from opensesh import ids
from opensesh.storage.memory import Memory
from opensesh.storage.protocol import StoredMessage
from tests.engine.stage import Stage, stage

AHEAD_MS = 30_000


def write_by_a_clock_ahead(on: Stage) -> list[str]:
    """Give the messages of the session the ids and times of a clock that is ahead, as another process had it."""
    ahead = ids.IdGenerator(lambda: ids.now_ms() + AHEAD_MS)
    names: dict[str, str] = {}
    for message in on.messages():
        on.engine.sessions.remove_message(on.session, message.info["id"])
        name = names[message.info["id"]] = ahead.ascending("msg")
        time = {field: moment + AHEAD_MS for field, moment in message.info["time"].items()}
        parent = {"parentID": names[message.info["parentID"]]} if "parentID" in message.info else {}
        info = message.info | {"id": name, "time": time} | parent
        parts = [part | {"messageID": name} for part in message.parts]
        on.engine.sessions.add_message(StoredMessage(info, parts))
    return list(names.values())


async def test_m3_messages_stay_in_order_when_the_clock_steps_back() -> None:
    script = "SAY one\n---\nCALL echo {}\n---\nSAY two\n---\nSAY three"
    store = Memory()
    async with stage(script, store=store) as on:
        await on.ask("First.")
        earlier = write_by_a_clock_ahead(on)
        await on.ask("Second.")
        await on.ask("Third.")
        messages = on.messages()
        names = [message.info["id"] for message in messages]
        assert names[: len(earlier)] == earlier
        prompts = [message.parts[0]["text"] for message in messages if message.info["role"] == "user"]
        assert prompts == ["First.", "Second.", "Third."]
        assert names == sorted(names), "OpenCode compares identifiers"
        times = [message.info["time"]["created"] for message in messages]
        assert times == sorted(set(times))
        for message in messages:
            assert message.info["time"].get("completed", 2**60) >= message.info["time"]["created"]
        on.assert_sound()


async def test_m3_the_last_prompt_is_reverted_when_the_clock_has_stepped_back() -> None:
    write = 'CALL write {{"filePath":"{name}","content":"x"}}\n---\nSAY ok'
    script = "\n---\n".join(write.format(name=name) for name in ("one.txt", "two.txt"))
    async with stage(script, store=Memory(), config={"permission": "allow"}) as on:
        await on.ask("First.")
        write_by_a_clock_ahead(on)
        await on.ask("Second.")
        last = [message for message in on.messages() if message.info["role"] == "user"][-1]
        await on.engine.revert(on.session, last.info["id"])
        assert Path("one.txt").exists()
        assert not Path("two.txt").exists()
