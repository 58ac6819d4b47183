"""Keys: which provider one is there for, where it was found, and nothing that would show it.

A key is taken from the plugin that has one, else from the configuration (``provider.<id>.options.apiKey``), else from
OpenCode's ``auth.json``, else from the environment. ``auth.json`` is OpenCode's own: it is read, and never written.
"""

from __future__ import annotations

import os
import re
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec
from msgspec import Struct

from ..errors import RecordError
from ..ids import now_ms
from ..records import loads_object
from ..storage import paths
from ..storage.protocol import Damage
from .catalogue import log_damage
from .model import is_local_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .model import Model, ProviderInfo

_LOOKS_SECRET = re.compile(r"(?:KEY|TOKEN|PAT|SECRET)$")
_KEY_VARIABLES = {"amazon-bedrock": ("AWS_BEARER_TOKEN_BEDROCK",)}
"""Which of a provider's variables hold a key, where their names would mislead."""

_AMBIENT = {
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
"""Clouds whose own credentials the adapter finds by itself: it takes all variables of one group."""

_PROFILED = "amazon-bedrock"
"""The cloud whose credentials may also be those of a profile that the configuration names."""

_PUBLIC = {"opencode": "public"}
"""Keys that everyone may use, for models that cost nothing."""


class Secret:
    """A string that shows itself only when asked to. It cannot be encoded as JSON, logged or printed by accident."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The secret itself, for the wire."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(...)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


class KeySource(Struct, frozen=True):
    """Where a key was found; fit to be shown."""

    kind: Literal["plugin", "config", "auth.json", "environment", "public", "none"]
    """``public``: a key anyone may use. ``none``: no key is needed."""
    name: str
    """The variable, the file, or the place in the configuration."""

    def __str__(self) -> str:
        return f"environment variable {self.name}" if self.kind == "environment" else self.name


class Credential(Struct, frozen=True, kw_only=True):
    """What to show a provider. Its representation never holds the secret."""

    provider_id: str
    source: KeySource
    kind: Literal["api", "oauth", "ambient", "none"] = "api"
    """``ambient``: the cloud's own, which the adapter finds by itself. ``none``: nothing to show."""
    secret: Secret | None = None
    """The key, or the access token."""
    expires: int = 0
    """When an access token expires, in milliseconds; 0 if it does not."""
    account_id: str | None = None
    enterprise_url: str | None = None

    @property
    def key(self) -> str:
        """The key for the wire; empty where there is none."""
        return self.secret.reveal() if self.secret else ""

    def expired(self, now: int | None = None) -> bool:
        """Whether the access token is past its time. OpenCode renews its tokens; opensesh does not."""
        return 0 < self.expires <= (now_ms() if now is None else now)

    def covers(self, model: Model) -> bool:
        """Whether it is good for ``model``: a public key is, for models that are free."""
        free = model.price is not None and model.price.rates.input == 0
        return model.provider_id == self.provider_id and (self.source.kind != "public" or free)


class _Api(Struct, tag="api"):
    key: str


class _OAuth(Struct, tag="oauth", rename={"account_id": "accountId", "enterprise_url": "enterpriseUrl"}):
    refresh: str
    access: str
    expires: float
    account_id: str | None = None
    enterprise_url: str | None = None


class _WellKnown(Struct, tag="wellknown"):
    key: str
    token: str


_Entry = _Api | _OAuth | _WellKnown


class Keyring:
    """Finds keys. May be asked from many threads; sees at once when ``auth.json`` or the environment changes."""

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        folder: str | None = None,
        report: Callable[[Damage], None] = log_damage,
    ) -> None:
        """``config`` is OpenCode's, of which ``provider`` is read; ``folder`` is OpenCode's data folder.

        ``report`` hears of an ``auth.json`` that cannot be read, and of entries in it that say nothing.
        """
        self._settings = cast("Mapping[str, Any]", (config or {}).get("provider") or {})
        self._environ = os.environ if environ is None else environ
        self._path = os.path.join(paths.data() if folder is None else folder, "auth.json")
        self._report = report
        self._lock = Lock()
        self._stamp: tuple[int, int] | None = None
        self._entries: dict[str, _Entry] = {}
        self._granted: dict[str, Credential] = {}

    def grant(self, provider_id: str, credential: Credential | None) -> None:
        """Use this one for a provider from now on, before all others; ``None`` takes it back."""
        if credential is None:
            self._granted.pop(provider_id, None)
        else:
            self._granted[provider_id] = credential

    def credential(self, provider: ProviderInfo) -> Credential | None:
        """The credential to use, or ``None``. Expired tokens are passed over."""
        return next((each for each in self.credentials(provider) if not each.expired()), None)

    def credentials(self, provider: ProviderInfo) -> tuple[Credential, ...]:
        """Every credential there is for a provider, the one that counts first; expired ones too."""
        return tuple(self._candidates(provider))

    def _candidates(self, provider: ProviderInfo) -> Iterator[Credential]:
        entries = self._stored()
        if provider.id in self._granted:
            yield self._granted[provider.id]
        yield from self._from_config(provider)
        yield from self._from_file(provider, entries.get(provider.id))
        yield from self._from_environment(provider, entries)
        yield from self._from_profile(provider)
        if self._needs_none(provider):
            source = KeySource("none", f"no key needed (provider.{provider.id} in the configuration)")
            yield Credential(provider_id=provider.id, kind="none", source=source)
        if provider.id in _PUBLIC:
            source = KeySource("public", "public key, for free models only")
            yield Credential(provider_id=provider.id, source=source, secret=Secret(_PUBLIC[provider.id]))

    def _from_config(self, provider: ProviderInfo) -> Iterator[Credential]:
        key = self._option(provider.id, "apiKey")
        if isinstance(key, str) and key:
            source = KeySource("config", f"provider.{provider.id}.options.apiKey in the configuration")
            yield Credential(provider_id=provider.id, source=source, secret=Secret(key))

    def _from_file(self, provider: ProviderInfo, entry: _Entry | None) -> Iterator[Credential]:
        source = KeySource("auth.json", self._path)
        match entry:
            case _Api(key=key) if key:
                yield Credential(provider_id=provider.id, source=source, secret=Secret(key))
            case _OAuth() if entry.access:
                yield Credential(
                    provider_id=provider.id,
                    kind="oauth",
                    source=source,
                    secret=Secret(entry.access),
                    expires=int(entry.expires),
                    account_id=entry.account_id,
                    enterprise_url=entry.enterprise_url,
                )
            case _:
                return

    def _from_environment(self, provider: ProviderInfo, entries: Mapping[str, _Entry]) -> Iterator[Credential]:
        granted = {entry.key: entry.token for entry in entries.values() if isinstance(entry, _WellKnown)}
        for name in _key_variables(provider):
            key = granted.get(name) or self._environ.get(name)
            if key:
                source = KeySource("auth.json", self._path) if name in granted else KeySource("environment", name)
                yield Credential(provider_id=provider.id, source=source, secret=Secret(key))
        for group in _AMBIENT.get(provider.id, ()):
            if all(self._environ.get(name) for name in group):
                source = KeySource("environment", " and ".join(group))
                yield Credential(provider_id=provider.id, kind="ambient", source=source)

    def _from_profile(self, provider: ProviderInfo) -> Iterator[Credential]:
        if provider.id == _PROFILED and self._option(provider.id, "profile"):
            source = KeySource("config", f"provider.{provider.id}.options.profile in the configuration")
            yield Credential(provider_id=provider.id, kind="ambient", source=source)

    def _needs_none(self, provider: ProviderInfo) -> bool:
        """A provider of the user's own that names no variable, or one that runs on this machine."""
        url = self._option(provider.id, "baseURL") or provider.api_url
        return provider.configured and (not provider.env or is_local_url(str(url)))

    def _option(self, provider_id: str, name: str) -> object:
        settings = self._settings.get(provider_id)
        options = cast("dict[str, Any]", settings).get("options") if isinstance(settings, dict) else None
        return cast("dict[str, Any]", options).get(name) if isinstance(options, dict) else None

    def _stored(self) -> dict[str, _Entry]:
        with self._lock:
            try:
                facts = os.stat(self._path)
                stamp = facts.st_mtime_ns, facts.st_size
            except OSError:
                self._stamp, self._entries = None, {}
                return {}
            if stamp != self._stamp:
                self._stamp, self._entries = stamp, self._read()
            return self._entries

    def _read(self) -> dict[str, _Entry]:
        try:
            with open(self._path, "rb") as file:
                document = loads_object(file.read(), self._path)
        except OSError as error:
            self._report(Damage(self._path, f"cannot be read: {error.strerror or error}"))
            return {}
        except RecordError as error:
            self._report(Damage(self._path, error.reason))
            return {}
        return {name: entry for name, value in document.items() if (entry := self._convert(name, value))}

    def _convert(self, name: str, value: object) -> _Entry | None:
        try:
            return msgspec.convert(value, _Entry)
        except msgspec.ValidationError as error:
            self._report(Damage(self._path, f"entry {name} is passed over: {str(error).replace('`', '')}"))
            return None


def _key_variables(provider: ProviderInfo) -> tuple[str, ...]:
    """Of several variables, those that hold a key and not an account, a region or a host."""
    if provider.id in _KEY_VARIABLES:
        return _KEY_VARIABLES[provider.id]
    if provider.id in _AMBIENT:
        return ()
    return tuple(name for name in provider.env if _LOOKS_SECRET.search(name)) or provider.env
