"""Keys of the providers, and where they come from.

A key is taken from a plugin, else from the configuration (``provider.<id>.options.apiKey``), else from OpenCode's
``auth.json``, which only :func:`store_entry` writes, else from the environment.
"""

from __future__ import annotations

import os
import re
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec
from msgspec import Struct

from ..errors import RecordError
from ..ids import now_ms
from ..records import as_object, loads_object
from ..storage import paths
from ..storage.disk import read_file
from ..storage.login_files import change_entry
from ..storage.protocol import Damage
from .catalogue import log_damage
from .catalogue_sources import BundledSource
from .model import is_local_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ..records import Document
    from .model import Model, ProviderInfo

_KEY_VARIABLE_NAME = re.compile(r"(?:KEY|TOKEN|PAT|SECRET)$")
_MODEL_KEY_NAME = re.compile(r"API_KEY$|^ANTHROPIC_AUTH_TOKEN$|^AWS_BEARER_TOKEN_BEDROCK$")
_KEY_VARIABLES = {"amazon-bedrock": ("AWS_BEARER_TOKEN_BEDROCK",)}
"""The variables with a key, for providers where the names do not tell."""

_CLOUD_CREDENTIALS = {
    "amazon-bedrock": (
        ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
        ("AWS_PROFILE",),
        ("AWS_WEB_IDENTITY_TOKEN_FILE",),
        ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI",),
    ),
    "google-vertex": (("GOOGLE_APPLICATION_CREDENTIALS",), ("GOOGLE_VERTEX_PROJECT",)),
    "google-vertex-anthropic": (("GOOGLE_APPLICATION_CREDENTIALS",), ("GOOGLE_VERTEX_PROJECT",)),
}
"""Clouds whose adapter looks up credentials itself; all variables of one group have to be set."""

_PUBLIC_KEYS = {"opencode": "public"}
"""Keys for free models that need no account."""


_PLAN_LOGINS = {"anthropic": "Claude", "openai": "ChatGPT"}
"""Providers whose stored tokens belong to a plan: their API refuses them, except from the provider's own programs."""


