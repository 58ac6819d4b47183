"""The session table and the search index of a server, kept up to date in the background.

Finding out what has changed takes time in a large store, and the first index of a long history takes minutes. A request
waits for neither: it waits for a moment, and then uses what there is.
"""

from __future__ import annotations

import logging
import time
from threading import Condition, Thread
from typing import TYPE_CHECKING, NamedTuple

from ..errors import OpenseshError
from ..history.cache.derived_cache import DerivedCache
from ..history.search.facets import newest_matches
from ..history.search.text_layer import TEXT, build_vocabulary, has_vocabulary
from ..history.search.text_search import Results, hits_of, search
from ..history.session_table import SessionTableLoader

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from ..history.search.text_search import Query
    from ..history.session_table import SessionTable
    from ..storage.protocol import Store

log = logging.getLogger("opensesh.server")
MAX_AGE_SECONDS = 1.0
"""The age up to which a state is used without asking for a newer one, unless this server has changed something."""
_PAUSE_FACTOR = 8
"""The time between the starts of two refreshes that no request waits for, in durations of the first one."""
_PAUSE_SECONDS = 0.2
"""The shortest time before such a refresh: the request that asked for it is answered first."""
WAIT_SECONDS = 0.06
"""How long a request waits for a newer state."""
PATIENT_SECONDS = 5.0
"""How long a request waits for a newer state if its page already shows an older one."""
_RANKED_WHILE_TYPING = 1_000
"""How many matches are ranked while the user types: an unfinished word can match half of all parts."""
_MIN_WIDENED_LENGTH = 3


class IndexProgress(NamedTuple):
    """The progress of a first refresh."""

    is_ready: bool
    """Whether there was a refresh that ended."""
    done: int
    of: int


class SearchAnswer(NamedTuple):
    """The results of a search, and what is known about them."""

    results: Results
    facets: dict[str, Counter[str]]
    progress: IndexProgress
    """How far the index is."""
    is_total: bool
    """Whether the results say how many matches there are; if not, there are more."""


class _StoppedError(Exception):
    """Ends a refresh when the server stops."""


class BackgroundRefresh:
    """Refreshes something in a thread of its own, on request; requests can wait for the result."""

    def __init__(self, name: str, refresh: Callable[[Callable[[int, int], None]], None]) -> None:
        self._refresh = refresh
        self._changed = Condition()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._is_started = False
        self._is_wanted = False
        self._is_awaited = False
        self._is_stopping = False
        self._begun = 0.0
        self._seconds = 0.0
        """How long the last refresh took."""
        self._runs = 0
        self._failure: OpenseshError | None = None
        self.progress = IndexProgress(is_ready=False, done=0, of=0)

    def ensure(self, wait: float, *, since: float = 0.0) -> bool:
        """Ask for a state that is not older than :data:`MAX_AGE_SECONDS`, nor than ``since``; return whether there is
        one after at most ``wait`` seconds. A refresh that will take longer, as the last one did, is not waited for."""
        oldest = max(time.monotonic() - MAX_AGE_SECONDS, since)
        with self._changed:
            if self._runs and self._begun >= oldest:
                return self._raise_failure()
            if not self._is_started:
                self._is_started = True
                self._thread.start()
            self._is_wanted = True
            self._is_awaited |= not self._runs or self._seconds <= wait
            self._changed.notify_all()
            if not self._is_awaited:
                return False
            is_fresh = self._changed.wait_for(lambda: self._runs > 0 and self._begun >= oldest, wait)
            return self._raise_failure() if is_fresh else False

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        if self._is_started:
            self._thread.join()

    def _raise_failure(self) -> bool:
        if self._failure is not None:
            raise self._failure
        return True

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_wanted or self._is_stopping)
                pause = max(self._begun + _PAUSE_FACTOR * self._seconds - time.monotonic(), _PAUSE_SECONDS)
                self._changed.wait_for(lambda: self._is_awaited or self._is_stopping, pause)
                if self._is_stopping:
                    return
                self._is_wanted = self._is_awaited = False
            begun = time.monotonic()
            failure: OpenseshError | None = None
            try:
                self._refresh(self._report)
            except _StoppedError:
                return
            except OpenseshError as error:
                failure = error
            except Exception as error:  # requests that wait must get an answer
                log.exception("a refresh failed")
                failure = OpenseshError(f"the history could not be read: {error}")
            with self._changed:
                self._begun, self._failure, self._runs = begun, failure, self._runs + 1
                self._seconds = time.monotonic() - begun
                self.progress = IndexProgress(failure is None, 0, 0)
                self._changed.notify_all()

    def _report(self, done: int, of: int) -> None:
        if self._is_stopping:
            raise _StoppedError
        if not self.progress.is_ready:
            self.progress = IndexProgress(is_ready=False, done=done, of=of)


