"""Load a skill: instructions for a kind of work, with the files that belong to it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from ..errors import ToolFailedError
from . import file_search as search
from .arguments import Arguments
from .tool import BuiltinTool, Context, ToolOutput

FILES_SHOWN = 10


class SkillArguments(Arguments, frozen=True):
    """Which."""

    name: Annotated[str, Meta(description="The name of the skill, as listed in the description of this tool")]


class SkillTool(BuiltinTool[SkillArguments]):
    """The text of a skill, and where its files are."""

    id = "skill"
    parameters = SkillArguments

    async def execute(self, args: SkillArguments, ctx: Context) -> ToolOutput:
        """Ask, and load."""
        available = {skill.name: skill for skill in await ctx.skills.all()}
        chosen = available.get(args.name)
        if chosen is None:
            names = ", ".join(sorted(available)) or "none"
            raise ToolFailedError(f"There is no skill named {args.name!r}. Available skills: {names}")
        await ctx.ask("skill", [args.name], always=[args.name], metadata={})
        directory = os.path.dirname(chosen.location)
        files = await _files(directory)
        output = "\n".join(
            [
                f'<skill_content name="{chosen.name}">',
                f"# Skill: {chosen.name}",
                "",
                chosen.content.strip(),
                "",
                f"Base directory for this skill: {Path(directory).as_uri()}",
                "Paths in this skill are relative to that directory. The list of its files may not be complete.",
                "",
                "<skill_files>",
                *(f"<file>{path}</file>" for path in files),
                "</skill_files>",
                "</skill_content>",
            ]
        )
        return ToolOutput(f"Loaded skill: {chosen.name}", output, {"name": chosen.name, "dir": directory})


async def _files(directory: str) -> list[str]:
    if not await asyncio.to_thread(os.path.isdir, directory):
        return []
    names = sorted(name for name in await search.files(directory) if os.path.basename(name) != "SKILL.md")
    return [os.path.join(directory, name) for name in names[:FILES_SHOWN]]
