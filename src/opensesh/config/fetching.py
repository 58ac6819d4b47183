"""Downloads of configuration and instructions, with a cache that serves when the network does not."""

from __future__ import annotations

import os
import time
from hashlib import sha256

from ..storage.disk import Disk, read_file

FRESH_SECONDS = 3600
"""A copy that is younger is used without asking the server."""
TIMEOUT_SECONDS = 5.0
_MAX_BYTES = 1 << 20


class CachedFetch:
    """Downloads URLs and keeps a copy of each. A :class:`~opensesh.config.source.Fetch`."""

    def __init__(self, folder: str, *, only_cached: bool = False) -> None:
        """With ``only_cached``, copies of any age are used, and nothing is downloaded."""
        self._folder = os.path.join(folder, "fetched")
        self._only_cached = only_cached

    def __call__(self, url: str, /, *, timeout: float) -> bytes:
        """Return the body of ``url``, from the cache if it is fresh or if the download fails."""
        path = os.path.join(self._folder, sha256(url.encode()).hexdigest())
        try:
            age = time.time() - os.stat(path).st_mtime
            cached = read_file(path, limit=_MAX_BYTES)
        except OSError:
            age, cached = 0.0, None
        if cached is not None and (self._only_cached or 0 <= age < FRESH_SECONDS):
            return cached
        if self._only_cached:
            raise OSError("it was not fetched yet")
        try:
            body = _download(url, timeout)
        except OSError:
            if cached is None:
                raise
            return cached
        disk = Disk(durable=False)
        disk.make_folder(self._folder)
        disk.replace(path, body)
        return body


def _download(url: str, timeout: float) -> bytes:
    import httpx2  # most configurations name no URL

    try:
        with httpx2.stream("GET", url, timeout=timeout, follow_redirects=True) as response:
            if response.status_code >= 400:
                raise OSError(f"the server answered {response.status_code}")
            body = b""
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > _MAX_BYTES:
                    raise OSError(f"larger than {_MAX_BYTES:,} bytes")
            return body
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise OSError(str(error) or type(error).__name__) from None
