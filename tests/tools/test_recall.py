from __future__ import annotations

import pytest

from opensesh.errors import PermissionDeniedError, ToolFailedError
from opensesh.tools.recall import RecallTool
from opensesh.tools.tool import HiddenMessage

from .bench import Bench


@pytest.fixture
def full(bench: Bench) -> Bench:
    output = [
        HiddenMessage(number=1, speaker="user", text="Never touch the public API, whatever happens."),
        HiddenMessage(number=2, speaker="assistant", text='{"path":"a"}\nPORT=8125', call_id="call_7", tool="read"),
        HiddenMessage(number=2, speaker="assistant", text="The port is 8125."),
        HiddenMessage(number=3, speaker="user", text="x" * 5_000 + " needle in the middle " + "y" * 5_000),
        HiddenMessage(number=4, speaker="assistant", text="Port, port, port: the API listens there."),
    ]
    bench.hidden_messages.list = output
    return bench


async def test_words_are_found_in_any_order_and_case_best_first(full: Bench) -> None:
    answer = await full.run(RecallTool(), query="api PORT")
    assert answer.output.startswith("[4] assistant\nPort, port")
    assert "[1] user" in answer.output
    assert answer.metadata["matches"] == 4
    assert full.asked[0].permission == "read"
    assert (await full.run(RecallTool(), query="zork")).metadata["matches"] == 0


async def test_a_long_message_is_shown_around_what_was_found(full: Bench) -> None:
    output = (await full.run(RecallTool(), query="needle")).output
    assert "... " in output
    assert "needle in the middle" in output
    assert len(output) < 700


async def test_messages_are_read_by_number(full: Bench) -> None:
    output = (await full.run(RecallTool(), start=1, end=2)).output
    assert "Never touch the public API, whatever happens." in output
    assert "[2] assistant read (callId call_7)" in output
    assert "needle" not in output
    assert "No hidden message" in (await full.run(RecallTool(), start=9)).output


async def test_a_range_limits_a_search(full: Bench) -> None:
    assert (await full.run(RecallTool(), query="port", start=3)).metadata["matches"] == 1


async def test_a_truncated_message_says_how_to_continue(full: Bench) -> None:
    full.hidden_messages.list = [
        HiddenMessage(number=at, speaker="user", text=f"{at} " * 3_000, call_id=f"c{at}", tool="bash")
        for at in (1, 2, 3)
    ]
    output = (await full.run(RecallTool(), start=1)).output
    assert len(output) < 12_500
    assert "callId c2 reads this in full; start 3 continues with the next message" in output


async def test_one_result_is_read_whole(full: Bench) -> None:
    assert (await full.run(RecallTool(), callId="call_7")).output == '{"path":"a"}\nPORT=8125'
    with pytest.raises(ToolFailedError, match="No hidden tool call 'call_8'"):
        await full.run(RecallTool(), callId="call_8")


async def test_without_arguments_it_lists_what_there_is_the_newest_in_any_case(full: Bench) -> None:
    output = (await full.run(RecallTool())).output
    assert output.splitlines()[0] == "[1] user: Never touch the public API, whatever happens."
    assert len(output.splitlines()) == 5
    full.hidden_messages.list = [HiddenMessage(number=at, speaker="user", text="words " * 30) for at in range(1, 301)]
    lines = (await full.run(RecallTool())).output.splitlines()
    assert "older ones" in lines[0]
    assert lines[-1].startswith("[300]")
    full.hidden_messages.list = []
    assert "you see the whole conversation" in (await full.run(RecallTool())).output


async def test_who_may_not_read_may_not_recall(full: Bench) -> None:
    full.refuse["read"] = PermissionDeniedError("no")
    with pytest.raises(PermissionDeniedError):
        await full.run(RecallTool(), query="port")
