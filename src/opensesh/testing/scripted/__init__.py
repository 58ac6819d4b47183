"""A model that plays a script instead of calling a provider: :class:`ScriptedModel`.

:mod:`opensesh.testing.scripted.language` describes the language. In a configuration the model is called
``scripted/prompt`` (plays the prompt itself) or ``scripted/PATH`` (plays the script in a file).
"""

from __future__ import annotations

from .language import InvalidScriptError as InvalidScriptError
from .language import Script as Script
from .language import ScriptTurn as ScriptTurn
from .language import parse_prompt as parse_prompt
from .language import script as script
from .language import turn as turn
from .scripted_model import SUMMARY as SUMMARY
from .scripted_model import TITLE as TITLE
from .scripted_model import ScriptedCall as ScriptedCall
from .scripted_model import ScriptedModel as ScriptedModel
from .scripted_model import ScriptExhaustedError as ScriptExhaustedError
from .scripted_model import ScriptMismatchError as ScriptMismatchError
from .scripted_model import UnmetExpectationError as UnmetExpectationError
from .steps import FAILURE_KINDS as FAILURE_KINDS
from .steps import FINISH_REASONS as FINISH_REASONS
from .steps import CallTool as CallTool
from .steps import Drip as Drip
from .steps import Expect as Expect
from .steps import Fail as Fail
from .steps import FinishWith as FinishWith
from .steps import Hang as Hang
from .steps import Meta as Meta
from .steps import ReportUsage as ReportUsage
from .steps import Say as Say
from .steps import ScriptStep as ScriptStep
from .steps import Split as Split
from .steps import Think as Think
from .steps import Title as Title
from .steps import Wait as Wait
from .steps import prompt_usage as prompt_usage
