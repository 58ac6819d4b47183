"""Tools for tests: the store conformance suite and a scripted model.

:func:`store_conformance` checks any implementation of :class:`~opensesh.storage.protocol.Store`. :class:`ScriptedModel`
plays a script instead of calling a provider; :mod:`opensesh.testing.wire` serves scripts over HTTP in the formats of
OpenAI and Anthropic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .scripted import ScriptedModel

if TYPE_CHECKING:
    from .conformance import CONTRACTS, SEED, Contract, contracts_for, store_conformance

__all__ = ["CONTRACTS", "SEED", "Contract", "ScriptedModel", "contracts_for", "store_conformance"]


def __getattr__(name: str) -> Any:
    """Import the conformance suite when it is first used: a run with a scripted model does not need it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import conformance

    return getattr(conformance, name)
