"""The exceptions that opensesh raises on purpose.

::

    OpenseshError
     ├─ UsageError                 invalid command-line usage, or an invalid argument of the Python API
     ├─ InvalidIDError             an identifier without its prefix, or not an identifier at all
     ├─ InvalidKeyError            a storage key that must not become a path
     ├─ RecordError                a record that cannot be read: which one, where in it, and why
     ├─ ConfigError                an unusable setting: which file, line and column, and why
     ├─ NotFoundError              no record, session or name like that
     ├─ AmbiguousError             a short name that matches several sessions
     ├─ BusyError                  another process is running that session: which one
     ├─ RevertConflictError        these files changed since the session wrote them; they were left alone
     ├─ PreviewChangedError        the session or its files changed after the preview that a user confirmed
     ├─ SnapshotError              a snapshot of the files could not be taken, or was deleted
     ├─ ModelNotFoundError         unknown or disabled model; similar names are suggested
     ├─ ModelError                 the request to the model failed; ``retryable`` tells whether to try again
     │   ├─ AuthFailedError        missing or rejected API key
     │   ├─ ContextExceededError   the request is longer than the model's context window
     │   ├─ RateLimitedError       too many requests
     │   ├─ OverloadedError        the provider is overloaded (HTTP 503/529)
     │   ├─ ContentFilteredError   the provider withheld the answer
     │   ├─ OverBudgetError        the budget does not pay the request or was exceeded, or the price is unknown
     │   └─ ModelConnectionError   the connection was refused, reset, timed out or cut off
     ├─ ToolFailedError            a tool could not do its work; the message is for the model
     │   ├─ SubtaskFailedError     a subagent did not finish; ``state`` says why
     │   └─ InvalidArgumentsError  the arguments of a tool call do not match its schema
     ├─ PermissionRefusedError     a tool call was not allowed
     │   ├─ PermissionDeniedError     by a rule; the turn continues
     │   ├─ PermissionCorrectedError  by the user, with instructions; the turn continues
     │   └─ PermissionRejectedError   by the user; the turn ends
     ├─ PluginError                a plugin failed where it may restrict what sessions do
     ├─ ProviderLoginError         a login to a provider failed; ``reason`` is OpenCode's name for why
     ├─ QuestionRejectedError      the user dismissed a question; the turn ends
     ├─ ExportError                an export could not be written; the sessions are unchanged
     ├─ ShareError                 the share server failed or refused; ``retryable`` tells whether to try again
     └─ StoreError
         ├─ ReadOnlyStoreError     this store is never written in place
         ├─ WriteError             the operating system refused a write; the stored record is unchanged
         ├─ StoreTooNewError       the layout is newer than this version of opensesh knows
         └─ MigrationError         a migration stopped; the data is unchanged

Each message says what happened, where, and what to do next. ``data`` holds the same facts for programs.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from decimal import Decimal
    from typing import Any


class OpenseshError(Exception):
    """Base class. ``str(error)`` is for people, ``error.data`` for programs."""

    json_name = "OpenseshError"
    """The name in JSON output. It does not change when the class is renamed."""

    def __init_subclass__(cls, *, json_name: str | None = None) -> None:
        cls.json_name = json_name or cls.__name__

    def __init__(self, message: str, **data: Any) -> None:
        super().__init__(message)
        self.message = message
        self.data = data


class UsageError(OpenseshError):
    """Invalid command-line usage, or an invalid argument of the Python API."""


class InvalidIDError(OpenseshError, json_name="InvalidID"):
    """An identifier that lacks its prefix, or cannot be decoded."""


class InvalidKeyError(OpenseshError, json_name="InvalidKey"):
    """A key component that is empty, too long, or would escape the store."""


class RecordError(OpenseshError):
    """A record that cannot be read: truncated, not JSON, or of the wrong shape."""

    def __init__(self, reason: str, *, path: str = "", place: str = "") -> None:
        where = path or "record"
        at = f" at {place}" if place else ""
        super().__init__(f"{where}{at}: {reason}", path=path, place=place, reason=reason)
        self.path = path
        """The file (or database row) it came from, if any."""
        self.place = place
        """The position inside it: ``$.time.created``, or ``byte 17``."""
        self.reason = reason

    @property
    def detail(self) -> str:
        """The position, if it is known, and the reason, for messages that name the record themselves."""
        return f"{self.place}: {self.reason}" if self.place else self.reason


class ConfigError(OpenseshError):
    """A setting that cannot be used, and the file and line that set it."""

    def __init__(self, reason: str, *, path: str = "", line: int = 0, column: int = 0) -> None:
        where = ":".join(str(step) for step in (path, line, column) if step)
        super().__init__(f"{where}: {reason}" if where else reason, path=path, line=line, column=column, reason=reason)
        self.path = path
        """The file, or the name of the environment variable."""
        self.line = line
        """From 1; 0 where no line can be named."""
        self.column = column
        self.reason = reason


class NotFoundError(OpenseshError, json_name="NotFound"):
    """Nothing is stored under that key, id or name."""


class AmbiguousError(OpenseshError, json_name="Ambiguous"):
    """A short session name that matches more than one session. ``candidates`` are their ids and titles, best first."""

    def __init__(self, name: str, candidates: Mapping[str, str]) -> None:
        shown = [f"  {identifier}  {' '.join(title.split())[:60]}".rstrip() for identifier, title in candidates.items()]
        more = [f"  and {len(shown) - 5:,} more"] if len(shown) > 5 else []
        head = f"{name!r} fits {len(shown):,} sessions; give more of the id:"
        super().__init__("\n".join([head, *shown[:5], *more]), name=name)
        self.candidates = list(candidates)


class BusyError(OpenseshError, json_name="Busy"):
    """The session is being run by another process."""


class RevertConflictError(OpenseshError, json_name="Conflict"):
    """Files that were changed after the session wrote them. Nothing has been reverted."""

    def __init__(self, message: str, *, files: Sequence[str]) -> None:
        super().__init__(message, files=list(files))
        self.files = list(files)


class PreviewChangedError(OpenseshError, json_name="PreviewChanged"):
    """A revert would do something else than the preview that the user confirmed. Nothing has been reverted."""


class SnapshotError(OpenseshError):
    """A snapshot could not be taken, or one that was taken was deleted."""


class ModelNotFoundError(OpenseshError, json_name="ModelNotFound"):
    """Unknown model, or one that the configuration disables. ``suggestions`` are similar names, best first."""

    def __init__(self, message: str, *, suggestions: Sequence[str] = ()) -> None:
        super().__init__(message, suggestions=list(suggestions))
        self.suggestions = list(suggestions)


class ModelError(OpenseshError):
    """The provider refused the request, or sent an answer that could not be read."""

    retryable = False
    """Whether the same request may succeed later; an instance can override its class."""

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


class AuthFailedError(ModelError, json_name="AuthFailed"):
    """Missing API key, or one that the provider rejected."""


class ContextExceededError(ModelError, json_name="ContextOverflow"):
    """The request is longer than the model's context window."""


