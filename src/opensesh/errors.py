"""Everything opensesh raises on purpose.

::

    OpenseshError
     ├─ UsageError             words that make no command
     ├─ InvalidID              an identifier without its prefix, or not an identifier at all
     ├─ InvalidKey             a storage key that must not become a path
     ├─ RecordError            a record that is not what it should be: where, and why
     ├─ ConfigError            a setting that cannot be used: which file, line and column, and why
     ├─ NotFound               nothing stored under that name
     ├─ Ambiguous              a short name that fits several sessions
     ├─ Busy                   someone else is running that session: who
     ├─ Conflict               someone else changed these files since; they were not touched
     ├─ SnapshotError          a snapshot of the files could not be taken, or is no longer there
     ├─ ModelNotFound          no such model, or none that may be used; what comes close
     ├─ ModelError             the model did not answer as it should; says whether to try again
     │   ├─ AuthFailed         no key, or one the provider did not take
     │   ├─ ContextOverflow    more was sent than the model can hold
     │   ├─ RateLimited        too much in too short a time
     │   ├─ Overloaded         the provider is out of breath
     │   ├─ ContentFiltered    the provider withheld the answer
     │   ├─ BudgetExceeded     not sent: as much has been spent as was allowed
     │   └─ ConnectionBroken   the wire, not the provider: refused, reset, timed out, cut off
     ├─ ToolFailed             a tool could not do what it was asked; the model is told why
     │   ├─ SubtaskFailed      another agent did not finish what it was given; says in which way
     │   └─ InvalidArguments   it was asked something that does not fit its schema
     ├─ PermissionRefused      a tool was not allowed to go on
     │   ├─ PermissionDenied     by a rule: the model is told, and goes on without
     │   ├─ PermissionCorrected  by the user, who said what to do instead
     │   └─ PermissionRejected   by the user, who wants the turn to stop
     ├─ ExportFailed           an export cannot be written where it was to go; no store is harmed
     ├─ ShareFailed            a share server could not be reached, or said no; says whether to try again
     ├─ QuestionRejected       the user would not answer, and wants the turn to stop
     └─ StoreError
         ├─ ReadOnlyStore      this store is never written in place
         ├─ WriteFailed        the disk refused: what is stored is as it was
         ├─ StoreTooNew        laid out by a version newer than this one knows
         └─ MigrationFailed    the old layout could not be brought forward; it is as it was

The message of each says what happened, where, and what to do next. ``data`` holds the same facts for machines.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from decimal import Decimal
    from typing import Any


class OpenseshError(Exception):
    """Base of the tree. ``str(error)`` is fit for a person; ``error.data`` for a program."""

    def __init__(self, message: str, **data: Any) -> None:
        super().__init__(message)
        self.message = message
        self.data = data


class UsageError(OpenseshError):
    """Words on the command line that make no command."""


class InvalidID(OpenseshError):
    """An identifier that lacks its prefix, or cannot be decoded."""


class InvalidKey(OpenseshError):
    """A key component that is empty, too long, or could leave the store."""


class RecordError(OpenseshError):
    """A record that cannot be read: torn, foreign, or of the wrong shape."""

    def __init__(self, reason: str, *, path: str = "", place: str = "") -> None:
        where = path or "record"
        at = f" at {place}" if place else ""
        super().__init__(f"{where}{at}: {reason}", path=path, place=place, reason=reason)
        self.path = path
        """The file (or database row) it came from, if any."""
        self.place = place
        """The place inside it: ``$.time.created``, or ``byte 17``."""
        self.reason = reason


class ConfigError(OpenseshError):
    """A setting that cannot be used, and the place where it was made."""

    def __init__(self, reason: str, *, path: str = "", line: int = 0, column: int = 0) -> None:
        where = ":".join(str(step) for step in (path, line, column) if step)
        super().__init__(f"{where}: {reason}" if where else reason, path=path, line=line, column=column, reason=reason)
        self.path = path
        """The file, or the name of the environment variable."""
        self.line = line
        """From 1; 0 where no line can be named."""
        self.column = column
        self.reason = reason


class NotFound(OpenseshError):
    """Nothing is stored under that key, id or name."""


class Ambiguous(OpenseshError):
    """A short session name that more than one session answers to."""

    def __init__(self, name: str, candidates: Sequence[str]) -> None:
        more = f" and {len(candidates) - 5:,} more" if len(candidates) > 5 else ""
        shown = ", ".join(candidates[:5]) + more
        super().__init__(f"{name!r} fits {len(candidates):,} sessions: {shown}. Give more of the id.", name=name)
        self.candidates = list(candidates)


class Busy(OpenseshError):
    """A session that someone else is running."""


class Conflict(OpenseshError):
    """Files that someone else changed since the session did. Nothing has been touched."""

    def __init__(self, message: str, *, files: Sequence[str]) -> None:
        super().__init__(message, files=list(files))
        self.files = list(files)


class SnapshotError(OpenseshError):
    """A snapshot could not be taken, or one that was taken is no longer there."""


class ModelNotFound(OpenseshError):
    """No such model, or one that the configuration rules out. ``suggestions`` come close, best first."""

    def __init__(self, message: str, *, suggestions: Sequence[str] = ()) -> None:
        super().__init__(message, suggestions=list(suggestions))
        self.suggestions = list(suggestions)


class ModelError(OpenseshError):
    """The provider said no, or something nobody could read."""

    retryable = False
    """Whether the same request may well succeed later; an instance may know better than its class."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        body: str | None = None,
        url: str = "",
        retryable: bool | None = None,
    ) -> None:
        super().__init__(message, status=status, url=url)
        self.status = status
        self.headers = dict(headers or {})
        self.body = body
        self.url = url
        if retryable is not None:
            self.retryable = retryable


