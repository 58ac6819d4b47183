"""Print a completion script for bash, zsh or fish.

bash   eval "$(opensesh completion bash)"
zsh    eval "$(opensesh completion zsh)"
fish   opensesh completion fish | source
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import suppress

from ..errors import OpenseshError
from . import main, output
from .command_arguments import CommandParser

_MAX_SESSIONS = 200
_SCRIPTS = {
    "bash": """_opensesh() {
  local IFS=$'\\n'
  COMPREPLY=($(opensesh __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" | cut -f1))
}
complete -o default -F _opensesh opensesh""",
    "zsh": """#compdef opensesh
_opensesh() {
  local -a found; local line
  for line in "${(@f)$(opensesh __complete -- "${(@)words[2,CURRENT]}")}"; do
    [[ -n $line ]] && found+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}")
  done
  if (( $#found )); then _describe opensesh found; else _files; fi
}
compdef _opensesh opensesh""",
    "fish": """complete -c opensesh -f -a '(opensesh __complete -- (commandline -opc)[2..] (commandline -ct))'""",
}


def configure(parser: CommandParser) -> None:
    """Declare the arguments."""
    parser.add_argument("shell", choices=sorted(_SCRIPTS), help="the shell that reads the script")


def run(options: argparse.Namespace) -> int:
    """Print the script for a shell."""
    if options.json:
        output.print_json({"shell": options.shell, "script": _SCRIPTS[options.shell]})
    else:
        print(_SCRIPTS[options.shell])
    return 0


def complete(words: Sequence[str]) -> int:
    """Print the completions of the last word, each with a description after a tab. The scripts call this."""
    *before, current = words or [""]
    for value, description in candidates(before, current):
        print(f"{value}\t{description}")
    return 0


def candidates(before: list[str], current: str) -> list[tuple[str, str]]:
    """Return the completions of ``current`` after the words ``before``, each with a description."""
    if before[-1:] == ["--store"] or before[-2:] == ["--store", "="]:
        return []  # a path, which the shell completes
    store, words = _split_store(before)
    if not words:
        return [(name, entry.summary) for name, entry in main.COMMANDS.items() if name.startswith(current)]
    if words[0] not in main.COMMANDS:
        return []
    parser = main.command_parser(words[0])[1]
    if parser.actions and len(words) == 1:
        return [(name, leaf.description or "") for name, leaf in parser.actions.items() if name.startswith(current)]
    parser = parser.actions.get(words[1], parser) if parser.actions else parser
    # bash splits --by=day into three words; other shells complete it as one.
    name, equals, value = current.partition("=") if current.startswith("--") else ("", "", "")
    option = name if equals else next((word for word in reversed(before) if word != "="), "")
    argument = next((one for one in parser.declared if option in one.option_strings and one.nargs != 0), None)
    if argument is not None:
        current = value if equals else "" if current == "=" else current
        values = [pair for pair in _values(argument, store) if pair[0].startswith(current)]
        return [(f"{name}={one}", description) for one, description in values] if equals else values
    offered: list[tuple[str, str]] = []
    positional = next((argument for argument in parser.declared if not argument.option_strings), None)
    if current.startswith("-"):
        arguments = (argument for argument in parser.declared if argument.option_strings)
        offered = [(argument.option_strings[-1], argument.help or "") for argument in arguments]
    elif positional is not None:
        offered = _values(positional, store)
    return [pair for pair in offered if pair[0].startswith(current)]


def _values(argument: argparse.Action, store: str | None) -> list[tuple[str, str]]:
    """Return the values that an argument may have, as far as they are known."""
    if argument.choices is not None:
        return [(str(choice), "") for choice in argument.choices]
    # What follows takes long to load; commands and options are completed without it.
    from ..config import agents, load
    from ..history.library import Library
    from ..project import resolve
    from .models_command import usable_models

    with suppress(OpenseshError):
        match argument.dest:
            case "session":
                sessions = [session for _, session in Library(store and os.path.expanduser(store)).records()]
                sessions.sort(key=lambda session: -session.updated)
                newest = ((session.id, session.title) for session in sessions[:_MAX_SESSIONS])
                return [("last", "the newest session of this project"), *newest]
            case "project":
                uses = Library(store and os.path.expanduser(store)).project_uses()
                return [(use.group.title, use.group.folder) for use in uses]
            case "model":
                return usable_models(os.getcwd())
            case "agent":
                location = resolve(os.getcwd())
                known = agents(load(location.directory, location.sandbox)).values()
                return [(agent.name, agent.description or "") for agent in known if not agent.hidden]
            case _:
                pass
    return []


def _split_store(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the store that the words name, if any, and the words from the command on."""
    store: str | None = None
    others: list[str] = []
    rest = iter(word for word in words if word != "=")  # bash splits --store=PLACE into three words
    for word in rest:
        name, equals, value = word.partition("=")
        if name == "--store":
            store = value if equals else next(rest, None)
        elif others or not word.startswith("-"):
            others.append(word)
    return store, others
