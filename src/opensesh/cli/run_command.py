"""Send a prompt to a model, and run its tools in this directory.

The answer goes to standard output, everything else to standard error. Permission requests are asked at the terminal; if
there is none, they are refused. Ctrl-C aborts the run; what was done until then is kept.

Exit codes: 0 answered, 1 failed, over budget or blocked by a refused permission, 130 aborted.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from argparse import Namespace
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from threading import Timer

from msgspec.structs import replace

from ..config import commands
from ..engine.budget import budget_from_environment, parse_amount
from ..engine.engine import Engine
from ..engine.loop import Outcome
from ..engine.opening import open_engine
from ..engine.prompt import Prompt, file_part
from ..engine.settings import Settings
from ..errors import NotFoundError, ReadOnlyStoreError, UsageError
from ..history.discovery import in_checkout
from ..history.library import Library
from ..models.model import SCRIPTED_PROVIDER
from ..project import resolve
from ..records import Session
from ..storage import open_store
from ..storage.keys import GLOBAL
from ..storage.protocol import ConditionallyWritable, FileTree, Store, member_stores
from ..storage.registry import new_sessions_place
from . import output
from .command_arguments import SESSION, CommandParser, named_session
from .logfile import show_warnings
from .prompt_run import (
    EXIT_CODES,
    OUTCOME_NOTES,
    EventLines,
    NoView,
    PromptRun,
    failed_result_document,
    result_document,
    write_json_line,
)
from .responders import AutoResponder, Keyboard, TerminalResponder
from .run_screen import Screen
from .terminal import Stream

_STDIN_NOTICE_AFTER_SECONDS = 2.0


def configure(parser: CommandParser) -> None:
    """Declare the arguments."""
    parser.free_words = "prompt"
    parser.add_argument("prompt", nargs="*", metavar="PROMPT", help="the prompt; standard input is appended to it")
    parser.add_argument("-m", "--model", metavar="PROVIDER/MODEL", help="model to use; 'opensesh models' lists them")
    parser.add_argument("--agent", metavar="A", help="agent to use; 'opensesh agents' lists them")
    parser.add_argument("--variant", metavar="V", help="variant of the model, such as its reasoning effort")
    parser.add_argument("-s", "--session", metavar="S", help=f"continue this session: {SESSION}")
    parser.add_argument(
        "-c", "--continue", action="store_true", dest="continue_last", help="continue the last session here"
    )
    parser.add_argument("--dir", metavar="D", help="directory to work in (default: the session's, or the current one)")
    parser.add_argument("-f", "--file", action="append", default=[], metavar="F", help="attach a file; repeatable")
    parser.add_argument("--attach", metavar="URL", help="run it on this server ('opensesh serve', 'opencode serve')")
    parser.add_argument("--command", metavar="NAME", help="run a configured command; PROMPT becomes its arguments")
    parser.add_argument("--title", metavar="T", help="title of the new session")
    parser.add_argument("--budget", metavar="DOLLARS", help="stop before exceeding this cost in USD")
    parser.add_argument("--share", action="store_true", help="share the session and print its link")
    parser.add_argument("--no-plugins", action="store_true", help="do not load plugins ('opensesh plugins' lists them)")
    parser.add_argument(
        "--yes",
        action="store_true",
        help="approve permission requests, except doom_loop, changes in plan mode, and what a rule may deny",
    )
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="json: one event per line, the last is the result"
    )


def run(options: Namespace) -> int:
    """Run the prompt; the exit code tells its outcome."""
    typed, piped = " ".join(options.prompt).strip(), ""
    if not sys.stdin.isatty():
        notice = "reading the prompt from standard input; use '< /dev/null' if there is none"
        timer = Timer(_STDIN_NOTICE_AFTER_SECONDS, print, [f"opensesh: {notice}"], {"file": sys.stderr})
        timer.daemon = True
        timer.start()
        try:
            piped = sys.stdin.buffer.read().decode("utf-8", "replace").strip("\n")
        finally:
            timer.cancel()
    text = "\n".join(text for text in (typed, piped) if text.strip())
    if not text and options.command is None:
        raise UsageError("no prompt: give it as words or on standard input")
    if options.attach:
        from .attached_run import run as run_attached  # the server runs it, so that no engine is needed

        return run_attached(options, text)
    try:
        store, session, directory = _find_session(options)
        keyboard = Keyboard.find()
        budget = None
        if options.budget is not None:
            # --budget limits this run; the limit for the session comes from the environment.
            budget = replace(budget_from_environment(os.environ), run=parse_amount(options.budget))
        settings = Settings(
            owner="opensesh run",
            interactive=keyboard is not None,
            budget=budget,
            find_plugins=not options.no_plugins,
            unanswered_warning_seconds=None,  # the terminal asks
            follow_other_programs=False,  # what they write into the session is neither output nor cost of this run
        )
        engine = open_engine(directory, store=store, settings=settings)
        return asyncio.run(_run_prompt(options, engine, session, text, keyboard))
    except asyncio.CancelledError:  # aborted before the prompt was submitted
        return 130
    except Exception as error:
        if options.format == "json" and not options.json:
            write_json_line(Stream(sys.stdout), failed_result_document(error))
        raise


def _check_new_session(store: Store, note: Callable[[str, int], None]) -> None:
    """Raise :class:`ReadOnlyStoreError` if no session can be stored; say where one goes that OpenCode will not show."""
    location, reason = new_sessions_place(store)
    if not location:
        raise ReadOnlyStoreError(f"a new session cannot be stored: {reason}", path=store.place)
    first, *others = member_stores(store)
    if isinstance(first, FileTree) and any(
        isinstance(other, ConditionallyWritable) and other.refusal for other in others
    ):
        note(f"New sessions go to {location}: {reason}. OpenCode will not show this one.", 33)


def _suggest_command(engine: Engine, text: str, note: Callable[[str, int], None]) -> None:
    """Say how a command is run if the prompt begins with one: a prompt is sent as it is, as by ``opencode run``."""
    word = re.split(r"\s", text, maxsplit=1)[0]
    if word.startswith("/") and word[1:] in commands(engine.config):
        note(f"! {word} is sent as text; 'opensesh run --command {word[1:]}' runs the command", 33)


async def _run_prompt(
    options: Namespace, engine: Engine, session: Session | None, text: str, keyboard: Keyboard | None
) -> int:
    await engine.open()
    _check_options(engine, options, session)
    out = Stream(sys.stdout)
    screen = Screen(out, Stream(sys.stderr), engine.location.directory, quiet=options.quiet)
    as_text = options.format == "text" and not options.json
    view = screen if as_text else NoView() if options.json else EventLines(out)
    responder = AutoResponder(engine, screen.error, approve=options.yes)
    if keyboard is not None:
        responder = TerminalResponder(engine, screen, keyboard, approve=options.yes)
    run = PromptRun(engine, view, responder, screen.note)
    title: str | None = options.title
    if title is not None:  # an empty one asks for the beginning of the prompt
        title = title.strip() or " ".join(text.split())[:50]
    if session is None:
        _check_new_session(engine.sessions.store, screen.note)
    if options.command is None:
        _suggest_command(engine, text, screen.note)
    with show_warnings(screen.note):
        async with _sync_shares(engine, options, keyboard, screen.note) as share:
            attached = tuple(file_part(path) for path in options.file)
            how = {"agent": options.agent, "model": options.model, "variant": options.variant}
            typed = " ".join(options.prompt).strip() or text
            parts = engine.prompt_parts(text, typed=typed) if options.command is None else ()
            prompt = Prompt(parts=(*parts, *attached), **how)

            async def session_id() -> str:
                return share(session.id if session is not None else (await engine.create(title=title)).id)

            async def submit(session_id: str) -> asyncio.Future[Outcome]:
                if options.command is not None:
                    return await engine.command(session_id, options.command, text, attached, **how)
                return await engine.submit(session_id, prompt)

            outcome = await run.run(session_id, submit)
            try:
                _print_result(options, run, outcome, screen, out)
            except BrokenPipeError:
                run.output_open = False
            if not run.output_open:
                out.drop_unwritten()
    return EXIT_CODES[outcome.kind]


def _print_result(options: Namespace, run: PromptRun, outcome: Outcome, screen: Screen, out: Stream) -> None:
    """Print the result as JSON; or on standard error how the run ended, what it cost, and how to continue."""
    if options.json:
        output.print_json(result_document(run, outcome))
        return
    if options.format == "json":
        write_json_line(out, result_document(run, outcome))
        return
    screen.close()
    if note := OUTCOME_NOTES.get(outcome.kind):
        screen.error(note, 33)
    screen.gap()
    store = f" --store {options.store}" if options.store else ""
    screen.note(run.usage.summary(run.engine), 2)
    screen.note(f"continue with: opensesh run{store} --session {run.session_id} ...", 2, verbatim=True)


# -- what to run, and where --------------------------------------------------------------------------------------------


def _find_session(options: Namespace) -> tuple[Store, Session | None, str]:
    """Return the store, the session to continue, if any, and the directory to work in."""
    if options.session and options.continue_last:
        raise UsageError("--session and --continue cannot be combined")
    if options.title is not None and (options.session or options.continue_last):
        raise UsageError("--title is for new sessions; use 'opensesh session rename' for this one")
    if options.dir is not None and not os.path.isdir(options.dir):
        raise UsageError(f"the directory {options.dir} does not exist")
    library = Library(store=open_store(options.store))
    session = None
    if options.session:
        session = named_session(library, options.session, to_change=True).record
    elif options.continue_last:  # the last one of this directory, else of its checkout or project; not a subagent's
        location = resolve(options.dir or os.getcwd(), store=library.store)
        sessions = [session for _, session in library.records() if session.parent_id is None and not session.archived]
        in_directory = [session for session in sessions if session.directory == location.directory]
        in_project = [session for session in sessions if session.project_id == location.id != GLOBAL]
        if not in_directory and not in_project:
            raise NotFoundError(
                f"no session of {location.directory} to continue; run it without --continue to start one"
            )
        own = in_directory or in_checkout(in_project, location.directory) or in_project
        session = max(own, key=lambda session: session.updated)
    directory = options.dir or (session.directory if session is not None else "") or os.getcwd()
    if not os.path.isdir(directory):
        raise UsageError(f"the session's directory {directory} does not exist; name another one with --dir")
    return library.store, session, directory


def _check_options(engine: Engine, options: Namespace, session: Session | None) -> None:
    """Raise for a command, agent or model that cannot work, before a session is created for it."""
    if options.command is not None:
        engine.check_command(options.command)
    agent = engine.agent(options.agent)
    if agent.mode == "subagent":
        raise UsageError(f"{agent.name} is a subagent and cannot run prompts; 'opensesh agents' lists those that can")
    if session is not None and not options.model:
        return  # it continues with the model of its last prompt
    name = f"{agent.model.provider_id}/{agent.model.model_id}" if agent.model else None
    model = engine.model(options.model or name)
    variant = options.variant
    if variant and variant not in model.variants and model.provider_id != SCRIPTED_PROVIDER:
        raise UsageError(f"{model.ref} has no variant {variant!r}; it has: {', '.join(model.variants) or 'none'}")
    engine.check_model(model)


# -- sharing -----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _sync_shares(
    engine: Engine, options: Namespace, keyboard: Keyboard | None, note: Callable[[str], None]
) -> AsyncGenerator[Callable[[str], str]]:
    """Keep the shares of the engine's sessions up to date.

    Yields a function that is called with the session of the run, shares it if that was asked for, and returns it.
    """
    from ..sharing.share_service import open_share_service  # after the engine is open: sharing takes long to load
    from ..sharing.share_sync import ShareSync

    service = open_share_service(engine.sessions, engine.config)
    settings = service.settings
    if options.share:
        settings.check()
        if not settings.chosen_by_user and not options.yes:
            server = settings.describe()
            if keyboard is None:
                raise UsageError(f"--share would send the session to {server}; confirm with --yes")
            question = f"Share this session at {server}? [y/N] "
            answer = await keyboard.line(lambda: print(question, end="", file=sys.stderr, flush=True))
            if (answer or "").strip().lower() not in ("y", "yes"):
                raise UsageError("nothing was shared and nothing was run; leave out --share to run it")
    if settings.disabled_by:
        yield lambda session_id: session_id
        return
    if settings.ignored_source:
        note(f'{settings.ignored_source} sets "share": "auto"; this is used only from a configuration of your own')
    async with service, ShareSync(service, engine.bus, notify=note) as sync:

        def share(session_id: str) -> str:
            if options.share:
                sync.share(session_id)
            return session_id

        yield share
