"""The public names of ``opensesh``, which :mod:`opensesh` imports from here when one of them is first used."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Unpack

from . import errors, events, plugins
from .engine.engine import Engine
from .engine.loop import Outcome
from .engine.opening import open_engine as open  # noqa: A004
from .engine.prompt import Prompt, PromptOptions
from .engine.settings import Budget, Settings
from .errors import OpenseshError
from .tools.custom import tool

if TYPE_CHECKING:
    import os


__all__ = [
    "Budget",
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


def run(
    prompt: str | Prompt,
    directory: str | os.PathLike[str] = ".",
    *,
    session_id: str | None = None,
    engine_options: dict[str, Any] | None = None,
    **options: Unpack[PromptOptions],
) -> Outcome:
    """Run a prompt in a new session of ``directory``, or in ``session_id``, and return its outcome when it has ended.

    ``engine_options`` are arguments of :func:`opensesh.open`, ``options`` those of :meth:`opensesh.Engine.run`. Several
    prompts, events and callbacks need :func:`opensesh.open`. Raises :class:`~opensesh.errors.UsageError` where an event
    loop runs, as in a coroutine or a notebook.
    """
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise errors.UsageError(
            "opensesh.run starts an event loop, and one runs here: write 'async with opensesh.open() as engine', and "
            "'await engine.run(...)' in it"
        )

    async def work() -> Outcome:
        async with open(directory, **(engine_options or {})) as engine:
            chosen = session_id or (await engine.create()).id
            return await engine.run(chosen, prompt, **options)

    return asyncio.run(work())
