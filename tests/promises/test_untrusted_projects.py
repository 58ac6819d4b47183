from __future__ import annotations

import json
from pathlib import Path

import pytest

from opensesh.engine.opening import open_engine
from opensesh.storage.memory import Memory
from opensesh.testing.scripted import ScriptedModel


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    folder.mkdir()
    return folder


def configure(project: Path, **settings: object) -> None:
    (project / "opencode.json").write_text(json.dumps(settings))


async def statuses(project: Path, *calls: str) -> list[str]:
    models = {"it": ScriptedModel("\n---\n".join([*calls, "SAY done"]))}
    async with open_engine(str(project), store=Memory(), scripts=models) as engine:
        session = await engine.create(title="T")
        await engine.run(session.id, "Go.", model="scripted/it")
        parts = [part for message in engine.sessions.messages(session.id) for part in message.parts]
    return [part["state"]["status"] for part in parts if part["type"] == "tool"]


async def test_formatters_language_servers_and_the_shell_of_a_project_are_not_run(project: Path) -> None:
    program = project / "program"
    program.write_text(f"#!/bin/sh\ntouch {project}/ran\n")
    program.chmod(0o755)
    command = {"command": [str(program)], "extensions": [".txt"]}
    configure(project, formatter={"own": command}, lsp={"own": command})
    assert await statuses(project, 'CALL write {"filePath": "a.txt", "content": "x"}') == ["completed"]
    assert not (project / "ran").exists()


async def test_the_permissions_of_a_project_apply(project: Path) -> None:
    for action, is_written in (("deny", False), ("allow", True)):
        configure(project, permission={"edit": action})
        await statuses(project, 'CALL write {"filePath": "a.txt", "content": "x"}')
        assert (project / "a.txt").exists() is is_written


async def test_placeholders_models_and_agents_of_a_project_apply(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_VALUE", "from the environment")
    configure(project, model="p/m", username="{env:A_VALUE}", agent={"own": {"prompt": "Do it.", "mode": "primary"}})
    async with open_engine(str(project), store=Memory()) as engine:
        assert (engine.config.settings.model, engine.config.settings.username) == ("p/m", "from the environment")
        assert engine.agent("own").name == "own"
