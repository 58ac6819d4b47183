"""What a project's configuration brings that nothing is started with and nothing is sent to before the user has trusted
it: MCP servers, addresses of models, and scripts that stand in for one.

What the configuration says is what is trusted. A variable of the user's that fills a placeholder may change; the
placeholder may not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..records import as_list
from .ownership import whose
from .trust import Trust

if TYPE_CHECKING:
    from .merged import Config, Origin
    from .source import Path


class Foreign(NamedTuple):
    """Something that needs the user's trust."""

    kind: Literal["MCP server", "provider", "script"]
    name: str
    what: str
    """The command line, the addresses, or the file; a secret that would be filled in is not in it."""
    setting: Path
    """Where it stands in the configuration."""
    named_by: Origin
    key: str
    """What trust in it is kept under."""
    digest: str
    """What stands for it as it is now."""


def why_not(config: Config, each: Foreign | None) -> str:
    """Why it must not be used, in words; nothing if it may."""
    if each is None or config.flags.trust_plugins:
        return ""
    return Trust().doubt(each.key, each.digest)


def stated(config: Config, section: str, name: str, *, files: bool = False) -> dict[Path, Any]:
    """What files and variables say in ``section.name``, by the path below it, as it stands there, fit to be shown; with
    ``files`` what ``{file:...}`` names is filled in, fit to be trusted: a file may be the project's own. What a plugin
    says is not in it."""
    from .replacing import values

    return {
        path[2:]: _as_written(config, path, value, files=files)
        for path, value in sorted(values({section: {name: config.document[section][name]}}))
        if len(path) > 2 and whose(config.origins.get(path), config) != "program"
    }


def _as_written(config: Config, path: Path, value: Any, *, files: bool) -> Any:
    items = as_list(value)
    if items is not None:
        return [_as_written(config, (*path, at), item, files=files) for at, item in enumerate(items)]
    origin = config.origins.get(path)
    written = (origin.written if origin is not None else None) or ""
    # A placeholder that is no part of a string stands for whole settings, which nobody could judge by its name.
    is_text = written.startswith('"')
    return value if not written or ("{file:" in written and (files or not is_text)) else written.strip('"')
