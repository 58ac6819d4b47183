"""Redaction of everything that leaves this machine: exports, shares, logs."""

from __future__ import annotations

from .known_secrets import known_secrets
from .redactor import Redactor

__all__ = ["Redactor", "known_secrets"]
