"""Services of the engine that some tools need beside permission: small protocols, attributes of the tool context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..config import Skill
    from ..records import Todo
    from .tool import ToolOutput


class Todos(Protocol):
    """The session's todo list."""

    async def read(self) -> Sequence[Todo]: ...

    async def write(self, todos: Sequence[Todo]) -> None:
        """Replace the list and publish the change."""
        ...


class QuestionOption(Struct, frozen=True):
    """An answer offered to the user."""

    label: str
    description: str = ""


class UserQuestion(Struct, frozen=True, kw_only=True):
    """A question to the user."""

    question: str
    header: str
    """A very short title."""
    options: tuple[QuestionOption, ...]
    multiple: bool | None = None
    """Whether several options may be chosen."""
    custom: bool | None = None
    """Whether free text is accepted as an answer; it is unless this is false."""


class UserQuestions(Protocol):
    """Asks the user."""

    async def ask(self, questions: Sequence[UserQuestion]) -> Sequence[Sequence[str]]:
        """Return one list of labels (or free text) for each question, in order; empty for an unanswered one.

        Waits without a timeout. Raises :class:`~opensesh.errors.QuestionRejectedError` if the user dismisses it.
        """
        ...


class Subtask(Struct, frozen=True, kw_only=True):
    """Work for a subagent."""

    description: str
    prompt: str
    agent: str
    task_id: str | None = None
    """The id of an earlier child session to continue."""
    command: str | None = None


class ChildSession(Struct, frozen=True, kw_only=True):
    """A child session, ready to run."""

    session_id: str
    model: dict[str, Any]
    """``{"modelID": ..., "providerID": ...}``."""


class Subtasks(Protocol):
    """Runs subagents in sessions of their own."""

    async def open(self, task: Subtask) -> ChildSession:
        """Create the child session, or return the one that ``task_id`` names.

        Raises :class:`~opensesh.errors.SubtaskFailedError` if the agent does not exist or cannot be a subagent, or if
        subagents are nested too deeply.
        """
        ...

    async def run(self, child: ChildSession, task: Subtask) -> str:
        """Run the child session to its end and return its last text.

        Raises :class:`~opensesh.errors.SubtaskFailedError` with the reason if it does not finish. Cancelling this
        cancels the child.
        """
        ...


class Skills(Protocol):
    """The skills that the agent may use."""

    async def all(self) -> Sequence[Skill]: ...


class Instructions(Protocol):
    """Instruction files (``AGENTS.md`` and similar) in subdirectories of the project."""

    async def near(self, path: str) -> Sequence[tuple[str, str]]:
        """Return path and text of the files that apply to ``path`` and that the model has not seen yet."""
        ...


class Modes(Protocol):
    """Plan mode and build mode."""

    @property
    def plan(self) -> str:
        """The path of the session's plan file; it may not exist yet."""
        ...

    async def switch(self, agent: str, text: str) -> None:
        """Continue with ``agent``; ``text`` becomes the user message that announces it."""
        ...


class HiddenMessage(Struct, frozen=True, kw_only=True):
    """A text that compaction or pruning removed from the model's view."""

    number: int
    """The position of its message in the session, from 1. Several texts of one message share it."""
    speaker: str
    text: str
    """The complete text."""
    call_id: str | None = None
    """The id of the tool call, if this is its result."""
    tool: str = ""


class HiddenMessages(Protocol):
    """The part of the session's history that the model does not see."""

    async def all(self) -> Sequence[HiddenMessage]:
        """Return what was compacted or pruned, oldest first."""
        ...


class NestedCalls(Protocol):
    """Calls of other tools from inside a tool."""

    @property
    def names(self) -> Sequence[str]:
        """The tools offered in this step."""
        ...

    async def run(self, tool: str, arguments: Mapping[str, Any]) -> ToolOutput:
        """Run a tool as a call with its own part and return its output.

        Raises what the tool raises, after it was recorded in that part.
        """
        ...
