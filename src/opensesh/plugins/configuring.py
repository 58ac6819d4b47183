"""What plugins do while an engine is being opened: change the configuration, add providers, add tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import hooks

if TYPE_CHECKING:
    from ..config import Config
    from ..tools.tool import Tool
    from .calling import Plugins
    from .vocabulary import Configuration, Providers


def configured(plugins: Plugins, config: Config) -> Config:
    """The configuration as the plugins want it. What none of them could have written into a file is not taken."""
    if not plugins.wants(hooks.config, hooks.provider):
        return config
    from ..config.replacing import replaced
    from .vocabulary import Configuration, Providers

    now = config

    def take(name: str, output: Configuration) -> None:
        nonlocal now
        now = replaced(now, output.document, f"the plugin {name}")

    plugins.apply_early(hooks.config, Configuration(document=config.document), take)

    def add(name: str, output: Providers) -> None:
        nonlocal now
        now = replaced(now, now.document | {"provider": output.providers}, f"the plugin {name}")

    known = Providers(providers=now.document.get("provider") or {})
    plugins.apply_early(hooks.provider, known, add)
    return now


def tools(plugins: Plugins) -> tuple[Tool, ...]:
    """The plugins' tools, in the order in which the plugins were loaded."""
    written: list[Tool] = [tool for plugin in plugins.loaded for tool in plugin.tools]
    if not plugins.wants(hooks.tool):
        return tuple(written)
    from .vocabulary import Tools

    return tuple(plugins.apply_early(hooks.tool, Tools(tools=written)).output.tools)
