"""Tools that a model can call: one tool a module, its description in a Markdown file beside it.

:mod:`.tool` defines what a tool is and the rules for all of them, :mod:`.tool_registry` lists the built-in ones,
:mod:`.custom` makes tools of functions.
"""

from __future__ import annotations

from .tool import Context, Tool, ToolOutput, attachment

__all__ = ["Context", "Tool", "ToolOutput", "attachment"]