class RateLimitedError(ModelError, json_name="RateLimited"):
    """Too many requests (HTTP 429)."""

    retryable = True


class OverloadedError(ModelError, json_name="Overloaded"):
    """The provider is overloaded (HTTP 503/529)."""

    retryable = True


class ContentFilteredError(ModelError, json_name="ContentFiltered"):
    """The provider withheld the answer."""


class OverBudgetError(ModelError, json_name="BudgetExceeded"):
    """The request was not sent: the budget does not pay it, or the model's price is unknown. Or the budget was exceeded
    by a request that cost more than estimated, or cut its answer off."""

    def __init__(self, message: str, *, scope: str, spent: Decimal, budget: Decimal) -> None:
        super().__init__(message)
        self.data |= {"scope": scope, "spent": str(spent), "budget": str(budget)}
        self.scope = scope
        """``run``, ``session`` or ``task``."""
        self.spent = spent
        self.budget = budget


class ModelConnectionError(ModelError, json_name="ConnectionBroken"):
    """The connection was refused, reset, timed out, or cut off while streaming."""

    retryable = True


class ToolFailedError(OpenseshError, json_name="ToolFailed"):
    """A tool could not do its work. The message is written for the model."""


class SubtaskFailedError(ToolFailedError, json_name="SubtaskFailed"):
    """A subagent did not finish. ``state`` says in which way: one of :data:`SUBTASK_STATES`."""

    def __init__(self, message: str, *, state: str, **data: Any) -> None:
        super().__init__(message, state=state, **data)
        self.state = state


SUBTASK_STATES = ("failed", "aborted", "refused", "over budget", "timed out", "too deep", "no such agent")
"""``refused``: the user rejected a permission request of the subagent."""


class InvalidArgumentsError(ToolFailedError, json_name="InvalidArguments"):
    """The arguments of a tool call do not match the tool's schema."""


class PermissionRefusedError(OpenseshError, json_name="PermissionRefused"):
    """A tool call was not allowed. It has not been executed."""


class PermissionDeniedError(PermissionRefusedError, json_name="PermissionDenied"):
    """Denied by a rule; ``data["rules"]`` are the rules of that permission."""


class PermissionCorrectedError(PermissionRefusedError, json_name="PermissionCorrected"):
    """Rejected by the user with instructions. The model receives them and the turn continues."""


class PermissionRejectedError(PermissionRefusedError, json_name="PermissionRejected"):
    """Rejected by the user without instructions. The turn ends."""


class PluginError(OpenseshError, json_name="PluginError"):
    """A plugin failed in a hook with which it may restrict what sessions do, so no session is run without it."""


class ProviderLoginError(OpenseshError, json_name="ProviderLogin"):
    """A login to a provider failed. ``reason`` is OpenCode's name for why."""

    def __init__(self, message: str, *, reason: str, provider_id: str) -> None:
        super().__init__(message, reason=reason, provider_id=provider_id)
        self.reason = reason
        self.provider_id = provider_id


class QuestionRejectedError(OpenseshError, json_name="QuestionRejected"):
    """The user dismissed a question. The turn ends."""


class ShareError(OpenseshError, json_name="ShareFailed"):
    """The share server failed or refused. ``retryable`` tells whether to try again later."""

    def __init__(
        self, message: str, *, status: int | None = None, retryable: bool = False, wait: float | None = None
    ) -> None:
        super().__init__(message, status=status, retryable=retryable)
        self.status = status
        self.retryable = retryable
        self.wait = wait
        """Seconds from the server's Retry-After header, if it sent one."""

    @property
    def is_gone(self) -> bool:
        """Whether the server has no such share."""
        return self.status in (404, 410)


class ExportError(OpenseshError, json_name="ExportFailed"):
    """An export could not be written. The sessions are unchanged."""


class StoreError(OpenseshError):
    """A failure of the store as a whole, not of one record."""


class ReadOnlyStoreError(StoreError, json_name="ReadOnlyStore"):
    """A write to a read-only store."""


class WriteError(StoreError, json_name="WriteFailed"):
    """The operating system refused a write. The record is unchanged."""


class StoreTooNewError(StoreError, json_name="StoreTooNew"):
    """The store's layout is newer than this version of opensesh knows."""


class MigrationError(StoreError, json_name="MigrationFailed"):
    """A migration stopped. The data is unchanged, and the migration can be run again."""
