"""Share settings: whether, where and how to share, from the configuration and the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from ..config.trust import owner_of
from ..errors import UsageError
from ..tools.web_addresses import is_loopback

if TYPE_CHECKING:
    from ..config import Config

PUBLIC_SERVER = "https://opncd.ai"
"""OpenCode's public share server, used when no server is configured."""
DEFAULT_PORTS = {"http": 80, "https": 443}


class ShareSettings(NamedTuple):
    """The settings that apply before anything is shared."""

    mode: Literal["manual", "auto", "disabled"] = "manual"
    server: str = PUBLIC_SERVER
    server_source: str = ""
    """Where the server was configured; empty for OpenCode's public server, the default."""
    chosen_by_user: bool = False
    """Whether the user configured the server. A configuration file of the project does not count."""
    redact: bool = True
    disabled_by: str = ""
    """The setting that disables sharing; empty if sharing is enabled."""
    ignored_source: str = ""
    """The project file whose request to share every session is ignored: only the user may decide that."""

    @property
    def automatic(self) -> bool:
        """Whether new sessions are shared without asking."""
        return self.mode == "auto" and not self.disabled_by

    def check(self) -> None:
        """Raise :class:`UsageError` if sharing is disabled."""
        if self.disabled_by:
            raise UsageError(f"sharing is disabled by {self.disabled_by}")

    def describe(self) -> str:
        """Return where a share goes and who can read it there, as text for the user."""
        if not self.server_source:
            return f"{self.server}, OpenCode's public server, where everyone who has the link can read it"
        where = f"{self.server} (set by {self.server_source})"
        return where if self.is_private else f"{where}, over a connection that is not encrypted"

    @property
    def is_private(self) -> bool:
        """Whether the connection to the server is encrypted or local."""
        parts = urlsplit(self.server)
        return parts.scheme == "https" or is_loopback(parts.hostname or "")


def load_share_settings(config: Config) -> ShareSettings:
    """Return the share settings of a configuration.

    A file of the project can neither turn on automatic sharing nor choose the server for it: opening a repository must
    not send anything anywhere.
    """
    flags, settings = config.flags, config.settings
    disabled_by = ""
    if flags.disable_share:
        disabled_by = flags.variable("DISABLE_SHARE") or ""
    elif settings.share == "disabled":
        disabled_by = _source(config, "share")
    mode, ignored_source = settings.share or "manual", ""
    if mode == "auto" and _is_set_by_project(config, "share"):
        mode, ignored_source = "manual", _source(config, "share")
    if flags.auto_share:
        mode, ignored_source = "auto", ""
    url = settings.enterprise.url
    server_source = _source(config, "enterprise.url") if url else ""
    chosen_by_user = bool(url) and not _is_set_by_project(config, "enterprise.url")
    if mode == "auto" and url and not chosen_by_user:
        mode, ignored_source = "manual", server_source
    server = normalize_server_url(url) if url else PUBLIC_SERVER
    return ShareSettings(mode, server, server_source, chosen_by_user, not flags.share_raw, disabled_by, ignored_source)


def normalize_server_url(url: str) -> str:
    """Return a server's URL without trailing slash and default port; :class:`UsageError` if it is not valid."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname or parts.query or parts.fragment:
        raise UsageError(f"{url!r} is not the URL of a share server; expected something like https://share.example.org")
    if port == DEFAULT_PORTS[parts.scheme]:
        parts = parts._replace(netloc=parts.netloc.rpartition(":")[0])
    return urlunsplit(parts).rstrip("/")


def _source(config: Config, path: str) -> str:
    origin = config.origin(path)
    return str(origin) if origin else "the configuration"


def _is_set_by_project(config: Config, path: str) -> bool:
    return owner_of(config.origin(path), config) == "project"
