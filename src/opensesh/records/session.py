"""Sessions, with todos, shares and permission rules; and projects."""

from __future__ import annotations

import re
from typing import Literal

from .usage import FileDiff, Tokens
from .view import Count, Dollars, Milliseconds, Record, View

_STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
_DEFAULT_TITLE = re.compile(f"(New|Child) session - {_STAMP}", re.ASCII)


class SessionTime(View, frozen=True, kw_only=True):
    """Milliseconds since 1970."""

    created: Milliseconds
    updated: Milliseconds = 0
    compacting: Milliseconds | None = None
    archived: Milliseconds | None = None


class Summary(View, frozen=True, kw_only=True):
    """The number of lines and files that the session changed."""

    additions: Count = 0
    deletions: Count = 0
    files: Count = 0
    diffs: tuple[FileDiff, ...] | None = None
    """Only in trees from before 1.0.22; since then in ``session_diff/<id>``."""


class ShareLink(View, frozen=True, kw_only=True):
    """The public link of a shared session."""

    url: str = ""


class Rule(View, frozen=True, kw_only=True):
    """A permission rule; the last one that matches decides."""

    permission: str
    pattern: str
    action: Literal["allow", "deny", "ask"]


class Revert(View, frozen=True, kw_only=True):
    """A revert to before this message or part. The next prompt removes the hidden messages; unrevert restores them."""

    message_id: str
    part_id: str | None = None
    snapshot: str | None = None
    diff: str | None = None


class Session(Record, frozen=True, kw_only=True):
    """``session/<projectID>/<id>``."""

    id: str
    slug: str = ""
    version: str = ""
    """The version of the program that created it."""
    project_id: str = ""
    directory: str = ""
    parent_id: str | None = None
    """The session that started this one as a subagent. Forks have none."""
    title: str = ""
    permission: tuple[Rule, ...] | None = None
    time: SessionTime
    share: ShareLink | None = None
    summary: Summary | None = None
    revert: Revert | None = None
    cost: Dollars | None = None
    """Stored with the session by OpenCode 1.15 and later only."""
    tokens: Tokens | None = None

    @property
    def archived(self) -> bool:
        """Whether it is hidden from lists by default."""
        return self.time.archived is not None

    @property
    def updated(self) -> int:
        """The time of the last activity; the creation time in records without it."""
        return self.time.updated or self.time.created

    @property
    def has_default_title(self) -> bool:
        """Whether it still has the generated title of a new session."""
        return _DEFAULT_TITLE.fullmatch(self.title) is not None


class Todo(View, frozen=True, kw_only=True):
    """An item of the todo list in ``todo/<sessionID>``."""

    content: str
    status: str = "pending"
    """Usually pending, in_progress, completed or cancelled."""
    priority: str = "medium"
    """Usually high, medium or low."""
    id: str | None = None


class Share(Record, frozen=True, kw_only=True):
    """``session_share/<sessionID>``. The secret is needed to remove the share."""

    id: str | None = None
    """Absent in the legacy ``share/<sessionID>``."""
    secret: str = ""
    url: str = ""


class ProjectTime(View, frozen=True, kw_only=True):
    """Milliseconds since 1970."""

    created: Milliseconds = 0
    updated: Milliseconds | None = None
    initialized: Milliseconds | None = None


class Icon(View, frozen=True, kw_only=True):
    """The project's icon in clients."""

    url: str | None = None
    override: str | None = None
    color: str | None = None


class Commands(View, frozen=True, kw_only=True):
    """Scripts of the project."""

    start: str | None = None


class Project(Record, frozen=True, kw_only=True):
    """``project/<id>``: one repository, or ``global`` for everything outside a repository."""

    id: str
    worktree: str = "/"
    """The main checkout; ``/`` outside version control."""
    vcs: Literal["git"] | None = None
    name: str | None = None
    icon: Icon | None = None
    commands: Commands | None = None
    sandboxes: tuple[str, ...] = ()
    """Other checkouts of the same repository."""
    time: ProjectTime = ProjectTime()
