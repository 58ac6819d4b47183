"""What is settled once all layers are merged: older sections, and variables that have the last word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..records import Document, as_list, as_object, dumps_compact
from .before_merge import normalise, tool_permissions
from .merged import Layer, Merge, Origin
from .rules import permission_of
from .schema import Settings
from .validation import check

if TYPE_CHECKING:
    from ..flags import Flags
    from .source import Path


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

    def origin(path: Path) -> Origin:
        written: Path = ("mode", *path[1:])
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
    check(document, Settings, source)
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
