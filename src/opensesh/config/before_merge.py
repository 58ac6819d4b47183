"""One way to say a thing: older spellings in a layer become the present ones before layers are merged.

- ``permission: "ask"`` is ``permission: {"*": "ask"}``;
- an agent's ``tools`` are permissions, below those it states itself; ``maxSteps`` is ``steps``; and what is not a
  setting of an agent is an option for its provider;
- a plugin's relative path is a ``file:`` URL.

The older spelling stays in the document beside the present one, as it does in OpenCode. Every value that is moved
keeps the place where it was written.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..records import Document, as_list, as_object
from .rules import permission_of
from .schema import AgentConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .merged import Layer
    from .source import Path

_AGENT_KEYS = frozenset(AgentConfig.__struct_encode_fields__)


def normalise(layer: Layer) -> Layer:
    """The layer in present spelling."""
    value, moved = layer.value.copy(), dict(layer.moved)
    if "permission" in value:
        value["permission"] = _permission(value["permission"], ("permission",), moved)
    for section in ("agent", "mode"):
        agents = as_object(value.get(section))
        if agents is not None:
            value[section] = {name: _agent(agent, (section, name), moved) for name, agent in agents.items()}
    plugins = as_list(value.get("plugin"))
    if plugins is not None:
        folder = os.path.dirname(layer.source.name)
        value["plugin"] = [_plugin(plugin, folder) for plugin in plugins]
    return layer._replace(value=value, moved=moved)


def tool_permissions(tools: Mapping[str, bool]) -> dict[str, str]:
    """The permissions that a map of tools stands for; every tool that changes files stands for ``edit``."""
    return {permission_of(tool): "allow" if enabled else "deny" for tool, enabled in tools.items()}


def _permission(permission: Any, path: Path, moved: dict[Path, Path]) -> Document:
    rules = as_object(permission)
    if rules is not None:
        return rules
    moved[(*path, "*")] = path
    return {"*": permission}


def _agent(agent: Document, path: Path, moved: dict[Path, Path]) -> Document:
    result = agent.copy()
    extra = [key for key in agent if key not in _AGENT_KEYS]
    if extra:
        result["options"] = {**(as_object(agent.get("options")) or {}), **{key: agent[key] for key in extra}}
        moved |= {(*path, "options", key): (*path, key) for key in extra}
    if "permission" in agent:
        result["permission"] = _permission(agent["permission"], (*path, "permission"), moved)
    tools = as_object(agent.get("tools"))
    if tools:
        stated = as_object(result.get("permission")) or {}
        result["permission"] = {**tool_permissions(tools), **stated}
        for tool in tools:
            if permission_of(tool) not in stated:
                moved[(*path, "permission", permission_of(tool))] = (*path, "tools", tool)
    if "maxSteps" in agent and "steps" not in agent:
        result["steps"] = agent["maxSteps"]
        moved[(*path, "steps")] = (*path, "maxSteps")
    return result


def _plugin(plugin: Any, folder: str) -> Any:
    pair = as_list(plugin)
    if pair:
        return [_plugin(pair[0], folder), *pair[1:]]
    if isinstance(plugin, str) and plugin.startswith(("./", "../")):
        return file_url(os.path.join(folder, plugin))
    return plugin


def file_url(path: str) -> str:
    """A ``file:`` URL."""
    from pathlib import Path as FilePath

    return FilePath(os.path.abspath(path)).as_uri()
