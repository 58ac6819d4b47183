"""What a project's configuration names and nobody has to trust but the user, from every room that has some."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..config import Config
    from ..config.foreign import Foreign


def foreign(config: Config) -> list[Foreign]:
    """The MCP servers and addresses of models that need trust."""
    found: list[Foreign] = []
    if config.settings.mcp:
        from ..tools.mcp.foreign import foreign as servers

        found += servers(config)
    if config.settings.provider:
        from ..models.foreign import foreign as providers

        found += providers(config)
    return found


def untrusted(config: Config) -> list[tuple[Foreign, str]]:
    """Those of them that nobody has trusted as they are, each with why it is not used."""
    from ..config.foreign import why_not

    return [(each, why) for each in foreign(config) if (why := why_not(config, each))]
