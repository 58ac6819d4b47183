"""Tools, prompts and resources of MCP servers that the configuration names.

:mod:`.servers` manages all of them, :mod:`.server` one, :mod:`.transports` connects, :mod:`.conversion` converts their
tools and results, :mod:`.server_trust` keeps a project's servers from starting before the user trusts them. The
official SDK implements the protocol. It is an extra (``opensesh[mcp]``), imported by the task that starts the first
server.
"""

from __future__ import annotations
