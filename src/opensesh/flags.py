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


class Flags:
    """Typed access to the variables of an environment, read once.

    A switch is on if its variable is ``1`` or ``true``, in any case; anything else, even ``yes``, is off.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self.environ: Mapping[str, str] = os.environ if environ is None else environ

        # -- configuration
        # A configuration file with precedence between the global ones and the project's.
        self.config = self.text("CONFIG")
        # Another configuration folder, with precedence over all others.
        self.config_dir = self.text("CONFIG_DIR")
        # Configuration as JSON, with precedence over all folders.
        self.config_content = self.text("CONFIG_CONTENT")
        # Permission rules, as JSON, on top of the configured ones.
        self.permission = self.text("PERMISSION")
        # Ignore the project's configuration.
        self.disable_project_config = self.on("DISABLE_PROJECT_CONFIG")
        # Do not use ``~/.claude/CLAUDE.md`` as an instruction file.
        self.disable_claude_code_prompt = self.on("DISABLE_CLAUDE_CODE", "DISABLE_CLAUDE_CODE_PROMPT")
        # Ignore skills of other programs (``.claude``, ``.agents``).
        self.disable_external_skills = self.on(
            "DISABLE_CLAUDE_CODE", "DISABLE_CLAUDE_CODE_SKILLS", "DISABLE_EXTERNAL_SKILLS"
        )
        # Load only the plugins that a Python program passes in.
        self.disable_plugins = self.on("DISABLE_PLUGINS")
        # Trust the plugins, MCP servers and model addresses of every project.
        self.trust_plugins = self.on("TRUST_PLUGINS")
        # A replacement for the home folder.
        self.test_home = self.text("TEST_HOME")
        # A replacement for the folder of the administrator's configuration.
        self.test_managed_config_dir = self.text("TEST_MANAGED_CONFIG_DIR")

        # -- running sessions
        # Allow writing a file that was not read before.
        self.disable_filetime_check = self.on("DISABLE_FILETIME_CHECK")
        # The default timeout of shell commands.
        self.bash_default_timeout_ms = self.number("EXPERIMENTAL_BASH_DEFAULT_TIMEOUT_MS")
        # The maximum number of output tokens of a request.
        self.output_token_max = self.number("EXPERIMENTAL_OUTPUT_TOKEN_MAX")
        # Store plans in files, and let the model ask to enter and leave plan mode.
        self.plan_mode = self.on("EXPERIMENTAL", "EXPERIMENTAL_PLAN_MODE")
        # Offer web and code search for every provider.
        self.enable_exa = self.on("EXPERIMENTAL", "ENABLE_EXA", "EXPERIMENTAL_EXA")
        # ``git`` makes a folder outside version control look like a repository.
        self.fake_vcs = self.text("FAKE_VCS")

        # -- models
        # Include alpha models.
        self.enable_experimental_models = self.on("ENABLE_EXPERIMENTAL_MODELS")
        # The address of another catalogue than models.dev.
        self.models_url = self.text("MODELS_URL")
        # The path of a catalogue file.
        self.models_path = self.text("MODELS_PATH")

        # -- clients and sharing
        # The name of the client; ``cli`` by default.
        self.client = self.text("CLIENT") or "cli"
        # Share new sessions, independent of the configuration.
        self.auto_share = self.on("AUTO_SHARE")
        # Disable sharing.
        self.disable_share = self.on("DISABLE_SHARE")
        # Share without redaction.
        self.share_raw = self.on("SHARE_RAW")

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
