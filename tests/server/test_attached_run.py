from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from .serving import LIMIT_SECONDS, make_project, serving


async def opensesh(*arguments: str, cwd: Path) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "opensesh",
        *arguments,
        cwd=cwd,
        env={**os.environ, "PYTHONSAFEPATH": "1"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def test_a_prompt_runs_on_a_server_and_is_continued_there(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    async with serving(project) as client:
        attach = ("run", "--attach", client.url, "-m", "scripted/prompt")
        code, out, err = await opensesh(*attach, "--title", "Here", "SAY hello from afar", cwd=project)
        assert (code, out.strip()) == (0, "hello from afar"), err
        (session,) = await client.get("/session")
        assert session["title"] == "Here"
        code, out, _ = await opensesh(*attach, "-c", "--json", "SAY again", cwd=project)
        result = json.loads(out)
        assert (code, result["sessionID"], result["text"]) == (0, session["id"], "again")
        await client.http.patch(f"/session/{session['id']}", json={"time": {"archived": 1}})
        code, _, err = await opensesh(*attach, "-c", "SAY more", cwd=project)
        assert code == 3
        assert "no session of this directory" in err


async def test_permissions_are_rejected_without_yes_and_a_missing_server_is_named(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    (project / "opencode.json").write_text('{"permission": {"bash": "ask"}}')
    script = 'CALL bash {"command": "touch made", "description": "Make it"}\n---\nSAY done'
    async with serving(project) as client:
        attach = ("run", "--attach", client.url, "-m", "scripted/prompt")
        code, _, err = await opensesh(*attach, script, cwd=project)
        assert "rejected" in err
        assert (code, "stopped, because a permission was refused" in err) == (1, True)
        assert not (project / "made").exists()
        code, out, err = await opensesh(*attach, "--yes", script, cwd=project)
        assert (code, out.strip()) == (0, "done"), err
        assert (project / "made").exists()
    code, _, err = await opensesh("run", "--attach", "http://127.0.0.1:9", "SAY x", cwd=project)
    assert code == 1
    assert "does not answer" in err


async def test_yes_does_not_approve_what_needs_a_user(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    (project / "opencode.json").write_text('{"permission": {"bash": {"*": "allow", "rm *": "deny"}}}')
    command = {"command": "$(echo touch) made", "description": "Make it"}
    script = f"CALL bash {json.dumps(command)}\n---\nSAY done"
    async with serving(project) as client:
        attach = ("run", "--attach", client.url, "-m", "scripted/prompt", "--yes")
        _, _, err = await opensesh(*attach, script, cwd=project)
        assert "rejected; a rule may deny what this does" in err
        _, _, err = await opensesh(*attach, "--agent", "plan", script.replace("$(echo touch)", "touch"), cwd=project)
        assert "rejected; in plan mode only read-only commands" in err
    assert not (project / "made").exists()


async def test_requests_of_subagents_are_answered_as_well(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    (project / "opencode.json").write_text('{"permission": {"bash": "ask"}}')
    command = {"command": "touch made", "description": "Make it"}
    prompt = f"CALL bash {json.dumps(command)}\n---\nSAY made it"
    task = {"description": "Make", "prompt": prompt, "subagent_type": "general"}
    script = f"CALL task {json.dumps(task)}\n---\nSAY done"
    async with serving(project) as client, asyncio.timeout(LIMIT_SECONDS):
        attach = ("run", "--attach", client.url, "-m", "scripted/prompt")
        _, _, err = await opensesh(*attach, script, cwd=project)
        assert "! bash touch made: rejected" in err
        assert not (project / "made").exists()
        code, out, err = await opensesh(*attach, "--yes", script, cwd=project)
        assert (code, out.strip()) == (0, "done"), err
        assert (project / "made").exists()
