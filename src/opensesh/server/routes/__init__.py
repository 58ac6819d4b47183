"""The operations of the API, one module a subject."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import (
    config_routes,
    event_routes,
    file_routes,
    history_live_routes,
    history_routes,
    maintenance_routes,
    mcp_routes,
    message_routes,
    newer_routes,
    project_routes,
    provider_routes,
    pty_routes,
    request_routes,
    search_routes,
    session_list_routes,
    session_routes,
    statistics_routes,
    system_routes,
    tui_routes,
    worktree_routes,
)

if TYPE_CHECKING:
    from ..operations import Operation

_MODULES = (
    system_routes,
    event_routes,
    project_routes,
    config_routes,
    provider_routes,
    session_routes,
    message_routes,
    request_routes,
    file_routes,
    mcp_routes,
    pty_routes,
    tui_routes,
    worktree_routes,
    newer_routes,
    session_list_routes,
    search_routes,
    history_routes,
    history_live_routes,
    statistics_routes,
    maintenance_routes,
)


def all_operations() -> list[Operation]:
    """Return every operation of the API."""
    return [operation for module in _MODULES for operation in module.routes.operations]
