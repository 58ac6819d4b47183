"""Redaction of everything that leaves this machine: exports, shares, logs."""

from __future__ import annotations

from .known_secrets import is_secret_setting, known_secrets
from .redactor import Redactor

__all__ = ["Redactor", "is_secret_setting", "known_secrets"]
