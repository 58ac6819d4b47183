"""Skills: instructions that a model can load by name, one folder with a ``SKILL.md`` each.

Of several with the same name the last one wins, in this order: ``~/.claude/skills`` and ``~/.agents/skills``, the
same folders in the project from the worktree down to the directory, ``skill/`` and ``skills/`` in each configuration
folder, and ``skills.paths``. As with configuration folders, and unlike OpenCode 1.1.65, the closest to the directory
wins. Skills of ``skills.urls`` are not fetched.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from msgspec import Struct

from ..errors import ConfigError
from . import globs
from .prompts import prompt
from .trust import owner_of, user_folders

if TYPE_CHECKING:
    from collections.abc import Callable

    from .config import Config

    Report = Callable[[ConfigError], None]

log = logging.getLogger("opensesh.config")
FILE = "SKILL.md"
_MAX_SKILLS = 500
_EXTERNAL_FOLDERS = (".claude", ".agents")


class Skill(Struct, frozen=True):
    """A skill."""

    name: str
    description: str
    location: str
    """The path of its ``SKILL.md``."""
    content: str
    """The text below the front matter."""

    @property
    def folder(self) -> str:
        """The folder of its files."""
        return os.path.dirname(self.location)


def log_problem(problem: ConfigError) -> None:
    """Log a problem as a warning: the default ``report``."""
    log.warning("%s", problem)


def skills(config: Config, *, report: Report = log_problem) -> dict[str, Skill]:
    """Return all skills by name. One that cannot be read, or whose ``SKILL.md`` has no name or description, is left out
    and passed to ``report``."""
    bases = dict.fromkeys((config.folders.home, *config.project_folders.used[::-1]))
    others = () if config.flags.disable_external_skills else _EXTERNAL_FOLDERS
    folders = [os.path.join(base, other, "skills") for base in bases for other in others]
    folders += [os.path.join(folder, kind) for folder in config.directories for kind in ("skill", "skills")]
    paths = config.settings.skills.paths
    named = dict.fromkeys([config.folders.resolve(path, config.directory) for path in paths])
    for url in config.settings.skills.urls:
        report(ConfigError("skills from the network are not fetched here", path=url.rstrip("/")))
    existing = list(filter(os.path.isdir, (*folders, *named)))
    if not existing:
        return {}
    named_by = config.origin(("skills", "paths"))
    foreign = named_by is not None and owner_of(named_by, config) == "project"
    search = globs.Search()
    own = _own_folders(config)
    files: list[str] = []
    for folder in existing:
        # A link in a repository must not lead out of it; the user's own folders may contain links to anywhere.
        is_own = not foreign if folder in named else os.path.dirname(folder) in own
        source = named_by.source if named_by is not None and folder in named else folder
        within = "" if is_own else config.project_folders.root(source)
        matching = search.find(folder, f"**/{FILE}", within=within)
        files += (path for path in matching if not within or search.may_read(path))
    for path, reason in search.problems.items():
        report(ConfigError(reason, path=path))
    if len(files) > _MAX_SKILLS:
        report(ConfigError(f"only the first {_MAX_SKILLS} of {len(files)} skills are used", path=config.directory))
    del files[_MAX_SKILLS:]
    skills: dict[str, Skill] = {}
    for path in files:
        from .frontmatter import read  # imports yaml, which few projects need

        try:
            settings, body, source = read(path)
            for key in ("name", "description"):
                if not isinstance(value := settings.get(key), str) or not value:
                    raise source.error(f"a skill needs a {key} of text", (key,))
        except ConfigError as problem:
            report(problem)
            continue
        skills[settings["name"]] = Skill(settings["name"], settings["description"], path, body)
    return skills


def builtin_skill() -> Skill:
    """Return the skill that OpenCode 1.18 has built in, which its terminal client offers as a command. Models are not
    offered it."""
    return Skill(
        "customize-opencode",
        "Only for changing the configuration of OpenCode or opensesh itself: opencode.json, agents, commands, skills, "
        "plugins, MCP servers and permissions. Not for other code.",
        "/builtin/customize-opencode.md",
        prompt("customize-opencode"),
    )


def is_own_skill(config: Config, skill: Skill) -> bool:
    """Return whether the user has written or installed a skill: it came neither with the project nor from a URL."""
    return any(skill.location.startswith(os.path.join(folder, "")) for folder in _own_folders(config))


def _own_folders(config: Config) -> set[str]:
    return {*user_folders(config), *(os.path.join(config.folders.home, other) for other in _EXTERNAL_FOLDERS)}
