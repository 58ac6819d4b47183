"""The environment variables that change how sessions run.

OpenCode's names are ``OPENCODE_<NAME>``. ``OPENSESH_<NAME>`` does the same and is looked at first, so that one can
be set without the other program noticing. Variables that OpenCode has for what is not here (language servers, a file
watcher, updates) are not looked at.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIXES = ("OPENSESH_", "OPENCODE_")


class Flags:
    """A look at an environment. Every property reads it when asked, so a change is seen at once.

    A switch is on when its variable is ``1`` or ``true``, in any case; anything else, even ``yes``, leaves it off.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self.environ: Mapping[str, str] = os.environ if environ is None else environ

    def variable(self, name: str) -> str | None:
        """The full name under which ``name`` is set, if it is."""
        return next((prefix + name for prefix in PREFIXES if self.environ.get(prefix + name)), None)

    def text(self, name: str) -> str | None:
        """What ``name`` is set to; an empty variable counts as not set."""
        variable = self.variable(name)
        return self.environ[variable] if variable else None

    def on(self, *names: str) -> bool:
        """Whether one of these switches is on."""
        return any((self.text(name) or "").lower() in ("1", "true") for name in names)

    def number(self, name: str) -> int | None:
        """A whole number above 0; anything else counts as not set."""
        text = self.text(name) or ""
        return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else None

    # Where the configuration is.

    @property
    def config(self) -> str | None:
        """A configuration file between the global ones and the project's."""
        return self.text("CONFIG")

    @property
    def config_dir(self) -> str | None:
        """One more configuration folder, above all others."""
        return self.text("CONFIG_DIR")

    @property
    def config_content(self) -> str | None:
        """Configuration itself, as JSON, above all folders."""
        return self.text("CONFIG_CONTENT")

    @property
    def permission(self) -> str | None:
        """Permission rules, as JSON, on top of the configured ones."""
        return self.text("PERMISSION")

    @property
    def disable_project_config(self) -> bool:
        """Nothing that lies in the project configures it."""
        return self.on("DISABLE_PROJECT_CONFIG")

    @property
    def disable_claude_code_prompt(self) -> bool:
        """``~/.claude/CLAUDE.md`` is not an instruction file."""
        return self.on("DISABLE_CLAUDE_CODE", "DISABLE_CLAUDE_CODE_PROMPT")

    @property
    def disable_external_skills(self) -> bool:
        """Skills of other programs (``.claude``, ``.agents``) are not ours."""
        return self.on("DISABLE_CLAUDE_CODE", "DISABLE_CLAUDE_CODE_SKILLS", "DISABLE_EXTERNAL_SKILLS")

    @property
    def disable_plugins(self) -> bool:
        """No plugin but those that a Python program hands in."""
        return self.on("DISABLE_PLUGINS")

    @property
    def trust_plugins(self) -> bool:
        """The plugins, MCP servers and addresses of models that come with a project are used as the user's own are."""
        return self.on("TRUST_PLUGINS")

    @property
    def test_home(self) -> str | None:
        """Another home folder."""
        return self.text("TEST_HOME")

    @property
    def test_managed_config_dir(self) -> str | None:
        """Another place for what the administrator decided."""
        return self.text("TEST_MANAGED_CONFIG_DIR")

    # How a session runs.

    @property
    def disable_filetime_check(self) -> bool:
        """A file may be written without having been read."""
        return self.on("DISABLE_FILETIME_CHECK")

    @property
    def bash_default_timeout_ms(self) -> int | None:
        """How long a shell command may take if the model does not say."""
        return self.number("EXPERIMENTAL_BASH_DEFAULT_TIMEOUT_MS")

    @property
    def output_token_max(self) -> int | None:
        """The most tokens a model is asked for in one answer."""
        return self.number("EXPERIMENTAL_OUTPUT_TOKEN_MAX")

    @property
    def plan_mode(self) -> bool:
        """Plans are files, and the model may ask to enter and leave plan mode."""
        return self.on("EXPERIMENTAL", "EXPERIMENTAL_PLAN_MODE")

    @property
    def enable_exa(self) -> bool:
        """Web and code search for every provider."""
        return self.on("EXPERIMENTAL", "ENABLE_EXA", "EXPERIMENTAL_EXA")

    @property
    def fake_vcs(self) -> str | None:
        """``git`` makes a folder outside of version control look like a repository."""
        return self.text("FAKE_VCS")

    # Models.

    @property
    def enable_experimental_models(self) -> bool:
        """Alpha models are shown too."""
        return self.on("ENABLE_EXPERIMENTAL_MODELS")

    @property
    def models_url(self) -> str | None:
        """Another catalogue than models.dev."""
        return self.text("MODELS_URL")

    @property
    def models_path(self) -> str | None:
        """A catalogue in a file."""
        return self.text("MODELS_PATH")

    # Faces.

    @property
    def client(self) -> str:
        """Who drives the session: ``cli`` unless said otherwise."""
        return self.text("CLIENT") or "cli"

    @property
    def auto_share(self) -> bool:
        """New sessions are shared, whatever is configured."""
        return self.on("AUTO_SHARE")

    @property
    def disable_share(self) -> bool:
        """Nothing is ever shared."""
        return self.on("DISABLE_SHARE")

    @property
    def share_raw(self) -> bool:
        """What is shared is sent as it is, secrets included."""
        return self.on("SHARE_RAW")
