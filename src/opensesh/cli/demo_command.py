"""Run a scripted session in a temporary folder: a model that plays a script fixes a small project with a failing test.

Everything except the model is real: the tools, the test, the edit, the stored session. No key, network or server is
needed, and the folder is deleted unless --keep is given.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Generator
from contextlib import contextmanager

from ..engine.loop import Outcome
from ..engine.opening import open_engine
from ..engine.prompt import text_prompt
from ..engine.settings import Settings
from ..sessions import Sessions
from ..storage import open_tree, paths
from ..testing.scripted import ScriptedModel
from ..text import pluralize
from . import output
from .command_arguments import CommandParser
from .prompt_run import EXIT_CODES, NoView, PromptRun, result_document
from .responders import AutoResponder
from .run_screen import Screen
from .terminal import Stream

_PROMPT = "The test fails. Find out why, and fix it."
_FILES = {
    "prices.py": '''"""What an order costs."""


def total(prices, discount=0.0):
    """The sum of the prices, less a discount between 0 and 1."""
    return round(sum(prices) * (1 + discount), 2)
''',
    "test_prices.py": """import unittest

from prices import total


class TotalTest(unittest.TestCase):
    def test_a_discount_is_taken_off(self):
        self.assertEqual(total([10, 30], discount=0.25), 30)


if __name__ == "__main__":
    unittest.main()
