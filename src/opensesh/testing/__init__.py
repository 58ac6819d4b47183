"""For those who test against opensesh: the store conformance suite, disks that fail, processes that die.

:func:`store_conformance` examines any :class:`~opensesh.storage.protocol.Store`. :func:`sweep` lets a process die at
every operation of a scenario; :class:`CrashingDisk` and :class:`FullDisk` are the disks for it, and
:class:`Nursery` starts and kills processes. The names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .conformance import CONTRACTS, SEED, Contract, contracts_for, store_conformance
    from .crash import CRASHED, CrashingDisk, FullDisk, Sweep, sweep
    from .processes import Child, Fate, Nursery

__all__ = [
    "CONTRACTS",
    "CRASHED",
    "SEED",
    "Child",
    "Contract",
    "CrashingDisk",
    "Fate",
    "FullDisk",
    "Nursery",
    "Sweep",
    "contracts_for",
    "store_conformance",
    "sweep",
]

_HOMES = {
    "conformance": ("CONTRACTS", "SEED", "Contract", "contracts_for", "store_conformance"),
    "crash": ("CRASHED", "CrashingDisk", "FullDisk", "Sweep", "sweep"),
    "processes": ("Child", "Fate", "Nursery"),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f".{home}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
