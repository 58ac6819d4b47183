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

TYPE_CHECKING = False  # importing typing would take longer than the rest of this module
if TYPE_CHECKING:
    from . import bus as bus
    from . import context as context
    from . import engine as engine
    from . import history as history
    from . import ids as ids
    from . import permissions as permissions
    from . import project as project
    from . import records as records
    from . import retry as retry
    from . import sessions as sessions
    from . import storage as storage
    from . import testing as testing
    from . import tools as tools
    from .public import *

__version__ = "0.1.0"

if not TYPE_CHECKING:  # a type checker would take any misspelt name for one that this returns

    def __getattr__(name: str):
        """Import a submodule, or the public names, when they are first used."""
        import sys

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
