"""A session and what is kept beside it: todos, its share, its permission rules."""

from __future__ import annotations

import re
from typing import Literal

from .usage import FileDiff, Tokens
from .view import Record, View

_STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
_DEFAULT_TITLE = re.compile(f"(New|Child) session - {_STAMP}", re.ASCII)


class SessionTime(View, frozen=True, kw_only=True):
    """Milliseconds since 1970."""

    created: int
    updated: int = 0
    compacting: int | None = None
    archived: int | None = None


class Summary(View, frozen=True, kw_only=True):
    """How many lines and files the session changed."""

    additions: int = 0
    deletions: int = 0
    files: int = 0
    diffs: tuple[FileDiff, ...] | None = None
    """Only in trees from before 1.0.22; since then in ``session_diff/<id>``."""


class ShareLink(View, frozen=True, kw_only=True):
    """Where the session can be read by others."""

    url: str = ""


class Rule(View, frozen=True, kw_only=True):
    """One permission rule; the last that matches decides."""

    permission: str
    pattern: str
    action: Literal["allow", "deny", "ask"]


class Revert(View, frozen=True, kw_only=True):
    """The session is shown as it was before this message (or part); the rest waits to be dropped or brought back."""

    message_id: str
    part_id: str | None = None
    snapshot: str | None = None
    diff: str | None = None


class Session(Record, frozen=True, kw_only=True):
    """``session/<projectID>/<id>``."""

    id: str
    slug: str = ""
    version: str = ""
    """Of the program that created it."""
    project_id: str = ""
    directory: str = ""
    parent_id: str | None = None
    """The session whose subagent this is. Forks have none."""
    title: str = ""
    permission: tuple[Rule, ...] | None = None
    time: SessionTime
    share: ShareLink | None = None
    summary: Summary | None = None
    revert: Revert | None = None
    cost: float | None = None
    """Stored on the session since the database era only."""
    tokens: Tokens | None = None

    @property
    def archived(self) -> bool:
        """Put away: hidden from lists unless asked for."""
        return self.time.archived is not None

    @property
    def updated(self) -> int:
        """When it was last touched; the creation time in records too old to say."""
        return self.time.updated or self.time.created

    @property
    def has_default_title(self) -> bool:
        """Whether nobody, person or model, has named it yet."""
        return _DEFAULT_TITLE.fullmatch(self.title) is not None


class Todo(View, frozen=True, kw_only=True):
    """One line of the agent's list, as kept in ``todo/<sessionID>``."""

    content: str
    status: str = "pending"
    """pending, in_progress, completed or cancelled, by custom rather than by rule."""
    priority: str = "medium"
    """high, medium or low, likewise."""
    id: str | None = None


class Share(Record, frozen=True, kw_only=True):
    """``session_share/<sessionID>``; the secret is what can take the share back."""

    id: str | None = None
    """Absent in the legacy ``share/<sessionID>``."""
    secret: str = ""
    url: str = ""
