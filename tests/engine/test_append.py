from __future__ import annotations

import pytest

from opensesh.engine.prompt import text_prompt
from opensesh.errors import UsageError
from opensesh.storage.protocol import StoredMessage

from .stage import Stage, stage


async def append(on: Stage, text: str, model: str | None = None, message_id: str | None = None) -> StoredMessage:
    return await on.engine.append(on.session, text_prompt(text, model=model, message_id=message_id))


async def test_appending_reads_only_the_end_of_a_long_session(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage("SAY ok") as on:
        for number in range(12):
            await append(on, f"prompt {number}", model="scripted/it")
        asked: list[int] = []
        read = on.store.messages

        def messages(session_id: str, *, last: int = 0, **options: object) -> object:
            asked.append(last)
            return read(session_id, last=last)

        monkeypatch.setattr(on.store, "messages", messages)
        await append(on, "the last one", model="scripted/it")
        assert asked
        assert all(0 < last < 12 for last in asked)
        assert on.parts("text")[-1]["text"] == "the last one"


async def test_an_appended_prompt_has_the_model_of_the_last_one() -> None:
    async with stage("SAY ok") as on:
        await on.ask("Go.")
        stored = await append(on, "again")
        assert stored.info["model"] == {"providerID": "scripted", "modelID": "it"}


async def test_an_old_id_is_refused_in_a_long_session() -> None:
    async with stage("SAY ok") as on:
        first = await append(on, "first", model="scripted/it")
        for number in range(12):
            await append(on, f"prompt {number}", model="scripted/it")
        with pytest.raises(UsageError, match="already"):
            await append(on, "again", model="scripted/it", message_id=first.info["id"])
