"""Where the catalogue's data comes from: a file the user names, a copy that someone fetched, or the one we ship.

Nothing here reaches for the network but :func:`refresh`, and that only when called.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Raw, Struct

from ..errors import ModelConnectionError, ModelError, RecordError
from ..flags import Flags
from ..records import loads_object
from ..storage import paths
from ..storage.disk import Disk, content
from ..storage.protocol import Damage
from ..text import error_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import httpx2

    Report = Callable[[Damage], None]

BUNDLE = os.path.join(os.path.dirname(__file__), "data", "models.zip")
SITE = "https://models.dev"


class Header(Struct, kw_only=True):
    """A provider without its models."""

    name: str = ""
    env: list[str] = []
    npm: str = "@ai-sdk/openai-compatible"
    api: str = ""


class Source(Protocol):
    """One copy of the catalogue, read as it is asked for."""

    @property
    def label(self) -> str:
        """Which copy this is, for people."""
        ...

    @property
    def date(self) -> str:
        """The day of the data, ``2026-09-28``."""
        ...

    def headers(self) -> dict[str, Header]:
        """Every provider, in the catalogue's order."""
        ...

    def models(self, provider_id: str) -> dict[str, Raw]:
        """A provider's models, each still to be decoded; empty for one that is not listed."""
        ...


class _Index(Struct, kw_only=True):
    date: str
    providers: dict[str, Header]


class _Models(Struct, kw_only=True):
    models: dict[str, Raw] = {}


class Bundle:
    """The snapshot that comes with the package: a zip with an index, and one member a provider."""

    def __init__(self, path: str = BUNDLE) -> None:
        # zipimport reads a member in a third of the time that importing zipfile takes.
        from zipimport import zipimporter

        self._archive = zipimporter(path)
        self._index = msgspec.json.decode(self._archive.get_data("index.json"), type=_Index)
        self.label = "the snapshot that comes with opensesh"
        self.date = self._index.date

    def headers(self) -> dict[str, Header]:
        return self._index.providers

    def models(self, provider_id: str) -> dict[str, Raw]:
        if provider_id not in self._index.providers:
            return {}
        data = self._archive.get_data(f"providers/{provider_id}.json")
        return msgspec.json.decode(data, type=dict[str, Raw])


class Copy:
    """A file in the shape of ``api.json``. A provider that cannot be read is reported and left out."""

    def __init__(self, path: str, label: str, report: Report) -> None:
        """Raises :class:`RecordError` or :class:`OSError` for a file that is no catalogue at all."""
        with open(path, "rb") as file:
            data = file.read()
            written = os.fstat(file.fileno()).st_mtime
        self.label = label
        self.date = _day(written)
        self._path = path
        self._report = report
        self._providers = _split(data, path)

    def headers(self) -> dict[str, Header]:
        return {name: header for name in list(self._providers) if (header := self._decode(name, Header))}

    def models(self, provider_id: str) -> dict[str, Raw]:
        listed = self._decode(provider_id, _Models) if provider_id in self._providers else None
        return listed.models if listed else {}

    def _decode(self, name: str, shape: type[Any]) -> Any:
        try:
            return msgspec.json.decode(self._providers[name], type=shape)
        except msgspec.MsgspecError as error:
            self._report(Damage(self._path, f"provider {name}: {error}"))
            self._providers.pop(name)
            return None


def choose(environ: Mapping[str, str], report: Report) -> Source:
    """The copy to use: the one ``OPENCODE_MODELS_PATH`` names, else the newest of OpenCode's, ours and the bundled one.

    A copy that cannot be read is reported, and the next one taken.
    """
    flags = Flags(environ)
    named = flags.models_path
    if named and (copy := _open(named, f"the copy {flags.variable('MODELS_PATH')} names", report)):
        return copy
    bundle = Bundle()
    for written, path, label in sorted(_cached(), reverse=True):
        if _day(written) > bundle.date and (copy := _open(path, label, report)):
            return copy
    return bundle


def refreshed_copy() -> str:
    """Where :func:`refresh` puts what it fetched."""
    return os.path.join(paths.cache(), "models.json")


def refresh(environ: Mapping[str, str] | None = None, client: httpx2.Client | None = None) -> bool:
    """Fetch today's catalogue; whether it differs from the copy we had. A failure leaves that copy as it was.

    Asks ``OPENCODE_MODELS_URL`` or https://models.dev. Raises :class:`ModelConnectionError` or :class:`ModelError`. A
    ``client`` that is passed in stays the caller's to close.
    """
    site = Flags(environ).models_url or SITE
    url = f"{site.rstrip('/')}/api.json"
    path = refreshed_copy()
    answer = _fetch(url, _etag(path), client)
    match answer.status_code:
        case 200:
            return _keep(path, answer.content, answer.headers.get("etag", ""), url)
        case 304:
            os.utime(path)
            return False
        case status:
            raise ModelError(f"{url} answered {status}. The catalogue stays as it was.", status=status, url=url)


def _fetch(url: str, etag: str, client: httpx2.Client | None) -> httpx2.Response:
    import httpx2

    session = client or _client()
    try:
        return session.get(url, headers={"if-none-match": etag} if etag else {}, follow_redirects=True)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        said = f"{url} could not be reached: {error_text(error)}. The catalogue stays as it was."
        raise ModelConnectionError(said, url=url) from error
    finally:
        if client is None:
            session.close()


def _client() -> httpx2.Client:
    import httpx2

    from .transport import proxy_errors, ssl_context

    with proxy_errors():
        return httpx2.Client(verify=ssl_context(), timeout=httpx2.Timeout(30.0, connect=10.0))


def _keep(path: str, data: bytes, etag: str, url: str) -> bool:
    try:
        _split(data, url)
    except RecordError as error:
        raise ModelError(f"{url} sent no catalogue: {error.reason}. The old one stays.", url=url) from None
    changed = content(path) != data
    disk = Disk(durable=False)
    disk.remove(_etag_file(path))
    disk.replace(path, data)
    if etag:
        disk.replace(_etag_file(path), etag.encode())
    return changed


def _open(path: str, label: str, report: Report) -> Copy | None:
    try:
        return Copy(path, label, report)
    except OSError as error:
        report(Damage(path, f"cannot be read: {error.strerror or error}"))
    except RecordError as error:
        report(Damage(path, error.reason))
    return None


def _cached() -> Iterator[tuple[float, str, str]]:
    """The copies that were fetched, ours and OpenCode's: when, where, and what to call them."""
    ours = (refreshed_copy(), "the copy last fetched")
    theirs = (os.path.join(paths.opencode_cache(), "models.json"), "OpenCode's cached copy")
    for path, label in (ours, theirs):
        try:
            yield os.stat(path).st_mtime, path, label
        except OSError:
            continue


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


def _etag(path: str) -> str:
    """The ETag of our copy, if that copy is still good: otherwise it has to be fetched again."""
    data = content(path)
    try:
        _split(data, path)
    except RecordError:
        return ""
    return content(_etag_file(path)).decode("ascii", "ignore").strip()


def _etag_file(path: str) -> str:
    return f"{path}.etag"
