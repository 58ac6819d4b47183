from __future__ import annotations

import pytest

from opensesh.engine.prompt import text_prompt
from opensesh.errors import UsageError
from opensesh.storage.protocol import StoredMessage

from .harness import EngineHarness, open_harness


async def append(
    harness: EngineHarness, text: str, model: str | None = None, message_id: str | None = None
) -> StoredMessage:
    return await harness.engine.append(harness.session, text_prompt(text, model=model, message_id=message_id))


async def test_appending_reads_only_the_end_of_a_long_session(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_harness("SAY ok") as harness:
        for number in range(12):
            await append(harness, f"prompt {number}", model="scripted/it")
        asked: list[int] = []
        read = harness.store.messages

        def messages(session_id: str, *, last: int = 0, **options: object) -> object:
            asked.append(last)
            return read(session_id, last=last)

        monkeypatch.setattr(harness.store, "messages", messages)
        await append(harness, "the last one", model="scripted/it")
        assert asked
        assert all(0 < last < 12 for last in asked)
        assert harness.parts("text")[-1]["text"] == "the last one"


async def test_an_appended_prompt_has_the_model_of_the_last_one() -> None:
    async with open_harness("SAY ok") as harness:
        await harness.ask("Go.")
        stored = await append(harness, "again")
        assert stored.info["model"] == {"providerID": "scripted", "modelID": "it"}


async def test_an_old_id_is_refused_in_a_long_session() -> None:
    async with open_harness("SAY ok") as harness:
        first = await append(harness, "first", model="scripted/it")
        for number in range(12):
            await append(harness, f"prompt {number}", model="scripted/it")
        with pytest.raises(UsageError, match="already"):
            await append(harness, "again", model="scripted/it", message_id=first.info["id"])


async def test_a_text_can_be_appended_like_a_prompt() -> None:
    async with open_harness("SAY ok") as harness:
        stored = await harness.engine.append(harness.session, "a note for @build", model="scripted/it")
        assert [part["type"] for part in stored.parts][:2] == ["text", "agent"]
        assert stored.info["model"] == {"providerID": "scripted", "modelID": "it"}
        with pytest.raises(UsageError, match="the prompt is empty"):
            await harness.engine.append(harness.session, " ")
