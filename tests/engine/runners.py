"""What other processes do in the tests of runners: at the top of a module, so that they can find it."""

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
    """A piece of work: words, thoughts and tools that leave a trace, one of each a step."""
    calls = [
        f"THINK step {n}\nSPLIT 3\nSAY working on {n}, one word after the other\n"
        f'CALL write {{"filePath": "{home}/work/{n}.txt", "content": "{n}"}}\n'
        f'CALL bash {{"command": "echo {n} >> {home}/work/log", "description": "note"}}'
        for n in range(steps)
    ]
    return "\n---\n".join([*calls, "SAY All done."])


def inside(home: str, work: Callable[[Engine], Awaitable[None]], **options: Any) -> None:
    """Do something with an engine of this process."""
    # A fork of the test's helper process: its surroundings are those of the test that asked first.
    os.environ.update(HOME=home, XDG_STATE_HOME=os.path.join(home, "state"), XDG_DATA_HOME=os.path.join(home, "data"))
    os.makedirs(os.path.join(home, "work"), exist_ok=True)
    os.chdir(os.path.join(home, "work"))

    async def main() -> None:
        async with open_engine(".", settings=Settings(owner="test runner"), **options) as engine:
            await work(engine)

    asyncio.run(main())


def work_through(tell: Report, home: str, steps: int) -> None:
    """Answer prompts, one after the other, until the end or until killed."""

    async def work(engine: Engine) -> None:
        session = await engine.create(title="work", permission=ALLOW)
        tell({"session": session.id})
        for number in range(3):
            prompt = script(home, steps)
            outcome = await engine.submit(session.id, f"{prompt}\n# {number}", model="scripted/prompt")
            tell({"taken": number})
            tell({"outcome": (await outcome).kind})

    inside(home, work, store=tree(home))


def hold(tell: Report, home: str, session_id: str) -> None:
    """Run a session that does not end."""

    async def work(engine: Engine) -> None:
        outcome = await engine.submit(session_id, "Hold on.", model="scripted/it")
        tell("running")
        await outcome

    inside(home, work, store=tree(home, "relaxed"), scripts={"it": ScriptedModel("SAY holding\nHANG")})


def knock(tell: Report, home: str, session_id: str) -> None:
    """Try to run a session that another runs."""

    async def work(engine: Engine) -> None:
        try:
            outcome = await engine.submit(session_id, "Let me in.", model="scripted/it")
        except BusyError as busy:
            tell({"busy": busy.message, "holder": busy.data["holder"]})
        else:
            tell({"outcome": (await outcome).kind})

    inside(home, work, store=tree(home, "relaxed"), scripts={"it": ScriptedModel("SAY in")})


def die_writing(tell: Report, home: str, half: bool) -> None:
    """Be killed while a tool writes a file: after half of it, or just before the call is recorded."""

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

    inside(
        home,
        work,
        store=tree(home),
        scripts={"it": ScriptedModel("CALL act {}\n---\nSAY no")},
        tools=[Acting("act", act)],
    )
