"""Commands: named prompt templates with arguments.

In a template, ``$1`` to ``$N`` stand for arguments, the last of them for all that remain; ``$ARGUMENTS`` stands for the
whole input. Without either, the input is appended. An exclamation mark before a shell command in backticks stands for
the output of that command, which the engine runs.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from ..records import View
from .prompts import prompt
from .schema import CommandConfig
from .trust import UntrustedItem, digest, owner_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .config import Config
    from .skills import Skill

_BUILTINS = ("init", "review")
_ARGUMENT = r"(?i)\[Image\s+\d+\]|\"[^\"]*\"|'[^']*'|[^\s\"']+"
_PLACEHOLDER = r"\$(?:([1-9][0-9]{0,5}+)(?![0-9])|ARGUMENTS)"
_SHELL = r"!`([^`]+)`"
_MENTION = re.compile(r"(?<![A-Za-z0-9_`])@(\.?[^\s`,.]*(?:\.[^\s`,.]+)*)")


class Command(View, frozen=True, kw_only=True):
    """A command that the user can enter."""

    name: str
    description: str | None = None
    agent: str | None = None
    model: str | None = None
    """``provider/model``."""
    source: Literal["command", "mcp", "skill"] = "command"
    template: str
    subtask: bool | None = None
    """Whether it runs in a child session; by default, if its agent is a subagent."""
    hints: tuple[str, ...] = ()
    """The placeholders of the template: ``("$1", "$2", "$ARGUMENTS")``."""


class Expansion(Struct, frozen=True):
    """A template with its arguments filled in."""

    pieces: tuple[str, ...]
    """The text around the shell commands: one more piece than there are commands."""
    commands: tuple[str, ...]
    """The shell commands that the engine runs."""

    def text(self, outputs: Sequence[str] = ()) -> str:
        """Return the prompt, with the outputs of the shell commands."""
        inner = [*outputs, ""]
        return "".join(piece + output for piece, output in zip(self.pieces, inner, strict=True)).strip()


def commands(config: Config, skills: Iterable[Skill] = ()) -> dict[str, Command]:
    """Return all commands by name: built-in, configured, and skills with a free name."""
    init, review = _BUILTINS
    # Outside of version control the worktree is the root of the file system, where no instructions belong.
    folder = config.directory if config.worktree == os.path.abspath(os.sep) else config.worktree
    file = os.path.join(folder, "AGENTS.md")
    builtins = {
        init: CommandConfig(template=prompt("init").replace("${path}", file), description="write or update AGENTS.md"),
        review: CommandConfig(
            template=prompt("review"),
            description="review changes: uncommitted, or a commit, branch or pull request",
            subtask=True,
        ),
    }
    commands = {
        name: Command(
            name=name,
            description=section.description,
            agent=section.agent,
            model=section.model,
            template=section.template,
            subtask=section.subtask,
            hints=hints(section.template),
        )
        for name, section in {**builtins, **config.settings.command}.items()
    }
    for skill in skills:
        if skill.name not in commands:
            commands[skill.name] = Command(
                name=skill.name, description=skill.description, source="skill", template=skill.content
            )
    return commands


def commands_needing_trust(config: Config) -> list[UntrustedItem]:
    """Return the commands of the project that run shell commands under the name of a built-in command.

    A user who calls any other command of the project has chosen to run what it runs; a user who calls ``init`` has not.
    """
    items: list[UntrustedItem] = []
    for name in filter(config.settings.command.__contains__, _BUILTINS):
        template, path = config.settings.command[name].template, ("command", name, "template")
        origin = config.origins.get(path)
        if origin is not None and owner_of(origin, config) in ("project", "organisation"):
            lines = re.findall(_SHELL, template)
            now = digest(*(line.encode() for line in lines))
            key = f"{origin.source}#command.{name}"
            items += [UntrustedItem("command", name, "; ".join(lines), path, origin, key, now)] if lines else []
    return items


def hints(template: str) -> tuple[str, ...]:
    """Return the placeholders of a template: numbers in order, then ``$ARGUMENTS``."""
    placeholders = {match[0] for match in re.finditer(_PLACEHOLDER, template)}
    rest = tuple(placeholders & {"$ARGUMENTS"})
    return (*sorted(placeholders - {"$ARGUMENTS"}, key=lambda name: int(name[1:])), *rest)


def split_arguments(arguments_text: str) -> list[str]:
    """Split the input into arguments: quoted texts without their quotes, ``[Image 1]``, and words."""
    return [re.sub(r"^[\"']|[\"']$", "", argument) for argument in re.findall(_ARGUMENT, arguments_text)]


def expand(template: str, arguments_text: str) -> Expansion:
    """Fill arguments into a template.

    Shell commands in the template are run; those in the arguments are text.
    """
    arguments = split_arguments(arguments_text)
    last = max((int(match[1]) for match in re.finditer(_PLACEHOLDER, template) if match[1]), default=0)

    def fill(match: re.Match[str]) -> str:
        if not match[1]:
            return arguments_text
        number = int(match[1])
        return " ".join(arguments[number - 1 :] if number == last else arguments[number - 1 : number])

    pieces = [re.sub(_PLACEHOLDER, fill, piece) for piece in re.split(_SHELL, template)]
    if not re.search(_PLACEHOLDER, template) and arguments_text.strip():
        pieces[-1] += "\n\n" + arguments_text
    return Expansion(tuple(pieces[::2]), tuple(pieces[1::2]))


def mentions(text: str) -> list[str]:
    """Return the names that a text mentions as ``@name``, each once, in order.

    A mention does not follow a letter, digit, underscore or backtick, and ends at a space, a backtick, a comma, or a
    full stop before a space. The caller checks whether such a file or agent exists.
    """
    return list(dict.fromkeys(name for name in _MENTION.findall(text) if name.strip(".")))
