"""Runs the tool calls of one answer: asks, executes, and walks each part from pending to its final state.

``running`` is on disk before a tool touches anything, and every call ends in ``completed`` or ``error``, whatever
becomes of the tool or of the run.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from .. import ids
from ..errors import (
    OpenseshError,
    PermissionCorrectedError,
    PermissionDeniedError,
    PermissionRejectedError,
    QuestionRejectedError,
)
from ..models import stream_events as stream
from ..records import EXTENSION_KEY, as_object
from ..tools.tool import invoke
from .cancellation import run_uncancellable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..models.stream_events import Metadata
    from ..records import Document
    from ..tools.tool import Tool, ToolOutput
    from .answer_writer import AnswerWriter
    from .context import CallContext, Surroundings
    from .repetition import LoopDetector

ABORTED = "Tool execution aborted"


class CallRunner:
    """The tools on offer in one step, and the calls made of them."""

    def __init__(
        self, writer: AnswerWriter, tools: Mapping[str, Tool], surroundings: Surroundings, repetition: LoopDetector
    ) -> None:
        self._writer = writer
        self._tools = tools
        self._surroundings = surroundings
        self._repetition = repetition
        self._refused = self._corrected = False

    @property
    def blocked(self) -> bool:
        """Whether the user refused something and wants the turn to stop: one who said what to do instead does not."""
        return self._refused and not self._corrected

    async def run(self, part: Document, call: stream.ToolCall) -> None:
        """Run one call to its end. Never raises but for cancellation."""
        tool, given = self._chosen(call)
        await self.running(part, call, tool.id, given)
        context = self._surroundings.context(self, part["id"], call.id)
        try:
            await self._mind_circles(context, tool.id, given)
            answer = await self._perform(part, call, tool, given, context)
        except asyncio.CancelledError:
            await run_uncancellable(self._gave_up(part["id"], ABORTED, context))
            raise
        except Exception as error:
            self._note_refusal(error)
            self._repetition.outcome(tool.id, str(error))
            await self._gave_up(part["id"], _words(error), context)
            return
        self._repetition.outcome(tool.id, None)
        await self._answered(part["id"], answer, context)

    @property
    def names(self) -> Sequence[str]:
        """The tools that a call of several may use."""
        return [name for name in self._tools if name not in ("batch", "invalid")]

    async def run_nested(self, tool: str, given: Mapping[str, Any]) -> ToolOutput:
        """A call that another call makes, with a part of its own."""
        part = self._writer.new_call(tool)
        call = stream.ToolCall(part["callID"], tool, dict(given))
        await self.running(part, call)
        context = self._surroundings.context(self, part["id"], part["callID"])
        try:
            answer = await self._perform(part, call, self._tools[tool], given, context)
        except BaseException as error:
            self._note_refusal(error)
            words = _words(error) if isinstance(error, Exception) else ABORTED
            await run_uncancellable(self._gave_up(part["id"], words, context))
            raise
        await self._answered(part["id"], answer, context)
        return answer

    async def _perform(
        self, part: Document, call: stream.ToolCall, tool: Tool, given: Mapping[str, Any], context: CallContext
    ) -> ToolOutput:
        """What the tool answers, after plugins had their say about what it is given, and before about the answer."""
        hooks = self._surroundings.runtime.hooks
        if not hooks.plugins:
            await context.authorise(tool, given)
            return await invoke(tool, given, context)
        told = self._surroundings.told(tool.id, call.id)
        changed = await hooks.before(told, given)
        if changed is not given:  # what runs is what is on record
            await self.running(part, call, tool.id, changed)
        await context.authorise(tool, changed)
        return await hooks.after(told, changed, await invoke(tool, changed, context))

    async def running(
        self, part: Document, call: stream.ToolCall, name: str | None = None, given: Mapping[str, Any] | None = None
    ) -> None:
        """The call is complete and about to run."""
        state = {"status": "running", "input": dict(call.input if given is None else given)}
        changed = part | {"tool": name or call.name, "state": state | {"time": {"start": ids.now_ms()}}}
        if call.metadata:
            changed["metadata"] = call.metadata
        await self._writer.put(changed)

    async def progress(self, part_id: str, title: str | None, metadata: Mapping[str, Any] | None) -> None:
        """Show how far a call is, as long as it runs."""
        part = self._writer.parts.get(part_id)
        state = (part or {}).get("state", {})
        if part is None or state.get("status") != "running":
            return
        shown = {"status": "running", "input": state["input"]}
        shown |= {"title": title} if title is not None else {"title": state["title"]} if "title" in state else {}
        known = as_object(state.get("metadata")) or {}
        own = {EXTENSION_KEY: known[EXTENSION_KEY]} if EXTENSION_KEY in known else {}
        kept = known if metadata is None and "metadata" in state else metadata
        shown |= {"metadata": dict(kept) | own} if kept is not None else {}
        await self._writer.put(part | {"state": shown | {"time": state["time"]}})

    async def announce(self, part_id: str, account: Document) -> None:
        """Say in the record of a call what it is about to do to files, before it does."""
        part = self._writer.parts.get(part_id)
        if part is not None and part["state"].get("status") == "running":
            shown = {name: value for name, value in part["state"].items() if name != "time"}
            shown["metadata"] = (as_object(shown.get("metadata")) or {}) | account
            await self._writer.put(part | {"state": shown | {"time": part["state"]["time"]}})

    async def completed(
        self,
        part_id: str,
        output: str,
        title: str,
        metadata: Metadata | None,
        attachments: Sequence[dict[str, Any]] = (),
    ) -> None:
        """The tool answered."""
        part = self._writer.parts[part_id]
        state: Document = {
            "status": "completed",
            "input": part["state"]["input"],
            "output": output,
            "title": title,
            "metadata": metadata or {},
            "time": {"start": _start(part), "end": ids.now_ms()},
        }
        if attachments:
            state["attachments"] = list(attachments)
        await self._writer.put(part | {"state": state})

    async def failed(self, part_id: str, error: str, metadata: Metadata | None = None) -> None:
        """The tool did not answer; what it last showed is kept."""
        part = self._writer.parts[part_id]
        shown = metadata if metadata is not None else as_object(part["state"].get("metadata"))
        state: Document = {"status": "error", "input": part["state"]["input"], "error": error}
        if shown:
            state["metadata"] = shown
        await self._writer.put(part | {"state": state | {"time": {"start": _start(part), "end": ids.now_ms()}}})

    async def _answered(self, part_id: str, answer: ToolOutput, context: CallContext) -> None:
        metadata = answer.metadata | await context.writes.account()
        await self.completed(part_id, answer.output, answer.title, metadata, answer.attachments)

    async def _gave_up(self, part_id: str, error: str, context: CallContext) -> None:
        shown = as_object(self._writer.parts[part_id]["state"].get("metadata")) or {}
        told = {name: value for name, value in shown.items() if name != EXTENSION_KEY}
        await self.failed(part_id, error, told | await context.writes.account())

    async def abort_open(self) -> None:
        """Bring every call that has not ended to its end: the answer they belong to is over."""
        for part in list(self._writer.parts.values()):
            if part["type"] == "tool" and part["state"]["status"] in ("pending", "running"):
                await self.failed(part["id"], ABORTED)

    def _chosen(self, call: stream.ToolCall) -> tuple[Tool, Mapping[str, Any]]:
        """The tool that was meant; ``invalid`` answers for one that does not exist or cannot be called like this."""
        tool = self._tools.get(call.name) or self._tools.get(call.name.lower())
        if tool is not None and call.problem is None:
            return tool, call.input
        problem = call.problem or (
            f"there is no tool called {call.name}" if self._tools else "no tool may be called now"
        )
        return self._surroundings.invalid, {"tool": call.name, "error": problem}

    async def _mind_circles(self, context: CallContext, tool: str, given: Mapping[str, Any]) -> None:
        circle = self._repetition.call(tool, given)
        if circle is None:
            return
        metadata = {"tool": tool, "input": dict(given), "reason": circle}
        try:
            await context.ask("doom_loop", [tool], always=[tool], metadata=metadata)
        except PermissionDeniedError:
            self._refused = True  # told so, a model that runs in circles would run on
            raise
        self._repetition.allowed()

    def _note_refusal(self, error: BaseException) -> None:
        self._refused |= isinstance(error, (PermissionRejectedError, QuestionRejectedError))
        self._corrected |= isinstance(error, PermissionCorrectedError)


def _words(error: Exception) -> str:
    return f"Error: {error.message if isinstance(error, OpenseshError) else f'{type(error).__name__}: {error}'}"


def _start(part: Document) -> int:
    time = as_object(part["state"].get("time")) or {}
    return time.get("start") or ids.now_ms()
