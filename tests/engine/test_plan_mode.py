from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from opensesh import events
from opensesh.bus import Envelope
from opensesh.engine.plan_mode import plan_file
from opensesh.permissions import Answer
from opensesh.records import Rule
from opensesh.storage.json_tree.store import JsonTree
from opensesh.testing.scripted import ScriptedModel
from opensesh.tools.custom import tool
from opensesh.tools.shell.process_table import processes
from opensesh.tools.shell.sandbox import find_lock

from .harness import Acting, EngineHarness, open_harness

BROAD: list[dict[str, Any]] = [
    {"permission": "allow"},
    {"permission": {"*": "allow", "bash": "allow", "edit": "allow", "external_directory": "allow"}},
    {"permission": {"edit": {"*": "allow"}, "bash": {"*": "allow"}}, "agent": {"general": {"permission": "allow"}}},
]
EXTRA = {"experimental": {"batch_tool": True}}
PATCH = "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+two\n*** End Patch"
DIFF = "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n"

SHELL = [
    "echo x > a.txt",
    "echo x >> new.txt",
    ": > a.txt",
    "echo x | tee a.txt",
    "echo x | tee -a ../outside/b.txt",
    "echo x > ../outside/b.txt",
    "sed -i s/one/two/ a.txt",
    "sed -n 'w new.txt' a.txt",
    "perl -pi -e s/one/two/ a.txt",
    "python3 -c 'open(\"a.txt\",\"w\").write(\"x\")'",
    "python3 - <<'EOF'\nopen('a.txt','w').write('x')\nEOF",
    "cat <<'EOF' > a.txt\nx\nEOF",
    f"git apply <<'EOF'\n{DIFF}EOF",
    "git checkout -q -b other && git commit -q --allow-empty -m x",
    "git config user.name other",
    "git diff --output=new.txt HEAD",
    "cp a.txt new.txt",
    "mv a.txt new.txt",
    "rm a.txt",
    "touch new.txt",
    "mkdir new",
    "ln -s a.txt new.txt",
    "truncate -s 0 a.txt",
    "dd if=a.txt of=new.txt status=none",
    "chmod 600 a.txt; echo x > a.txt",
    "find . -name a.txt -delete",
    "find . -name a.txt -exec rm {} +",
    "ls | xargs -I{} sh -c 'echo x > {}'",
    "bash -c 'echo x > a.txt'",
    "eval 'echo x > a.txt'",
    "env X=1 sh -c 'echo x > a.txt'",
    "cat a.txt; echo x > a.txt",
    "cat a.txt && (echo x > a.txt)",
    "echo $(echo x > a.txt)",
    "ls <(echo x > a.txt)",
    "f() { echo x > a.txt; }; f",
    "trap 'echo x > a.txt' EXIT",
    "sort -o a.txt b.txt",
    "awk 'BEGIN { print \"x\" > \"a.txt\" }'",
    "PATH=$PWD/evil:$PATH ls",
    "cd evil && ./ls",
    "echo 'unfinished > a.txt",
    "l\\s a.txt; r\\m a.txt",
    "$(echo rm) a.txt",
    "echo x | uniq - a.txt",
    "echo a.txt | xargs -i rm cat",
    "echo x | xargs --process-slot-var cat rm a.txt",
    "[[ 'x[$(rm a.txt)]' -eq 0 ]]",
    "test -v 'x[$(rm a.txt)]'",
]  # fmt: skip


def digest(*folders: Path) -> dict[str, str]:
    """Every file of the project and beside it, with what is in it; the repository's references and settings too."""
    result: dict[str, str] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            name = str(path.relative_to(folder.parent))
            inside = ".git/" in f"{name}/"
            if path.is_file() and (not inside or "refs" in name or path.name in ("HEAD", "config")):
                result[name] = (
                    f"{path.is_symlink()} {path.stat().st_mode} {hashlib.sha1(path.read_bytes()).hexdigest()}"
                )
            elif path.is_dir() and not inside:
                result[name] = "folder"
    return result


