"""Tools for tests: the store conformance suite and a scripted model.

:func:`store_conformance` checks any implementation of :class:`~opensesh.storage.protocol.Store`. :class:`ScriptedModel`
plays a script instead of calling a provider; :mod:`opensesh.testing.wire` serves scripts over HTTP in the formats of
OpenAI and Anthropic.
"""

from __future__ import annotations

from .conformance import CONTRACTS, SEED, Contract, contracts_for, store_conformance
from .scripted import ScriptedModel

__all__ = ["CONTRACTS", "SEED", "Contract", "ScriptedModel", "contracts_for", "store_conformance"]
