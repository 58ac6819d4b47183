"""The conformance suite for implementations of :class:`~opensesh.storage.protocol.Store`.

It needs a function that opens an empty store each time it is called::

    @contextmanager
    def opened():
        with tempfile.TemporaryDirectory() as folder:
            yield MyStore(folder)


    store_conformance(opened)

All failures are in one :class:`AssertionError`. For one test a contract, in pytest or elsewhere::

    @pytest.mark.parametrize("contract", contracts_for(), ids=str)
    def test_my_store(contract):
        contract.run(opened)

A read-only store is opened with records in it, and ``read_only_seed`` is all of them, by key. For a store whose records
can be damaged from outside, pass ``damage(store, key, data)``, which replaces the bytes of a record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from . import contracts_capabilities, contracts_damage, contracts_reading, contracts_writing
from .samples import SEED, Subject

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from types import ModuleType

    from ..storage.protocol import Key, Store
    from .samples import Harm

    Make = Callable[[], AbstractContextManager[Store]]

__all__ = ["CONTRACTS", "SEED", "Contract", "contracts_for", "store_conformance"]

Concern = Literal["reading", "refusing", "writing", "damage"]


class Contract(NamedTuple):
    """One promise of a store, and its check."""

    name: str
    """The promise, as a sentence."""
    concern: Concern
    """Which stores it applies to: all, read-only ones, writable ones, or those that can be damaged."""
    check: Callable[[Subject], None]

    def run(self, make: Make, *, read_only_seed: Mapping[Key, Any] | None = None, damage: Harm | None = None) -> None:
        """Open a store and check it; raise :class:`AssertionError` with the reason if it fails."""
        with make() as store:
            if read_only_seed is None:
                for key, value in SEED.items():
                    store.write(key, value)
            try:
                self.check(Subject(store, SEED if read_only_seed is None else read_only_seed, damage))
            except AssertionError as error:
                raise AssertionError(f"{self.name}: {error}") from error
            except Exception as error:
                raise AssertionError(f"{self.name}: unexpected {type(error).__name__}: {error}") from error

    def __str__(self) -> str:
        return self.name


_MODULES: dict[Concern, tuple[ModuleType, ...]] = {
    "reading": (contracts_reading,),
    "writing": (contracts_writing, contracts_capabilities),
    "damage": (contracts_damage,),
}
CONTRACTS: tuple[Contract, ...] = tuple(
    Contract(name.replace("_", " "), "refusing" if check in contracts_reading.REFUSING else concern, check)
    for concern, modules in _MODULES.items()
    for module in modules
    for name, check in vars(module).items()
    # What a module imports is defined elsewhere, and what is not a contract begins with an underscore.
    if getattr(check, "__module__", "") == module.__name__ and not name.startswith("_")
)
"""The contracts for all kinds of stores."""


def contracts_for(*, read_only: bool = False, damageable: bool = False) -> tuple[Contract, ...]:
    """Return the contracts that apply to a store."""
    concerns = ["reading", "refusing"] if read_only else ["reading", "writing", *(["damage"] if damageable else [])]
    return tuple(contract for contract in CONTRACTS if contract.concern in concerns)


def store_conformance(
    make: Make, *, read_only_seed: Mapping[Key, Any] | None = None, damage: Harm | None = None
) -> None:
    """Check every contract that applies to a store, each on a new store.

    ``make`` is a function with :func:`contextlib.contextmanager` that yields an empty store. A read-only store has the
    records ``read_only_seed``, all of them by key. ``damage(store, key, data)`` replaces the bytes of a record, for a
    store whose records can be damaged from outside.
    """
    failures: list[AssertionError] = []
    for contract in contracts_for(read_only=read_only_seed is not None, damageable=damage is not None):
        try:
            contract.run(make, read_only_seed=read_only_seed, damage=damage)
        except AssertionError as error:
            failures.append(error)
    if failures:
        listed = "\n".join(f"- {failure}" for failure in failures)
        raise AssertionError(f"the store breaks {len(failures)} of its promises:\n{listed}") from failures[0]