class Secret:
    """A string that cannot be encoded as JSON, logged or printed by accident."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the secret, to be sent to the provider."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(...)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


class KeySource(Struct, frozen=True):
    """Where a key comes from, for display."""

    kind: Literal["plugin", "config", "auth.json", "environment", "public", "none"]
    """``public``: a key for free models. ``none``: no key is needed."""
    name: str
    """The variable, the file, or the setting."""

    def __str__(self) -> str:
        return f"environment variable {self.name}" if self.kind == "environment" else self.name


class Credential(Struct, frozen=True, kw_only=True):
    """A key or token for a provider. Its repr does not contain the secret."""

    provider_id: str
    source: KeySource
    kind: Literal["api", "oauth", "ambient", "none"] = "api"
    """``ambient``: of a cloud, looked up by the adapter. ``none``: nothing is sent."""
    secret: Secret | None = None
    """The key, or the access token."""
    expires: int = 0
    """When an access token expires, in milliseconds; 0 if it does not."""
    account_id: str | None = None
    enterprise_url: str | None = None

    @property
    def key(self) -> str:
        """The key to send; empty if there is none."""
        return self.secret.reveal() if self.secret else ""

    def expired(self, now: int | None = None) -> bool:
        """Return whether the access token has expired. Plugins renew tokens, opensesh itself does not."""
        return 0 < self.expires <= (now_ms() if now is None else now)

    def covers(self, model: Model) -> bool:
        """Return whether it can be used for ``model``; a public key only for free models."""
        free = model.price is not None and model.price.rates.input == 0
        return model.provider_id == self.provider_id and (self.source.kind != "public" or free)


class _ApiKeyEntry(Struct, tag="api"):
    key: str


class _OAuthEntry(
    Struct, tag="oauth", omit_defaults=True, rename={"account_id": "accountId", "enterprise_url": "enterpriseUrl"}
):
    access: str
    refresh: str
    expires: float
    account_id: str | None = None
    enterprise_url: str | None = None


class _WellKnownEntry(Struct, tag="wellknown"):
    key: str
    token: str


_AuthEntry = _ApiKeyEntry | _OAuthEntry | _WellKnownEntry


@cache
def model_key_variables() -> frozenset[str]:
    """Return the environment variables with keys for models of the known providers.

    Variables that other programs use, too, such as ``GITHUB_TOKEN`` and those of AWS, are not among them.
    """
    names = {name for header in BundledSource().headers.values() for name in header.env}
    return frozenset(name for name in (*names, "ANTHROPIC_AUTH_TOKEN") if _MODEL_KEY_NAME.search(name))


class Keyring:
    """Looks up keys, from any thread; changes of ``auth.json`` and the environment take effect at once."""

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        folder: str | None = None,
        report: Callable[[Damage], None] = log_damage,
    ) -> None:
        """``config`` is OpenCode's, of which ``provider`` is used; ``folder`` is OpenCode's data folder.

        ``report`` is called for an ``auth.json`` that cannot be read, and for invalid entries in it.
        """
        self._settings = cast("Mapping[str, Any]", (config or {}).get("provider") or {})
        self._environ = os.environ if environ is None else environ
        self._path = os.path.join(paths.data() if folder is None else folder, "auth.json")
        self._report = report
        self._lock = Lock()
        self._stamp: tuple[int, int] | None = None
        self._entries: dict[str, _AuthEntry] = {}
        self._granted: dict[str, Credential] = {}

    def grant(self, provider_id: str, credential: Credential | None) -> None:
        """Prefer this credential for a provider from now on; ``None`` revokes it."""
        if credential is None:
            self._granted.pop(provider_id, None)
        else:
            self._granted[provider_id] = credential

    def stored_entry(self, provider_id: str) -> Document | None:
        """Return the entry of ``auth.json`` for a provider, for the plugin that made it."""
        entry = self._stored().get(provider_id)
        return None if entry is None else cast("Document", msgspec.to_builtins(entry))

    def unusable_login(self, provider_id: str) -> str:
        """Return why the login of a provider in ``auth.json`` cannot be used; empty if there is none, or it can."""
        entry = self._stored().get(provider_id)
        if not isinstance(entry, _OAuthEntry) or _is_copilot(provider_id):
            return ""
        if provider_id in _PLAN_LOGINS:
            return f"the login in auth.json is that of a {_PLAN_LOGINS[provider_id]} plan, which needs a plugin"
        is_expired = 0 < entry.expires <= now_ms()
        return "the login in auth.json has expired; a plugin or OpenCode renews it" if is_expired else ""

    def credential(self, provider: ProviderInfo) -> Credential | None:
        """Return the credential to use, or ``None``. Expired tokens are skipped."""
        return next((one for one in self.credentials(provider) if not one.expired()), None)

    def credentials(self, provider: ProviderInfo) -> tuple[Credential, ...]:
        """Return all credentials for a provider, in order of preference, including expired ones."""
        entries = self._stored()
        credentials: list[Credential] = []
        if provider.id in self._granted:
            credentials.append(self._granted[provider.id])
        key = self._option(provider.id, "apiKey")
        if isinstance(key, str) and key:
            source = KeySource("config", f"provider.{provider.id}.options.apiKey in the configuration")
            credentials.append(Credential(provider_id=provider.id, source=source, secret=Secret(key)))
        credentials += self._from_file(provider, entries.get(provider.id))
        credentials += self._from_environment(provider, entries)
        if provider.id == "amazon-bedrock" and self._option(provider.id, "profile"):
            source = KeySource("config", f"provider.{provider.id}.options.profile in the configuration")
            credentials.append(Credential(provider_id=provider.id, kind="ambient", source=source))
        # A provider of the user's own without key variables, or one on this machine, needs no key.
        url = self._option(provider.id, "baseURL") or provider.api_url
        if provider.configured and (not provider.env or is_local_url(str(url))):
            source = KeySource("none", f"no key needed (provider.{provider.id} in the configuration)")
            credentials.append(Credential(provider_id=provider.id, kind="none", source=source))
        if provider.id in _PUBLIC_KEYS:
            source = KeySource("public", "public key, for free models only")
            credentials.append(
                Credential(provider_id=provider.id, source=source, secret=Secret(_PUBLIC_KEYS[provider.id]))
            )
        return tuple(credentials)

    def _from_file(self, provider: ProviderInfo, entry: _AuthEntry | None) -> Iterator[Credential]:
        source = KeySource("auth.json", self._path)
        match entry:
            case _ApiKeyEntry(key=key) if key:
                yield Credential(provider_id=provider.id, source=source, secret=Secret(key))
            case _OAuthEntry() if provider.id not in _PLAN_LOGINS and (entry.access or _is_copilot(provider.id)):
                # The token of GitHub does not expire; older versions of OpenCode exchanged it for one that does.
                token = entry.refresh if _is_copilot(provider.id) else entry.access
                yield Credential(
                    provider_id=provider.id,
                    kind="oauth",
                    source=source,
                    secret=Secret(token),
                    expires=0 if _is_copilot(provider.id) else int(entry.expires),
                    account_id=entry.account_id,
                    enterprise_url=entry.enterprise_url,
                )
            case _:
                return

    def _from_environment(self, provider: ProviderInfo, entries: Mapping[str, _AuthEntry]) -> Iterator[Credential]:
        tokens = {entry.key: entry.token for entry in entries.values() if isinstance(entry, _WellKnownEntry)}
        if provider.id in _CLOUD_CREDENTIALS:
            variables = _KEY_VARIABLES.get(provider.id, ())
        else:  # those that contain a key, as opposed to an account, a region or a host
            variables = tuple(name for name in provider.env if _KEY_VARIABLE_NAME.search(name)) or provider.env
        for name in variables:
            key = tokens.get(name) or self._environ.get(name)
            if key:
                source = KeySource("auth.json", self._path) if name in tokens else KeySource("environment", name)
                yield Credential(provider_id=provider.id, source=source, secret=Secret(key))
        for group in _CLOUD_CREDENTIALS.get(provider.id, ()):
            if all(self._environ.get(name) for name in group):
                source = KeySource("environment", " and ".join(group))
                yield Credential(provider_id=provider.id, kind="ambient", source=source)

    def _option(self, provider_id: str, name: str) -> object:
        settings = self._settings.get(provider_id)
        options = cast("dict[str, Any]", settings).get("options") if isinstance(settings, dict) else None
        return cast("dict[str, Any]", options).get(name) if isinstance(options, dict) else None

    def _stored(self) -> dict[str, _AuthEntry]:
        with self._lock:
            try:
                status = os.stat(self._path)
                stamp = status.st_mtime_ns, status.st_size
            except OSError:
                self._stamp, self._entries = None, {}
                return {}
            if stamp == self._stamp:
                return self._entries
            self._stamp, self._entries = stamp, {}
            try:
                document = loads_object(read_file(self._path), self._path)
            except OSError as error:
                self._report(Damage(self._path, f"cannot be read: {error.strerror or error}"))
                return {}
            except RecordError as error:
                self._report(Damage(self._path, error.reason))
                return {}
            for name, value in document.items():
                try:
                    self._entries[name] = msgspec.convert(value, _AuthEntry)
                except msgspec.ValidationError as error:
                    self._report(Damage(self._path, f"entry {name} is ignored: {str(error).replace('`', '')}"))
            return self._entries


def _is_copilot(provider_id: str) -> bool:
    return provider_id.startswith("github-copilot")


def validate_entry(entry: Mapping[str, Any]) -> Document:
    """Return credentials as ``auth.json`` has them. Raises :class:`ValueError` if they are not valid."""
    try:
        return cast("Document", msgspec.to_builtins(msgspec.convert(entry, _AuthEntry)))
    except msgspec.ValidationError as error:
        raise ValueError(str(error).replace("`", "")) from None


def stored_types() -> dict[str, str]:
    """Return the providers in ``auth.json`` of OpenCode's data folder: ``api``, ``oauth`` or ``wellknown``."""
    path = os.path.join(paths.data(), "auth.json")
    try:
        entries = loads_object(read_file(path), path)
    except FileNotFoundError:
        return {}
    return {name: str((as_object(entry) or {}).get("type")) for name, entry in entries.items()}


def store_entry(provider_id: str, entry: Document | None) -> None:
    """Store a provider's credentials in ``auth.json`` of OpenCode's data folder, or remove them if ``entry`` is
    ``None``."""
    change_entry(os.path.join(paths.data(), "auth.json"), provider_id, lambda _: entry)
