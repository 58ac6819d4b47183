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
    parser.add_argument("shell", choices=sorted(_SCRIPTS))


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
    store, before = _split_store(before)
    if not before:
        return [(name, summary) for name, summary in main.COMMANDS.items() if name.startswith(current)]
    if before[0] not in main.COMMANDS:
        return []
    parser = main.command_parser(before[0])[1]
    if parser.actions and len(before) == 1:
        return [(name, leaf.description or "") for name, leaf in parser.actions.items() if name.startswith(current)]
    parser = parser.actions.get(before[1], parser) if parser.actions else parser
    positional = next((argument for argument in parser.declared if not argument.option_strings), None)
    offered: list[tuple[str, str]] = []
    if current.startswith("-"):
        arguments = (argument for argument in parser.declared if argument.option_strings)
        offered = [(argument.option_strings[-1], argument.help or "") for argument in arguments]
    elif positional is not None and positional.choices is not None:
        offered = [(str(choice), "") for choice in positional.choices]
    elif positional is not None and positional.dest == "session":
        from ..history.library import Library  # commands and options are completed without it

        with suppress(OpenseshError):
            sessions = [session for _, session in Library(store and os.path.expanduser(store)).records()]
            sessions.sort(key=lambda session: -session.updated)
            newest = ((session.id, session.title) for session in sessions[:_MAX_SESSIONS])
            offered = [("last", "the newest session of this project"), *newest]
    return [pair for pair in offered if pair[0].startswith(current)]


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
