"""Tools of MCP servers: programs and services outside, named in the configuration, that offer tools, prompts and
resources.

:mod:`.servers` is all of them, :mod:`.server` one, :mod:`.wires` the ways to reach one, :mod:`.answers` what their
answers become here. The official SDK does the talking. It is an extra (``opensesh[mcp]``), and is imported by the task
that starts the first server.
"""

from __future__ import annotations
