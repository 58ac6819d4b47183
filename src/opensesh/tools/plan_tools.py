"""Enter and leave plan mode, with the user's consent."""

from __future__ import annotations

from typing import ClassVar

from ..errors import QuestionRejectedError
from .arguments import Arguments
from .tool import BuiltinTool, Context, QuestionOption, ToolOutput, UserQuestion

_YES, _NO = "Yes", "No"


class PlanArguments(Arguments, frozen=True):
    """No arguments."""


class _SwitchTool(BuiltinTool[PlanArguments]):
    """Switches to another agent if the user agrees. In its texts, ``{plan}`` is the path of the plan file."""

    parameters = PlanArguments
    agent: ClassVar[str]
    header: ClassVar[str]
    question: ClassVar[str]
    yes: ClassVar[str]
    no: ClassVar[str]
    message: ClassVar[str]
    """The user message that announces the new agent."""
    output: ClassVar[str]

    async def execute(self, args: PlanArguments, ctx: Context) -> ToolOutput:
        """Ask the user, and switch. Raises :class:`QuestionRejectedError` unless the user answers yes."""
        plan = ctx.modes.plan
        question = UserQuestion(
            question=self.question.format(plan=plan),
            header=self.header,
            options=(QuestionOption(_YES, self.yes), QuestionOption(_NO, self.no)),
            custom=False,
        )
        answers = await ctx.questions.ask([question])
        if not answers or list(answers[0]) != [_YES]:
            raise QuestionRejectedError("The user said no", question=question.question)
        await ctx.modes.switch(self.agent, self.message.format(plan=plan))
        return ToolOutput(f"Switching to {self.agent} agent", self.output)


class PlanEnterTool(_SwitchTool):
    """Switches to the plan agent."""

    id = "plan_enter"
    agent = "plan"
    header = "Plan Mode"
    question = "Switch to the plan agent first, and write a plan to {plan}?"
    yes = "Switch to the plan agent, which reads and plans but changes nothing"
    no = "Stay with the build agent and continue"
    message = "The user wants a plan before anything is changed. Look around, think, and write the plan to {plan}."
    output = "The user agreed to make a plan first and the plan agent takes over. Begin to plan."


class PlanExitTool(_SwitchTool):
    """Switches to the build agent, if the user approves the plan."""

    id = "plan_exit"
    agent = "build"
    header = "Build Agent"
    question = "The plan in {plan} is complete. Switch to the build agent and start on it?"
    yes = "Switch to the build agent and carry the plan out"
    no = "Stay with the plan agent and continue planning"
    message = "The plan in {plan} is approved, and files may be changed from now on. Carry the plan out."
    output = "The user approved the plan and the build agent takes over. Wait for its instructions."
