"""Which model: the catalogue (limits, prices), provider adapters, and the one vocabulary of stream events."""

from __future__ import annotations
