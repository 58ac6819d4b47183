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

import sys

TYPE_CHECKING = False  # importing typing would take longer than the rest of this module
if TYPE_CHECKING:
    from typing import Any

    from .public import *

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import a submodule, or the public names, when they are first used."""
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        __import__(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{name}":
            raise
    else:
        return sys.modules[f"{__name__}.{name}"]  # globals() has it only when its import is complete
    from . import public

    if name not in public.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals().update({exported: getattr(public, exported) for exported in public.__all__})
    return globals()[name]


def __dir__() -> list[str]:
    from . import public

    return sorted({*globals(), *public.__all__})
