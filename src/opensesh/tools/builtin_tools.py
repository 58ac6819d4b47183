"""The built-in tools, in OpenCode's order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from .apply_patch import ApplyPatchTool
from .arguments import Arguments
from .bash import DEFAULT_TIMEOUT_MS, BashTool
from .batch import BatchTool
from .edit import EditTool, WriteTool
from .glob import GlobTool
from .grep import GrepTool
from .plan_tools import PlanEnterTool, PlanExitTool
from .question import QuestionTool
from .read import ReadTool
from .recall import RecallTool
from .skill import SkillTool
from .task import TaskTool
from .todowrite import TodoWriteTool
from .tool import BuiltinTool, Context, ToolOutput
from .webfetch import WebFetchTool
from .websearch import CodeSearchTool, WebSearchTool

if TYPE_CHECKING:
    from .tool import Tool
    from .tool_registry import Features


def builtin(features: Features) -> list[Tool]:
    """Return the tools that ``features`` switches on, in the order in which OpenCode offers them."""
    bash = BashTool(timeout_ms=features.bash_timeout_ms or DEFAULT_TIMEOUT_MS)
    tools: list[Tool] = [InvalidTool()]
    tools += [QuestionTool()] if features.question else []
    tools += [bash, ReadTool(), GlobTool(), GrepTool(), EditTool(), WriteTool(), TaskTool(), WebFetchTool()]
    tools += [TodoWriteTool(), WebSearchTool(), CodeSearchTool(), SkillTool(), ApplyPatchTool()]
    tools += [BatchTool()] if features.batch else []
    tools += [PlanExitTool(), PlanEnterTool()] if features.plan else []
    tools += [RecallTool()] if features.recall else []
    return tools


class InvalidCallArguments(Arguments, frozen=True):
    """The call, and why it was invalid."""

    tool: Annotated[str, Meta(description="The tool that was meant")]
    error: Annotated[str, Meta(description="Why it was not called")]


class InvalidTool(BuiltinTool[InvalidCallArguments]):
    """Answers calls of unknown tools. Never offered to a model."""

    id = "invalid"
    parameters = InvalidCallArguments

    async def execute(self, args: InvalidCallArguments, ctx: Context) -> ToolOutput:
        """Return the reason."""
        return ToolOutput("Invalid Tool", f"The call of {args.tool!r} could not be made: {args.error}")
