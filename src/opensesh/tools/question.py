"""Ask the user."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, structs

from .arguments import Arguments
from .tool import BuiltinTool, Context, ModelQuestion, ToolOutput, UserQuestion


class QuestionArguments(Arguments, frozen=True):
    """The questions."""

    questions: Annotated[tuple[ModelQuestion, ...], Meta(description="The questions to ask", min_length=1)]


class QuestionTool(BuiltinTool[QuestionArguments]):
    """Asks the user and waits for the answers, without a timeout."""

    id = "question"
    parameters = QuestionArguments

    async def execute(self, args: QuestionArguments, ctx: Context) -> ToolOutput:
        """Ask, and return the answers."""
        asked = [UserQuestion(**structs.asdict(question)) for question in args.questions]
        answers = [list(answer) for answer in await ctx.questions.ask(asked)]
        pairs = zip(asked, [*answers, *([""] for _ in asked)], strict=False)
        replies = ", ".join(f'"{item.question}"="{", ".join(answer) or "Unanswered"}"' for item, answer in pairs)
        count = "1 question" if len(asked) == 1 else f"{len(asked)} questions"
        output = f"The user has answered: {replies}. Continue with that in mind."
        return ToolOutput(f"Asked {count}", output, {"answers": answers})
