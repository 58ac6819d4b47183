"""Redaction of everything that leaves this machine: exports, shares, logs."""

from __future__ import annotations

from .known_secrets import flags_before, is_secret_setting, known_secrets, without_named
from .redactor import Redactor

__all__ = ["Redactor", "flags_before", "is_secret_setting", "known_secrets", "without_named"]