@pytest.fixture
def project(isolated: Path) -> Path:
    work = isolated / "work"
    (work / "a.txt").write_text("one\n")
    (work / "b.txt").write_text("two\n")
    (work / "opencode.json").write_text("{}")
    (work / "evil").mkdir()
    (work / "evil" / "ls").write_text("#!/bin/sh\necho x > a.txt\necho x > ../a.txt\n")
    (work / "evil" / "ls").chmod(0o755)
    (isolated / "outside").mkdir()
    (isolated / "outside" / "b.txt").write_text("b\n")
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "begin"]):
        subprocess.run(["git", *command], check=True, cwd=work)
    return work


needs_lock = pytest.mark.skipif(find_lock() is None, reason="this machine has no sandbox")

ATTACKS = [
    "x='$(touch new.txt)'; y=${x@P}",
    "RANDOM='a[$(touch new.txt)]'",
    "for x in '$(touch new.txt)'; do echo ${x@P}; done",
    "for RANDOM in 'a[$(touch new.txt)]'; do ls; done",
    "x['$(touch new.txt)']=1",
    "chmod 600 a.txt",
    "touch -d 2001-01-01 a.txt",
    "ln a.txt ../outside/link; mkfifo pipe; mkdir d",
    "python3 -c 'import os; os.truncate(\"a.txt\", 0)'",
    "mkdir -p $TMPDIR/d; ln -s $PWD/a.txt $TMPDIR/d/l; echo x > $TMPDIR/d/l",
    "echo x > /proc/self/cwd/a.txt",
    "git -c core.fsmonitor='touch new.txt' status; git stash; git gc",
    "unshare -rm sh -c 'mount -t tmpfs x .; echo x > a.txt'",
    "nohup sh -c 'sleep 0.1; echo x > a.txt' > /dev/null 2>&1 & sleep 0.3",
    "exec 3<>a.txt; echo x >&3",
    "cp --attributes-only --preserve=mode evil/ls a.txt; chown 1:1 a.txt",
]


class Responder:
    """Gives one answer to everything that is asked, and remembers the requests."""

    def __init__(self, harness: EngineHarness, answer: Answer) -> None:
        self.asked: list[events.PermissionAsked] = []
        self._on = harness
        self._answer: Answer = answer
        harness.engine.bus.listen(self._hear)

    def _hear(self, envelope: Envelope) -> None:
        if isinstance(envelope.event, events.PermissionAsked):
            self.asked.append(envelope.event)
            asked = envelope.event.id
            reply = self._on.engine.components.permissions.reply
            asyncio.get_running_loop().call_soon(reply, asked, self._answer)


def call(name: str, **arguments: Any) -> str:
    return f"CALL {name} {json.dumps(arguments)}"


def of_child(request: Any) -> str | None:
    first = next(message for message in request.messages if type(message).__name__ == "User")
    return "CHILD" if first.content[0].text.startswith("CHILD") else None


@asynccontextmanager
async def planning(
    project: Path,
    script: Any,
    config: dict[str, Any],
    *,
    answer: Answer = "reject",
    own: dict[str, Any] | None = None,
    **more: Any,
) -> AsyncGenerator[tuple[EngineHarness, Responder]]:
    if own is not None:
        (project.parent / ".config" / "opencode").mkdir(parents=True)
        (project.parent / ".config" / "opencode" / "opencode.json").write_text(json.dumps(own))
    config = config | EXTRA
    (project / "opencode.json").write_text(json.dumps(config))
    store = JsonTree(project.parent / "data" / "storage")
    async with open_harness(script, config=config, store=store, **more) as harness:
        yield harness, Responder(harness, answer)


def folders(project: Path) -> tuple[Path, Path]:
    return project, project.parent / "outside"


