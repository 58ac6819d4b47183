"""The history: list, read, search, count, export, import and check all sessions.

::

    import opensesh

    for session in opensesh.history.open().sessions(project="eastore"):
        print(session.title, session.cost)

Only :func:`import_sessions` and :func:`repair` write to a store.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .facade import diagnose, export, import_sessions, open, repair, statistics  # noqa: A004

__all__ = ["diagnose", "export", "import_sessions", "open", "repair", "statistics"]

if not TYPE_CHECKING:  # a type checker would take any misspelt name for one that this returns

    def __getattr__(name: str):
        """Import the functions when one of them is first used: commands import only the modules that they need."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from . import facade

        return getattr(facade, name)