class HistoryIndex:
    """The data for the lists and searches of a server."""

    def __init__(self, store: Store, version: Callable[[], int]) -> None:
        """``version`` changes when this server changes the store."""
        self._table_cache = DerivedCache(store=store)
        self._loader = SessionTableLoader(self._table_cache, store)
        self._table_refresh = BackgroundRefresh("session table", self._refresh_table)
        self._writer = DerivedCache(store=store)
        self._reader = DerivedCache(store=store)
        """The cache for queries; another object than the writer, because an object serves one thread at a time."""
        self._text_refresh = BackgroundRefresh("search index", self._refresh_text)
        self._version = version
        self._seen: dict[BackgroundRefresh, tuple[int, float]] = {}

    def sessions(self, wait: float = WAIT_SECONDS) -> tuple[SessionTable, bool]:
        """Return the session table, and whether it is up to date. It is empty until it was made for the first time."""
        is_fresh = self._ensure(self._table_refresh, wait)
        return self._loader.table, is_fresh

    @property
    def table_progress(self) -> IndexProgress:
        """The progress of the first session table."""
        return self._table_refresh.progress

    def warm_up(self) -> None:
        """Begin to make what pages will need."""
        self._table_refresh.ensure(wait=0)

    def search(self, query: Query, wait: float = WAIT_SECONDS, *, typing: bool = False) -> SearchAnswer:
        """Search what the index has. While a user is ``typing``, many matches are neither ranked nor counted."""
        self._ensure(self._text_refresh, wait)
        progress = self._text_refresh.progress
        cache = self._writer if self._writer.is_temporary else self._reader
        newest = newest_matches(cache, query)
        if typing and len(newest.parts) > _RANKED_WHILE_TYPING:
            page = newest.parts[query.offset : query.offset + query.limit]
            results = Results(len(newest.parts), hits_of(cache, query, page), newest.sessions)
            return SearchAnswer(results, newest.facets, progress, is_total=newest.is_complete)
        # One or two letters are inside of nearly every text.
        is_begun = typing and any(len(word) < _MIN_WIDENED_LENGTH for word in query.text.split())
        results = search(cache, query, widen=progress.is_ready and not is_begun)
        if results.widened:
            words = " ".join(f"*{word}*" for word in query.text.split())
            newest = newest_matches(cache, query._replace(text=words))
        return SearchAnswer(results, newest.facets, progress, is_total=True)

    def close(self) -> None:
        """End the refreshes, and close all files."""
        for refresh in (self._table_refresh, self._text_refresh):
            refresh.close()
        for cache in (self._table_cache, self._writer, self._reader):
            cache.close()

    def _ensure(self, refresh: BackgroundRefresh, wait: float) -> bool:
        """Ask for a refresh that began after the last change that this server made."""
        version = self._version()
        known, noticed = self._seen.get(refresh, (-1, 0.0))
        if version != known:
            noticed = time.monotonic()
            self._seen[refresh] = version, noticed
        return refresh.ensure(wait, since=noticed)

    def _refresh_table(self, report: Callable[[int, int], None]) -> None:
        is_first = not self._table_refresh.progress.is_ready
        self._loader.refresh(report)
        if is_first:  # for the first search; both at the same time would delay the list
            self._text_refresh.ensure(wait=0)

    def _refresh_text(self, report: Callable[[int, int], None]) -> None:
        self._writer.refresh(TEXT, progress=report)
        # So that a search for a part of a word does not have to wait for it.
        if not self._writer.query(TEXT, has_vocabulary):
            self._writer.write(build_vocabulary)
