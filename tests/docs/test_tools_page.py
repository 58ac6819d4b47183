from __future__ import annotations

import re
from pathlib import Path

from opensesh.tools.builtin_tools import builtin
from opensesh.tools.tool import Tool
from opensesh.tools.tool_registry import Features

PAGE = (Path(__file__).parents[2] / "docs" / "tools.md").read_text("utf-8")
EVERY: list[Tool] = [
    *(tool for tool in builtin(Features(plan=True, batch=True, recall=True, exa=True)) if tool.id != "invalid"),
]
_SECTION = re.compile(r"^### ([^\n]+)\n(.+?)(?=^##)", re.MULTILINE | re.DOTALL)
SECTIONS = {name: text for heading, text in _SECTION.findall(PAGE) for name in re.split(r", | and ", heading)}


def test_every_built_in_tool_has_a_section_that_names_its_inputs_and_marks_those_that_are_not_needed() -> None:
    for tool in EVERY:
        for name in tool.schema["properties"]:
            mark = f"`{name}`" if name in tool.schema["required"] else f"*`{name}`*"
            assert mark in SECTIONS[tool.id], (tool.id, name)


def test_the_table_lists_every_tool_that_can_be_offered_once() -> None:
    listed = re.findall(r"^\| \[`(\w+)`\]", PAGE, re.M)
    assert sorted(listed) == sorted(tool.id for tool in EVERY)
