"""Tokens, file diffs and model references, which messages, parts and sessions share."""

from __future__ import annotations

from typing import Literal

from .view import View


class CacheTokens(View, frozen=True, kw_only=True):
    """Tokens that went through the provider's prompt cache."""

    read: int = 0
    write: int = 0


class Tokens(View, frozen=True, kw_only=True):
    """The tokens of a model call, in counts that do not overlap."""

    total: int | None = None
    """The provider's total; absent before OpenCode 1.1.57 and if the provider does not report it."""
    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache: CacheTokens = CacheTokens()


class FileDiff(View, frozen=True, kw_only=True):
    """The change of a file: up to 1.1.65 both texts, later a unified ``patch``."""

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
    """The chosen variant in OpenCode 1.2 and later; before, it is a field of the message."""
