from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from opensesh.testing import Contract, contracts_for

from .opencode_databases import AnyRecords, assert_sound, empty_database

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from opensesh.storage.protocol import Store

OTHERWISE = {
    "removing a record changes no other": "what belongs to a removed record goes with it",
    "a key can be the prefix of others": "OpenCode's kinds of records have keys of one length",
    "other records can be written and removed meanwhile": "it uses such keys",
}
"""Contracts that a database of tables does not keep, and what it does instead."""


@pytest.mark.parametrize("contract", [c for c in contracts_for() if c.name not in OTHERWISE], ids=str)
def test_a_database_that_is_written_keeps_its_promises(contract: Contract, tmp_path: Path) -> None:
    path = empty_database(tmp_path)

    @contextmanager
    def opened() -> Generator[Store]:
        with AnyRecords(path) as store:
            yield store

    contract.run(opened)
    assert_sound(path)


def test_every_contract_that_is_not_kept_exists() -> None:
    assert OTHERWISE.keys() < {contract.name for contract in contracts_for()}