@pytest.mark.parametrize("config", BROAD)
async def test_no_shell_trick_writes_anything_however_much_is_allowed(project: Path, config: dict[str, Any]) -> None:
    async with planning(project, ScriptedModel(None), config) as (harness, refused):
        before = digest(*folders(project))
        for number, command in enumerate(SHELL, 1):
            await harness.ask(f"{call('bash', command=command, description='x')}\n---\nSAY tried", agent="plan")
            assert digest(*folders(project)) == before, command
            states = [part["state"]["status"] for part in harness.parts("tool")]
            assert (len(states), states[-1]) == (number, "error"), command
        assert {asked.permission for asked in refused.asked} <= {"bash", "external_directory", "doom_loop"}
        assert all(asked.metadata["mode"] == "plan" for asked in refused.asked if asked.permission == "bash")


def hostile_calls(project: Path) -> list[str]:
    target, outside = str(project / "a.txt"), str(project.parent / "outside" / "b.txt")
    other = str(project / ".opencode" / "plans" / "another.md")
    edits = [{"filePath": target, "oldString": "one", "newString": "two"}]
    shell = {"command": "echo x > a.txt", "description": "x"}
    return [
        call("write", filePath=target, content="x"),
        call("write", filePath=str(project / "new" / "file.txt"), content="x"),
        call("write", filePath=outside, content="x"),
        call("write", filePath=other, content="somebody else's plan"),
        call("write", filePath=str(project / ".opencode" / "plans" / ".." / ".." / "a.txt"), content="x"),
        call("edit", filePath=target, oldString="one", newString="two"),
        call("multiedit", path=target),
        call("apply_patch", patchText=PATCH),
        call("batch", tool_calls=[{"tool": "write", "parameters": {"filePath": target, "content": "x"}}]),
        call("batch", tool_calls=[{"tool": "bash", "parameters": shell}, {"tool": "edit", "parameters": edits[0]}]),
        call("bash", Command="rm a.txt", description="x"),
        call("bash", com_mand="rm a.txt", description="x"),
        call("quiet", path=target),
        call("asking", path=target),
        call("read", path=target),
        call("batch", tool_calls=[{"tool": "quiet", "parameters": {"path": target}}]),
    ]


async def write_at_once(arguments: dict[str, Any], ctx: Any) -> str:
    Path(arguments["path"]).write_text("x")
    return "written"


@tool
def asking(path: str) -> str:
    """Writes, once it is allowed to."""
    Path(path).write_text("x")
    return "written"


def own_tools() -> list[Any]:
    return [Acting("multiedit", write_at_once), Acting("quiet", write_at_once), asking, Acting("read", write_at_once)]


