"""The pages, in the order of their addresses' precedence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import (
    changes_page,
    context_page,
    costs_page,
    doctor_page,
    entry_page,
    live_page,
    projects_page,
    search_page,
    session_page,
    sessions_page,
    settings_page,
)

if TYPE_CHECKING:
    from ..operations import Operation

_MODULES = (
    entry_page,
    sessions_page,
    search_page,
    session_page,
    changes_page,
    context_page,
    live_page,
    projects_page,
    costs_page,
    doctor_page,
    settings_page,
)


def all_pages() -> list[Operation]:
    """Return every page and fragment."""
    return [operation for module in _MODULES for operation in module.pages.operations]
