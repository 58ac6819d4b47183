"""The files that one tool call changes: what they held, put aside before the first byte is written, and what they hold.

The account goes into the call's metadata, beside what the tool says itself. While the call runs it says what is
intended, so that it holds whenever the process dies.
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ..records import EXTENSION_KEY
from ..workspace.files import ABSENT, FileState, blob_id, file_state
from ..workspace.originals import FileWrite, changed_since, file_stats
from .cancellation import run_in_thread_uncancellable, run_uncancellable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from ..records import Document
    from .components import Runtime


class CallWrites:
    """What one call does to files."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._intended: dict[str, FileWrite] = {}
        self._written: set[str] = set()
        self._by_command: list[FileWrite] = []
        self._has_watched = False

    async def begin(self, becoming: Mapping[str, bytes | None]) -> None:
        """Put aside what these files hold."""
        await run_in_thread_uncancellable(self._begin, becoming)

    def done(self, path: str) -> None:
        """A file was written, or is gone."""
        self._written.update(_names(path))

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator[None]:
        """Find out what changes meanwhile, where there are no snapshots to tell."""
        if self._runtime.snapshots.enabled:
            yield
            return
        root = self._runtime.place.directory
        most = self._runtime.snapshots.limits.watched_files
        before = await run_in_thread_uncancellable(lambda: file_stats(root, max_files=most))
        try:
            yield
        finally:
            found = await run_uncancellable(
                run_in_thread_uncancellable(lambda: changed_since(root, before, max_files=most))
            )
            self._has_watched |= found is not None
            self._by_command += found or []

    @property
    def intended(self) -> Document:
        """What the call is about to do, as its metadata has it."""
        return _account(list(self._intended.values()))

    async def account(self) -> Document:
        """What the call did; empty if it was none that changes files."""
        return await run_in_thread_uncancellable(self._account) if self._intended else self._account()

    def _begin(self, becoming: Mapping[str, bytes | None]) -> None:
        for path, data in becoming.items():
            for name in _names(path):
                before = self._runtime.originals.put(name)
                follows = name != path or not os.path.islink(path)
                after = ABSENT if data is None else FileState(blob_id(data)) if follows else before
                known = self._intended.get(name)
                self._intended[name] = FileWrite(name, known.before if known else before, after)

    def _account(self) -> Document:
        found: list[FileWrite] = []
        for each in self._intended.values():
            now = file_state(each.file)
            if each.file not in self._written and (each.after is None or not now.fits(each.after)):
                continue  # it did not come to that
            if each.before is None or not now.fits(each.before):
                found.append(each._replace(after=None if now.obstacle else now))
        found += [each for each in self._by_command if each.file not in self._intended]
        return _account(found) if found or self._has_watched else {}


def _account(writes: Sequence[FileWrite]) -> Document:
    return {EXTENSION_KEY: {"writes": [each.document for each in writes]}}


def _names(path: str) -> tuple[str, ...]:
    """The file and, if it is a link, the file that it leads to: a tool writes through a link, but deletes the link."""
    return (path, os.path.realpath(path)) if os.path.islink(path) else (path,)
