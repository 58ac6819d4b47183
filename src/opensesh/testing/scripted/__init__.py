"""A model that plays a script instead of calling a provider: :class:`ScriptedModel`.

:mod:`opensesh.testing.scripted.language` describes the language. In a configuration the model is called
``scripted/prompt`` (plays the prompt itself) or ``scripted/PATH`` (plays the script in a file).
"""

from __future__ import annotations

from .language import InvalidScriptError, Script, ScriptTurn, parse_prompt, script, turn
from .scripted_model import (
    SUMMARY,
    TITLE,
    ScriptedCall,
    ScriptedModel,
    ScriptExhaustedError,
    ScriptMismatchError,
    UnmetExpectationError,
)
from .steps import (
    FAILURE_KINDS,
    FINISH_REASONS,
    CallTool,
    Drip,
    Expect,
    Fail,
    FinishWith,
    Hang,
    Meta,
    ReportUsage,
    Say,
    ScriptStep,
    Split,
    Think,
    Title,
    Wait,
    prompt_usage,
)

__all__ = [
    "FAILURE_KINDS",
    "FINISH_REASONS",
    "SUMMARY",
    "TITLE",
    "CallTool",
    "Drip",
    "Expect",
    "Fail",
    "FinishWith",
    "Hang",
    "InvalidScriptError",
    "Meta",
    "ReportUsage",
    "Say",
    "Script",
    "ScriptExhaustedError",
    "ScriptMismatchError",
    "ScriptStep",
    "ScriptTurn",
    "ScriptedCall",
    "ScriptedModel",
    "Split",
    "Think",
    "Title",
    "UnmetExpectationError",
    "Wait",
    "parse_prompt",
    "prompt_usage",
    "script",
    "turn",
]
