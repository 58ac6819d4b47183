"""The command line: finds the command, parses its arguments, runs it, and turns errors into messages and exit codes."""

from __future__ import annotations

import importlib
import os
import shlex
import sys
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from .. import __version__, errors
from ..loading import load_msgspec
from ..storage import find_stores, open_store, unfinished
from ..storage.locations import user_setting
from ..storage.protocol import ignore_damage
from ..text import close_matches
from .command_arguments import CommandParser
from .terminal import Stream, escape_terminals, only_errors

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    class CommandModule(Protocol):
        """The functions that the module of a command has."""

        def configure(self, parser: CommandParser) -> None:
            """Declare the arguments."""
            ...

        def run(self, options: argparse.Namespace) -> int | None:
            """Run the command; return the exit code, or ``None`` for 0."""
            ...


class CommandEntry(NamedTuple):
    """The summary of a command, and what is prepared before it runs."""

    summary: str
    uses_store: bool = True
    may_create_store: bool = False
    """Whether the store that the user names need not exist."""
    loads_msgspec: bool = True
    """False for commands that often answer without decoding a record: msgspec takes half of their start-up time."""


COMMANDS = {
    "run": CommandEntry("send a prompt to a model and run its tools in this directory", may_create_store=True),
    "list": CommandEntry("list the sessions of all projects, newest first"),
    "show": CommandEntry("print a session"),
    "search": CommandEntry("full-text search in all sessions", loads_msgspec=False),
    "projects": CommandEntry("list projects, or find one by name or folder"),
    "export": CommandEntry("export sessions as JSON, Markdown, HTML, Parquet and others"),
    "import": CommandEntry("import exported or shared sessions, or those of another store", may_create_store=True),
    "stats": CommandEntry("tokens and cost by day, project, model, agent, tool or session", loads_msgspec=False),
    "doctor": CommandEntry("check a store and repair it"),
    "session": CommandEntry("fork, rename, compact, revert, share, archive, move or remove"),
    "web": CommandEntry("open the web pages: sessions, search, costs, running sessions", may_create_store=True),
    "serve": CommandEntry("run a server with OpenCode's HTTP API, for its clients", may_create_store=True),
    "serve-share": CommandEntry("run a server for shared sessions", uses_store=False),
    "models": CommandEntry("list the available models, with limits and prices", uses_store=False),
    "agents": CommandEntry("list the agents and their permissions", uses_store=False),
    "tools": CommandEntry("list the tools and where they come from", uses_store=False),
    "mcp": CommandEntry("list the MCP servers, and log in or out", uses_store=False),
    "auth": CommandEntry("store the keys of providers, list or remove them", uses_store=False),
    "config": CommandEntry("print the configuration and where each setting comes from", uses_store=False),
    "plugins": CommandEntry("list the plugins, and trust those of this project", uses_store=False),
    "demo": CommandEntry("run a scripted session in a temporary folder", uses_store=False),
    "completion": CommandEntry(
        "print a completion script for bash, zsh or fish", uses_store=False, loads_msgspec=False
    ),
}
"""The commands by name. The module of a command is named after it, and loaded only to run it."""
_SYNONYMS = {
    "ls": "list",
    "cat": "show",
    "view": "show",
    "tail": "show --follow",
    "log": "show",
    "ask": "run",
    "chat": "run",
    "resume": "run --continue",
    "continue": "run --continue",
    "-c": "run --continue",
    "-p": "run",
    "open": "web",
    "ui": "web",
    "find": "search",
    "cost": "stats",
    "usage": "stats",
    "rm": "session remove",
    "delete": "session remove",
    "undo": "session revert",
    "redo": "session unrevert",
}
"""What other programs call these commands."""
_OPTIONS = {
    "--store PLACE": "storage folder, OpenCode data folder, opencode.db or URL",
    "--json": "print one JSON document on standard output",
    "--utc": "use UTC instead of local time",
    "--quiet": "print only the result and errors; never prompt",
    "--debug": "show the traceback of an error",
}
"""The options of every command. Those without a value are switches."""
_EXIT_CODES: tuple[tuple[type[errors.OpenseshError], int], ...] = (
    (errors.UsageError, 2),
    (errors.AmbiguousError, 2),
    (errors.InvalidIDError, 2),
    (errors.InvalidKeyError, 2),
    (errors.NotFoundError, 3),
    (errors.ModelNotFoundError, 3),
    (errors.BusyError, 4),
    (errors.StoreError, 5),
    (errors.RecordError, 5),
)


