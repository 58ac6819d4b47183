"""What a project's configuration names and nobody has to trust but the user, from every room that has some."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..config import Config
    from ..config.trust import UntrustedItem


def foreign(config: Config) -> list[UntrustedItem]:
    """The MCP servers, addresses of models and scripts that need trust."""
    from ..models.provider_trust import provider_trust_items as models

    if not config.settings.mcp:
        return models(config)
    from ..tools.mcp.server_trust import servers_needing_trust as servers

    return [*servers(config), *models(config)]


def untrusted(config: Config) -> list[tuple[UntrustedItem, str]]:
    """Those of them that nobody has trusted as they are, each with why it is not used."""
    from ..config.trust import why_untrusted

    return [(each, why) for each in foreign(config) if (why := why_untrusted(config, each))]
