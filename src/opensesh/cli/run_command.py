"""Ask a model to do something in this directory, and see it done.

The answer goes to standard output, everything else to standard error. What a rule wants asked is asked at the
terminal; where there is none, it is refused. Ctrl-C stops the turn, and what was done until then is kept.

The exit code is 0 if the prompt was answered, 1 if that failed or was refused, 130 if it was stopped.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from ..errors import NotFoundError, UsageError
from .arguments import SESSION

if TYPE_CHECKING:
    from argparse import Namespace

    from ..engine.budget import Budget
    from ..engine.engine import Engine
    from ..engine.loop import Outcome
    from ..models.model import Model
    from ..records import Session
    from ..storage.protocol import Store
    from .arguments import Parser
    from .driving import Ask, Drive
    from .run_screen import Screen
    from .terminal import Keyboard, Stream

_PATIENCE = 2.0
"""Seconds after which whoever waits is told that standard input is being read."""


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.words = "prompt"
    parser.add_argument("prompt", nargs="*", metavar="PROMPT", help="what to do; standard input is added to it")
    parser.add_argument("-m", "--model", metavar="PROVIDER/MODEL", help="the model; 'opensesh models' lists them")
    parser.add_argument("--agent", metavar="A", help="the agent; 'opensesh agents' lists them")
    parser.add_argument("--variant", metavar="V", help="a variant of the model, such as its reasoning effort")
    parser.add_argument("-s", "--session", metavar="S", help=f"go on with this session: {SESSION}")
    parser.add_argument("-c", "--continue", action="store_true", dest="again", help="go on with the last session here")
    parser.add_argument("--dir", metavar="D", help="the directory to work in (default: this one, or the session's)")
    parser.add_argument("-f", "--file", action="append", default=[], metavar="F", help="attach a file; may be repeated")
    parser.add_argument("--command", metavar="NAME", help="give this command; PROMPT is what it is given")
    parser.add_argument("--title", metavar="T", help="a title for a new session")
    parser.add_argument("--budget", metavar="DOLLARS", help="ask no model any more once this run has cost so much")
    parser.add_argument("--share", action="store_true", help="let others read the session, at a link that is told")
    parser.add_argument("--no-plugins", action="store_true", help="leave out the plugins that 'opensesh plugins' lists")
    parser.add_argument("--yes", action="store_true", help="allow what would be asked for, but not to go on in circles")
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="json: one event a line, the last one the result"
    )


def run(options: Namespace) -> int:
    """Run the prompt; the exit code is its outcome."""
    words = _words(options)
    try:
        return _run(options, words)
    except Exception as error:
        if options.format == "json" and not options.json:
            from .run_json import no_result, write_line
            from .terminal import Stream

            write_line(Stream(sys.stdout), no_result(error))
        raise


def _run(options: Namespace, words: str) -> int:
    store, session = _session(options)
    directory = _directory(options, session)
    import asyncio

    from ..engine.components import Settings
    from ..engine.engine import open_engine
    from .terminal import Keyboard

    keyboard = Keyboard.find()
    settings = Settings(
        owner="opensesh run",
        interactive=keyboard is not None,
        budget=_budget(options),
        find_plugins=not options.no_plugins,
    )
    engine = open_engine(directory, store=store, settings=settings)
    _check(engine, options, session)
    try:
        return asyncio.run(_converse(options, engine, session, words, keyboard))
    except asyncio.CancelledError:  # stopped before there was anything to stop
        return 130


def _budget(options: Namespace) -> Budget | None:
    """That of the command line for the run, and that of the environment for the session."""
    if options.budget is None:
        return None
    from msgspec.structs import replace

    from ..engine.budget import amount, from_environment

    return replace(from_environment(os.environ), run=amount(options.budget))


async def _converse(
    options: Namespace, engine: Engine, session: Session | None, words: str, keyboard: Keyboard | None
) -> int:
    from .asking import Person, Policy
    from .driving import EXIT_CODES, Drive
    from .logfile import warnings_told
    from .run_json import EventLines, Nothing
    from .run_screen import Screen
    from .run_share import shares_kept
    from .terminal import Stream

    out = Stream(sys.stdout)
    screen = Screen(out, Stream(sys.stderr), engine.runtime.place.directory)
    text = options.format == "text" and not options.json
    view = screen if text else Nothing() if options.json else EventLines(out)
    answers = Policy(engine, screen.note, allow=options.yes)
    if keyboard is not None:
        answers = Person(engine, screen, keyboard, allow=options.yes)
    drive = Drive(engine, view, answers, screen.note)

    with warnings_told(screen.note):
        async with shares_kept(engine, options, keyboard, screen.note) as begin:

            async def chosen() -> str:
                if session is not None:
                    return begin(session.id)
                return begin((await engine.create(title=_title(options, words))).id)

            outcome = await drive.run(chosen, _asking(engine, words, options))
            _tell_result(options, drive, outcome, screen, out)
    return EXIT_CODES[outcome.kind]


def _tell_result(options: Namespace, drive: Drive, outcome: Outcome, screen: Screen, out: Stream) -> None:
    from .run_json import result, write_line

    try:
        if options.json:
            from . import output

            output.print_json(result(drive, outcome))
        elif options.format == "json":
            write_line(out, result(drive, outcome))
        else:
            screen.close()
            _farewell(options, drive, outcome, screen)
    except BrokenPipeError:
        drive.is_heard = False
    if not drive.is_heard:
        out.drop_unwritten()


def _farewell(options: Namespace, drive: Drive, outcome: Outcome, screen: Screen) -> None:
    """On standard error: how it ended, what it cost, and how to go on."""
    from .tally import in_words

    if outcome.kind == "aborted":
        screen.note("stopped", 33)
    elif outcome.kind == "blocked":
        screen.note("stopped, since something was refused", 33)
    screen.gap()
    store = f" --store {options.store}" if options.store else ""
    screen.note(in_words(drive.tally, drive.tally.cost(drive.engine)), 2)
    screen.note(f"go on with: opensesh run{store} --session {drive.session_id} ...", 2)


def _words(options: Namespace) -> str:
    """The words of the command line, and what standard input adds to them."""
    said = [" ".join(options.prompt).strip(), _standard_input().strip("\n")]
    words = "\n".join(each for each in said if each.strip())
    if not words and options.command is None:
        raise UsageError("there is nothing to do: give a prompt, as words or on standard input")
    return words


def _standard_input() -> str:
    if sys.stdin.isatty():
        return ""
    from threading import Timer

    hint = "reading standard input, which is part of the prompt; '< /dev/null' says that there is none"
    waiting = Timer(_PATIENCE, print, [f"opensesh: {hint}"], {"file": sys.stderr})
    waiting.daemon = True
    waiting.start()
    try:
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    finally:
        waiting.cancel()


def _session(options: Namespace) -> tuple[Store, Session | None]:
    """The store, and the session to go on with, if one was named."""
    from ..storage import open_store
    from .choose import find_session

    if options.session and options.again:
        raise UsageError("--session names a session and --continue means the last one: give one of them")
    if options.title is not None and (options.session or options.again):
        raise UsageError("--title is for a new session; 'opensesh session rename' gives an old one another")
    if options.dir is not None and not os.path.isdir(options.dir):
        raise UsageError(f"there is no directory {options.dir}")
    store = open_store(options.store)
    if options.session:
        return store, find_session(store, options.session)
    return store, _last_here(store, options.dir or os.getcwd()) if options.again else None


def _last_here(store: Store, directory: str) -> Session:
    """The session that was last active in this directory, or in its project; not one of a subagent's."""
    from ..project import resolve
    from ..storage.keys import GLOBAL
    from .choose import read_sessions

    place = resolve(directory)
    roots = [each for each in read_sessions(store) if each.parent_id is None and not each.archived]
    here = [each for each in roots if each.directory == place.directory]
    related = [each for each in roots if each.project_id == place.id != GLOBAL]
    if not here and not related:
        raise NotFoundError(
            f"no session of {place.directory} is there to go on with; leave out --continue to begin one"
        )
    return max(here or related, key=lambda each: each.updated)