""",
}
_SCRIPT = """SPLIT word
DRIP PACE
THINK The test says what is expected, the code says what is done. I need both.
SAY I will read the code and run its test.
CALL read {"filePath": "prices.py"}
CALL bash {"command": "PYTHON -m unittest", "description": "Run the test"}
USAGE input=2140 output=96 reasoning=24 cache_write=1800
---
EXPECT last FAILED
SPLIT word
DRIP PACE
SAY The discount is added where it should be taken off: 40 becomes 50, not 30.
CALL edit {"filePath": "prices.py", "oldString": "(1 + discount)", "newString": "(1 - discount)"}
USAGE input=410 output=88 cache_read=3940
---
SPLIT word
DRIP PACE
SAY Now the test again.
CALL bash {"command": "PYTHON -m unittest", "description": "Run the test again"}
USAGE input=160 output=52 cache_read=4350
---
EXPECT last OK
SPLIT word
DRIP PACE
SAY Fixed: `total` raised the price by the discount instead of lowering it. The test passes.
USAGE input=130 output=34 cache_read=4510
---
TITLE Discount taken off, not added
"""


def configure(parser: CommandParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--keep", action="store_true", help="keep the folder")


def run(options: Namespace) -> int:
    """Run the demo."""
    folder = os.path.realpath(tempfile.mkdtemp(prefix="opensesh-demo-"))
    project = os.path.join(folder, "project")
    try:
        with _isolated_environment(folder):
            os.makedirs(project)
            for name, text in _FILES.items():
                with open(os.path.join(project, name), "w", encoding="utf-8", newline="\n") as file:
                    file.write(text)
            steps = (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "--message", "Add prices"))
            has_git = all(_git(project, *step) is not None for step in steps)
            if not options.json:
                without = "" if has_git else " (git is not installed; the demo works without it)"
                print(f"A temporary project: {project}{without}")
                print(output.paint(f'\n$ opensesh run "{_PROMPT}"', 1))
                sys.stdout.flush()
            prompt_run, outcome = asyncio.run(_run_prompt(project, quiet=options.json))
            _print_result(prompt_run, outcome, folder, _git(project, "diff") if has_git else None, options)
            return EXIT_CODES[outcome.kind]
    except asyncio.CancelledError:
        return 130
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)


async def _run_prompt(project: str, *, quiet: bool) -> tuple[PromptRun, Outcome]:
    out = Stream(sys.stdout)
    pace = 0.02 if out.is_terminal and not quiet else 0.0
    # The shortest name under which a shell finds this Python; a path is escaped for a JSON string.
    folder = os.path.dirname(sys.executable)
    name = next((name for name in ("python3", "python") if shutil.which(name, path=folder)), None)
    python = name or json.dumps(shlex.quote(sys.executable))[1:-1]
    script = _SCRIPT.replace("PACE", str(pace)).replace("PYTHON", python)
    settings = Settings(owner="opensesh demo", interactive=False)
    engine = open_engine(project, settings=settings, scripts={"demo": ScriptedModel(script)})
    screen = Screen(out, out, project)
    responder = AutoResponder(engine, screen.error, approve=True)
    run = PromptRun(engine, NoView() if quiet else screen, responder, screen.note)

    async def new_session() -> str:
        return (await engine.create()).id

    prompt = text_prompt(_PROMPT, model="scripted/demo")
    outcome = await run.run(new_session, lambda session_id: engine.submit(session_id, prompt))
    screen.close()
    return run, outcome


def _print_result(run: PromptRun, outcome: Outcome, folder: str, diff: str | None, options: Namespace) -> None:
    """Read the session with a store of its own, fork it, and print what is stored."""
    store = open_tree(paths.storage())
    sessions = Sessions(store, run.engine.location)
    messages = sessions.messages(run.session_id)
    if diff is None:  # without git, from what the tool stored
        edits = [part for message in messages for part in message.parts if part.get("tool") == "edit"]
        diff = "".join(str(part["state"].get("metadata", {}).get("diff", "")) for part in edits)
    fork = sessions.fork(run.session_id)
    session = sessions.get(run.session_id)
    if options.json:
        document = {
            **result_document(run, outcome),
            "forkID": fork.id,
            "title": session.title,
            "diff": diff,
            "messages": len(messages),
            "folder": folder,
            "store": store.root,
            "seconds": run.usage.seconds,
        }
        output.print_json(document)
        return
    print(output.paint("\nThe change", 1))
    for line in output.paint_diff(diff.removesuffix("\n")):
        print(f"  {line}")
    print(output.paint("\nThe cost, at the prices of a larger model", 1))
    print(f"  {run.usage.summary(run.engine)}")
    print(output.paint("\nThe stored session, read back", 1))
    print(f"  {session.id}  {output.format_time(session.updated, utc=options.utc)}  {session.title}")
    for message in messages:
        names = [
            f"{part['tool']} ({part['state']['status']})" if part["type"] == "tool" else str(part["type"])
            for part in message.parts
            if not part["type"].startswith("step-")
        ]
        print(f"    {message.info['role']:<9} {', '.join(names)}")
    print("  and a fork of it, as 'opensesh session fork' makes one")
    print(f"  {fork.id}  {output.format_time(fork.updated, utc=options.utc)}  {fork.title}")
    print(f"  {pluralize(len(store.list()), 'file')}, in OpenCode's layout, under")
    print(f"  {store.root}")
    print(f"\n{folder} {'is kept.' if options.keep else 'is deleted; --keep keeps it.'}")
    if options.keep:
        print(f"To look at it: opensesh show last --store {os.path.dirname(store.root)}")
    print('Next, in a folder of your own: opensesh run -m scripted/prompt "Hello?", then list, show, search, export.')


def _git(folder: str, *arguments: str) -> str | None:
    """Return the output of git; ``None`` if it fails or is not installed."""
    try:
        process = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return process.stdout.decode(errors="replace")


@contextmanager
def _isolated_environment(folder: str) -> Generator[None]:
    """Keep all files of opensesh, OpenCode and git in ``folder``; nothing of the user's is read or written."""
    before = dict(os.environ)
    for name in before:
        if name.startswith(("OPENSESH_", "OPENCODE_", "GIT_", "XDG_")):
            del os.environ[name]
    folders = {f"XDG_{kind.upper()}_HOME": os.path.join(folder, kind) for kind in ("data", "state", "config", "cache")}
    names = {f"GIT_{role}_{what}": "demo" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    os.environ |= {
        **folders,
        **names,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "OPENSESH_TEST_HOME": folder,
        "OPENSESH_TEST_MANAGED_CONFIG_DIR": os.path.join(folder, "config", "managed"),
        "PATH": os.pathsep.join((os.path.dirname(sys.executable), before.get("PATH", os.defpath))),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