class AuthFailed(ModelError):
    """No key, or one the provider did not take."""


class ContextOverflow(ModelError):
    """More was sent than the model can hold."""


class RateLimited(ModelError):
    """Too much in too short a time."""

    retryable = True


class Overloaded(ModelError):
    """The provider is out of breath."""

    retryable = True


class ContentFiltered(ModelError):
    """The provider withheld the answer."""


class BudgetExceeded(ModelError):
    """A request that was not sent, because as much has been spent as was allowed, or because nobody can say."""

    def __init__(self, message: str, *, scope: str, spent: Decimal, budget: Decimal) -> None:
        super().__init__(message)
        self.data |= {"scope": scope, "spent": str(spent), "budget": str(budget)}
        self.scope = scope
        """``run``, ``session`` or ``task``."""
        self.spent = spent
        self.budget = budget


class ConnectionBroken(ModelError):
    """The wire, not the provider: refused, reset, timed out, or cut off in the middle."""

    retryable = True


class ToolFailed(OpenseshError):
    """A tool could not do what it was asked. The message is written for the model."""


class SubtaskFailed(ToolFailed):
    """A subagent did not finish. ``state`` says in which way: one of :data:`SUBTASK_STATES`."""

    def __init__(self, message: str, *, state: str, **data: Any) -> None:
        super().__init__(message, state=state, **data)
        self.state = state


SUBTASK_STATES = ("failed", "aborted", "refused", "over budget", "timed out", "too deep", "no such agent")
"""``refused``: the user would not allow something that the subagent wanted to do."""


class InvalidArguments(ToolFailed):
    """A tool call whose arguments do not fit the tool's schema."""


class PermissionRefused(OpenseshError):
    """A tool was not allowed to do what it was about to do. Nothing has been done."""


class PermissionDenied(PermissionRefused):
    """A rule forbids it; ``data["rules"]`` are those that concern the permission."""


class PermissionCorrected(PermissionRefused):
    """The user said no, and what to do instead; the model is told and the turn goes on."""


class PermissionRejected(PermissionRefused):
    """The user said no without a word. The turn ends."""


class QuestionRejected(OpenseshError):
    """The user dismissed a question. The turn ends."""


class ShareFailed(OpenseshError):
    """A share server did not do what it was asked. ``retryable`` says whether it may well do it later."""

    def __init__(
        self, message: str, *, status: int | None = None, retryable: bool = False, wait: float | None = None
    ) -> None:
        super().__init__(message, status=status, retryable=retryable)
        self.status = status
        self.retryable = retryable
        self.wait = wait
        """Seconds, if the server said how long to leave it alone."""

    @property
    def is_gone(self) -> bool:
        """Whether the server holds no such share."""
        return self.status in (404, 410)


class ExportFailed(OpenseshError):
    """An export could not be written where it was to go. The sessions are as they were."""


class StoreError(OpenseshError):
    """The store as a whole, rather than one record in it."""


class ReadOnlyStore(StoreError):
    """A write to a store that is only ever read."""


class WriteFailed(StoreError):
    """The operating system refused a write. What was stored before is still there, whole."""


class StoreTooNew(StoreError):
    """The store's layout is newer than this version of opensesh understands."""


class MigrationFailed(StoreError):
    """A migration stopped. The data is as it was, and the migration can be run again."""
