"""What some tools need of the engine beside permission: small protocols, one a need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..records import Todo
    from .tool import ToolOutput


class Todos(Protocol):
    """The session's list."""

    async def read(self) -> Sequence[Todo]: ...

    async def write(self, todos: Sequence[Todo]) -> None:
        """Replace the list, and tell whoever listens."""
        ...


class Choice(Struct, frozen=True):
    """An answer on offer."""

    label: str
    description: str = ""


class Question(Struct, frozen=True, kw_only=True):
    """Something only the user can say."""

    question: str
    header: str
    """A very short name for it."""
    options: tuple[Choice, ...]
    multiple: bool | None = None
    custom: bool | None = None
    """Whether words of the user's own will do; they do unless this is false."""


class Questions(Protocol):
    """The user, to be asked."""

    async def ask(self, questions: Sequence[Question]) -> Sequence[Sequence[str]]:
        """The answers, a list of labels (or own words) for each question, in order; empty where there was none.

        Raises :class:`~opensesh.errors.QuestionRejected` if the user will not answer. Waits for as long as it takes.
        """
        ...


class Subtask(Struct, frozen=True, kw_only=True):
    """Work for another agent."""

    description: str
    prompt: str
    agent: str
    task_id: str | None = None
    """An earlier child session to go on in."""
    command: str | None = None


class Child(Struct, frozen=True, kw_only=True):
    """A child session, ready to run."""

    session_id: str
    model: dict[str, Any]
    """``{"modelID": ..., "providerID": ...}``."""


class Subtasks(Protocol):
    """Other agents, in sessions of their own."""

    async def open(self, task: Subtask) -> Child:
        """The child session: a new one, or the one that ``task_id`` names.

        An agent that does not exist or is not for subtasks, and a subagent of too many subagents, is
        :class:`~opensesh.errors.SubtaskFailedError`.
        """
        ...

    async def run(self, child: Child, task: Subtask) -> str:
        """Run the child until it is done, and answer with its last words.

        A child that does not finish raises :class:`~opensesh.errors.SubtaskFailedError`, which says why. Cancelling
        this
        cancels the child.
        """
        ...


class Skill(Struct, frozen=True, kw_only=True):
    """A set of instructions that the model can load when it needs them."""

    name: str
    description: str
    location: str
    """The path of its ``SKILL.md``."""
    content: str
    """The text below the front matter."""


class Skills(Protocol):
    """The skills that this agent may use."""

    async def all(self) -> Sequence[Skill]: ...


class Instructions(Protocol):
    """Instruction files (``AGENTS.md`` and the like) below the project's own."""

    async def near(self, path: str) -> Sequence[tuple[str, str]]:
        """Path and text of those that concern the file at ``path`` and were not given to the model yet."""
        ...


class Modes(Protocol):
    """Planning, and doing."""

    @property
    def plan(self) -> str:
        """Where the plan of this session is (to be) written."""
        ...

    async def switch(self, agent: str, text: str) -> None:
        """Hand the conversation to ``agent``, with ``text`` as the user message that says so."""
        ...


class Original(Struct, frozen=True, kw_only=True):
    """Something that was said or done and is not in view any more."""

    number: int
    """Of its message, among all of the session, from 1. Several may have the same."""
    speaker: str
    text: str
    """All of it."""
    call_id: str | None = None
    """Of the tool call, if it is the result of one."""
    tool: str = ""


class Past(Protocol):
    """What the session holds beyond what the model sees."""

    async def originals(self) -> Sequence[Original]:
        """What was summed up or pruned, oldest first."""
        ...


class Calls(Protocol):
    """The other tools on offer in this step."""

    @property
    def names(self) -> Sequence[str]: ...

    async def run(self, tool: str, arguments: Mapping[str, Any]) -> ToolOutput:
        """Run one as a call of its own, with a part of its own, and answer as it does.

        Everything a tool may raise comes out of here too, after it was recorded in that part.
        """
        ...
