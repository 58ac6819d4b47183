"""Stores of session records: :func:`open_store` opens one, :mod:`opensesh.storage.protocol` is their contract."""

from __future__ import annotations

from .locations import find_stores
from .protocol import Damage, Key, Store, StoredMessage, log_damage
from .registry import open_store, open_tree

__all__ = ["Damage", "Key", "Store", "StoredMessage", "find_stores", "log_damage", "open_store", "open_tree"]
