"""Opening an engine: :func:`open_engine`, which is ``opensesh.open``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .. import project
from ..bus import Bus
from ..errors import UsageError
from ..sessions import Sessions
from ..sessions.settling import settle
from ..storage import open_store
from ..tools.tool import missing_attributes
from .engine import Engine
from .settings import EngineOptions, Settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..config import Config
    from ..models.request import Provider
    from ..plugins import Pluggable
    from ..records import Document
    from ..storage.protocol import Store
    from ..tools.tool import Tool
    from .components import Components, RunPrompt
    from .user_requests import PermissionCallback


def open_engine(  # noqa: PLR0913 - the public constructor; each argument is a name that a caller may pass
    directory: str | os.PathLike[str] = ".",
    *,
    store: Store | str | os.PathLike[str] | None = None,
    config: Config | Document | None = None,
    settings: Settings | None = None,
    tools: Sequence[Tool] = (),
    scripts: Mapping[str, Provider] | None = None,
    permission: PermissionCallback | None = None,
    plugins: Sequence[Pluggable] = (),
    bus: Bus | None = None,
    sessions: Sessions | None = None,
) -> Engine:
    """Return an engine for the sessions of a directory, to be entered with ``async with``.

    ``config`` is a document like an ``opencode.json``, merged over the configuration of the directory, or all of the
    configuration, from ``opensesh.config.load``.

    ``tools`` are added to the built-in ones, and ``plugins`` come after those that are found. ``permission`` answers
    permission requests: a function, async or not, that is given the request and returns ``"once"``, ``"always"`` or
    ``"reject"``, or raises :class:`~opensesh.errors.PermissionCorrectedError` with what to do instead. Without it a
    request waits, as an event on the bus, for :meth:`Engine.reply_permission`, and a warning is logged after a while.

    ``bus`` is for a caller that has several engines and wants their events in one place. ``sessions`` is a session
    service to use instead of one on ``store``; its location is then that of the engine.

    Nothing is read before the engine is entered, and nothing is written to the store before a session is created or a
    prompt is stored, unless a process that was killed has left something to complete or to undo.
    """
    _check_types(store, config, settings, scripts)
    if permission is not None and not callable(permission):
        raise UsageError(f"permission is a function that returns 'once', 'always' or 'reject', not {permission!r}")
    for tool in tools:
        if missing := missing_attributes(tool):
            name = getattr(tool, "__name__", repr(tool))
            hint = "@opensesh.tool makes a tool of a function"
            raise UsageError(f"{name} is not a tool, since it has no {', '.join(missing)}; {hint}")
    events = Bus(keep=16_384) if bus is None else bus

    def build(run: RunPrompt) -> Components:
        from .components import Components  # loads most of the engine, in the thread that opens it

        service = sessions
        if service is None:
            if not os.path.isdir(directory) and not (settings or Settings()).opencode_events:
                raise UsageError(f"there is no directory {os.path.abspath(directory)}")
            opened = settle(open_store(store) if store is None or isinstance(store, str | os.PathLike) else store)
            service = Sessions(opened, project.resolve(directory, store=opened), bus=events)
        options = EngineOptions(settings or Settings(), config, scripts, tuple(tools), tuple(plugins))
        return Components(service, events, run, options)

    return Engine(build, events, permission=permission)


def _check_types(store: object, config: object, settings: object, scripts: Mapping[str, object] | None) -> None:
    """Raise :class:`~opensesh.errors.UsageError` for a value of another type than is declared."""
    is_models = hasattr(scripts, "items") and all(hasattr(model, "stream") for model in (scripts or {}).values())
    checks: tuple[tuple[object, bool, str], ...] = (
        (store, isinstance(store, str | os.PathLike) or hasattr(store, "place"), "store is a path, a URL or a store"),
        (config, hasattr(config, "flags") or isinstance(config, dict), 'config is an object like {"agent": {...}}'),
        (settings, isinstance(settings, Settings), "settings is an opensesh.Settings"),
        (scripts, is_models, 'scripts is a dictionary such as {"test": ScriptedModel("SAY Hello.")}'),
    )
    for value, is_valid, expected in checks:
        if value is not None and not is_valid:
            raise UsageError(f"{expected}; this is a value of type {type(value).__name__}")
