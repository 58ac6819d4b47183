"""See it work: a small project with a failing test, fixed by a model that plays a script.

Everything but the model is real: the tools, the test, the edit, the session on disk. It needs no key, no network and
no server, and leaves nothing behind unless --keep is given.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from . import output

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from ..engine.engine import Engine
    from ..engine.loop import Outcome
    from ..records import Session
    from ..storage.protocol import StoredMessage
    from .arguments import Parser
    from .driving import Drive


class _Kept(NamedTuple):
    """What is there afterwards."""

    session: Session
    messages: Sequence[StoredMessage]
    fork: Session
    files: int
    root: str
    diff: str


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument("--keep", action="store_true", help="leave the folder for a look")


def run(options: Namespace) -> int:
    """Tell the story, with a real engine."""
    import asyncio
    import shutil
    import tempfile

    from .demo_project import secluded
    from .driving import EXIT_CODES

    folder = os.path.realpath(tempfile.mkdtemp(prefix="opensesh-demo-"))
    try:
        with secluded(folder):
            return EXIT_CODES[asyncio.run(_tell(folder, options)).kind]
    except asyncio.CancelledError:
        return 130
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)


async def _tell(folder: str, options: Namespace) -> Outcome:
    from . import demo_project
    from .tally import in_words

    project = os.path.join(folder, "project")
    has_git = demo_project.make(project)
    say = _silent if options.json else print
    say(f"A throw-away project: {project}{'' if has_git else ' (there is no git, which is fine)'}")
    say(output.paint(f'\n$ opensesh run "{demo_project.PROMPT}"', 1))
    sys.stdout.flush()
    drive, outcome = await _play(project, quiet=options.json)
    kept = _read_back(drive, demo_project.git(project, "diff") if has_git else None)
    if options.json:
        output.print_json(_document(drive, outcome, kept, folder))
        return outcome
    say(output.paint("\nWhat changed", 1))
    for line in output.painted_diff(kept.diff.removesuffix("\n")):
        say(f"  {line}")
    say(output.paint("\nWhat it would have cost, at the prices of a larger model", 1))
    say(f"  {in_words(drive.tally, drive.tally.cost(drive.engine))}")
    say(output.paint("\nWhat is stored, read back", 1))
    _print_stored(kept, options)
    say(f"\n{folder} {'is kept.' if options.keep else 'is gone again; --keep leaves it.'}")
    if options.keep:
        say(f"A closer look: opensesh show last --store {os.path.dirname(kept.root)}")
    say('Now you, in a folder of your own: opensesh run -m scripted/prompt "Hello?", then list, show, search, export.')
    return outcome


async def _play(project: str, *, quiet: bool) -> tuple[Drive, Outcome]:
    from ..engine.prompt import text_prompt
    from . import demo_project
    from .asking import Policy
    from .driving import Drive
    from .run_json import Nothing
    from .run_screen import Screen
    from .terminal import Stream

    out = Stream(sys.stdout)
    engine = _engine(project, demo_project.script(0.02 if out.is_terminal and not quiet else 0.0))
    screen = Screen(out, out, project)
    drive = Drive(engine, Nothing() if quiet else screen, Policy(engine, screen.note, allow=True), screen.note)

    async def new_session() -> str:
        return (await engine.create()).id

    prompt = text_prompt(demo_project.PROMPT, model="scripted/demo")
    outcome = await drive.run(new_session, lambda session: engine.submit(session, prompt))
    screen.close()
    return drive, outcome


def _engine(project: str, script: str) -> Engine:
    from ..engine.components import Settings
    from ..engine.engine import open_engine
    from ..testing.scripted import ScriptedModel

    settings = Settings(owner="opensesh demo", interactive=False)
    return open_engine(project, settings=settings, scripts={"demo": ScriptedModel(script)})


def _read_back(drive: Drive, diff: str | None) -> _Kept:
    """From disk, with a store of its own, and forked there."""
    from ..sessions import Sessions
    from ..storage import open_tree, paths

    store = open_tree(paths.storage())
    sessions = Sessions(store, drive.engine.runtime.place)
    messages = sessions.messages(drive.session_id)
    if diff is None:
        parts = [part for message in messages for part in message.parts if part.get("tool") == "edit"]
        diff = "".join(str(part["state"].get("metadata", {}).get("diff", "")) for part in parts)
    fork = sessions.fork(drive.session_id)
    return _Kept(sessions.get(drive.session_id), messages, fork, len(store.list()), store.root, diff)


def _print_stored(kept: _Kept, options: Namespace) -> None:
    print(f"  {kept.session.id}  {output.when(kept.session.updated, utc=options.utc)}  {kept.session.title}")
    for message in kept.messages:
        shown = [_part_name(part) for part in message.parts if not part["type"].startswith("step-")]
        print(f"    {message.info['role']:<9} {', '.join(shown)}")
    print("  and a fork of it, to try something else from here, as 'opensesh session fork' makes it")
    print(f"  {kept.fork.id}  {output.when(kept.fork.updated, utc=options.utc)}  {kept.fork.title}")
    print(f"  {output.pluralize(kept.files, 'file')}, laid out as OpenCode lays them out, under")
    print(f"  {kept.root}")


def _part_name(part: dict[str, Any]) -> str:
    return f"{part['tool']} ({part['state']['status']})" if part["type"] == "tool" else str(part["type"])


def _document(drive: Drive, outcome: Outcome, kept: _Kept, folder: str) -> dict[str, Any]:
    from .run_json import result

    own = {"forkID": kept.fork.id, "title": kept.session.title, "diff": kept.diff, "messages": len(kept.messages)}
    return result(drive, outcome) | own | {"folder": folder, "store": kept.root, "seconds": drive.tally.seconds}


def _silent(*_: object) -> None:
    """In place of ``print``, where standard output holds one document."""
