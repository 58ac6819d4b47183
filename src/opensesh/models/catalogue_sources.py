"""Copies of the model catalogue: a file that the user names, a fetched copy, or the snapshot in the package.

Only :func:`refresh_copy` uses the network.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any
from zipimport import zipimporter

import msgspec
from msgspec import Raw, Struct

from ..errors import ModelConnectionError, ModelError, RecordError
from ..flags import Flags
from ..records import loads_object
from ..storage import paths
from ..storage.disk import Disk, read_file, read_or_empty
from ..storage.protocol import Damage
from ..text import error_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import httpx2

    Report = Callable[[Damage], None]

BUNDLE_PATH = os.path.join(os.path.dirname(__file__), "data", "models.zip")
DEFAULT_URL = "https://models.dev"


class ProviderHeader(Struct, kw_only=True):
    """A provider of the catalogue, without its models."""

    name: str = ""
    env: list[str] = []
    npm: str = "@ai-sdk/openai-compatible"
    api: str = ""


class _BundleIndex(Struct, kw_only=True):
    date: str
    providers: dict[str, ProviderHeader]


class _ProviderModels(Struct, kw_only=True):
    models: dict[str, Raw] = {}


class BundledSource:
    """The snapshot in the package: a zip with an index and one member for each provider.

    :func:`retired_models` reads its other members.
    """

    def __init__(self, path: str = BUNDLE_PATH) -> None:
        # zipimport reads a member in a third of the time that importing zipfile takes.
        self._archive = zipimporter(path)
        index = msgspec.json.decode(self._archive.get_data("index.json"), type=_BundleIndex)
        self.label = "the snapshot that comes with opensesh"
        self.date = index.date
        """The day of the data, ``2026-09-28``."""
        self.headers = index.providers
        """Every provider, in the catalogue's order."""

    def models(self, provider_id: str) -> dict[str, Raw]:
        """Return a provider's models, not decoded yet; empty for one that is not listed."""
        if provider_id not in self.headers:
            return {}
        data = self._archive.get_data(f"providers/{provider_id}.json")
        return msgspec.json.decode(data, type=dict[str, Raw])


def retired_models(provider_id: str) -> dict[str, Raw]:
    """Return the models of a provider that earlier catalogues listed, for the prices of calls in the past."""
    try:
        data = zipimporter(BUNDLE_PATH).get_data(f"retired/{provider_id}.json")
    except OSError:  # none is known
        return {}
    return msgspec.json.decode(data, type=dict[str, Raw])


class CatalogueFile:
    """A file like models.dev's ``api.json``. Invalid providers are reported and left out."""

    def __init__(self, path: str, label: str, report: Report) -> None:
        """Raises :class:`RecordError` or :class:`OSError` for a file that is not a catalogue."""
        data, written = read_file(path), os.stat(path).st_mtime
        self.label = label
        self.date = _day(written)
        self._path = path
        self._report = report
        self._providers = _split(data, path)

    @cached_property
    def headers(self) -> dict[str, ProviderHeader]:
        return {name: header for name in list(self._providers) if (header := self._decode(name, ProviderHeader))}

    def models(self, provider_id: str) -> dict[str, Raw]:
        listed = self._decode(provider_id, _ProviderModels) if provider_id in self._providers else None
        return listed.models if listed else {}

    def _decode(self, name: str, shape: type[Any]) -> Any:
        try:
            return msgspec.json.decode(self._providers[name], type=shape)
        except msgspec.MsgspecError as error:
            self._report(Damage(self._path, f"provider {name}: {error}"))
            self._providers.pop(name)
            return None


CatalogueSource = BundledSource | CatalogueFile
"""One copy of the catalogue, read on demand."""


def newest_source(environ: Mapping[str, str], report: Report) -> CatalogueSource:
    """Return the copy that ``OPENCODE_MODELS_PATH`` names, else the newest of OpenCode's, ours and the bundled one.

    A copy that cannot be read is reported, and the next one is used.
    """
    flags = Flags(environ)
    path = flags.models_path
    if path and (copy := _open(path, f"the copy {flags.variable('MODELS_PATH')} names", report)):
        return copy
    bundle = BundledSource()
    copies: list[tuple[float, str, str]] = []
    for path, label in (
        (refreshed_copy(), "the copy last fetched"),
        (os.path.join(paths.opencode_cache(), "models.json"), "OpenCode's cached copy"),
    ):
        with suppress(OSError):
            copies.append((os.stat(path).st_mtime, path, label))
    for written, path, label in sorted(copies, reverse=True):
        if _day(written) > bundle.date and (copy := _open(path, label, report)):
            return copy
    return bundle


def refreshed_copy() -> str:
    """Return the path of the copy that :func:`refresh_copy` writes."""
    return os.path.join(paths.cache(), "models.json")


def refresh_copy(environ: Mapping[str, str] | None = None, client: httpx2.Client | None = None) -> bool:
    """Fetch the catalogue from ``OPENCODE_MODELS_URL`` or https://models.dev; return whether it changed.

    Raises :class:`ModelConnectionError` or :class:`ModelError`, and keeps the old copy then. The caller closes a
    ``client`` that is passed in.
    """
    base_url = Flags(environ).models_url or DEFAULT_URL
    url = f"{base_url.rstrip('/')}/api.json"
    path = refreshed_copy()
    etag_path = f"{path}.etag"
    try:
        _split(read_or_empty(path), path)
        etag = read_or_empty(etag_path).decode("ascii", "ignore").strip()
    except RecordError:
        etag = ""  # our copy is damaged, so it has to be fetched again
    response = _fetch(url, etag, client)
    if response.status_code == 304:
        os.utime(path)
        return False
    if response.status_code != 200:
        message = f"{url} returned status {response.status_code}. The catalogue is unchanged."
        raise ModelError(message, status=response.status_code, url=url)
    try:
        _split(response.content, url)
    except RecordError as error:
        message = f"{url} did not send a catalogue: {error.reason}. The catalogue is unchanged."
        raise ModelError(message, url=url) from None
    changed = read_or_empty(path) != response.content
    disk = Disk(durable=False)
    # In this order, so that a crash never leaves an etag beside another copy.
    disk.remove(etag_path)
    disk.replace(path, response.content)
    if new_etag := response.headers.get("etag"):
        disk.replace(etag_path, new_etag.encode())
    return changed


def _fetch(url: str, etag: str, client: httpx2.Client | None) -> httpx2.Response:
    import httpx2  # loaded only when the catalogue is refreshed

    from .transport import proxy_errors, ssl_context

    own = None
    try:
        if client is None:
            with proxy_errors():
                client = own = httpx2.Client(verify=ssl_context(), timeout=httpx2.Timeout(30.0, connect=10.0))
        return client.get(url, headers={"if-none-match": etag} if etag else {}, follow_redirects=True)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        message = f"{url} could not be reached: {error_text(error)}. The catalogue is unchanged."
        raise ModelConnectionError(message, url=url) from error
    finally:
        if own is not None:
            own.close()


def _open(path: str, label: str, report: Report) -> CatalogueFile | None:
    try:
        return CatalogueFile(path, label, report)
    except OSError as error:
        report(Damage(path, f"cannot be read: {error.strerror or error}"))
    except RecordError as error:
        report(Damage(path, error.reason))
    return None


def _day(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).date().isoformat()


def _split(data: bytes, path: str) -> dict[str, Raw]:
    try:
        providers = msgspec.json.decode(data, type=dict[str, Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        loads_object(data, path)
        raise RecordError("not a catalogue of models", path=path) from None
    if not providers:
        raise RecordError("lists no provider", path=path)
    return providers
