from __future__ import annotations

import asyncio
import json

from opensesh.testing.scripted import ScriptedModel

from .harness import open_harness
from .test_calls import child, task

SEQ = "CALL bash " + json.dumps({"command": "seq 1 20", "description": "count"})


async def test_the_configuration_says_how_long_an_output_may_be() -> None:
    async with open_harness(f"{SEQ}\n---\nSAY done", config={"tool_output": {"max_lines": 5, "max_bytes": 1000}}) as it:
        await it.ask()
        (part,) = it.parts("tool")
        assert part["state"]["metadata"]["truncated"] is True
        assert part["state"]["output"].rstrip().endswith("17\n18\n19\n20")
        (bash,) = [tool for tool in it.model.calls[0].request.tools if tool.name == "bash"]
        assert "more than 5 lines or 1000 bytes" in bash.description


async def test_reading_a_long_output_is_left_to_another_agent_only_by_one_that_may() -> None:
    model = ScriptedModel(f"{SEQ}\n---\n{task()}\n---\nSAY ok", sessions={"CHILD": f"{SEQ}\n---\nSAY ok"}, route=child)
    async with open_harness(model, config={"tool_output": {"max_lines": 5}}) as it:
        await it.ask()
        (made,) = it.engine.sessions.children(it.session)
        own, childs = it.parts("tool")[0]["state"]["output"], it.parts("tool", made.id)[0]["state"]["output"]
        assert "task tool" in own
        assert "task tool" not in childs
        assert "grep" in childs


async def test_two_sessions_that_change_the_same_file_wait_for_each_other() -> None:
    async with open_harness("SAY done") as it:
        other = await it.engine.create()
        order: list[str] = []

        async def change(session: str, name: str) -> None:
            async with it.engine.files(session).lock("/srv/a.py"):
                order.append(f"{name} begins")
                await asyncio.sleep(0.02)
                order.append(f"{name} ends")

        async with asyncio.TaskGroup() as group:
            group.create_task(change(it.session, "one"))
            group.create_task(change(other.id, "two"))
        assert order == ["one begins", "one ends", "two begins", "two ends"]
