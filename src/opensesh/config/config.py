"""The merged configuration: values, their origins, and how layers are merged.

Before merging, older spellings in a layer become the present ones (:func:`normalise`):

- ``permission: "ask"`` becomes ``permission: {"*": "ask"}``;
- an agent's ``tools`` become permissions, below those it sets itself; ``maxSteps`` becomes ``steps``; keys that are not
  settings of an agent become options for its provider;
- a plugin's relative path becomes a ``file:`` URL.

The older spelling stays in the document beside the present one, as in OpenCode. A value that is moved keeps the
position where it was written. After merging, :func:`finish` handles older sections and environment variables.
"""

from __future__ import annotations

import os
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ..errors import ConfigError
from ..flags import Flags
from ..records import Document, as_list, as_object, dumps_compact, object_at
from .rules import permission_of
from .schema import AgentConfig, ConfigSettings
from .source import Folders, ProjectFolders, SettingPath, Source
from .validation import check, unknown_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    OriginOf = Callable[[SettingPath], "Origin"]


_CONCATENATED = ("plugin", "instructions")
"""Lists that are concatenated over all layers. All other lists are replaced by the later one."""


class Origin(NamedTuple):
    """The place at which a value was set."""

    source: str
    """The path of a file, the name of an environment variable, or a URL."""
    line: int | None = None
    column: int | None = None
    written: str | None = None
    """The text as written, if it has placeholders: ``"Bearer {env:TOKEN}"``, with its quotes."""

    def __str__(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source


class Config(Struct, frozen=True, kw_only=True):
    """All layers merged. Immutable, and never written to the user's files."""

    directory: str
    worktree: str
    settings: ConfigSettings
    """Typed, with defaults."""
    document: Document
    """The merged document, without defaults."""
    origins: dict[SettingPath, Origin]
    """Where each value in ``document`` that is not an object was set."""
    folders: Folders
    flags: Flags
    directories: tuple[str, ...]
    """The configuration folders, in which agents, commands, skills and tools are searched for; later ones win."""
    project_folders: ProjectFolders
    """The folders of the project whose configuration, instructions and skills are used."""
    variables: dict[str, str] = {}
    """Environment variables that an organisation's configuration defines."""
    problems: tuple[ConfigError, ...] = ()
    """What was ignored: a file that is not a valid agent, an unknown key."""

    def origin(self, path: str | SettingPath) -> Origin | None:
        """Return where the value at ``path``, such as ``"compaction.auto"``, was set; ``None`` if it is unset.

        Names with dots work where they are not ambiguous; otherwise pass a tuple.
        """
        steps = _split(self.document, path) if isinstance(path, str) else path
        return None if steps is None else self.origins.get(steps)

    def rule_origin(self, permission: str, pattern: str) -> Origin | None:
        """Return where a permission rule of all agents or of one was set; ``None`` for a built-in rule."""
        # A permission, or "permission" itself, that is "ask" stands for every pattern.
        whole = ((permission,), ()) if pattern == "*" else ()
        for path, origin in reversed(self.origins.items()):
            steps = path[path.index("permission") + 1 :] if "permission" in path else None
            if steps == (permission, pattern) or steps in whole:
                return origin
        return None


def _split(value: Any, path: str) -> SettingPath | None:
    """Split ``path`` into steps that exist in ``value``; names may contain dots."""
    if not path:
        return ()
    if (items := as_list(value)) is not None:
        head, _, rest = path.partition(".")
        if not head.isdigit() or int(head) >= len(items):
            return None
        steps = _split(items[int(head)], rest)
        return None if steps is None else (int(head), *steps)
    for name, member in (as_object(value) or {}).items():
        if path == name or path.startswith(name + "."):
            steps = _split(member, path[len(name) + 1 :])
            if steps is not None:
                return (name, *steps)
    return None


class Layer(NamedTuple):
    """The settings of one source."""

    source: Source
    value: Document
    prefix: SettingPath = ()
    """The path of the source's settings in the document; for a Markdown agent, ``agent.<name>``."""
    moved: dict[SettingPath, SettingPath] = {}
    """Paths of moved values, with the paths at which they were written."""

    def origin(self, path: SettingPath) -> Origin:
        """Return where the value at ``path`` of :attr:`value` was written."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.moved:
                path = self.moved[path[:length]] + path[length:]
                break
        inner = path[len(self.prefix) :]
        offset = self.source.keys.get(inner, self.source.values.get(inner))
        if offset is None:
            return Origin(self.source.name)
        return Origin(self.source.name, *self.source.position(offset), self.source.written.get(inner))


class Merge:
    """Merges layers from the lowest to the highest.

    Objects are merged, everything else is replaced. A key keeps its first position and new keys follow, which defines
    the order of permission rules.
    """

    def __init__(self, concatenated: tuple[str, ...] = _CONCATENATED) -> None:
        self.concatenated = concatenated
        self.document: Document = {}
        self.origins: dict[SettingPath, Origin] = {}

    def add(self, layer: Layer) -> None:
        """Merge a layer on top."""
        self.merge(layer.value, layer.origin)

    def merge(self, value: Document, origin: OriginOf) -> None:
        """Merge ``value`` on top; ``origin`` returns where each of its values was set."""
        self._merge_into(self.document, value, origin, ())

    def put(self, path: SettingPath, value: Any, origin: Origin) -> None:
        """Set one value."""
        for name in reversed(path):
            value = {name: value}
        self.merge(value, lambda _: origin)

    def _merge_into(self, target: Document, value: Document, origin: OriginOf, path: SettingPath) -> None:
        for key, item in value.items():
            here = (*path, key)
            members = as_object(item)
            if members:
                inner = as_object(target.get(key))
                if inner is None:
                    self._drop_origins(here, target.get(key))
                    inner = target[key] = {}
                self.origins.pop(here, None)
                self._merge_into(inner, members, origin, here)
            # An empty object on top of one with members changes nothing; it replaces everything else.
            elif members is None or as_object(target.get(key)) is None:
                self._drop_origins(here, target.get(key))
                items = as_list(item)
                if items is None:
                    target[key] = {} if item == {} else item
                else:
                    is_concatenated = not path and key in self.concatenated
                    before: list[Any] = (as_list(target.get(key)) or []) if is_concatenated else []
                    known = {dumps_compact(one) for one in before}
                    new = [at for at, one in enumerate(items) if dumps_compact(one) not in known]
                    target[key] = [*before, *(items[at] for at in new)]
                    for at, written_at in enumerate(new, len(before)):
                        self.origins[(*here, at)] = origin((*here, written_at))
                self.origins[here] = origin(here)

    def _drop_origins(self, path: SettingPath, value: Any) -> None:
        """Drop the origins of ``value``, which was at ``path`` and is replaced."""
        if path[0] in self.concatenated:
            return  # earlier items of a concatenated list keep their origins
        for leaf, replaced in leaf_values(value, path):
            self.origins.pop(leaf, None)
            for at in range(len(as_list(replaced) or ())):
                self.origins.pop((*leaf, at), None)


_AGENT_KEYS = frozenset(AgentConfig.__struct_encode_fields__)


def normalise(layer: Layer) -> Layer:
    """Return the layer in present spelling."""
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
    """Return the permissions that a map of tools stands for. Every tool that changes files stands for ``edit``."""
    return {permission_of(tool): "allow" if enabled else "deny" for tool, enabled in tools.items()}


def _permission(permission: Any, path: SettingPath, moved: dict[SettingPath, SettingPath]) -> Document:
    rules = as_object(permission)
    if rules is not None:
        return rules
    moved[(*path, "*")] = path
    return {"*": permission}


def _agent(agent: Document, path: SettingPath, moved: dict[SettingPath, SettingPath]) -> Document:
    result = agent.copy()
    extra = [key for key in agent if key not in _AGENT_KEYS]
    if extra:
        result["options"] = {**object_at(agent, "options"), **{key: agent[key] for key in extra}}
        moved |= {(*path, "options", key): (*path, key) for key in extra}
    if "permission" in agent:
        result["permission"] = _permission(agent["permission"], (*path, "permission"), moved)
    tools = as_object(agent.get("tools"))
    if tools:
        own_permissions = object_at(result, "permission")
        result["permission"] = {**tool_permissions(tools), **own_permissions}
        for tool in tools:
            if permission_of(tool) not in own_permissions:
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
    """Return the ``file:`` URL of a path."""
    from pathlib import Path as FilePath

    return FilePath(os.path.abspath(path)).as_uri()


def finish(merge: Merge, flags: Flags) -> Document:
    """Apply older sections and environment variables, and return the merged document."""
    # A `mode` is a primary agent; its values keep the positions at which they were written.
    for name, mode in object_at(merge.document, "mode").items():
        merge.merge(
            {"agent": {name: {**mode, "mode": "primary"}}},
            lambda path: merge.origins.get(("mode", *path[1:])) or Origin("mode"),
        )
    if flags.permission:
        from .jsonc import decode

        value, source = decode(flags.permission, flags.variable("PERMISSION") or "")
        source, permission = source.around("permission"), {"permission": value}
        check(permission, ConfigSettings, source)
        merge.add(normalise(Layer(source, permission)))
    # The old `tools` are permissions that precede all others, so that the others win.
    if tools := as_object(merge.document.get("tools")):
        own_permissions = object_at(merge.document, "permission")
        merge.document["permission"] = {**tool_permissions(tools), **own_permissions}
        for tool in tools:
            if permission_of(tool) not in own_permissions:
                merge.origins[("permission", permission_of(tool))] = merge.origins[("tools", tool)]
    document = merge.document
    if document.get("autoshare") is True and not document.get("share"):
        merge.put(("share",), "auto", merge.origins[("autoshare",)])
    if not document.get("username"):
        users = (flags.environ.get(name) for name in ("USER", "LOGNAME", "USERNAME"))
        merge.put(("username",), next(filter(None, users), None) or _login_name(), Origin("the operating system"))
    for flag, setting in (("DISABLE_AUTOCOMPACT", "auto"), ("DISABLE_PRUNE", "prune")):
        if flags.on(flag):
            merge.put(("compaction", setting), False, Origin(flags.variable(flag) or flag))
    _plugins(merge)
    return document


def _plugins(merge: Merge) -> None:
    """Keep the last of several plugins with the same name."""
    listed = as_list(merge.document.get("plugin"))
    if not listed:
        return
    last = {_plugin_name(plugin): at for at, plugin in enumerate(listed)}
    last_positions = [at for at, plugin in enumerate(listed) if last[_plugin_name(plugin)] == at]
    origins = [merge.origins.pop(("plugin", at)) for at in range(len(listed))]
    merge.document["plugin"] = [listed[at] for at in last_positions]
    merge.origins |= {("plugin", at): origins[was] for at, was in enumerate(last_positions)}


def _plugin_name(plugin: Any) -> str:
    """Return ``@scope/name`` without its version; for a file, its name without folder and suffix.

    A Python file or module is replaced only by an identical entry: a project must not be able to replace a plugin that
    the user has configured.
    """
    pair = as_list(plugin)
    text = str(pair[0] if pair else plugin)
    if text.endswith(".py") or text.replace(".", "_").isidentifier():
        return dumps_compact(plugin).decode()
    if text.startswith("file:"):
        return text.rsplit("/", 1)[-1].rsplit(".", 1)[0]
    at = text.rfind("@")
    return text[:at] if at > 0 else text


def _login_name() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "unknown"


def replace_document(config: Config, document: Document, who: str) -> Config:
    """Return ``config`` with another document; ``who`` becomes the origin of every value that differs.

    Raises :class:`~opensesh.errors.ConfigError` for an invalid or unknown setting.
    """
    source = Source(who, "")
    for unknown in unknown_keys(check(document, ConfigSettings, source), document):
        if len(unknown.path) == 1:
            raise source.error(unknown.reason)
    document = normalise(Layer(source, deepcopy(document))).value
    before, after = dict(leaf_values(config.document, ())), dict(leaf_values(document, ()))
    origins = {
        path: config.origins[path] if path in config.origins and before.get(path) == value else Origin(who)
        for path, value in after.items()
    }
    items = {
        path: origin
        for path, origin in config.origins.items()
        if isinstance(path[-1], int) and before.get(path[:-1]) == after.get(path[:-1])
    }
    settings = check(document, ConfigSettings, source)
    return replace(config, document=document, settings=settings, origins=origins | items)


def leaf_values(value: Any, path: SettingPath = ()) -> Iterator[tuple[SettingPath, Any]]:
    """Yield the path and value of everything that is not a non-empty object."""
    members = as_object(value)
    if members:
        for name, member in members.items():
            yield from leaf_values(member, (*path, name))
    elif path:
        yield path, value
