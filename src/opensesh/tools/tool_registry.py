"""The tool registry: which tools there are, and which of them a model is offered."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from msgspec import Struct

from ..models.request import ToolSpec
from .truncation import MAX_BYTES, MAX_LINES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from ..config import Agent, Skill
    from .tool import Tool

log = logging.getLogger("opensesh.tools")
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")
_EXA = frozenset(("websearch", "codesearch"))


class Features(Struct, frozen=True, kw_only=True):
    """Optional tools. The defaults are those of OpenCode without flags or settings."""

    question: bool = True
    """A client that can show questions is connected."""
    plan: bool = False
    """The model may propose to enter and to leave plan mode."""
    batch: bool = False
    recall: bool = False
    """The model may search history that it no longer sees. OpenCode has no such tool."""
    exa: bool = False
    """Web search through Exa; always on for the provider ``opencode``."""
    bash_timeout_ms: float | None = None
    """Default timeout of commands; ``None`` for the tool's own default."""


def description_values(
    directory: str = ".",
    *,
    agents: Iterable[Agent] = (),
    skills: Iterable[Skill] = (),
    max_lines: int = MAX_LINES,
    max_bytes: int = MAX_BYTES,
) -> dict[str, str]:
    """Return the values of the placeholders in tool descriptions, by name: ``{{directory}}`` and so on. ``agents`` are
    those that may be started as subagents, ``skills`` those that may be loaded."""
    agent_lines = [f"- {agent.name}: {agent.description or ''}" for agent in agents]
    skill_elements = [
        f"  <skill>\n    <name>{skill.name}</name>\n    <description>{skill.description}</description>\n"
        f"    <location>{skill.location}</location>\n  </skill>"
        for skill in skills
    ]
    return {
        "directory": directory,
        "agents": "\n".join(agent_lines) or "(none)",
        "skills": "\n".join(skill_elements) or "(none)",
        "max_lines": str(max_lines),
        "max_bytes": str(max_bytes),
    }


class Registry:
    """Tools by name, in the order in which they are offered."""

    def __init__(
        self, features: Features | None = None, custom: Iterable[Tool] = (), outside: Iterable[Tool] = ()
    ) -> None:
        """Collects the built-in tools selected by ``features``, the ``custom`` ones, and those from ``outside``.

        Of two tools with one name the later wins, at the position of the first; but tools from outside (installed
        packages, MCP servers) never replace another one.
        """
        from .builtin_tools import builtin  # loads every tool, which costs more than the rest of this package

        features = features or Features()
        self.tools: dict[str, Tool] = {tool.id: tool for tool in (*builtin(features), *custom)}
        """By name."""
        for tool in outside:
            if self.tools.setdefault(tool.id, tool) is not tool:
                log.warning("ignoring an installed or MCP tool: the name %s is taken", tool.id)
        self._exa = features.exa

    def offered(self, model_id: str, provider_id: str = "", *, hidden: Collection[str] = ()) -> list[Tool]:
        """Return the tools for a model, without those ``hidden`` by permission rules or by the user for one prompt.

        Models trained on patches (the GPT models since 5, except the open ones) get ``apply_patch``, all others
        ``edit`` and ``write``.
        """
        uses_patches = "gpt-" in model_id and "oss" not in model_id and "gpt-4" not in model_id
        excluded = {"invalid", *hidden, *(("edit", "write") if uses_patches else ("apply_patch",))}
        if provider_id != "opencode" and not self._exa:
            excluded |= _EXA
        return [tool for name, tool in self.tools.items() if name not in excluded]


def to_spec(tool: Tool, values: Mapping[str, str]) -> ToolSpec:
    """Return ``tool`` in the form that a model request contains, with :func:`description_values` in its description;
    unknown placeholders stay."""
    description = _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), tool.description)
    return ToolSpec(name=tool.id, description=description, parameters=tool.schema)