def _directory(options: Namespace, session: Session | None) -> str:
    """Where to work: where the user says, else where the session did, else here."""
    if options.dir is not None:
        return options.dir
    if session is None or not session.directory:
        return os.getcwd()
    if not os.path.isdir(session.directory):
        raise UsageError(f"{session.directory}, where this session worked, is gone; --dir names another directory")
    return session.directory


def _check(engine: Engine, options: Namespace, session: Session | None) -> None:
    """Find out what cannot work before a session is made for it."""
    runtime = engine.runtime
    if options.command is not None and not runtime.mcp.owns(options.command):
        from ..engine.user_commands import find_command

        find_command(runtime, options.command)
    agent = runtime.agent(options.agent)
    if agent.mode == "subagent":
        raise UsageError(f"{agent.name} is a subagent, which works only for others")
    model: Model | None = None
    if options.model:
        model = runtime.find_model(options.model)
    elif session is None:
        model = runtime.model_named(agent.model) if agent.model else runtime.default_model()
    if model is not None:
        _check_model(engine, model, options.variant)


def _check_model(engine: Engine, model: Model, variant: str | None) -> None:
    from ..models.model import SCRIPTED_PROVIDER
    from ..plugins import hooks as plugin_hooks

    if variant and variant not in model.variants and model.provider_id != SCRIPTED_PROVIDER:
        raise UsageError(f"{model.ref} has no variant {variant!r}; it has: {', '.join(model.variants) or 'none'}")
    if engine.runtime.hooks.plugins.has_hook(plugin_hooks.auth):
        return  # the key is asked for when it is needed
    engine.runtime.connections.provider(model)


def _asking(engine: Engine, words: str, options: Namespace) -> Ask:
    """What to ask of a session; what cannot be asked is found out at once."""
    from ..engine.prompt import Prompt, file_part, mentioned_parts

    attached = tuple(file_part(path) for path in options.file)
    how = {"agent": options.agent, "model": options.model, "variant": options.variant}
    if options.command is not None:
        return lambda session: engine.command(session, options.command, words, attached, **how)
    said = " ".join(options.prompt).strip() or words
    prompt = Prompt(parts=(*mentioned_parts(words, engine.runtime, said=said), *attached), **how)
    return lambda session: engine.submit(session, prompt)


def _title(options: Namespace, words: str) -> str | None:
    """``--title ""`` takes the beginning of the prompt."""
    if options.title is None:
        return None
    return options.title.strip() or " ".join(words.split())[:50]
