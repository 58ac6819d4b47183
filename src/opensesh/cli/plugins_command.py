"""List the plugins of this directory: the loaded ones with their source and hooks, the others with the reason.

Plugins, MCP servers and scripted models of a project are programs from its repository, and the model addresses that its
configuration names receive your prompts and your key. Each is used only after you trust it with --trust, and only until
it changes. Look at them first.
"""

from __future__ import annotations

import logging
import sys
from argparse import Namespace
from contextlib import redirect_stdout
from typing import Any

from ..errors import UsageError
from ..plugins import (
    Host,
    LoadedPlugin,
    Plugins,
    PluginSource,
    SkippedPlugin,
    Trust,
    candidates_needing_trust,
    load_plugins,
    plugin_tools,
)
from ..redaction import Redactor
from . import output
from .command_arguments import CommandParser
from .directory_config import add_directory_option, load_config, trust_items, untrusted_items
from .terminal import escape_control


def configure(parser: CommandParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--trust",
        action="store_true",
        help="trust the project's plugins, servers, addresses and scripts as they are now",
    )
    parser.add_argument("--untrust", action="store_true", help="stop trusting them")
    add_directory_option(parser)


def run(options: Namespace) -> int:
    """Print the plugins."""
    if options.trust and options.untrust:
        raise UsageError("--trust and --untrust cannot be combined")
    location, config = load_config(options)
    if options.trust or options.untrust:
        items = [
            (plugin.key, digest, output.short_path(plugin.source.place))
            for plugin, digest in candidates_needing_trust(config)
        ]
        items += [
            (item.key, item.digest, f"{item.kind} {item.name}: {Redactor().text(item.what)}")
            for item in trust_items(config)
        ]
        if options.trust:
            Trust().grant((key, digest) for key, digest, _ in items)
            changed = [description for _, _, description in items]
        else:
            revoked = Trust().revoke(key for key, _, _ in items)
            changed = [description for key, _, description in items if key in revoked]
        verb = "trusted" if options.trust else "no longer trusted"
        lines = [f"{verb}: {escape_control(description)}" for description in changed]
        none = "This project has nothing that needs trust." if options.trust else "Nothing of this project was trusted."
        if not options.json:
            print("\n".join(lines or [none]))
    host = Host(directory=location.directory, worktree=location.sandbox, project_id=location.id)
    log = logging.getLogger("opensesh.plugins")
    was_disabled, log.disabled = log.disabled, True  # what the loader would warn about is printed here
    try:
        with redirect_stdout(sys.stderr):  # plugins may print while they are loaded
            plugins = load_plugins(config, host)
            tool_ids = [[tool.id for tool in plugin_tools(Plugins([plugin]))] for plugin in plugins.loaded]
    finally:
        log.disabled = was_disabled
    skipped = [
        *plugins.skipped,
        *(
            SkippedPlugin(item.name, PluginSource(item.kind, what, str(item.named_by)), "untrusted", reason)
            for item, reason in untrusted_items(config)
            for what in (Redactor().text(item.what),)
        ),
    ]
    disabled_by = config.flags.variable("DISABLE_PLUGINS") if config.flags.disable_plugins else None
    if options.json:
        loaded = [
            {"name": plugin.name, "source": _document(plugin.source), "hooks": _hooks(plugin), "tools": own}
            for plugin, own in zip(plugins.loaded, tool_ids, strict=True)
        ]
        not_loaded = [
            {"name": one.name, "source": _document(one.source), "kind": one.kind, "reason": one.reason}
            for one in skipped
        ]
        output.print_json({"directory": config.directory, "off": disabled_by, "plugins": loaded, "skipped": not_loaded})
    else:
        _print_plugins(plugins, tool_ids, skipped, disabled_by)
    return 0


def _hooks(plugin: LoadedPlugin) -> list[str]:
    return list(dict.fromkeys(hook for hook, _ in plugin.functions))


def _print_plugins(
    plugins: Plugins, tool_ids: list[list[str]], skipped: list[SkippedPlugin], disabled_by: str | None
) -> None:
    if disabled_by:
        print(f"Plugins are disabled by {disabled_by}.")
    elif not plugins.loaded:
        print("No plugins are loaded here.")
    for plugin, own in zip(plugins.loaded, tool_ids, strict=True):
        print(f"{output.paint(plugin.name, 1)}  {_origin(plugin.source)}")
        if plugin.functions:
            print(f"  hooks: {', '.join(_hooks(plugin))}")
        if own:
            print(f"  tools: {', '.join(own)}")
    if skipped:
        print("\nNot used:" if plugins.loaded else "Not used:")
    for one in skipped:
        print(f"  {output.paint(one.name, 1)}  {_origin(one.source)}")
        print(f"    {output.clip(one.reason, 1000)}")
    if any(one.kind == "untrusted" for one in skipped):
        print("\nLook at the untrusted ones, then run 'opensesh plugins --trust' to use them.")


def _origin(source: PluginSource) -> str:
    named_by = f", named by {output.short_path(source.named_by)}" if source.named_by else ""
    return output.paint(escape_control(f"{source.kind}: {output.short_path(source.place)}{named_by}"), 2)


def _document(source: PluginSource) -> dict[str, Any]:
    return {"kind": source.kind, "place": source.place, "namedBy": source.named_by or None}
