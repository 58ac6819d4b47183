"""Settings of an engine for Python callers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import Struct, field

from ..errors import UsageError
from ..flags import Flags
from ..retry import RetryPolicy
from .user_requests import QuestionCallback

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..config import Config
    from ..models.request import Provider
    from ..plugins import Pluggable
    from ..records import Document
    from ..tools.tool import Tool


class LoopLimits(Struct, frozen=True, kw_only=True):
    """Thresholds for doom-loop detection."""

    same: int = 3
    """Identical calls in a row."""
    pairs: int = 3
    """Rounds of two alternating calls."""
    errors: int = 3
    """Identical errors of one tool in a row."""


class Budget(Struct, frozen=True, kw_only=True):
    """What may be spent. ``None`` means unlimited."""

    run: Decimal | None = None
    """By one run: from a prompt to its outcome, with the subagents it starts."""
    session: Decimal | None = None
    """By a session with its subagents, over its whole life."""
    task: Decimal | None = None
    """By one subagent, each time it is given a task."""
    unpriced: Literal["refuse", "warn"] = "refuse"
    """What to do about a model whose price is not known, so that the budget cannot be enforced."""

    def __post_init__(self) -> None:
        """Refuse amounts that are not exact."""
        for name in ("run", "session", "task"):
            amount: object = getattr(self, name)
            if amount is not None and not isinstance(amount, Decimal):
                raise UsageError(f'{name} of a budget is a Decimal, such as Decimal("0.50"), not {amount!r}')

    @property
    def is_set(self) -> bool:
        """Whether there is any limit."""
        return (self.run, self.session, self.task) != (None, None, None)


class Settings(Struct, frozen=True, kw_only=True):
    """Settings of an engine for Python callers, beside the configuration."""

    retry: RetryPolicy = RetryPolicy()
    repetition: LoopLimits = LoopLimits()
    owner: str = "opensesh"
    """Name of the runner in the lease of a session."""
    interactive: bool = True
    """Whether a user can answer questions."""
    question: QuestionCallback | None = None
    """Answers questions of models; without it they wait for :meth:`~opensesh.Engine.reply_question`."""
    budget: Budget | None = None
    """Limits of cost; without it, that of the environment variable ``OPENSESH_BUDGET``."""
    task_seconds: float | None = 3600.0
    """How long a subagent may work on a task, without the time that requests wait for the user. The task can be
    continued later."""
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    """Waits before a model call is retried, given seconds."""
    find_plugins: bool = True
    """Whether plugins are looked for, besides those that are passed."""
    snapshot_timeout_seconds: float = 60.0
    """How long tools wait for the snapshot before a step; the first of a large project can take minutes."""
    snapshot_start_seconds: float = 0.0
    """How long the record of a step's start waits for that snapshot; it is added later otherwise."""
    title_timeout_seconds: float = 5.0
    """How long closing waits for titles that are being written."""
    lease_timeout_seconds: float = 5.0
    """How long to wait for the lease of a runner that has died."""
    other_program_timeout_seconds: float = 10.0
    """How long to wait for another program, such as OpenCode, that is running the session."""
    ignore_other_programs: bool = field(default_factory=lambda: Flags().on("IGNORE_OTHER_PROGRAMS"))
    """Whether to run sessions that another program seems to be running; by default as the environment variable
    ``OPENSESH_IGNORE_OTHER_PROGRAMS`` says."""
    follow_other_programs: bool = True
    """Whether to publish what other programs, such as OpenCode, write into the store."""
    plugin_timeout_seconds: float = 5.0
    """How long closing waits for plugins."""
    opencode_events: bool = False
    """Whether clients of OpenCode follow the events, and expect what it publishes: no provisional title, the status
    with every step, after a failed model call and with an abort, the list of changed files with every prompt, summaries
    of compactions without anything that the model did not write, the finish of the model where no step follows,
    reminders and retries without parts, the disabled tools of subagents, interrupted texts without an end, and a prompt
    after the subtask of a command. They also read the sessions of directories that do not exist any more."""
    unanswered_warning_seconds: float | None = 10.0
    """When a request that no callback answers is logged; ``None`` if clients of the engine answer requests."""

    def __post_init__(self) -> None:
        """Refuse a budget that is a number."""
        if self.budget is not None and not isinstance(self.budget, Budget):
            raise UsageError('budget is an opensesh.Budget(run=Decimal("0.50"))')


class EngineOptions(NamedTuple):
    """The arguments of :func:`~opensesh.engine.opening.open_engine` that services are built from."""

    settings: Settings = Settings()
    config: Config | Document | None = None
    scripts: Mapping[str, Provider] | None = None
    tools: tuple[Tool, ...] = ()
    plugins: tuple[Pluggable, ...] = ()
