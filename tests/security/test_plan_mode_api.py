from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from opensesh.tools.shell.sandbox import find_lock
from tests.engine.test_plan_mode import ATTACKS, PATCH, SHELL, digest
from tests.server.serving import SCRIPTED, Client, make_project, serving

pytestmark = pytest.mark.skipif(find_lock() is None, reason="this machine has no sandbox")

SERVER = Path(__file__).parents[1] / "engine" / "writing_server.py"
LOOSE = {"mode": "all", "permission": "allow", "description": "May do anything."}
CONFIG: dict[str, Any] = {
    "permission": "allow",
    "experimental": {"batch_tool": True},
    "agent": {"loose": LOOSE, "nested": LOOSE | {"permission": {"task": "allow"}}, "plan": {"permission": "allow"}},
    "command": {
        "sub": {"template": "$ARGUMENTS", "agent": "loose", "subtask": True},
        "plain": {"template": "$ARGUMENTS", "agent": "plan"},
    },
}
EVERYTHING = [{"permission": name, "pattern": "*", "action": "allow"} for name in ("*", "edit", "bash", "ed*", "task")]


def call(name: str, **arguments: Any) -> str:
    return f"CALL {name} {json.dumps(arguments)}"


def nested(script: str, agent: str, depth: int) -> str:
    """A call of the task tool whose subagent calls it again, and whose last one plays ``script``."""
    for _ in range(depth):
        script = f"{call('task', description='d', prompt=script, subagent_type=agent)}\n---\nSAY done"
    return script


def attacks(project: Path) -> list[str]:
    new = str(project / "new.txt")
    shell = {"command": "echo x > new.txt", "description": "x"}
    put = [
        f"{call('write', filePath=new, content='x')}\n---\nSAY done",
        f"{call('bash', **shell)}\n---\nSAY done",
        f"{call('box_put', path=new)}\n---\nSAY done",
        f"{call('apply_patch', patchText=PATCH)}\n---\nSAY done",
        f"{call('bash', command='(sleep 0.2; echo x > new.txt) & disown', description='x')}\n---\nSAY done",
    ]
    inner: list[dict[str, Any]] = [{"tool": "bash", "parameters": shell}, {"tool": "task", "parameters": {}}]
    return [
        *put,
        f"{call('batch', tool_calls=inner)}\n---\nSAY done",
        *(nested(script, agent, depth) for script in put[:3] for agent, depth in (("loose", 1), ("nested", 2))),
    ]


@asynccontextmanager
async def planning(project: Path) -> AsyncGenerator[Client]:
    """A server whose client answers "always" to every request."""
    (project / "opencode.json").write_text(json.dumps(CONFIG))
    async with serving(project) as client:

        async def answer() -> None:
            while True:
                for asked in await client.get("/permission"):
                    await client.http.post(f"/permission/{asked['id']}/reply", json={"reply": "always"})
                await asyncio.sleep(0.02)

        task = asyncio.create_task(answer())
        try:
            yield client
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def tools_called(client: Client, session_id: str) -> int:
    messages = await client.get(f"/session/{session_id}/message")
    return sum(part["type"] == "tool" for message in messages for part in message["parts"])


Step = Callable[[Client, str], Coroutine[Any, Any, str]]


async def _allow_everything(client: Client, session_id: str) -> str:
    response = await client.http.patch(f"/session/{session_id}", json={"permission": EVERYTHING})
    assert response.status_code == 200
    return session_id


async def _created_with_rules(client: Client, session_id: str) -> str:
    return await client.create(permission=EVERYTHING, parentID=session_id)


async def _fork(client: Client, session_id: str) -> str:
    return (await client.post(f"/session/{session_id}/fork"))["id"]


async def _compact(client: Client, session_id: str) -> str:
    await client.post(f"/session/{session_id}/summarize", SCRIPTED | {"auto": True})
    return session_id


async def _approve_by_building(client: Client, session_id: str) -> str:
    """The user has allowed commands and edits "always", outside of plan mode."""
    line = call("bash", command="true && node --version", description="x")
    await client.prompt(session_id, f"{line}\n---\nSAY done", agent="build")
    return session_id


async def _revert(client: Client, session_id: str) -> str:
    message = (await client.get(f"/session/{session_id}/message"))[0]["info"]["id"]
    await client.post(f"/session/{session_id}/revert", {"messageID": message})
    return session_id


async def _add_server(client: Client, session_id: str) -> str:
    await client.post("/mcp", {"name": "box", "config": {"type": "local", "command": [sys.executable, str(SERVER)]}})
    return session_id


SLOW_STEPS = [_created_with_rules, _fork, _compact, _approve_by_building, _revert]


@pytest.mark.parametrize(
    "step", [_allow_everything, _add_server, *(pytest.param(step, marks=pytest.mark.slow) for step in SLOW_STEPS)]
)
async def test_c2_nothing_that_a_model_says_changes_a_file_whatever_clients_do_meanwhile(
    isolated: Path, step: Step
) -> None:
    project = make_project(isolated / "project")
    async with planning(project) as client:
        before = digest(project)
        session_id = await client.create()
        await client.prompt(session_id, "SAY begun", agent="plan")
        session_id = await step(client, session_id)
        for script in attacks(project):
            await client.prompt(session_id, script, agent="plan", tools={"write": True, "bash": True})
            assert digest(project) == before, script
        assert await tools_called(client, session_id) >= len(attacks(project))


@pytest.mark.slow
async def test_c2_outside_of_plan_mode_the_same_attacks_change_files(isolated: Path) -> None:
    project = make_project(isolated / "project")
    async with planning(project) as client:
        session_id = await _add_server(client, await client.create())
        for script in attacks(project):
            if "apply_patch" in script:
                continue  # only some models are offered it
            await client.prompt(session_id, script, agent="loose")
            async with asyncio.timeout(60):
                while not (project / "new.txt").exists():
                    await asyncio.sleep(0.02)
            (project / "new.txt").unlink()


@pytest.mark.slow
async def test_c2_commands_of_a_project_keep_plan_mode(isolated: Path) -> None:
    project = make_project(isolated / "project")
    async with planning(project) as client:
        before = digest(project)
        session_id = await client.create()
        for script in attacks(project):
            for name in ("sub", "plain"):
                body = {"command": name, "arguments": script, "agent": "plan", "model": "scripted/prompt"}
                await client.post(f"/session/{session_id}/command", body)
                assert digest(project) == before, (name, script)
        assert await tools_called(client, session_id) >= 2 * len(attacks(project))


@pytest.mark.slow
async def test_c2_no_command_line_changes_a_file_whatever_the_client_answers(isolated: Path) -> None:
    project = make_project(isolated / "project")
    (project / "a.txt").write_text("one\n")
    async with planning(project) as client:
        before = digest(project)
        session_id = await client.create()
        for line in (*SHELL, *ATTACKS):
            script = f"{call('bash', command=line, description='x')}\n---\nSAY done"
            await client.prompt(session_id, script, agent="plan")
            assert digest(project) == before, line
        assert await tools_called(client, session_id) == len(SHELL) + len(ATTACKS)
