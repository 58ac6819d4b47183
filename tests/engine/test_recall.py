from __future__ import annotations

from typing import Any

from opensesh.engine.compaction_undo import undo_compaction
from opensesh.models.request import Text, User
from opensesh.records import Rule

from .harness import EngineHarness, open_harness

DENY_READ = [Rule(permission="read", pattern="*", action="deny")]


def offered(harness: EngineHarness, number: int) -> tuple[str, ...]:
    return harness.model.tools_offered(number)


def opening(harness: EngineHarness, number: int) -> str:
    first = harness.model.calls[number].request.messages[1]
    assert isinstance(first, User)
    assert isinstance(first.content[0], Text)
    return first.content[0].text


async def test_recall_is_there_once_something_was_compacted_and_gone_when_that_is_taken_back() -> None:
    look = 'CALL recall {"query":"mauve"}'
    async with open_harness(
        f"SAY noted\n---\nSAY in short\n---\n{look}\n---\nSAY it was mauve\n---\nSAY ok"
    ) as harness:
        await harness.ask("The colour is mauve.")
        assert "recall" not in offered(harness, 0)
        await (await harness.engine.compact(harness.session))
        await harness.ask("Which colour?")
        assert "recall" in offered(harness, 2)
        assert "recall tool" in opening(harness, 2)
        result = harness.parts("tool")[0]["state"]
        assert result["status"] == "completed"
        assert result["output"] == "[1] user\nThe colour is mauve."
        assert undo_compaction(harness.engine.sessions, harness.session)
        await harness.ask("And?")
        assert "recall" not in offered(harness, 4)
        assert "recall" not in opening(harness, 4)


async def test_a_pruned_output_can_be_read_back_by_its_call() -> None:
    run = 'CALL bash id=call_1 {"command":"echo the answer is $((6*7))","description":"ask"}'
    read = 'CALL recall {"callId":"call_1"}'
    async with open_harness(f"{run}\n---\nSAY ok\n---\n{read}\n---\nSAY 42") as harness:
        await harness.ask("Ask")
        assert "recall" not in offered(harness, 1)
        mark(harness, harness.parts("tool")[0])
        await harness.ask("What was it?")
        assert "recall" in offered(harness, 2)
        assert "the answer is 42" not in harness.model.model_text(2)
        assert "the answer is 42" in harness.parts("tool")[1]["state"]["output"]


async def test_an_agent_that_may_not_read_is_not_offered_recall_nor_pointed_to_it() -> None:
    async with open_harness("SAY one\n---\nSAY in short\n---\nSAY two", rules=DENY_READ) as harness:
        await harness.ask("first")
        await (await harness.engine.compact(harness.session))
        await harness.ask("second")
        assert "recall" not in offered(harness, 2)
        assert opening(harness, 2) == "What did we do so far?"


async def test_a_summary_in_the_middle_of_a_turn_brings_recall_along() -> None:
    full = 'CALL bash {"command":"echo x","description":"x"}\nUSAGE input=199000 output=10'
    async with open_harness(f"{full}\n---\nSAY in short\n---\nSAY done") as harness:
        await harness.ask("Go")
        assert "recall" not in offered(harness, 0)
        assert "recall" in offered(harness, 2)


def mark(harness: EngineHarness, part: dict[str, Any]) -> None:
    time = part["state"]["time"] | {"compacted": part["state"]["time"]["end"]}
    harness.engine.sessions.update_part(part | {"state": part["state"] | {"time": time}})
