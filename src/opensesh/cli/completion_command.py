"""Completion for bash, zsh or fish.

bash   eval "$(opensesh completion bash)"
zsh    eval "$(opensesh completion zsh)"
fish   opensesh completion fish | source
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import OpenseshError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from .arguments import Parser

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


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument("shell", choices=sorted(_SCRIPTS))


def run(options: argparse.Namespace) -> int:
    """Print the script for a shell."""
    print(_SCRIPTS[options.shell])
    return 0


def complete(words: Sequence[str]) -> int:
    """Asked by that script: print what the last of ``words`` may become, each with a hint behind a tab."""
    *before, current = words or [""]
    for value, hint in candidates(before, current):
        print(f"{value}\t{hint}")
    return 0


def candidates(before: list[str], current: str) -> list[tuple[str, str]]:
    """What ``current`` may become after the words ``before``, each with a hint."""
    from .main import COMMANDS, command_parser

    if before[-1:] == ["--store"] or before[-2:] == ["--store", "="]:
        return []  # a place, which the shell completes better
    store, before = _store_among(before)
    if not before:
        return [(name, hint) for name, (hint, _) in COMMANDS.items() if name.startswith(current)]
    if before[0] not in COMMANDS:
        return []
    parser = command_parser(before[0])[1]
    if parser.actions and len(before) == 1:
        return [(name, each.description or "") for name, each in parser.actions.items() if name.startswith(current)]
    if parser.actions:
        parser = parser.actions.get(before[1], parser)
    offered = _flags(parser) if current.startswith("-") else _values(parser, store)
    return [pair for pair in offered if pair[0].startswith(current)]


def _store_among(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """The store that the words name, if they do, and the words from the command on."""
    store: str | None = None
    others: list[str] = []
    waiting = iter(word for word in words if word != "=")  # bash takes --store=PLACE apart
    for word in waiting:
        name, equals, value = word.partition("=")
        if name == "--store":
            store = value if equals else next(waiting, None)
        elif others or not word.startswith("-"):
            others.append(word)
    return store, others


def _flags(parser: Parser) -> list[tuple[str, str]]:
    return [(each.option_strings[-1], each.help or "") for each in parser.declared if each.option_strings]


def _values(parser: Parser, store: str | None) -> list[tuple[str, str]]:
    wanted = next((each for each in parser.declared if not each.option_strings), None)
    if wanted is not None and wanted.choices is not None:
        return [(str(choice), "") for choice in wanted.choices]
    return _sessions(store) if wanted is not None and wanted.dest == "session" else []


def _sessions(store: str | None) -> list[tuple[str, str]]:
    from os.path import expanduser

    from ..history.library import Library

    try:
        found = [each for _, each in Library(store and expanduser(store)).records()]
    except OpenseshError:
        return []
    found.sort(key=lambda each: -each.updated)
    return [("last", "the newest session"), *((each.id, each.title) for each in found[:200])]
