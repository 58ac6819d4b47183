"""A project: one repository, or ``global`` for everything outside of one."""

from __future__ import annotations

from typing import Literal

from .view import Record, View


class ProjectTime(View, frozen=True, kw_only=True):
    """Milliseconds since 1970."""

    created: int = 0
    updated: int | None = None
    initialized: int | None = None


class Icon(View, frozen=True, kw_only=True):
    """How clients draw the project."""

    url: str | None = None
    override: str | None = None
    color: str | None = None


class Commands(View, frozen=True, kw_only=True):
    """Scripts the user set for the project."""

    start: str | None = None


class Project(Record, frozen=True, kw_only=True):
    """``project/<id>``."""

    id: str
    worktree: str = "/"
    """The main checkout; ``/`` outside of version control."""
    vcs: Literal["git"] | None = None
    name: str | None = None
    icon: Icon | None = None
    commands: Commands | None = None
    sandboxes: tuple[str, ...] = ()
    """Other checkouts of the same repository that were used."""
    time: ProjectTime = ProjectTime()
