"""Which tools there are, and which of them a model is offered."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from msgspec import Struct

from ..models.request import ToolSpec
from .truncation import MAX_BYTES, MAX_LINES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from .tool import Tool

log = logging.getLogger("opensesh.tools")
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")
_EXA = frozenset(("websearch", "codesearch"))


class Features(Struct, frozen=True, kw_only=True):
    """What is switched on. The defaults are those of OpenCode without flags or settings."""

    question: bool = True
    """A client is there that can show questions."""
    plan: bool = False
    """The model may ask to begin and to end planning."""
    batch: bool = False
    recall: bool = False
    """The model may look up what is not in view any more. OpenCode has no such tool."""
    exa: bool = False
    """Searching the web by way of Exa; for the provider ``opencode`` it is on in any case."""
    bash_timeout_ms: float | None = None
    """For commands about which the model says nothing, if not what the tool itself has."""


class CatalogEntry(Struct, frozen=True):
    """An agent or a skill, as a description lists it."""

    name: str
    description: str
    location: str = ""


class DescriptionVariables(Struct, frozen=True, kw_only=True):
    """What descriptions may speak of, by the names of the fields: ``{{directory}}`` and so on."""

    directory: str = "."
    agents: tuple[CatalogEntry, ...] = ()
    """Those that this agent may give tasks to."""
    skills: tuple[CatalogEntry, ...] = ()
    """Those that this agent may load."""
    max_lines: int = MAX_LINES
    max_bytes: int = MAX_BYTES

    def fill(self, description: str) -> str:
        """``description`` with its placeholders filled in; those that are not ours stay."""
        values = {
            "directory": self.directory,
            "agents": "\n".join(f"- {agent.name}: {agent.description}" for agent in self.agents) or "(none)",
            "skills": "\n".join(_skill(skill) for skill in self.skills) or "(none)",
            "max_lines": str(self.max_lines),
            "max_bytes": str(self.max_bytes),
        }
        return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), description)


class Registry:
    """Tools by name, in the order in which they are offered."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        """Of two tools of one name the later counts, in the place of the first."""
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            self.add(tool)
        self._exa = False

    @classmethod
    def standard(
        cls, features: Features | None = None, custom: Iterable[Tool] = (), outside: Iterable[Tool] = ()
    ) -> Registry:
        """OpenCode's tools as ``features`` has them, one's own, and then those from outside (of installed packages, of
        MCP servers), which take the place of no other."""
        features = features or Features()
        registry = cls((*builtin(features), *custom))
        for tool in outside:
            if registry._tools.setdefault(tool.id, tool) is not tool:
                log.warning("a tool from outside is left out: there is one called %s already", tool.id)
        registry._exa = features.exa
        return registry

    def add(self, tool: Tool) -> None:
        """One more, or another of the same name."""
        self._tools[tool.id] = tool

    def get(self, name: str) -> Tool | None:
        """The tool of that name; of that name in lower case, if a model shouted."""
        return self._tools.get(name) or self._tools.get(name.lower())

    @property
    def names(self) -> Sequence[str]:
        """All of them."""
        return list(self._tools)

    def offered(self, model_id: str, provider_id: str = "", *, hidden: Collection[str] = ()) -> list[Tool]:
        """The tools for a model, without those ``hidden`` (by permission rules, or by the user for one prompt).

        Models that were trained on patches get ``apply_patch``, all others ``edit`` and ``write``.
        """
        left_out = {"invalid", *hidden, *(("edit", "write") if uses_apply_patch(model_id) else ("apply_patch",))}
        if provider_id != "opencode" and not self._exa:
            left_out |= _EXA
        return [tool for name, tool in self._tools.items() if name not in left_out]


def uses_apply_patch(model_id: str) -> bool:
    """Whether a model changes files by patch: the GPTs since 5, but not the open ones."""
    return "gpt-" in model_id and "oss" not in model_id and "gpt-4" not in model_id


def to_spec(tool: Tool, surroundings: DescriptionVariables) -> ToolSpec:
    """``tool`` as a request to a model has it."""
    return ToolSpec(name=tool.id, description=surroundings.fill(tool.description), parameters=tool.schema)


def builtin(features: Features) -> list[Tool]:
    """OpenCode's tools in OpenCode's order, those that are switched on."""
    from .apply_patch import ApplyPatchTool
    from .bash import TIMEOUT_MS, BashTool
    from .batch import BatchTool
    from .codesearch import CodeSearchTool
    from .edit import EditTool
    from .glob import GlobTool
    from .grep import GrepTool
    from .invalid import InvalidTool
    from .plan_enter import PlanEnterTool
    from .plan_exit import PlanExitTool
    from .question import QuestionTool
    from .read import ReadTool
    from .recall import RecallTool
    from .skill import SkillTool
    from .task import TaskTool
    from .todowrite import TodoWriteTool
    from .webfetch import WebFetchTool
    from .websearch import WebSearchTool
    from .write import WriteTool

    bash = BashTool(timeout_ms=features.bash_timeout_ms or TIMEOUT_MS)
    tools: list[Tool] = [InvalidTool()]
    tools += [QuestionTool()] if features.question else []
    tools += [
        bash,
        ReadTool(),
        GlobTool(),
        GrepTool(),
        EditTool(),
        WriteTool(),
        TaskTool(),
        WebFetchTool(),
        TodoWriteTool(),
    ]
    tools += [WebSearchTool(), CodeSearchTool(), SkillTool(), ApplyPatchTool()]
    tools += [BatchTool()] if features.batch else []
    tools += [PlanExitTool(), PlanEnterTool()] if features.plan else []
    tools += [RecallTool()] if features.recall else []
    return tools


def _skill(skill: CatalogEntry) -> str:
    return "\n".join(
        [
            "  <skill>",
            f"    <name>{skill.name}</name>",
            f"    <description>{skill.description}</description>",
            f"    <location>{skill.location}</location>",
            "  </skill>",
        ]
    )
