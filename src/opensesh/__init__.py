"""OpenCode's session subsystem as a Python library, command line and server."""

from __future__ import annotations

__version__ = "0.1.0"
