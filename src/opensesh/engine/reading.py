"""Reads the files a prompt mentions, with the read tool itself, so that the model sees what it would have seen."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from ..config import nearby, system_paths

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..tools.filetimes import FileTimes
    from ..tools.tool import Context
    from .components import Runtime
    from .prompt import Reader


class _Instructions:
    """Instruction files near what the prompts of a run attach, each given once."""

    def __init__(self, runtime: Runtime) -> None:
        self._config = runtime.config
        self._known: set[str] = set()

    async def near(self, path: str) -> Sequence[tuple[str, str]]:
        return await asyncio.to_thread(self._near, path)

    def _near(self, path: str) -> Sequence[tuple[str, str]]:
        self._known = self._known or set(system_paths(self._config))
        found = nearby(self._config, path, self._known)
        self._known.update(each.source for each in found)
        return [(each.source, each.content) for each in found]


class _UserReads:
    """The user attached the file: nobody needs to be asked."""

    def __init__(self, runtime: Runtime, session_id: str, files: FileTimes) -> None:
        self.session_id = session_id
        self.message_id = self.call_id = ""
        self.agent = ""
        self.directory = runtime.place.directory
        self.worktree = runtime.place.sandbox
        self.files = files
        self.outputs = runtime.outputs()
        self.instructions = _Instructions(runtime)

    async def ask(
        self,
        permission: str,
        patterns: Sequence[str],
        *,
        always: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Everything is allowed."""

    async def progress(self, *, title: str | None = None, metadata: Mapping[str, Any] | None = None) -> None:
        """Nobody watches."""


def read_for_prompt(runtime: Runtime, session_id: str, files: FileTimes) -> Reader:
    """A function that reads a file for a prompt: its text as the model sees it, and what came attached."""
    context = cast("Context", _UserReads(runtime, session_id, files))

    async def read(path: str, offset: int | None, limit: int | None) -> tuple[str, tuple[dict[str, Any], ...]]:
        from ..tools.read import ReadTool

        given = {"filePath": path, "offset": offset, "limit": limit}
        answer = await ReadTool().run({key: value for key, value in given.items() if value is not None}, context)
        return answer.output, answer.attachments

    return read
