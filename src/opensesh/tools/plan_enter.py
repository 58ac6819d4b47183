"""Stop to make a plan."""

from __future__ import annotations

from .arguments import Arguments
from .plan_exit import agreed
from .services import QuestionOption, UserQuestion
from .tool import BuiltinTool, Context, ToolOutput


class PlanEnterArguments(Arguments, frozen=True):
    """None."""


class PlanEnterTool(BuiltinTool[PlanEnterArguments]):
    """Only the user can send the model back to its desk."""

    id = "plan_enter"
    parameters = PlanEnterArguments

    async def execute(self, args: PlanEnterArguments, ctx: Context) -> ToolOutput:
        """Ask the user; with a yes, the plan agent takes over."""
        plan = ctx.modes.plan
        choices = (
            QuestionOption("Yes", "Switch to the plan agent, which looks and thinks but changes nothing"),
            QuestionOption("No", "Stay with the build agent and go on"),
        )
        question = f"Switch to the plan agent first, and write a plan to {plan}?"
        await agreed(ctx, UserQuestion(question=question, header="Plan Mode", options=choices, custom=False))
        told = f"The user wants a plan before anything is changed. Look around, think, and write the plan to {plan}."
        await ctx.modes.switch("plan", told)
        output = "The user agreed to make a plan first and the plan agent takes over. Begin to plan."
        return ToolOutput("Switching to plan agent", output)
