"""Tokens, file diffs and model references, which messages, parts and sessions share."""

from __future__ import annotations

from typing import Literal

from .view import Count, View


class CacheTokens(View, frozen=True, kw_only=True):
    """Tokens that went through the provider's prompt cache."""

    read: Count = 0
    write: Count = 0


class Tokens(View, frozen=True, kw_only=True):
    """The tokens of a model call, in counts that do not overlap."""

    total: Count | None = None
    """The provider's total; absent before OpenCode 1.1.57 and if the provider does not report it."""
    input: Count = 0
    output: Count = 0
    reasoning: Count = 0
    cache: CacheTokens = CacheTokens()


class FileDiff(View, frozen=True, kw_only=True):
    """How a file changed. OpenCode up to 1.1.65 stores both texts, later versions a unified ``patch``."""

    file: str = ""
    before: str | None = None
    after: str | None = None
    patch: str | None = None
    additions: Count = 0
    deletions: Count = 0
    status: Literal["added", "deleted", "modified"] | None = None


class ModelRef(View, frozen=True, kw_only=True):
    """A model, by its provider and its own id."""

    provider_id: str = ""
    model_id: str = ""
    variant: str | None = None
    """The chosen variant in OpenCode 1.2 and later; before, it is a field of the message."""
