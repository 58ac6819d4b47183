"""The public names of ``opensesh``, which :mod:`opensesh` imports from here when one of them is first used."""

from __future__ import annotations

from . import errors, events, plugins
from .engine.engine import Engine
from .engine.loop import Outcome
from .engine.opening import open_engine as open  # noqa: A004
from .engine.prompt import Prompt
from .engine.settings import Settings
from .errors import OpenseshError
from .synchronous import run
from .tools.custom import tool

__all__ = [
    "Engine",
    "OpenseshError",
    "Outcome",
    "Prompt",
    "Settings",
    "errors",
    "events",
    "open",
    "plugins",
    "run",
    "tool",
]