@pytest.mark.parametrize("config", BROAD)
@pytest.mark.parametrize("model", ["it", "gpt-5"])
async def test_no_tool_writes_anything_but_the_plan(
    project: Path, config: dict[str, Any], model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCODE_DISABLE_FILETIME_CHECK", "true")  # else it is refused because it was not read
    more: dict[str, Any] = {model: ScriptedModel(None)}
    async with planning(project, ScriptedModel(None), config, tools=own_tools(), **more) as (harness, _):
        before = digest(*folders(project))
        for item in hostile_calls(project):
            tried = len(harness.parts("tool"))
            await harness.ask(f"{item}\n---\nSAY tried", agent="plan", model=f"scripted/{model}")
            assert digest(*folders(project)) == before, item
            assert len(harness.parts("tool")) > tried, item


async def test_a_link_among_the_plans_leads_nowhere(project: Path) -> None:
    async with planning(project, ScriptedModel(None), BROAD[0]) as (harness, _):
        session = harness.engine.sessions.get(harness.session)
        plan = Path(plan_file(harness.engine.config, harness.engine.location, session))
        plan.parent.mkdir(parents=True)
        plan.symlink_to(project / "a.txt")
        await harness.ask(f"{call('write', filePath=str(plan), content='x')}\n---\nSAY tried", agent="plan")
        assert (project / "a.txt").read_text() == "one\n"


@pytest.mark.parametrize("target", ["..", "../.git/hooks", "../../outside"])
async def test_a_link_in_place_of_the_folder_of_plans_leads_nowhere(project: Path, target: str) -> None:
    (project / ".opencode").mkdir()
    (project / ".opencode" / "plans").symlink_to(target)
    async with planning(project, ScriptedModel(None), BROAD[0], answer="always") as (harness, _):
        before = sorted(os.listdir(project / ".opencode" / "plans"))
        session = harness.engine.sessions.get(harness.session)
        plan = plan_file(harness.engine.config, harness.engine.location, session)
        await harness.ask(f"{call('write', filePath=plan, content='x')}\n---\nSAY tried", agent="plan")
        assert harness.parts("tool")[-1]["state"]["status"] == "error"
        assert sorted(os.listdir(project / ".opencode" / "plans")) == before


@pytest.mark.parametrize("slug", ["x/../../../*", "*", "?", "x/../../../new", "../../../outside/new", "\0", ""])
async def test_the_slug_of_a_session_allows_no_other_file_than_its_plan(project: Path, slug: str) -> None:
    async with planning(project, ScriptedModel(None), BROAD[0], answer="always") as (harness, _):
        harness.engine.sessions.update(harness.session, lambda info: info.update(slug=slug))
        others = [
            project / "new.md",
            project / ".opencode" / "plans" / "1-other.md",
            project.parent / "outside" / "n.md",
        ]
        for path in others:
            await harness.ask(f"{call('write', filePath=str(path), content='x')}\n---\nSAY tried", agent="plan")
            assert not path.exists()
        session = harness.engine.sessions.get(harness.session)
        plan = Path(plan_file(harness.engine.config, harness.engine.location, session))
        await harness.ask(f"{call('write', filePath=str(plan), content='x')}\n---\nSAY ok", agent="plan")
        assert plan.resolve().parent == project / ".opencode" / "plans"
        assert plan.read_text() == "x"


async def test_rules_of_a_session_allow_no_edits_while_it_plans(project: Path) -> None:
    rules = [Rule(permission=name, pattern="*", action="allow") for name in ("edit", "*", "ed*")]
    calls = [
        call("write", filePath=str(project / "new.txt"), content="x"),
        call("read", filePath=str(project / "a.txt")),
        call("edit", filePath=str(project / "a.txt"), oldString="one", newString="two"),
        call("apply_patch", patchText=PATCH),
        call("bash", command="echo x > a.txt", description="x"),
    ]
    for model in ("it", "gpt-5"):
        more: dict[str, Any] = {model: ScriptedModel(None)}
        async with planning(project, ScriptedModel(None), {}, answer="always", rules=rules, **more) as (harness, _):
            before = digest(*folders(project))
            for number, item in enumerate(calls, 1):
                tools = {"write": True, "edit": True}
                await harness.ask(f"{item}\n---\nSAY tried", agent="plan", model=f"scripted/{model}", tools=tools)
                assert digest(*folders(project)) == before, item
                assert len(harness.parts("tool")) == number, item


def mcp_calls(project: Path) -> list[str]:
    target = str(project / "a.txt")
    nested = [{"tool": "box_put", "parameters": {"path": target}}]
    task = {"description": "d", "prompt": f"CHILD {call('box_put', path=target)}", "subagent_type": "loose"}
    return [
        call("box_put", path=target),
        call("box_change", path=target),
        call("batch", tool_calls=nested),
        call("task", **task),
        call("asking", path=target),
        call("quiet", path=target),
    ]


@pytest.mark.parametrize("config", BROAD)
@pytest.mark.parametrize("answer", ["always", "reject"])
async def test_c2_no_tool_of_a_server_or_package_writes_while_planning_even_if_the_user_allows_it(
    project: Path, config: dict[str, Any], answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENSESH_TRUST_PLUGINS", "1")
    loose = {"loose": {"mode": "all", "permission": "allow", "description": "May do anything."}}
    box = {"type": "local", "command": [sys.executable, str(Path(__file__).parent / "writing_server.py")]}
    config = config | {"agent": config.get("agent", {}) | loose, "mcp": {"box": box}}
    child = f"{call('box_put', path=str(project / 'a.txt'))}\n---\nSAY tried"
    models = ScriptedModel(None, route=of_child, sessions={"CHILD": child})
    async with planning(project, models, config, answer=answer, tools=own_tools()) as (harness, user):
        before = digest(*folders(project))
        for item in mcp_calls(project):
            await harness.ask(f"{item}\n---\nSAY tried", agent="plan")
            assert digest(*folders(project)) == before, item
        assert all("Plan mode refuses" in str(part["state"]) for part in harness.parts("tool")[:3])
        assert user.asked == []
        await harness.ask(f"{call('box_peek', path=str(project / 'a.txt'))}\n---\nSAY tried", agent="plan")
        assert [asked.permission for asked in user.asked][:1] == ["box_peek"]
        assert harness.parts("tool")[-1]["state"]["status"] == ("completed" if answer == "always" else "error")
        await harness.ask(f"{call('box_put', path=str(project / 'a.txt'))}\n---\nSAY done", agent="build")
        assert (project / "a.txt").read_text() == "x"


async def test_the_section_of_the_plan_agent_lifts_the_tools_that_it_names(project: Path) -> None:
    config = {"agent": {"plan": {"permission": {"asking": "allow"}}}}
    script = f"{call('asking', path=str(project / 'a.txt'))}\n---\nSAY done"
    async with planning(project, script, {}, own=config, tools=own_tools()) as (harness, user):
        await harness.ask("Try.", agent="plan")
        assert (project / "a.txt").read_text() == "x"
        assert user.asked == []


async def test_a_tool_of_python_that_is_declared_read_only_is_asked_about(project: Path) -> None:
    @tool(read_only=True)
    def look(path: str) -> str:
        """Read a file."""
        return Path(path).read_text()

    script = f"{call('look', path=str(project / 'a.txt'))}\n---\nSAY done"
    async with planning(project, script, {}, answer="once", tools=[look]) as (harness, user):
        await harness.ask("Try.", agent="plan")
        assert harness.parts("tool")[0]["state"]["output"] == "one\n"
        assert [asked.permission for asked in user.asked] == ["look"]


@pytest.mark.parametrize("config", BROAD)
@pytest.mark.parametrize("agent", ["general", "explore", "loose"])
async def test_no_subagent_writes_anything_new_or_taken_up_again(
    project: Path, config: dict[str, Any], agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCODE_DISABLE_FILETIME_CHECK", "true")  # else writes are refused because nothing was read
    loose = {"loose": {"mode": "all", "permission": "allow", "description": "May do anything."}}
    config = config | {"agent": config.get("agent", {}) | loose}
    child = "\n---\n".join(
        [
            "SAY begun",
            call("bash", command="sed -i s/one/two/ a.txt", description="x"),
            call("write", filePath=str(project / "a.txt"), content="x"),
            call("quiet", path=str(project / "a.txt")),
            *["SAY tried"] * 3,  # a refusal by the user ends a turn, and a rule does not
        ]
    )
    task = {"description": "d", "prompt": "CHILD", "subagent_type": agent}
    models = ScriptedModel(None, route=of_child, sessions={"CHILD": child})
    async with planning(project, models, config, tools=own_tools()) as (harness, refused):
        await harness.ask(f"{call('task', **task)}\n---\nSAY ok", agent="build")
        (made,) = harness.engine.sessions.children(harness.session)
        before = digest(*folders(project))
        again = task | {"task_id": made.id}
        for _ in range(3):
            await harness.ask(f"{call('task', **again)}\n---\nSAY ok", agent="plan")
            assert digest(*folders(project)) == before
        tried = [part["tool"] for part in harness.parts("tool", made.id)]
        assert tried == ["bash", *(("invalid", "invalid") if agent == "explore" else ("write", "quiet"))]
        assert [asked.permission for asked in refused.asked] == ["bash"]


async def test_a_subagent_that_still_runs_is_restricted_when_a_planning_session_continues_it(project: Path) -> None:
    waiting, go_on = asyncio.Event(), asyncio.Event()

    async def wait(arguments: dict[str, Any], ctx: Any) -> str:
        waiting.set()
        await go_on.wait()
        return "done"

    write = call("write", filePath=str(project / "new.txt"), content="x")
    child = f"SAY begun\n---\n{call('gate')}\n---\n{write}\n---\nSAY tried"
    task = {"description": "d", "prompt": "CHILD", "subagent_type": "general"}
    models = ScriptedModel(None, route=of_child, sessions={"CHILD": child})
    async with planning(project, models, BROAD[0], tools=[Acting("gate", wait)]) as (harness, _):
        await harness.ask(f"{call('task', **task)}\n---\nSAY ok", agent="build")
        (made,) = harness.engine.sessions.children(harness.session)
        running = await harness.submit("Go on.", made.id, agent="general")
        await waiting.wait()
        planned = await harness.submit(f"{call('task', **(task | {'task_id': made.id}))}\n---\nSAY ok", agent="plan")
        await harness.until(lambda: len([m for m in harness.messages(made.id) if m.info["role"] == "user"]) == 3)
        go_on.set()
        await asyncio.wait_for(asyncio.gather(running, planned), 60)
        assert not (project / "new.txt").exists()
        assert "forbids write" in harness.parts("tool", made.id)[-1]["state"]["error"]


async def test_a_subagent_may_do_its_work_again_once_planning_is_over(project: Path) -> None:
    child = f"SAY begun\n---\n{call('bash', command='echo x > a.txt', description='x')}\n---\nSAY done"
    task = {"description": "d", "prompt": "CHILD", "subagent_type": "general"}
    models = ScriptedModel(None, route=of_child, sessions={"CHILD": child})
    async with planning(project, models, BROAD[0]) as (harness, _):
        await harness.ask(f"{call('task', **task)}\n---\nSAY ok", agent="plan")
        (made,) = harness.engine.sessions.children(harness.session)
        await harness.ask(f"{call('task', **(task | {'task_id': made.id}))}\n---\nSAY ok", agent="build")
        assert (project / "a.txt").read_text() == "x\n"


async def test_what_was_allowed_for_good_while_building_is_asked_again_while_planning(project: Path) -> None:
    run = call("bash", command="touch new.txt", description="x")
    config = {"permission": {"bash": "ask"}}
    (project / "opencode.json").write_text(json.dumps(config))
    async with open_harness(f"{run}\n---\nSAY ok\n---\n{run}\n---\nSAY ok\n---\nSAY ok", config=config) as harness:
        permissions = harness.engine.components.permissions
        outcome = await harness.submit(agent="build")
        permissions.reply((await harness.until_published(events.PermissionAsked)).id, "always")
        await outcome
        (project / "new.txt").unlink()
        outcome = await harness.submit(agent="plan")
        asked = await harness.until_published(events.PermissionAsked, 2)
        assert asked.always == []
        permissions.reply(asked.id, "reject", "not now")
        await outcome
        assert not (project / "new.txt").exists()


async def test_a_command_that_the_user_lets_pass_once_runs_and_still_changes_no_file(project: Path) -> None:
    command = "echo ran; touch new.txt"
    async with open_harness(
        f"{call('bash', command=command, description='x')}\n---\nSAY ok", config=BROAD[0]
    ) as harness:
        outcome = await harness.submit(agent="plan")
        harness.engine.reply_permission((await harness.until_published(events.PermissionAsked)).id, "always")
        await outcome
        assert harness.parts("tool")[0]["state"]["output"].startswith("ran")
        assert (project / "new.txt").exists() is (find_lock() is None)
        assert harness.engine.approved() == ()


@needs_lock
async def test_nothing_that_the_user_lets_pass_changes_a_file(project: Path) -> None:
    lines = (*SHELL, *ATTACKS)
    async with planning(project, ScriptedModel(None), BROAD[0], answer="once") as (harness, approving):
        before = digest(*folders(project))
        for number, command in enumerate(lines, 1):
            await harness.ask(f"{call('bash', command=command, description='x')}\n---\nSAY tried", agent="plan")
            assert digest(*folders(project)) == before, command
            assert len(harness.parts("tool")) == number, command
        assert len(approving.asked) > len(lines) // 2  # rules about files refuse the others


@needs_lock
async def test_a_process_left_behind_is_ended_and_has_changed_nothing(project: Path) -> None:
    command = "(sleep 0.2; cp b.txt a.txt; sleep 60) & setsid sh -c 'sleep 0.2; cp b.txt a.txt; sleep 60' & echo $$"
    script = f"{call('bash', command=command, description='x')}\n---\nSAY ok"
    async with planning(project, script, BROAD[0], answer="once") as (harness, _):
        before = digest(*folders(project))
        await harness.ask("Try.", agent="plan")
        group = int(harness.parts("tool")[0]["state"]["output"].split()[0])
        await harness.until(lambda: not any(entry.group == group for entry in processes().values()))
        assert digest(*folders(project)) == before


async def test_what_only_reads_is_not_asked_for(project: Path) -> None:
    script = f"{call('bash', command='git log --oneline | head -3 && cat a.txt', description='x')}\n---\nSAY ok"
    async with planning(project, script, {}) as (harness, refused):
        await harness.ask("Look.", agent="plan")
        assert harness.parts("tool")[0]["state"]["status"] == "completed"
        assert refused.asked == []


async def test_the_section_of_the_plan_agent_lifts_what_it_names(project: Path) -> None:
    config = {"agent": {"plan": {"permission": {"bash": {"touch *": "allow"}}}}}
    turns = [call("bash", command=f"{name} x.txt", description="x") for name in ("touch", "rm")]
    script = "\n---\nSAY ok\n---\n".join([*turns, "SAY end"])
    async with planning(project, script, {}, own=config) as (harness, refused):
        await harness.ask("Try.", agent="plan")
        await harness.ask("Try.", agent="plan")
        assert (project / "x.txt").exists()
        assert [asked.patterns for asked in refused.asked] == [["rm x.txt"]]


LIFTED: list[dict[str, Any]] = [
    {"agent": {"plan": {"permission": "allow"}}},
    {"agent": {"plan": {"permission": {"*": "allow", "bash": {"*": "allow"}, "edit": {"*": "allow"}}}}},
    {"agent": {"plan": {"tools": {"bash": True, "write": True, "asking": True}}}},
    {"mode": {"plan": {"tools": {"bash": True, "edit": True, "asking": True}}}},
    {"agent": {"plan": {"name": "build"}}},
    {"agent": {"plan": {"name": "loose"}, "loose": {"permission": "allow"}}},
    {"agent": {"plan": {"mode": "subagent", "permission": {"e*": "allow", "b?sh": "allow"}}}},
]


def project_calls(project: Path) -> list[str]:
    return [
        call("bash", command="echo x > a.txt", description="x"),
        call("write", filePath=str(project / "new.txt"), content="x"),
        call("edit", filePath=str(project / "a.txt"), oldString="one", newString="two"),
        call("asking", path=str(project / "a.txt")),
    ]


@needs_lock
@pytest.mark.parametrize("config", LIFTED)
async def test_a_project_lifts_nothing_of_plan_mode_before_it_is_trusted(project: Path, config: dict[str, Any]) -> None:
    async with planning(project, ScriptedModel(None), config, answer="always", tools=own_tools()) as (harness, _):
        before = digest(*folders(project))
        for number, item in enumerate(project_calls(project), 1):
            await harness.ask(f"{item}\n---\nSAY tried", agent="plan")
            assert digest(*folders(project)) == before, item
            assert len(harness.parts("tool")) == number, item
            assert harness.answers()[-1].info["agent"] == "plan"


@pytest.mark.parametrize("config", LIFTED[:4])
async def test_a_trusted_project_lifts_what_its_section_of_the_plan_agent_names(
    project: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENSESH_TRUST_PLUGINS", "1")
    script = f"{call('bash', command='echo x > a.txt', description='x')}\n---\nSAY tried"
    async with planning(project, script, config) as (harness, refused):
        await harness.ask("Try.", agent="plan")
        assert (project / "a.txt").read_text() == "x\n"
        assert refused.asked == []


async def test_the_plan_itself_can_be_written(project: Path) -> None:
    async with planning(project, ScriptedModel(None), BROAD[0]) as (harness, refused):
        plan = plan_file(harness.engine.config, harness.engine.location, harness.engine.sessions.get(harness.session))
        await harness.ask(f"{call('write', filePath=plan, content='1. Think.')}\n---\nSAY ok", agent="plan")
        assert Path(plan).read_text() == "1. Think."
        assert refused.asked == []


# Entering and leaving.


def said(harness: EngineHarness, number: int) -> list[str]:
    prompts = [message for message in harness.messages() if message.info["role"] == "user"]
    return [part["text"] for part in prompts[number].parts if part.get("synthetic")]


async def test_with_the_flag_the_plan_is_named_once_on_entering_and_on_leaving(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCODE_EXPERIMENTAL_PLAN_MODE", "1")
    async with open_harness("SAY a\n---\nSAY b\n---\nSAY c\n---\nSAY d\n---\nSAY e") as harness:
        plan = Path(
            plan_file(harness.engine.config, harness.engine.location, harness.engine.sessions.get(harness.session))
        )
        assert plan.parent == project / ".opencode" / "plans"
        await harness.ask("one", agent="plan")
        assert str(plan) in said(harness, 0)[0]
        assert "It does not exist yet." in said(harness, 0)[0]
        assert not plan.parent.exists()
        await harness.ask("two", agent="plan")
        assert said(harness, 1) == []
        plan.parent.mkdir(parents=True)
        plan.write_text("1. Do it.")
        await harness.ask("three", agent="build")
        assert f"The plan is in {plan}" in said(harness, 2)[0]
        await harness.ask("four", agent="build")
        assert said(harness, 3) == []
        await harness.ask("five", agent="plan")
        assert "It exists already" in said(harness, 4)[0]


async def test_without_the_flag_every_prompt_for_the_planning_agent_says_so(project: Path) -> None:
    async with open_harness("SAY a\n---\nSAY b\n---\nSAY c") as harness:
        for agent in ("plan", "plan", "build"):
            await harness.ask("go", agent=agent)
        assert [len(said(harness, number)) for number in range(3)] == [1, 1, 1]
        assert "Plan mode is on" in said(harness, 1)[0]
        assert "Plan mode is off" in said(harness, 2)[0]


async def test_the_model_proposes_to_plan_and_to_begin_and_the_user_decides(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCODE_EXPERIMENTAL_PLAN_MODE", "1")
    async with open_harness(f"{call('plan_enter')}\n---\n{call('plan_exit')}\n---\nSAY built") as harness:
        plan = Path(
            plan_file(harness.engine.config, harness.engine.location, harness.engine.sessions.get(harness.session))
        )
        plan.parent.mkdir(parents=True)
        plan.write_text("1. Do it.")
        outcome = await harness.submit("Big change", agent="build")
        for number in (1, 2):
            asked = await harness.until_published(events.QuestionAsked, number)
            harness.engine.reply_question(asked.id, [["Yes"]])
        assert (await outcome).kind == "answered"
        agents = [message.info["agent"] for message in harness.messages() if message.info["role"] == "assistant"]
        assert agents == ["build", "plan", "build"]
        assert "End your turn only with a question" in said(harness, 1)[1]
        assert f"The plan is in {plan}" in said(harness, 2)[1]
        assert "plan_exit" in harness.model.tools_offered(1)
        assert "plan_exit" not in harness.model.tools_offered(2)


async def test_a_session_that_only_may_read_by_its_rules_is_held_to_them_too(project: Path) -> None:
    rules = [Rule(permission="opensesh_plan", pattern="*", action="deny")]
    script = f"{call('bash', command='touch new.txt', description='x')}\n---\nSAY ok"
    async with planning(project, script, BROAD[0], rules=rules) as (harness, refused):
        await harness.ask("Try.", agent="build")
        assert len(refused.asked) == 1
        assert not os.path.exists("new.txt")
