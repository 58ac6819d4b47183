"""The terms of sharing: whether, where and how, as the configuration and the environment have it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from ..errors import UsageError

if TYPE_CHECKING:
    from ..config import Config

PUBLIC = "https://opncd.ai"
"""Where OpenCode shares to if no server is configured."""
PORTS = {"http": 80, "https": 443}
"""The port that an address without one means."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class ShareSettings(NamedTuple):
    """What was agreed on before anything is shared."""

    mode: Literal["manual", "auto", "disabled"] = "manual"
    server: str = PUBLIC
    named_by: str = ""
    """Who named the server; empty if nobody did, so that it is OpenCode's public one."""
    own: bool = False
    """Whether the user named it. A file that came with the project is not the user."""
    redact: bool = True
    off: str = ""
    """Who forbids sharing; empty if nobody does."""
    unheard: str = ""
    """The file of the project that wants every session shared, which is for the user to say."""

    @property
    def automatic(self) -> bool:
        """Whether new sessions are shared without being asked about one by one."""
        return self.mode == "auto" and not self.off

    def check(self) -> None:
        """:class:`UsageError` if nothing may be shared."""
        if self.off:
            raise UsageError(f"sharing is switched off by {self.off}")

    def in_words(self) -> str:
        """Where a share goes, and who can see it there."""
        if not self.named_by:
            return f"{self.server}, OpenCode's public server, where everyone who has the link can read it"
        where = f"{self.server} (named by {self.named_by})"
        return where if self.is_private else f"{where}, over a connection that is not encrypted"

    @property
    def is_private(self) -> bool:
        """Whether nobody on the way can read what is sent."""
        parts = urlsplit(self.server)
        return parts.scheme == "https" or parts.hostname in _LOOPBACK


def terms(config: Config) -> ShareSettings:
    """What a configuration says."""
    flags, settings = config.flags, config.settings
    off = ""
    if flags.disable_share:
        off = flags.variable("DISABLE_SHARE") or ""
    elif settings.share == "disabled":
        off = _name(config, "share")
    mode, unheard = settings.share or "manual", ""
    if mode == "auto" and _is_projects(config, "share"):
        mode, unheard = "manual", _name(config, "share")
    if flags.auto_share:
        mode, unheard = "auto", ""
    url = settings.enterprise.url
    named_by = _name(config, "enterprise.url") if url else ""
    own = bool(url) and not _is_projects(config, "enterprise.url")
    if mode == "auto" and url and not own:  # a project may not say where to send what is sent without asking
        mode, unheard = "manual", named_by
    return ShareSettings(mode, address(url) if url else PUBLIC, named_by, own, not flags.share_raw, off, unheard)


def address(url: str) -> str:
    """A server's address without a slash at its end, nor a port that goes without saying; :class:`UsageError` for what
    is none."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in PORTS or not parts.hostname or parts.query or parts.fragment:
        raise UsageError(f"{url!r} is no address of a share server; it should look like https://share.example.org")
    if port == PORTS[parts.scheme]:
        parts = parts._replace(netloc=parts.netloc.rpartition(":")[0])
    return urlunsplit(parts).rstrip("/")


def _name(config: Config, path: str) -> str:
    origin = config.origin(path)
    return str(origin) if origin else "the configuration"


def _is_projects(config: Config, path: str) -> bool:
    """Whether a file that lies in the project sets it, and not the user or who configures the machine."""
    from ..config.trust import owner_of

    return owner_of(config.origin(path), config) == "project"
