"""The configuration as a whole: what holds, and who said so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from ..errors import ConfigError
from ..flags import Flags
from ..records import Document, as_list, as_object
from .folders import Folders
from .schema import Settings
from .source import Path

if TYPE_CHECKING:
    from collections.abc import Callable

    from .source import Source

    OriginOf = Callable[[Path], "Origin"]

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
    settings: Settings
    """Typed, with defaults."""
    document: Document
    """Plain, as merged; without defaults."""
    origins: dict[Path, Origin]
    """For every value in ``document`` that is not an object: who set it."""
    folders: Folders
    flags: Flags
    directories: tuple[str, ...]
    """The folders in which agents, commands, skills and tools are looked for; the later one wins."""
    variables: dict[str, str] = {}
    """Environment variables that an organisation's configuration brought along."""
    problems: tuple[ConfigError, ...] = ()
    """What was left out, or has no effect: a file that cannot be read as an agent, a key that nothing knows."""

    def origin(self, path: str | Path) -> Origin | None:
        """Who set the value at ``path``, such as ``"compaction.auto"``. ``None`` if nobody did, and for objects.

        A path with dots in its names is given as a tuple, or is understood where it is not ambiguous.
        """
        steps = _split(self.document, path) if isinstance(path, str) else path
        return None if steps is None else self.origins.get(steps)


def _split(value: Any, path: str) -> Path | None:
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
    prefix: Path = ()
    """Where the source's own settings belong; a Markdown agent's are at ``agent.<name>``."""
    moved: dict[Path, Path] = {}
    """New places of values, with those they were written at."""

    def origin(self, path: Path) -> Origin:
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
        self.origins: dict[Path, Origin] = {}

    def add(self, layer: Layer) -> None:
        """Put a layer on top."""
        self.merge(layer.value, layer.origin)

    def merge(self, value: Document, origin: OriginOf) -> None:
        """Put ``value`` on top; ``origin`` knows who set what in it."""
        self._into(self.document, value, origin, ())

    def put(self, path: Path, value: Any, origin: Origin) -> None:
        """Set one value."""
        for name in reversed(path):
            value = {name: value}
        self.merge(value, lambda _: origin)

    def _into(self, target: Document, value: Document, origin: OriginOf, path: Path) -> None:
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

    def _joined(self, held: Any, item: Any, origin: OriginOf, path: Path) -> Any:
        items = as_list(item)
        if items is None:
            return {} if item == {} else item
        before: list[Any] = (as_list(held) or []) if path[0] in self.joined and len(path) == 1 else []
        after = [*before, *(one for one in items if one not in before)]
        for at in range(len(before), len(after)):
            self.origins[(*path, at)] = origin((*path, items.index(after[at])))
        return after

    def _forget(self, path: Path) -> None:
        if path[0] in self.joined:
            return  # what a list that adds up already holds stays where it is
        for known in [known for known in self.origins if known[: len(path)] == path]:
            del self.origins[known]
