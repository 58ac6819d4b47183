"""Tools that a model can call: one tool a module, its description in a Markdown file beside it.

:mod:`.tool` defines what a tool is and the rules for all of them, :mod:`.registry` lists the built-in ones,
:mod:`.custom` makes tools of functions.
"""

from __future__ import annotations

from .filetimes import FileLocks, FileTimes
from .registry import CatalogEntry, DescriptionVariables, Features, Registry, to_spec
from .services import (
    ChildSession,
    HiddenMessage,
    HiddenMessages,
    Instructions,
    Modes,
    NestedCalls,
    QuestionOption,
    Skills,
    Subtask,
    Subtasks,
    Todos,
    UserQuestion,
    UserQuestions,
)
from .tool import BuiltinTool, Context, Tool, ToolOutput, attachment, invoke
from .truncation import OutputPreview, Outputs

__all__ = [
    "BuiltinTool",
    "CatalogEntry",
    "ChildSession",
    "Context",
    "DescriptionVariables",
    "Features",
    "FileLocks",
    "FileTimes",
    "HiddenMessage",
    "HiddenMessages",
    "Instructions",
    "Modes",
    "NestedCalls",
    "OutputPreview",
    "Outputs",
    "QuestionOption",
    "Registry",
    "Skills",
    "Subtask",
    "Subtasks",
    "Todos",
    "Tool",
    "ToolOutput",
    "UserQuestion",
    "UserQuestions",
    "attachment",
    "invoke",
    "to_spec",
]
