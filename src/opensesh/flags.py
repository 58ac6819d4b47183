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
        variable = self.variable(name)
        return self.environ[variable] if variable else None

    def on(self, *names: str) -> bool:
        """Whether one of these switches is on."""
        return any((self.text(name) or "").lower() in ("1", "true") for name in names)

    def number(self, name: str) -> int | None:
        """Return a positive integer, or ``None`` for any other value."""
        text = self.text(name) or ""
        return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else None

    # Configuration.

    @property
    def config(self) -> str | None:
        """A configuration file with precedence between the global ones and the project's."""
        return self.text("CONFIG")

    @property
    def config_dir(self) -> str | None:
        """Another configuration folder, with precedence over all others."""
        return self.text("CONFIG_DIR")

    @property
    def config_content(self) -> str | None:
        """Configuration as JSON, with precedence over all folders."""
        return self.text("CONFIG_CONTENT")

    @property
    def permission(self) -> str | None:
        """Permission rules, as JSON, on top of the configured ones."""
        return self.text("PERMISSION")

    @property
    def disable_project_config(self) -> bool:
        """Ignore the project's configuration."""
        return self.on("DISABLE_PROJECT_CONFIG")

    @property
    def disable_claude_code_prompt(self) -> bool:
        """Do not use ``~/.claude/CLAUDE.md`` as an instruction file."""
        return self.on("DISABLE_CLAUDE_CODE", "DISABLE_CLAUDE_CODE_PROMPT")

    @property
    def disable_external_skills(self) -> bool:
        """Ignore skills of other programs (``.claude``, ``.agents``)."""
        return self.on("DISABLE_CLAUDE_CODE", "DISABLE_CLAUDE_CODE_SKILLS", "DISABLE_EXTERNAL_SKILLS")

    @property
    def disable_plugins(self) -> bool:
        """Load only the plugins that a Python program passes in."""
        return self.on("DISABLE_PLUGINS")

    @property
    def trust_plugins(self) -> bool:
        """Trust the plugins, MCP servers and model addresses of every project."""
        return self.on("TRUST_PLUGINS")

    @property
    def test_home(self) -> str | None:
        """A replacement for the home folder."""
        return self.text("TEST_HOME")

    @property
    def test_managed_config_dir(self) -> str | None:
        """A replacement for the folder of the administrator's configuration."""
        return self.text("TEST_MANAGED_CONFIG_DIR")

    # Running sessions.

    @property
    def disable_filetime_check(self) -> bool:
        """Allow writing a file that was not read before."""
        return self.on("DISABLE_FILETIME_CHECK")

    @property
    def bash_default_timeout_ms(self) -> int | None:
        """The default timeout of shell commands."""
        return self.number("EXPERIMENTAL_BASH_DEFAULT_TIMEOUT_MS")

    @property
    def output_token_max(self) -> int | None:
        """The maximum number of output tokens of a request."""
        return self.number("EXPERIMENTAL_OUTPUT_TOKEN_MAX")

    @property
    def plan_mode(self) -> bool:
        """Store plans in files, and let the model ask to enter and leave plan mode."""
        return self.on("EXPERIMENTAL", "EXPERIMENTAL_PLAN_MODE")

    @property
    def enable_exa(self) -> bool:
        """Offer web and code search for every provider."""
        return self.on("EXPERIMENTAL", "ENABLE_EXA", "EXPERIMENTAL_EXA")

    @property
    def fake_vcs(self) -> str | None:
        """``git`` makes a folder outside version control look like a repository."""
        return self.text("FAKE_VCS")

    # Models.

    @property
    def enable_experimental_models(self) -> bool:
        """Include alpha models."""
        return self.on("ENABLE_EXPERIMENTAL_MODELS")

    @property
    def models_url(self) -> str | None:
        """The address of another catalogue than models.dev."""
        return self.text("MODELS_URL")

    @property
    def models_path(self) -> str | None:
        """The path of a catalogue file."""
        return self.text("MODELS_PATH")

    # Clients and sharing.

    @property
    def client(self) -> str:
        """The name of the client; ``cli`` by default."""
        return self.text("CLIENT") or "cli"

    @property
    def auto_share(self) -> bool:
        """Share new sessions, independent of the configuration."""
        return self.on("AUTO_SHARE")

    @property
    def disable_share(self) -> bool:
        """Disable sharing."""
        return self.on("DISABLE_SHARE")

    @property
    def share_raw(self) -> bool:
        """Share without redaction."""
        return self.on("SHARE_RAW")
