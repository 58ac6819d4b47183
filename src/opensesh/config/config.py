"""The configuration as a whole: what holds, and who said so."""

from __future__ import annotations

import os
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ..errors import ConfigError
from ..flags import Flags
from ..records import Document, as_list, as_object, dumps_compact
from .rules import permission_of
from .schema import AgentConfig, ConfigSettings
from .source import Folders, SettingPath, Source
from .validation import check, unknown_keys

if TYPE_CHECKING:
    from collections.abc import Callable

    OriginOf = Callable[[SettingPath], "Origin"]
    from collections.abc import Iterator, Mapping


JOINED = ("plugin", "instructions")
"""Lists that add up from layer to layer. All other lists are replaced by the later one."""


class Origin(NamedTuple):
    """Who set a value."""

    source: str
    """The path of a file, the name of an environment variable, or a URL."""
    line: int | None = None
    column: int | None = None
    written: str | None = None
    """What stands there, if placeholders fill it in: ``"Bearer {env:TOKEN}"``, with its quotes."""

    def __str__(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source


class Config(Struct, frozen=True, kw_only=True):
    """All layers together. Reading it again is the only way to change it: nothing is ever written to a user's
    files."""

    directory: str
    worktree: str
    settings: ConfigSettings
    """Typed, with defaults."""
    document: Document
    """Plain, as merged; without defaults."""
    origins: dict[SettingPath, Origin]
    """For every value in ``document`` that is not an object: who set it."""
    folders: Folders
    flags: Flags
    directories: tuple[str, ...]
    """The folders in which agents, commands, skills and tools are looked for; the later one wins."""
    variables: dict[str, str] = {}
    """Environment variables that an organisation's configuration brought along."""
    problems: tuple[ConfigError, ...] = ()
    """What was left out, or has no effect: a file that cannot be read as an agent, a key that nothing knows."""

    def origin(self, path: str | SettingPath) -> Origin | None:
        """Who set the value at ``path``, such as ``"compaction.auto"``. ``None`` if nobody did, and for objects.

        A path with dots in its names is given as a tuple, or is understood where it is not ambiguous.
        """
        steps = _split(self.document, path) if isinstance(path, str) else path
        return None if steps is None else self.origins.get(steps)


def _split(value: Any, path: str) -> SettingPath | None:
    """Find the way that ``path`` describes; names may have dots in them."""
    if not path:
        return ()
    if (items := as_list(value)) is not None:
        head, _, rest = path.partition(".")
        if not head.isdigit() or int(head) >= len(items):
            return None
        way = _split(items[int(head)], rest)
        return None if way is None else (int(head), *way)
    for name, member in (as_object(value) or {}).items():
        if path == name or path.startswith(name + "."):
            way = _split(member, path[len(name) + 1 :])
            if way is not None:
                return (name, *way)
    return None


class Layer(NamedTuple):
    """What one source contributes."""

    source: Source
    value: Document
    prefix: SettingPath = ()
    """Where the source's own settings belong; a Markdown agent's are at ``agent.<name>``."""
    moved: dict[SettingPath, SettingPath] = {}
    """New places of values, with those they were written at."""

    def origin(self, path: SettingPath) -> Origin:
        """Where the value at ``path`` of :attr:`value` was written."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.moved:
                path = self.moved[path[:length]] + path[length:]
                break
        inner = path[len(self.prefix) :]
        offset = self.source.keys.get(inner, self.source.values.get(inner))
        if offset is None:
            return Origin(self.source.name)
        return Origin(self.source.name, *self.source.spot(offset), self.source.written.get(inner))


class Merge:
    """Layers, put on top of each other from the lowest to the highest.

    Objects are merged, everything else is replaced. A key keeps the position it first had, and new keys come after
    it: the order of permission rules follows from that.
    """

    def __init__(self, joined: tuple[str, ...] = JOINED) -> None:
        self.joined = joined
        self.document: Document = {}
        self.origins: dict[SettingPath, Origin] = {}

    def add(self, layer: Layer) -> None:
        """Put a layer on top."""
        self.merge(layer.value, layer.origin)

    def merge(self, value: Document, origin: OriginOf) -> None:
        """Put ``value`` on top; ``origin`` knows who set what in it."""
        self._into(self.document, value, origin, ())

    def put(self, path: SettingPath, value: Any, origin: Origin) -> None:
        """Set one value."""
        for name in reversed(path):
            value = {name: value}
        self.merge(value, lambda _: origin)

    def _into(self, target: Document, value: Document, origin: OriginOf, path: SettingPath) -> None:
        for key, item in value.items():
            here = (*path, key)
            members = as_object(item)
            if members:
                inner = as_object(target.get(key))
                if inner is None:
                    self._forget(here)
                    inner = target[key] = {}
                self.origins.pop(here, None)
                self._into(inner, members, origin, here)
            elif members is None or as_object(target.get(key)) is None:
                self._forget(here)
                target[key] = self._joined(target.get(key), item, origin, here)
                self.origins[here] = origin(here)

    def _joined(self, held: Any, item: Any, origin: OriginOf, path: SettingPath) -> Any:
        items = as_list(item)
        if items is None:
            return {} if item == {} else item
        before: list[Any] = (as_list(held) or []) if path[0] in self.joined and len(path) == 1 else []
        after = [*before, *(one for one in items if one not in before)]
        for at in range(len(before), len(after)):
            self.origins[(*path, at)] = origin((*path, items.index(after[at])))
        return after

    def _forget(self, path: SettingPath) -> None:
        if path[0] in self.joined:
            return  # what a list that adds up already holds stays where it is
        for known in [known for known in self.origins if known[: len(path)] == path]:
            del self.origins[known]


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


def finish(merge: Merge, flags: Flags) -> Document:
    """Settle what the layers left open; the merged document."""
    _modes(merge)
    _permission_variable(merge, flags)
    _tools(merge)
    document = merge.document
    if document.get("autoshare") is True and not document.get("share"):
        merge.put(("share",), "auto", merge.origins[("autoshare",)])
    if not document.get("username"):
        merge.put(("username",), _user(flags), Origin("the operating system"))
    for flag, setting in (("DISABLE_AUTOCOMPACT", "auto"), ("DISABLE_PRUNE", "prune")):
        if flags.on(flag):
            merge.put(("compaction", setting), False, Origin(flags.variable(flag) or flag))
    _plugins(merge)
    return document


def _modes(merge: Merge) -> None:
    """A ``mode`` is a primary agent."""
    modes = as_object(merge.document.get("mode")) or {}

    def origin(path: SettingPath) -> Origin:
        written: SettingPath = ("mode", *path[1:])
        return merge.origins.get(written) or Origin("mode")

    for name, mode in modes.items():
        merge.merge({"agent": {name: {**mode, "mode": "primary"}}}, origin)


def _permission_variable(merge: Merge, flags: Flags) -> None:
    text = flags.permission
    if not text:
        return
    from .jsonc import decode

    value, source = decode(text, flags.variable("PERMISSION") or "")
    source = source.around("permission")
    document: Document = {"permission": value}
    check(document, ConfigSettings, source)
    merge.add(normalise(Layer(source, document)))


def _tools(merge: Merge) -> None:
    """The old ``tools`` are permissions below all that are stated, so they come first in the order of rules."""
    tools = as_object(merge.document.get("tools")) or {}
    stated = as_object(merge.document.get("permission")) or {}
    if tools:
        merge.document["permission"] = {**tool_permissions(tools), **stated}
    for tool in tools:
        permission = permission_of(tool)
        if permission not in stated:
            merge.origins[("permission", permission)] = merge.origins[("tools", tool)]


def _plugins(merge: Merge) -> None:
    """Of several with the same name, the last one counts."""
    listed = as_list(merge.document.get("plugin"))
    if not listed:
        return
    last = {_plugin_name(plugin): at for at, plugin in enumerate(listed)}
    kept = [at for at, plugin in enumerate(listed) if last[_plugin_name(plugin)] == at]
    origins = [merge.origins.pop(("plugin", at)) for at in range(len(listed))]
    merge.document["plugin"] = [listed[at] for at in kept]
    merge.origins |= {("plugin", at): origins[was] for at, was in enumerate(kept)}


def _plugin_name(plugin: Any) -> str:
    """``@scope/name@1.2.3`` without its version; the name of a file without folder and ending.

    A Python file, or what may be a Python module, is only ever replaced by the very same entry: whose code runs is
    decided by who trusts it, and a project must not be able to push out what the user has set up.
    """
    pair = as_list(plugin)
    text = str(pair[0] if pair else plugin)
    if text.endswith(".py") or text.replace(".", "_").isidentifier():
        return dumps_compact(plugin).decode()
    if text.startswith("file:"):
        return text.rsplit("/", 1)[-1].rsplit(".", 1)[0]
    at = text.rfind("@")
    return text[:at] if at > 0 else text


def _user(flags: Flags) -> str:
    import getpass

    named = next((flags.environ[name] for name in ("USER", "LOGNAME", "USERNAME") if flags.environ.get(name)), None)
    try:
        return named or getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "unknown"


def replace_document(config: Config, document: Document, who: str) -> Config:
    """``config`` with ``document`` in place of its own, where ``who`` is behind every value that is another.

    A :class:`~opensesh.errors.ConfigError` says what does not fit, or is not a setting.
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
    """Every value that is not an object with something in it, and its path."""
    members = as_object(value)
    if members:
        for name, member in members.items():
            yield from leaf_values(member, (*path, name))
    elif path:
        yield path, value
