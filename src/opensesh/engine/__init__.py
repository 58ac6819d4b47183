"""Running sessions: from a prompt to its outcome. :func:`opensesh.open` is the way in."""

from __future__ import annotations
