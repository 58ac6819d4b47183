"""The configuration of the directory that a command is about, and the items in it that need the user's trust."""

from __future__ import annotations

import logging
import os
from argparse import Namespace

from ..config import Config, load, load_and_fetch
from ..config.agents import plan_trust_items
from ..config.commands import commands_needing_trust
from ..config.trust import UntrustedItem, folder_trust_items, why_untrusted
from ..errors import OpenseshError, UsageError
from ..models.provider_trust import provider_trust_items as model_items
from ..project import ProjectLocation, resolve
from ..redaction import known_secrets
from ..text import error_text
from .command_arguments import CommandParser

log = logging.getLogger("opensesh.cli")


def add_directory_option(parser: CommandParser) -> None:
    """Declare ``--dir``."""
    parser.add_argument("--dir", metavar="D", help="use this directory (default: the current one)")


def load_config(options: Namespace) -> tuple[ProjectLocation, Config]:
    """Return the project and the configuration of the directory that ``--dir`` names, or of the current one."""
    if options.dir is not None and not os.path.isdir(options.dir):
        raise UsageError(f"the directory {options.dir} does not exist")
    location = resolve(options.dir or os.getcwd())
    return location, load_and_fetch(location.directory, location.sandbox)


def secrets_of_this_machine() -> set[str]:
    """Return the secrets that redaction removes in any form: those of the environment, of OpenCode's login
    files, and of the configuration of the current directory, if it can be read."""
    try:
        location = resolve(os.getcwd())
        document = load(location.directory, location.sandbox).document
    except (OpenseshError, OSError) as error:
        log.warning("secrets of the configuration are not redacted: it cannot be read (%s)", error_text(error))
        document = {}
    return known_secrets(document)


def trust_items(config: Config) -> list[UntrustedItem]:
    """Return the MCP servers, model addresses, scripts, commands, rules for plan mode and folders of the project that
    need the user's trust."""
    items = [
        *folder_trust_items(config),
        *model_items(config),
        *commands_needing_trust(config),
        *plan_trust_items(config),
    ]
    if not config.settings.mcp:
        return items
    from ..tools.mcp.server_trust import servers_needing_trust  # the mcp package is an optional extra

    return [*servers_needing_trust(config), *items]


def untrusted_items(config: Config) -> list[tuple[UntrustedItem, str]]:
    """Return the items that the user has not trusted as they are now, each with the reason why it is not used."""
    return [(item, reason) for item in trust_items(config) if (reason := why_untrusted(config, item))]
