"""The environment variables that change how sessions run.

OpenCode's names are ``OPENCODE_<NAME>``. ``OPENSESH_<NAME>`` has the same meaning and takes precedence, so that it can
be set for opensesh only. OpenCode's variables for features that opensesh does not have (language servers, a file
watcher, updates) are ignored.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIXES = ("OPENSESH_", "OPENCODE_")
SERVER_LOGIN_VARIABLES = frozenset(("OPENCODE_SERVER_PASSWORD", "OPENCODE_SERVER_USERNAME"))
"""The login of a server. Programs that a model starts do not get it: with it they could allow themselves everything."""


class _Variables:
    """An attribute of :class:`Flags` that is read from the variables of these names."""

    def __init__(self, *names: str) -> None:
        self.names = names


class _Text(_Variables):
    def __get__(self, flags: Flags, owner: type[Flags]) -> str | None:
        return flags.text(self.names[0])


class _Number(_Variables):
    def __get__(self, flags: Flags, owner: type[Flags]) -> int | None:
        return flags.number(self.names[0])


class _Switch(_Variables):
    def __get__(self, flags: Flags, owner: type[Flags]) -> bool:
        return flags.on(*self.names)


class Flags:
    """Typed access to the variables of an environment, read on each access.

    A switch is on if its variable is ``1`` or ``true``, in any case; anything else, even ``yes``, is off.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self.environ: Mapping[str, str] = os.environ if environ is None else environ

    def variable(self, name: str) -> str | None:
        """Return the full name of the variable that sets ``name``, or ``None``."""
        return next((prefix + name for prefix in PREFIXES if self.environ.get(prefix + name)), None)

    def text(self, name: str) -> str | None:
        """Return the value of ``name``, or ``None`` if it is not set or empty."""
        for prefix in PREFIXES:
            if value := self.environ.get(prefix + name):
                return value
        return None

    def on(self, *names: str) -> bool:
        """Whether one of these switches is on."""
        return any((self.text(name) or "").lower() in ("1", "true") for name in names)

    def number(self, name: str) -> int | None:
        """Return a positive integer, or ``None`` for any other value."""
        text = self.text(name) or ""
        return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else None

    # Configuration.

    config = _Text("CONFIG")
    """A configuration file with precedence between the global ones and the project's."""
    config_dir = _Text("CONFIG_DIR")
    """Another configuration folder, with precedence over all others."""
    config_content = _Text("CONFIG_CONTENT")
    """Configuration as JSON, with precedence over all folders."""
    permission = _Text("PERMISSION")
    """Permission rules, as JSON, on top of the configured ones."""
    disable_project_config = _Switch("DISABLE_PROJECT_CONFIG")
    """Ignore the project's configuration."""
    disable_claude_code_prompt = _Switch("DISABLE_CLAUDE_CODE", "DISABLE_CLAUDE_CODE_PROMPT")
    """Do not use ``~/.claude/CLAUDE.md`` as an instruction file."""
    disable_external_skills = _Switch("DISABLE_CLAUDE_CODE", "DISABLE_CLAUDE_CODE_SKILLS", "DISABLE_EXTERNAL_SKILLS")
    """Ignore skills of other programs (``.claude``, ``.agents``)."""
    disable_plugins = _Switch("DISABLE_PLUGINS")
    """Load only the plugins that a Python program passes in."""
    trust_plugins = _Switch("TRUST_PLUGINS")
    """Trust the plugins, MCP servers and model addresses of every project."""
    test_home = _Text("TEST_HOME")
    """A replacement for the home folder."""
    test_managed_config_dir = _Text("TEST_MANAGED_CONFIG_DIR")
    """A replacement for the folder of the administrator's configuration."""

    # Running sessions.

    disable_filetime_check = _Switch("DISABLE_FILETIME_CHECK")
    """Allow writing a file that was not read before."""
    bash_default_timeout_ms = _Number("EXPERIMENTAL_BASH_DEFAULT_TIMEOUT_MS")
    """The default timeout of shell commands."""
    output_token_max = _Number("EXPERIMENTAL_OUTPUT_TOKEN_MAX")
    """The maximum number of output tokens of a request."""
    plan_mode = _Switch("EXPERIMENTAL", "EXPERIMENTAL_PLAN_MODE")
    """Store plans in files, and let the model ask to enter and leave plan mode."""
    enable_exa = _Switch("EXPERIMENTAL", "ENABLE_EXA", "EXPERIMENTAL_EXA")
    """Offer web and code search for every provider."""
    fake_vcs = _Text("FAKE_VCS")
    """``git`` makes a folder outside version control look like a repository."""

    # Models.

    enable_experimental_models = _Switch("ENABLE_EXPERIMENTAL_MODELS")
    """Include alpha models."""
    models_url = _Text("MODELS_URL")
    """The address of another catalogue than models.dev."""
    models_path = _Text("MODELS_PATH")
    """The path of a catalogue file."""

    # Clients and sharing.

    @property
    def client(self) -> str:
        """The name of the client; ``cli`` by default."""
        return self.text("CLIENT") or "cli"

    auto_share = _Switch("AUTO_SHARE")
    """Share new sessions, independent of the configuration."""
    disable_share = _Switch("DISABLE_SHARE")
    """Disable sharing."""
    share_raw = _Switch("SHARE_RAW")
    """Share without redaction."""
