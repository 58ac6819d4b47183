"""Plugins at work in this directory: where each comes from, and its hooks; and those that are not at work, and why.

Plugins that come with a project, and the MCP servers and scripted models that its configuration names, are programs
from its repository; an address that it gives to a model is sent everything that is said, and your key. They are used
only once they are trusted, and each only for as long as it does not change: look at it, then '--trust' it.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

from . import directory, output

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Generator

    from ..config import Config
    from ..plugins import LoadedPlugin, Plugins, PluginSource, SkippedPlugin
    from .arguments import Parser

_OFF = "Plugins are switched off here, by {}."


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--trust",
        action="store_true",
        help="trust the project's plugins, servers, addresses and scripts, as they are now",
    )
    parser.add_argument("--untrust", action="store_true", help="trust none of them any more")
    directory.declare(parser)


def run(options: Namespace) -> int:
    """Print the plugins."""
    from ..config import load
    from ..errors import UsageError
    from ..plugins import Host, load_plugins

    if options.trust and options.untrust:
        raise UsageError("--trust and --untrust are opposites: give one of them")
    place = directory.place_of(options)
    config = load(place.directory, place.sandbox)
    if options.trust or options.untrust:
        _change_trust(config, trust=options.trust, quiet=options.json)
    host = Host(directory=place.directory, worktree=place.sandbox, project_id=place.id)
    with _silence(), redirect_stdout(sys.stderr):
        plugins = load_plugins(config, host)
        tools = [_tools(plugin) for plugin in plugins.loaded]
    skipped = [*plugins.skipped, *_named(config)]
    off = config.flags.variable("DISABLE_PLUGINS") if config.flags.disable_plugins else None
    if options.json:
        found = [_document(each, own) for each, own in zip(plugins.loaded, tools, strict=True)]
        left = [_skipped_document(each) for each in skipped]
        output.print_json({"directory": config.directory, "off": off, "plugins": found, "skipped": left})
    else:
        _print(plugins, tools, off, skipped)
    return 0


def _change_trust(config: Config, *, trust: bool, quiet: bool) -> None:
    from ..plugins import Trust, candidates_needing_trust
    from .foreign import foreign
    from .terminal import tame

    found = [(each.key, now, output.short_path(each.source.place)) for each, now in candidates_needing_trust(config)]
    found += [(each.key, each.digest, f"{each.kind} {each.name}: {each.what}") for each in foreign(config)]
    if trust:
        Trust().grant((key, now) for key, now, _ in found)
        changed = [what for _, _, what in found]
    else:
        gone = Trust().revoke(key for key, _, _ in found)
        changed = [what for key, _, what in found if key in gone]
    if not quiet:
        verb = "trusted" if trust else "not trusted any more"
        for what in changed:
            print(f"{verb}: {tame(what)}")
        if not changed:
            print("This project has nothing that needs trust." if trust else "None of them was trusted.")


def _named(config: Config) -> list[SkippedPlugin]:
    """What the project's configuration names that is not trusted."""
    from ..plugins import PluginSource, SkippedPlugin
    from .foreign import untrusted

    return [
        SkippedPlugin(each.name, PluginSource(each.kind, each.what, str(each.named_by)), "untrusted", why)
        for each, why in untrusted(config)
    ]


@contextmanager
def _silence() -> Generator[None]:
    """What would be logged is printed here."""
    import logging

    log = logging.getLogger("opensesh.plugins")
    was, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = was


def _tools(plugin: LoadedPlugin) -> list[str]:
    from ..plugins import Plugins, plugin_tools

    return [tool.id for tool in plugin_tools(Plugins([plugin]))]


def _hooks(plugin: LoadedPlugin) -> list[str]:
    return list(dict.fromkeys(hook for hook, _ in plugin.functions))


def _print(plugins: Plugins, tools: list[list[str]], off: str | None, skipped: list[SkippedPlugin]) -> None:
    if off:
        print(_OFF.format(off))
    elif not plugins.loaded:
        print("No plugin is at work here.")
    for plugin, own in zip(plugins.loaded, tools, strict=True):
        print(f"{output.paint(plugin.name, 1)}  {_from(plugin.source)}")
        if plugin.functions:
            print(f"  hooks: {', '.join(_hooks(plugin))}")
        if own:
            print(f"  tools: {', '.join(own)}")
    if skipped:
        print("\nNot at work:" if plugins.loaded else "Not at work:")
    for each in skipped:
        print(f"  {output.paint(each.name, 1)}  {_from(each.source)}")
        print(f"    {output.clip(each.reason, 1000)}")
    if any(each.kind == "untrusted" for each in skipped):
        print("\nLook at those that are not trusted; then 'opensesh plugins --trust' has them used.")


def _from(source: PluginSource) -> str:
    from .terminal import tame

    by = f", named by {output.short_path(source.named_by)}" if source.named_by else ""
    return output.paint(tame(f"{source.kind}: {output.short_path(source.place)}{by}"), 2)


def _document(plugin: LoadedPlugin, tools: list[str]) -> dict[str, Any]:
    return {"name": plugin.name, "source": _source(plugin.source), "hooks": _hooks(plugin), "tools": tools}


def _skipped_document(each: SkippedPlugin) -> dict[str, Any]:
    return {"name": each.name, "source": _source(each.source), "kind": each.kind, "reason": each.reason}


def _source(source: PluginSource) -> dict[str, Any]:
    return {"kind": source.kind, "place": source.place, "namedBy": source.named_by or None}
