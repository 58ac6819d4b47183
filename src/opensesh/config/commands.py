"""Commands: prompts with a name, and places for arguments.

In a template, ``$1`` to ``$N`` stand for arguments, the last of them for all that are left; ``$ARGUMENTS`` stands
for everything that was typed. A template without either gets what was typed below it. An exclamation mark before a
command in backticks stands for what that shell command prints; running it is the engine's affair.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from ..records import View
from .prompts import prompt

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .config import Config
    from .skills import Skill

_ARGUMENT = r"(?i)\[Image\s+\d+\]|\"[^\"]*\"|'[^']*'|[^\s\"']+"
_PLACE = r"\$(?:([1-9][0-9]*)|ARGUMENTS)"
_SHELL = r"!`([^`]+)`"
_MENTION = re.compile(r"(?<![A-Za-z0-9_`])@(\.?[^\s`,.]*(?:\.[^\s`,.]+)*)")


class Command(View, frozen=True, kw_only=True):
    """A command, ready to be typed."""

    name: str
    description: str | None = None
    agent: str | None = None
    model: str | None = None
    """``provider/model``."""
    source: Literal["command", "mcp", "skill"] = "command"
    template: str
    subtask: bool | None = None
    """Whether it runs in a session of its own; if nobody says, it does when its agent is a subagent."""
    hints: tuple[str, ...] = ()
    """The arguments that the template has places for: ``("$1", "$2", "$ARGUMENTS")``."""


class Expansion(Struct, frozen=True):
    """A template with its arguments in place."""

    pieces: tuple[str, ...]
    """The text around the shell commands: one more piece than there are commands."""
    commands: tuple[str, ...]
    """What the engine is to run."""

    def text(self, outputs: Sequence[str] = ()) -> str:
        """The prompt, with what each command printed in its place."""
        inner = [*outputs, ""]
        return "".join(piece + output for piece, output in zip(self.pieces, inner, strict=True)).strip()


def commands(config: Config, skills: Iterable[Skill] = (), prompts: Iterable[Command] = ()) -> dict[str, Command]:
    """Every command by name: built-in, configured, the ``prompts`` of MCP servers, and skills whose name is free."""
    found = {each.name: each for each in _builtins(config)}
    for name, section in config.settings.command.items():
        found[name] = Command(
            name=name,
            description=section.description,
            agent=section.agent,
            model=section.model,
            template=section.template,
            subtask=section.subtask,
            hints=hints(section.template),
        )
    found |= {each.name: each for each in prompts}
    for skill in skills:
        if skill.name not in found:
            found[skill.name] = Command(
                name=skill.name, description=skill.description, source="skill", template=skill.content
            )
    return found


def _builtins(config: Config) -> list[Command]:
    init = prompt("init").replace("${path}", config.worktree)
    review = prompt("review")
    return [
        Command(name="init", description="write or update AGENTS.md", template=init, hints=hints(init)),
        Command(
            name="review",
            description="review changes: uncommitted, or a commit, branch or pull request",
            template=review,
            subtask=True,
            hints=hints(review),
        ),
    ]


def hints(template: str) -> tuple[str, ...]:
    """The places in a template, each once: numbers in order, then ``$ARGUMENTS``."""
    places = {found[0] for found in re.finditer(_PLACE, template)}
    rest = tuple(places & {"$ARGUMENTS"})
    return (*sorted(places - {"$ARGUMENTS"}, key=lambda place: int(place[1:])), *rest)


def split_arguments(typed: str) -> list[str]:
    """What was typed, as arguments: quoted texts without their quotes, ``[Image 1]``, and words."""
    return [re.sub(r"^[\"']|[\"']$", "", argument) for argument in re.findall(_ARGUMENT, typed)]


def expand(template: str, typed: str) -> Expansion:
    """Put arguments into a template.

    Only the shell commands that the template itself states are commands: one that comes with the arguments is text.
    """
    arguments = split_arguments(typed)
    last = max((int(found[1]) for found in re.finditer(_PLACE, template) if found[1]), default=0)

    def fill(found: re.Match[str]) -> str:
        if not found[1]:
            return typed
        number = int(found[1])
        return " ".join(arguments[number - 1 :] if number == last else arguments[number - 1 : number])

    pieces = [re.sub(_PLACE, fill, piece) for piece in re.split(_SHELL, template)]
    if not re.search(_PLACE, template) and typed.strip():
        pieces[-1] += "\n\n" + typed
    return Expansion(tuple(pieces[::2]), tuple(pieces[1::2]))


def mentions(text: str) -> list[str]:
    """The files and agents that a text names as ``@name``, each once, in order.

    A mention does not follow a letter, digit, underscore or backtick, and ends at a space, a backtick, a comma, or a
    full stop with nothing behind it. Whether there is such a file or agent is for the caller to see.
    """
    return list(dict.fromkeys(name for name in _MENTION.findall(text) if name.strip(".")))
