"""Load a skill: instructions for a kind of work, and the files that belong to it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from ..errors import ToolFailedError
from . import file_search
from .arguments import Arguments
from .tool import BuiltinTool, Context, ToolOutput

MAX_FILES = 10


class SkillArguments(Arguments, frozen=True):
    """The skill."""

    name: Annotated[str, Meta(description="The name of the skill, as listed in the description of this tool")]


class SkillTool(BuiltinTool[SkillArguments]):
    """Returns the text of a skill and the paths of its files."""

    id = "skill"
    parameters = SkillArguments

    async def execute(self, args: SkillArguments, ctx: Context) -> ToolOutput:
        """Ask, and load."""
        available = {item.name: item for item in await ctx.skills.all()}
        skill = available.get(args.name)
        if skill is None:
            others = ", ".join(sorted(available)) or "none"
            raise ToolFailedError(f"There is no skill named {args.name!r}. Available skills: {others}")
        always = [] if "*" in args.name or "?" in args.name else [args.name]  # these would be wildcards
        await ctx.ask("skill", [args.name], always=always, metadata={})
        directory = os.path.dirname(skill.location)
        names: list[str] = []
        if await asyncio.to_thread(os.path.isdir, directory):
            names = [name for name in await file_search.files(directory) if os.path.basename(name) != "SKILL.md"]
        output = "\n".join(
            [
                f'<skill_content name="{skill.name}">',
                f"# Skill: {skill.name}",
                "",
                skill.content.strip(),
                "",
                f"Base directory for this skill: {Path(directory).as_uri()}",
                "Paths in this skill are relative to that directory. The list of its files may not be complete.",
                "",
                "<skill_files>",
                *(f"<file>{os.path.join(directory, name)}</file>" for name in sorted(names)[:MAX_FILES]),
                "</skill_files>",
                "</skill_content>",
            ]
        )
        return ToolOutput(f"Loaded skill: {skill.name}", output, {"name": skill.name, "dir": directory})
