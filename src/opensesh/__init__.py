"""OpenCode's session subsystem as a Python library and command line.

::

    import asyncio, opensesh


    async def main():
        async with opensesh.open(directory=".") as engine:
            session = await engine.create(title="Fix the parser")
            async for event in engine.prompt(session.id, "Why does test_parse fail?"):
                print(event)


    asyncio.run(main())

Nothing is imported before it is used. ``opensesh.history`` reads sessions without loading an engine.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

_NAMES = {
    "open": ("engine.engine", "open_engine"),
    "Engine": ("engine.engine", "Engine"),
    "Outcome": ("engine.loop", "Outcome"),
    "Prompt": ("engine.prompt", "Prompt"),
    "Settings": ("engine.components", "Settings"),
    "tool": ("tools.custom", "tool"),
    "OpenseshError": ("errors", "OpenseshError"),
    "plugins": ("plugins", ""),
    "errors": ("errors", ""),
    "events": ("events", ""),
}
"""The public names, the modules they live in, and what they are called there; a module itself has no name."""


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place, own = _NAMES[name]
    # Not by importlib, which takes longer to load than most of these.
    module = __import__(f"{__name__}.{place}", fromlist=["__doc__"])
    found = getattr(module, own) if own else module
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
