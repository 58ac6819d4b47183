"""The command line: one command a file, each importing only what it needs."""

from __future__ import annotations
