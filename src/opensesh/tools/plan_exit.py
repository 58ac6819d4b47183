"""Leave planning, and begin to build."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import QuestionRejectedError
from .arguments import Arguments
from .services import QuestionOption, UserQuestion
from .tool import BuiltinTool, Context, ToolOutput

if TYPE_CHECKING:
    from collections.abc import Sequence

_YES, _NO = "Yes", "No"


class PlanExitArguments(Arguments, frozen=True):
    """None."""


class PlanExitTool(BuiltinTool[PlanExitArguments]):
    """Only the user can say that a plan is good."""

    id = "plan_exit"
    parameters = PlanExitArguments

    async def execute(self, args: PlanExitArguments, ctx: Context) -> ToolOutput:
        """Ask the user; with a yes, the build agent takes over."""
        plan = ctx.modes.plan
        choices = (
            QuestionOption(_YES, "Switch to the build agent and carry the plan out"),
            QuestionOption(_NO, "Stay with the plan agent and go on planning"),
        )
        question = f"The plan in {plan} is complete. Switch to the build agent and start on it?"
        await agreed(ctx, UserQuestion(question=question, header="Build Agent", options=choices, custom=False))
        told = f"The plan in {plan} is approved, and files may be changed from now on. Carry the plan out."
        await ctx.modes.switch("build", told)
        output = "The user approved the plan and the build agent takes over. Wait for its instructions."
        return ToolOutput("Switching to build agent", output)


async def agreed(ctx: Context, question: UserQuestion) -> None:
    """Ask a yes-or-no question. Anything but a yes is :class:`QuestionRejectedError`."""
    answers: Sequence[Sequence[str]] = await ctx.questions.ask([question])
    if not answers or list(answers[0]) != [_YES]:
        raise QuestionRejectedError("The user said no", question=question.question)
