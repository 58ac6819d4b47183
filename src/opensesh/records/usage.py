"""Tokens, and what was changed: the small shapes that messages, parts and sessions share."""

from __future__ import annotations

from typing import Literal

from .view import View


class CacheTokens(View, frozen=True, kw_only=True):
    """Tokens that went through the provider's prompt cache."""

    read: int = 0
    write: int = 0


class Tokens(View, frozen=True, kw_only=True):
    """What a model call used, in buckets that do not overlap."""

    total: int | None = None
    """As the provider counted it; absent before OpenCode 1.1.57 and where the provider does not say."""
    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache: CacheTokens = CacheTokens()


class FileDiff(View, frozen=True, kw_only=True):
    """One file's change. Up to 1.1.65 both texts in full; later a unified ``patch`` instead."""

    file: str = ""
    before: str | None = None
    after: str | None = None
    patch: str | None = None
    additions: int = 0
    deletions: int = 0
    status: Literal["added", "deleted", "modified"] | None = None


class ModelRef(View, frozen=True, kw_only=True):
    """Which model of which provider."""

    provider_id: str = ""
    model_id: str = ""
    variant: str | None = None
    """Where OpenCode 1.2 and later keep the chosen effort; before, it stands on the message."""
