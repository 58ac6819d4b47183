"""Ask the user."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from .arguments import Arguments
from .tool import BuiltinTool, Context, QuestionOption, ToolOutput, UserQuestion


class OptionArgument(Struct, frozen=True):
    """An answer to choose."""

    label: Annotated[str, Meta(description="The answer, in 1 to 5 words")]
    description: Annotated[str, Meta(description="What choosing it means")]


class QuestionArgument(Struct, frozen=True, kw_only=True):
    """One question."""

    question: Annotated[str, Meta(description="The whole question")]
    header: Annotated[str, Meta(description="A name for it, of at most 30 characters")]
    options: Annotated[tuple[OptionArgument, ...], Meta(description="The answers to choose from")]
    multiple: Annotated[bool | None, Meta(description="Whether more than one answer may be chosen")] = None


class QuestionArguments(Arguments, frozen=True):
    """The questions."""

    questions: Annotated[tuple[QuestionArgument, ...], Meta(description="The questions to ask", min_length=1)]


class QuestionTool(BuiltinTool[QuestionArguments]):
    """Asks the user and waits for the answers, without a timeout."""

    id = "question"
    parameters = QuestionArguments

    async def execute(self, args: QuestionArguments, ctx: Context) -> ToolOutput:
        """Ask, and return the answers."""
        asked = [
            UserQuestion(
                question=item.question,
                header=item.header,
                options=tuple(QuestionOption(option.label, option.description) for option in item.options),
                multiple=item.multiple,
            )
            for item in args.questions
        ]
        answers = [list(answer) for answer in await ctx.questions.ask(asked)]
        pairs = zip(asked, [*answers, *([""] for _ in asked)], strict=False)
        replies = ", ".join(f'"{item.question}"="{", ".join(answer) or "Unanswered"}"' for item, answer in pairs)
        count = "1 question" if len(asked) == 1 else f"{len(asked)} questions"
        output = f"The user has answered: {replies}. Continue with that in mind."
        return ToolOutput(f"Asked {count}", output, {"answers": answers})
