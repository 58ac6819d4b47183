"""Tasks for other processes in the tests of runners, at the top of a module so that those processes can import them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal

from opensesh.engine.engine import Engine
from opensesh.engine.opening import open_engine
from opensesh.engine.settings import Settings
from opensesh.errors import BusyError
from opensesh.records import Rule
from opensesh.storage.json_tree.store import JsonTree
from opensesh.testing.scripted import ScriptedModel

from .harness import Acting

if TYPE_CHECKING:
    from ..harness import Report

ALLOW = [Rule(permission="*", pattern="*", action="allow")]


def tree(home: str, durability: Literal["full", "relaxed"] = "full") -> JsonTree:
    return JsonTree(os.path.join(home, "storage"), durability=durability)


def script(home: str, steps: int) -> str:
    """Return a script of several steps, each with text, reasoning, and tools that change files."""
    calls = [
        f"THINK step {n}\nSPLIT 3\nSAY working on {n}, one word after the other\n"
        f'CALL write {{"filePath": "{home}/work/{n}.txt", "content": "{n}"}}\n'
        f'CALL bash {{"command": "echo {n} >> {home}/work/log", "description": "note"}}'
        for n in range(steps)
    ]
    return "\n---\n".join([*calls, "SAY All done."])


def run_with_engine(home: str, work: Callable[[Engine], Awaitable[None]], **options: Any) -> None:
    """Call ``work`` with an engine of this process."""
    # This is a fork of the helper process, whose environment is that of the first test that used it.
    os.environ.update(HOME=home, XDG_STATE_HOME=os.path.join(home, "state"), XDG_DATA_HOME=os.path.join(home, "data"))
    os.makedirs(os.path.join(home, "work"), exist_ok=True)
    os.chdir(os.path.join(home, "work"))

    async def main() -> None:
        async with open_engine(".", settings=Settings(owner="test runner"), **options) as engine:
            await work(engine)

    asyncio.run(main())


def answer_prompts(report: Report, home: str, steps: int) -> None:
    """Answer prompts, one after the other, until the end or until killed."""

    async def work(engine: Engine) -> None:
        session = await engine.create(title="work", permission=ALLOW)
        report({"session": session.id})
        for number in range(3):
            prompt = script(home, steps)
            outcome = await engine.submit(session.id, f"{prompt}\n# {number}", model="scripted/prompt")
            report({"taken": number})
            report({"outcome": (await outcome).kind})

    run_with_engine(home, work, store=tree(home))


def run_forever(report: Report, home: str, session_id: str) -> None:
    """Run a session that hangs."""

    async def work(engine: Engine) -> None:
        outcome = await engine.submit(session_id, "Hold on.", model="scripted/it")
        report("running")
        await outcome

    run_with_engine(home, work, store=tree(home, "relaxed"), scripts={"it": ScriptedModel("SAY holding\nHANG")})


def try_to_run(report: Report, home: str, session_id: str) -> None:
    """Try to run a session that another process runs."""

    async def work(engine: Engine) -> None:
        try:
            outcome = await engine.submit(session_id, "Let me in.", model="scripted/it")
        except BusyError as busy:
            report({"busy": busy.message, "holder": busy.data["holder"]})
        else:
            report({"outcome": (await outcome).kind})

    run_with_engine(home, work, store=tree(home, "relaxed"), scripts={"it": ScriptedModel("SAY in")})


def die_while_writing(report: Report, home: str, half: bool) -> None:
    """End the process while a tool writes a file: after half of it, or just before the call is recorded."""

    async def act(arguments: dict[str, Any], ctx: Any) -> str:
        path = os.path.abspath("a.txt")
        await ctx.before_write({path: b"new text\n"})
        with open("a.txt", "wb") as file:
            file.write(b"new te" if half else b"new text\n")
        ctx.after_write(path)
        os._exit(9)

    async def work(engine: Engine) -> None:
        session = await engine.create(title="work", permission=ALLOW)
        await engine.run(session.id, "Go.", model="scripted/it")

    run_with_engine(
        home,
        work,
        store=tree(home),
        scripts={"it": ScriptedModel("CALL act {}\n---\nSAY no")},
        tools=[Acting("act", act)],
    )
