"""Tools: what a model can do. One a file, its description in Markdown beside it.

:mod:`.tool` says what a tool is and what holds for all of them; :mod:`.registry` which there are; :mod:`.custom` how to
add one.
"""

from __future__ import annotations

from .filetimes import FileLocks, FileTimes
from .registry import Features, Named, Registry, Surroundings, specify
from .services import (
    Calls,
    Child,
    Choice,
    Instructions,
    Modes,
    Original,
    Past,
    Question,
    Questions,
    Skill,
    Skills,
    Subtask,
    Subtasks,
    Todos,
)
from .tool import BuiltinTool, Context, Tool, ToolOutput, attachment, invoke
from .truncation import Outputs, Preview

__all__ = [
    "BuiltinTool",
    "Calls",
    "Child",
    "Choice",
    "Context",
    "Features",
    "FileLocks",
    "FileTimes",
    "Instructions",
    "Modes",
    "Named",
    "Original",
    "Outputs",
    "Past",
    "Preview",
    "Question",
    "Questions",
    "Registry",
    "Skill",
    "Skills",
    "Subtask",
    "Subtasks",
    "Surroundings",
    "Todos",
    "Tool",
    "ToolOutput",
    "attachment",
    "invoke",
    "specify",
]