def run(words: Sequence[str]) -> int:
    """Run the command that ``words`` name, and return its exit code."""
    _prepare_streams()
    try:
        code = _run(words)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
        Stream(sys.stdout).drop_unwritten()
        return 0
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            print(file=sys.stderr)  # so that the prompt of the shell does not follow a question or a progress line
        return 130
    except Exception as error:
        if "--debug" in words:
            raise
        known = _to_opensesh_error(error, words)
        as_json = "--json" in words
        if as_json:
            from ..records import dumps  # loads msgspec

            document = {"error": {"name": known.json_name, "message": known.message, "data": known.data}}
            try:
                print(dumps(document).decode(), flush=True)
            except OSError:
                as_json = False  # standard output is what failed
        if not as_json:
            with suppress(OSError):  # the reader of standard error has closed the pipe: the exit code still says it
                print(f"opensesh: {known.message}", file=sys.stderr)
        Stream(sys.stdout).drop_unwritten()
        return next((code for kind, code in _EXIT_CODES if isinstance(known, kind)), 1)
    finally:
        Stream(sys.stderr).drop_unwritten()
    return code


def _prepare_streams() -> None:
    """Open standard streams that were closed, and replace characters that they cannot encode."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(null, mode, encoding="utf-8", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if (reconfigure := getattr(stream, "reconfigure", None)) is not None:
            reconfigure(errors="replace")
    escape_terminals()


def _to_opensesh_error(error: Exception, words: Sequence[str]) -> errors.OpenseshError:
    """Return what to report of an error; one that nothing in opensesh expected is logged with its traceback."""
    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    if isinstance(error, errors.OpenseshError):
        return error
    if isinstance(error, FileNotFoundError) and not error.filename:
        try:
            os.getcwd()
        except FileNotFoundError:
            return errors.NotFoundError("the current directory no longer exists; change to another one")
    if isinstance(error, OSError) and error.strerror:
        return errors.OpenseshError(f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
    if isinstance(error, ImportError) and error.name:
        return errors.OpenseshError(f"{error.name} is not installed, or broken: {error}")
    from .logfile import log_crash  # only needed here

    position = _command_position(words)
    log = log_crash(words[position] if position is not None else "opensesh", error)
    where = f"the traceback is in {log}" if log else "run it with --debug to see the traceback"
    return errors.OpenseshError(f"internal error: {type(error).__name__}: {error}; {where}")


def _run(words: Sequence[str]) -> int:
    position = _command_position(words)
    if position is None:
        return _run_without_command(words)
    name = words[position]
    rest = [*words[:position], *words[position + 1 :]]
    if name == "help":
        if not rest:
            return _run_without_command(rest)
        name, rest = rest[0], ["--help"]
    if name == "__complete":  # called by the scripts that 'completion' prints
        from .completion_command import complete

        return complete(rest[1:])
    if name not in COMMANDS:
        _refuse_unknown_option(words[:position])  # what seems to be a command may be its value
        raise errors.UsageError(f"unknown command {name!r}{_suggestion(name)} Try 'opensesh --help'.")
    module, parser = command_parser(name)
    if parser.actions:
        rest = [*rest[position:], *rest[:position]]  # options before the command belong to its action
        if rest and not rest[0].startswith("-") and rest[0] not in parser.actions:
            suggestion = _suggestion(rest[0], name, parser.actions)
            raise errors.UsageError(f"{name} has no action {rest[0]!r}{suggestion} Try 'opensesh {name} --help'.")
    try:
        options = parser.parse(rest)
    except SystemExit as help_printed:
        return int(help_printed.code or 0)
    if COMMANDS[name].uses_store:
        _check_store(name, options)
        _settle_unfinished(options)
    with only_errors() if options.quiet else nullcontext():
        return module.run(options) or 0


def _settle_unfinished(options: argparse.Namespace) -> None:
    """Complete or undo what a command that was killed had begun, also for commands that open no store themselves."""
    if unfinished.has_notes():
        from ..sessions.settling import settle  # takes long to load, and is hardly ever needed

        settle(open_store(options.store, report=ignore_damage), report=lambda line: print(line, file=sys.stderr))


def _run_without_command(words: Sequence[str]) -> int:
    if "--version" in words or "-V" in words:
        print(f"opensesh {__version__}")
    elif not words or "--help" in words or "-h" in words:
        print(overview())
    else:
        _refuse_unknown_option(words)
        raise errors.UsageError(f"{words[0].partition('=')[0]} needs a command. Try 'opensesh --help'.")
    return 0


def _refuse_unknown_option(words: Sequence[str]) -> None:
    """Raise if a word before the command is an option that only some commands have, or none."""
    known = [*(option.partition(" ")[0] for option in _OPTIONS), "--help", "--version"]
    for name in (word.partition("=")[0] for word in words if word.startswith("-")):
        if name not in known:
            close = close_matches(name, known)
            hint = f"; did you mean {close[0]}?" if close else _suggestion(name)
            raise errors.UsageError(f"unknown option {name!r}{hint} Try 'opensesh --help'.")


def _command_position(words: Sequence[str]) -> int | None:
    """Return the index of the command: the first word that is neither an option nor the value of ``--store``."""
    is_value = False
    for position, word in enumerate(words):
        if is_value or word.startswith("-"):
            is_value = word == "--store" and not is_value
            continue
        return position
    return None


def command_parser(name: str) -> tuple[CommandModule, CommandParser]:
    """Return the module of a command, and a parser with its arguments."""
    if COMMANDS[name].loads_msgspec:
        load_msgspec()
    module = load_command(name)
    parser = CommandParser(f"opensesh {name}", (module.__doc__ or "").strip())
    module.configure(parser)
    for leaf in parser.actions.values() or (parser,):
        group = leaf.add_argument_group("options of every command")
        for option, text in _OPTIONS.items():
            option_name, _, metavar = option.partition(" ")
            kind: dict[str, Any] = {"metavar": metavar} if metavar else {"action": "store_true"}
            leaf.declared.append(group.add_argument(option_name, help=text, **kind))
    return module, parser


def load_command(name: str) -> CommandModule:
    """Import the module of a command."""
    module: Any = importlib.import_module(f".{name.replace('-', '_')}_command", __package__)
    return module


def _check_store(command: str, options: argparse.Namespace) -> None:
    """Raise if the store that the user named does not exist, or may not be read, before it looks like an empty one."""
    named = options.store or user_setting("store")
    if named and "://" in named:
        return  # opening it says what is wrong with it
    location = find_stores(options.store)
    if named and not COMMANDS[command].may_create_store and not os.path.exists(location.path):
        raise errors.NotFoundError(f"the store {named} does not exist")
    tree = location.tree or location.path
    # doctor reports itself what is wrong inside a tree or a database, but cannot look into a closed data folder.
    if os.path.isdir(location.path) and location.path != tree:
        _check_readable(location.path, f"'chmod u+rwx {location.path}' gives its owner access")
    if command != "doctor":
        path = location.path if os.path.isfile(location.path) else tree
        _check_readable(path, "'opensesh doctor' shows what is wrong")


def _check_readable(path: str, remedy: str) -> None:
    mode = os.R_OK | os.X_OK if os.path.isdir(path) else os.R_OK
    if os.path.exists(path) and not os.access(path, mode):
        owner = f"'ls -ld {path}' shows its owner and permissions"
        raise errors.StoreError(f"{path} cannot be read: permission denied; {owner}, and {remedy}", path=path)


def overview() -> str:
    """Return the text of ``opensesh --help``."""
    rows = "\n".join(f"  {name:<12} {entry.summary}" for name, entry in COMMANDS.items())
    options = [f"  {option:<13}  {text}" for option, text in _OPTIONS.items()]
    options.insert(1, f"{'':<17}(default: $OPENSESH_STORE, or the data folder of OpenCode)")
    listed = "\n".join(options)
    return f"""opensesh: store, read, search and run OpenCode sessions

usage: opensesh COMMAND [ARGUMENTS]

{rows}

options of every command:
{listed}
  --help         show the help of a command: opensesh COMMAND --help
  --version      print the version

Sessions are named by id, by the beginning or end of an id, by slug, or 'last',
the newest of this project."""


def _suggestion(word: str, command: str = "", actions: Iterable[str] = ()) -> str:
    """Return what a mistyped command, or action of ``command``, may have been, as the end of a sentence."""
    if " " in word:
        return f"; to send a prompt: opensesh run {shlex.quote(word)}."
    if word in _SYNONYMS:
        return f"; did you mean 'opensesh {_SYNONYMS[word]}'?"
    if command and word in COMMANDS:
        return f"; did you mean 'opensesh {word}'?"
    if not command and word in command_parser("session")[1].actions:
        return f"; did you mean 'opensesh session {word}'?"
    close = close_matches(word, actions if command else COMMANDS)
    return f"; did you mean 'opensesh {f'{command} ' if command else ''}{close[0]}'?" if close else "."
