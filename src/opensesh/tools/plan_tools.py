"""Enter and leave plan mode, with the user's consent."""

from __future__ import annotations

from ..errors import QuestionRejectedError
from .arguments import Arguments
from .services import QuestionOption, UserQuestion
from .tool import BuiltinTool, Context, ToolOutput

_YES, _NO = "Yes", "No"


class PlanArguments(Arguments, frozen=True):
    """No arguments."""


class PlanEnterTool(BuiltinTool[PlanArguments]):
    """Switches to the plan agent if the user agrees."""

    id = "plan_enter"
    parameters = PlanArguments

    async def execute(self, args: PlanArguments, ctx: Context) -> ToolOutput:
        """Ask the user, and switch."""
        plan = ctx.modes.plan
        question = UserQuestion(
            question=f"Switch to the plan agent first, and write a plan to {plan}?",
            header="Plan Mode",
            options=(
                QuestionOption(_YES, "Switch to the plan agent, which reads and plans but changes nothing"),
                QuestionOption(_NO, "Stay with the build agent and continue"),
            ),
            custom=False,
        )
        await _require_consent(ctx, question)
        text = f"The user wants a plan before anything is changed. Look around, think, and write the plan to {plan}."
        await ctx.modes.switch("plan", text)
        output = "The user agreed to make a plan first and the plan agent takes over. Begin to plan."
        return ToolOutput("Switching to plan agent", output)


class PlanExitTool(BuiltinTool[PlanArguments]):
    """Switches to the build agent if the user approves the plan."""

    id = "plan_exit"
    parameters = PlanArguments

    async def execute(self, args: PlanArguments, ctx: Context) -> ToolOutput:
        """Ask the user, and switch."""
        plan = ctx.modes.plan
        question = UserQuestion(
            question=f"The plan in {plan} is complete. Switch to the build agent and start on it?",
            header="Build Agent",
            options=(
                QuestionOption(_YES, "Switch to the build agent and carry the plan out"),
                QuestionOption(_NO, "Stay with the plan agent and continue planning"),
            ),
            custom=False,
        )
        await _require_consent(ctx, question)
        text = f"The plan in {plan} is approved, and files may be changed from now on. Carry the plan out."
        await ctx.modes.switch("build", text)
        output = "The user approved the plan and the build agent takes over. Wait for its instructions."
        return ToolOutput("Switching to build agent", output)


async def _require_consent(ctx: Context, question: UserQuestion) -> None:
    """Raise :class:`QuestionRejectedError` unless the user answers yes."""
    answers = await ctx.questions.ask([question])
    if not answers or list(answers[0]) != [_YES]:
        raise QuestionRejectedError("The user said no", question=question.question)
