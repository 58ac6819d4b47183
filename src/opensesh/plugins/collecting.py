"""From what someone wrote to hooks: a module, a class, an instance, a mapping, or a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ..tools.custom import FunctionTool
from .calling import at_once
from .hooks import ALL, hooks_of, named
from .plugin import Plugin

if TYPE_CHECKING:
    from .host import Host

FACTORY = "plugin"
"""The function of a module that makes a plugin: it is given the :class:`Host`."""


class Found(NamedTuple):
    """A hook, or a tool under the name of its own hook."""

    hook: str
    function: Callable[..., Any] | FunctionTool


def collect(thing: object, host: Host) -> list[Found]:
    """The hooks and tools of ``thing``, in the order in which they are written.

    Raises whatever a constructor or a function that makes a plugin raises, and ``TypeError`` or ``ValueError`` for what
    is no plugin.
    """
    found = list(_collect(thing, host))
    for hook, function in found:
        if ALL[hook].early and inspect.iscoroutinefunction(function):
            raise TypeError(f"the hook {hook} is called while the engine is being opened, so it cannot be async")
    return found


def _collect(thing: object, host: Host) -> Iterator[Found]:
    match thing:
        case ModuleType():
            yield from _module(thing, host)
        case FunctionTool():
            yield Found("tool", thing)
        case Mapping():
            for name, function in cast("Mapping[str, Any]", thing).items():
                if not callable(function):
                    raise TypeError(f"the hook {name!r} is a {type(function).__name__}, not a function")
                yield Found(named(name).name, function)
        case type():
            yield from _instance(_made(thing, host))
        case _ if inspect.isroutine(thing):
            hooks = hooks_of(thing, getattr(thing, "__name__", ""))
            yield from _found(thing, hooks) if hooks else _made_by(thing, host)
        case _:
            yield from _instance(thing)


def _module(module: ModuleType, host: Host) -> Iterator[Found]:
    """What the module itself wrote: what it imported from elsewhere is someone else's."""
    for name, value in list(vars(module).items()):
        if isinstance(value, FunctionTool):
            yield Found("tool", value)
            continue
        home = str(getattr(value, "__module__", None))
        if home != module.__name__ and not home.startswith(f"{module.__name__}."):
            continue
        if inspect.isfunction(value):
            hooks = hooks_of(value, name)
            yield from _made_by(value, host) if name == FACTORY and not hooks else _found(value, hooks)
        elif isinstance(value, type) and issubclass(value, Plugin) and value is not Plugin:
            yield from _instance(_made(value, host))


def _found(function: Callable[..., Any], hooks: Iterable[str]) -> Iterator[Found]:
    return (Found(hook, function) for hook in hooks)


def _made_by(function: Callable[..., Any], host: Host) -> Iterator[Found]:
    made = _made(function, host)
    if made is not None:
        yield from _collect(made, host)


def _instance(thing: object) -> Iterator[Found]:
    found = False
    for hook in ALL.values():
        function = getattr(thing, hook.method, None)
        inherited = getattr(type(thing), hook.method, None) is getattr(Plugin, hook.method)
        if callable(function) and not inherited:
            found = True
            yield Found(hook.name, function)
    if not found and not isinstance(thing, Plugin):
        raise TypeError(f"{thing!r} is no plugin: it has none of the hooks")


def _made(make: Callable[..., Any], host: Host) -> object:
    """What a class or a function makes; it may want the host."""
    wants_host = any(
        parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD, parameter.VAR_POSITIONAL)
        for parameter in inspect.signature(make).parameters.values()
    )
    made: object = make(host) if wants_host else make()
    at_once(made)
    return made
