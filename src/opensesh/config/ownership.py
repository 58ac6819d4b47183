"""Whose word a setting is: the user's, or that of a project, which whoever clones a repository has not read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from ..flags import PREFIXES

if TYPE_CHECKING:
    from .merged import Config, Origin


def whose(origin: Origin | None, config: Config) -> Literal["user", "project", "organisation", "program"]:
    """Who set a value: the user (or the administrator) in a file or a variable; the project; an organisation, which the
    user has logged in to; or the running program and its plugins, which are no text that anyone could bring along."""
    if origin is None:
        return "program"
    if is_own(origin.source, config):
        return "user"
    if os.path.isabs(origin.source):
        return "project"
    return "organisation" if "://" in origin.source else "program"


def is_own(source: str, config: Config) -> bool:
    """Whether the user (or the administrator) wrote this source of configuration: what is neither in a folder of
    theirs, nor named by a variable of theirs, came with the project or from an organisation."""
    named = config.flags.config
    if named and source == config.folders.resolve(named, config.directory):
        return True
    return source.startswith(PREFIXES) or _folder(source, config) in own_folders(config)


def _folder(source: str, config: Config) -> str:
    """The folder that a file of configuration belongs to; one in Markdown lies somewhere below it."""
    around = [folder for folder in config.directories if source.startswith(os.path.join(folder, ""))]
    return max(around, key=len) if source.endswith(".md") and around else os.path.dirname(source)


def own_folders(config: Config) -> set[str]:
    """The configuration folders that are the user's, or the administrator's."""
    named = config.flags.config_dir
    return {
        config.folders.config,
        config.folders.managed,
        os.path.join(config.folders.home, ".opencode"),
        *([config.folders.resolve(named, config.directory)] if named else []),
    }
