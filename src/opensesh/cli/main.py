"""From words to a command: finds its module, parses its arguments, turns what goes wrong into a line and a number."""

from __future__ import annotations

import os
import sys

from .. import errors
from ..loading import load_msgspec
from .arguments import Parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence
    from typing import Any, Protocol

    class Command(Protocol):
        """What a command's module offers."""

        def configure(self, parser: Parser) -> None:
            """Declare its arguments."""
            ...

        def run(self, options: argparse.Namespace) -> int | None:
            """Do it; the exit code, 0 if ``None``."""
            ...


COMMANDS = {
    "run": ("ask a model to do something here", "run_command"),
    "list": ("sessions of every project, newest first", "list_command"),
    "show": ("read a session", "show_command"),
    "search": ("find what was said and done, in all sessions", "search_command"),
    "projects": ("projects, found by name or folder", "projects_command"),
    "export": ("sessions in a form to keep, read, study or import", "export_command"),
    "import": ("exported or shared sessions, or another store's", "import_command"),
    "stats": ("tokens and cost, by day, month, project, model, agent or tool", "stats_command"),
    "doctor": ("check a store, and repair it", "doctor_command"),
    "session": ("fork, rename, revert, share, archive, move or remove sessions", "session_command"),
    "serve-share": ("a server for shared sessions, with a page for each", "serve_share_command"),
    "models": ("models that can be used, with limits and prices", "models_command"),
    "agents": ("agents, and what they may do", "agents_command"),
    "tools": ("tools, and where they come from", "tools_command"),
    "config": ("every setting, and who made it", "config_command"),
    "plugins": ("plugins at work here, and those that are not", "plugins_command"),
    "demo": ("see it work in a throw-away folder", "demo_command"),
    "completion": ("completion for bash, zsh or fish", "completion_command"),
}
_SYNONYMS = {
    "ls": "list",
    "cat": "show",
    "find": "search",
    "cost": "stats",
    "usage": "stats",
    "rm": "session remove",
    "delete": "session remove",
    "undo": "session revert",
    "redo": "session unrevert",
}
"""What things are called elsewhere."""
_STORELESS = ("serve-share", "models", "agents", "tools", "config", "plugins", "demo", "completion")
"""Commands that need no store."""
_BEGINNERS = ("run", "import")
"""Commands that may be given a store which is not there yet."""
_LEAN = ("search", "stats", "completion")
"""Commands that most of the time need not decode a record."""
_EXIT: tuple[tuple[type[errors.OpenseshError], int], ...] = (
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
    """Run one command and answer with its exit code."""
    _open_missing_streams()
    _replace_what_cannot_be_shown()
    try:
        code = _run(words)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader went away, which is its right
        _drop_unwritten()
        return 0
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            print(file=sys.stderr)  # what comes next does not belong behind a question, or a bar
        return 130
    except Exception as error:
        if "--debug" in words:
            raise
        known = _understood(error, words)
        _explain(known, as_json="--json" in words)
        _drop_unwritten()
        return next((code for kind, code in _EXIT if isinstance(known, kind)), 1)
    return code


def _open_missing_streams() -> None:
    """Whoever closed a stream before we began wants to hear nothing, and gets a way to nowhere in its place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(nowhere, mode, encoding="utf-8", closefd=False))


def _replace_what_cannot_be_shown() -> None:
    """A terminal or file of an older encoding gets a question mark for what it lacks. Not an error: what was asked for
    is all there but for that."""
    for stream in (sys.stdout, sys.stderr):
        if (adjust := getattr(stream, "reconfigure", None)) is not None:
            adjust(errors="replace")


def _drop_unwritten() -> None:
    from .terminal import Stream

    Stream(sys.stdout).drop_unwritten()


def _understood(error: Exception, words: Sequence[str]) -> errors.OpenseshError:
    """What to tell of an error, also of one that no part of the house has put into words."""
    error = _first_of_group(error)
    if isinstance(error, errors.OpenseshError):
        return error
    if isinstance(error, FileNotFoundError) and not error.filename and _is_nowhere():
        return errors.NotFoundError("the folder that this was started in is gone; go to one that is there")
    if isinstance(error, OSError) and error.strerror:
        return errors.OpenseshError(f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
    if isinstance(error, ImportError) and error.name:
        return errors.OpenseshError(f"{error.name} is not installed, or broken: {error}")
    from .logfile import note_crash

    position = _command_position(words)
    log = note_crash(words[position] if position is not None else "opensesh", error)
    where = f"{log} says where it came from" if log else "'--debug' shows where it came from"
    return errors.OpenseshError(f"this should not have happened: {type(error).__name__}: {error}; {where}")


def _first_of_group(error: Exception) -> Exception:
    from typing import cast

    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    return error


def _is_nowhere() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def command_parser(name: str) -> tuple[Command, Parser]:
    """A command's module, and a parser for its words."""
    if name not in _LEAN:
        load_msgspec()
    module = load_command(name)
    parser = Parser(f"opensesh {name}", (module.__doc__ or "").strip())
    module.configure(parser)
    for each in parser.actions.values() or (parser,):
        _declare_everywhere(each)
    return module, parser


def load_command(name: str) -> Command:
    """The module of a command. Not by ``importlib``, which takes longer to load than some of them."""
    module: Any = __import__(f"{__package__}.{COMMANDS[name][1]}", fromlist=["__doc__"])
    return module


def _declare_everywhere(parser: Parser) -> None:
    parser.add_argument("--store", metavar="PLACE", help="a storage or data folder, or an opencode.db")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    parser.add_argument("--utc", action="store_true", help="times in UTC instead of the local zone")
    parser.add_argument("--quiet", action="store_true", help="say nothing but the result and errors, and ask nothing")
    parser.add_argument("--debug", action="store_true", help="show where an error came from")


def _run(words: Sequence[str]) -> int:
    position = _command_position(words)
    if position is None:
        return _without_command(words)
    name = words[position]
    rest = [*words[:position], *words[position + 1 :]]
    if name == "help":
        if not rest:
            return _without_command(rest)
        name, rest = rest[0], ["--help"]
    if name == "__complete":  # asked by the scripts that 'completion' prints
        from .completion_command import complete

        return complete(rest[1:])
    if name not in COMMANDS:
        raise errors.UsageError(f"there is no command {name!r}{_meant(name)} Try 'opensesh --help'.")
    command, parser = command_parser(name)
    for action in rest[position : position + 1] if parser.actions else ():
        if action not in parser.actions and not action.startswith("-"):
            meant = _meant(action, name, parser.actions)
            raise errors.UsageError(f"{name} has no action {action!r}{meant} Try 'opensesh {name} --help'.")
    if parser.actions and position:
        rest = [*rest[position:], *rest[:position]]  # what is said everywhere belongs behind the action
    try:
        options = parser.parse(rest)
    except SystemExit as done:  # the help was asked for, and is printed
        return int(done.code or 0)
    _check_store(name, options)
    return _run_quietly(command, options) if options.quiet else command.run(options) or 0


def _run_quietly(command: Command, options: argparse.Namespace) -> int:
    from contextlib import redirect_stderr

    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stderr(nowhere):
        return command.run(options) or 0


def _without_command(words: Sequence[str]) -> int:
    if "--version" in words or "-V" in words:
        from .. import __version__

        print(f"opensesh {__version__}")
    elif not words or "--help" in words or "-h" in words:
        print(overview())
    else:
        raise errors.UsageError(f"{words[0]} goes with a command. Try 'opensesh --help'.")
    return 0


def _check_store(command: str, options: argparse.Namespace) -> None:
    """A store that was named and is not there is a mistake, except for those who begin one; and one that may not be
    read is not an empty one."""
    if command in _STORELESS:
        return
    from ..storage.locations import find_stores

    named = options.store or os.environ.get("OPENSESH_STORE")
    found = find_stores(options.store)
    if named and command not in _BEGINNERS and not os.path.exists(found.place):
        raise errors.NotFoundError(f"there is no store at {named}")
    tree = found.tree or found.place
    # The doctor sees by itself what is wrong with a tree or a database, but not through a closed door.
    if os.path.isdir(found.place) and found.place != tree:
        _need_entry(found.place, f"'chmod u+rwx {found.place}' lets its owner in")
    if command != "doctor":
        _need_entry(found.place if os.path.isfile(found.place) else tree, "'opensesh doctor' what is wrong")


def _need_entry(place: str, remedy: str) -> None:
    wanted = os.R_OK | os.X_OK if os.path.isdir(place) else os.R_OK
    if os.path.exists(place) and not os.access(place, wanted):
        whose = f"'ls -ld {place}' shows whose it is"
        raise errors.StoreError(f"{place} may not be read: {whose}, and {remedy}", path=place)


def overview() -> str:
    """What ``opensesh --help`` prints."""
    rows = "\n".join(f"  {name:<12} {summary}" for name, (summary, _) in COMMANDS.items())
    return f"""opensesh: OpenCode's sessions, to keep, read and run

usage: opensesh COMMAND [ARGUMENTS]

{rows}

everywhere:
  --store PLACE  a storage or data folder, or an opencode.db
                 (default: what OPENSESH_STORE names, or OpenCode's own)
  --json         one JSON document on standard output
  --utc          times in UTC instead of the local zone
  --quiet        say nothing but the result and errors, and ask nothing
  --debug        show where an error came from
  --help         more about a command: opensesh COMMAND --help
  --version      which version this is

A session is named by its id, the beginning or end of it, its slug, or 'last'."""


def _command_position(words: Sequence[str]) -> int | None:
    """Where the command stands: the first word that is neither an option nor the value of ``--store``."""
    skip = False
    for position, word in enumerate(words):
        if skip or word.startswith("-"):
            skip = word == "--store" and not skip
            continue
        return position
    return None


def _meant(word: str, command: str = "", actions: Iterable[str] = ()) -> str:
    """What someone who typed ``word`` for a command, or for an action of one, may have meant."""
    from ..text import close_matches

    here, other = (actions, "opensesh") if command else (COMMANDS, "opensesh session")
    elsewhere = COMMANDS if command else command_parser("session")[1].actions
    if word in _SYNONYMS:
        return f"; did you mean 'opensesh {_SYNONYMS[word]}'?"
    if word in elsewhere:
        return f"; did you mean '{other} {word}'?"
    found = close_matches(word, here)
    return f"; did you mean 'opensesh {f'{command} ' if command else ''}{found[0]}'?" if found else "."


def _explain(error: errors.OpenseshError, *, as_json: bool) -> None:
    if as_json:
        from ..records import dumps

        shape = {"error": {"name": error.json_name, "message": error.message, "data": error.data}}
        try:
            print(dumps(shape).decode(), flush=True)
        except OSError:
            as_json = False  # standard output is what went wrong
    if not as_json:
        print(f"opensesh: {error.message}", file=sys.stderr)
