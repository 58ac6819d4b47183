"""Runs the tool calls of one answer: each part goes from ``pending`` through ``running`` to its final state.

``running`` is stored before a tool touches anything, and every call ends in ``completed`` or ``error``, also
when the tool fails or the run is aborted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from .. import ids
from ..containment import describe, ends_task
from ..errors import (
    OpenseshError,
    PermissionCorrectedError,
    PermissionDeniedError,
    PermissionRejectedError,
    QuestionRejectedError,
    ToolFailedError,
)
from ..models import stream_events as stream
from ..permissions import disabled
from ..records import EXTENSION_KEY, as_object, dumps_compact, object_at
from ..tools.question import QuestionTool
from ..tools.structured_output import StructuredOutput
from ..tools.tool import invoke
from .cancellation import run_uncancellable
from .settings import LoopLimits
from .tool_context import CallContext

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from ..models.stream_events import Metadata
    from ..records import Document
    from ..tools.tool import Tool, ToolOutput
    from .session_writer import AnswerWriter
    from .tool_context import StepContext

ABORTED = "Tool execution aborted"


class CallRunner:
    """Runs the tool calls of one step."""

    def __init__(
        self,
        writer: AnswerWriter,
        tools: Mapping[str, Tool],
        step: StepContext,
        detector: LoopDetector,
    ) -> None:
        self._writer = writer
        self._tools = tools
        self._step = step
        self._detector = detector
        self._hooks = step.environment.hooks
        self._rejected = self._corrected = False
        self._late_starts: dict[str, Callable[[], Awaitable[None]]] = {}

    @property
    def names(self) -> Sequence[str]:
        """The tools that a tool which makes several calls may use."""
        return [name for name in self._tools if name not in ("batch", "invalid")]

    @property
    def blocked(self) -> bool:
        """Whether the user rejected something, so that the run ends.

        With a correction it continues, in OpenCode only if that did not reject another request of the session too.
        """
        return self._rejected and (self._step.environment.settings.opencode_events or not self._corrected)

    async def run(self, part: Document, call: stream.ToolCall) -> None:
        """Run a call of the model to its final state. Raises nothing but cancellation and storage errors."""
        tool, arguments = self._tools.get(call.name) or self._tools.get(call.name.lower()), call.input
        step = self._step
        is_denied = tool is None and call.problem is None and disabled((call.name,), step.rules)
        by_session = is_denied and call.name not in step.absent
        if self._tools and by_session and not disabled((call.name,), step.agent.permission):
            await self.start(part, call)
            await self.fail(part["id"], f"Error: A rule of the user forbids {call.name}; do not try to get around it")
            return
        if tool is None or call.problem is not None:
            missing = f"there is no tool called {call.name}" if self._tools else "no tool may be called now"
            tool, arguments = self._step.invalid, {"tool": call.name, "error": call.problem or missing}
        result = await self._run(part, call, tool, arguments, detect_loop=True)
        self._detector.record_result(tool.id, describe(result) if isinstance(result, Exception) else None)

    async def run_nested(self, tool: str, arguments: Mapping[str, Any]) -> ToolOutput:
        """Run a call that another call makes, with a part of its own."""
        part = self._writer.new_tool_part(tool)
        call = stream.ToolCall(part["callID"], tool, dict(arguments))
        result = await self._run(part, call, self._tools[tool], arguments, detect_loop=False)
        if isinstance(result, Exception):
            raise result
        return result

    async def _run(
        self, part: Document, call: stream.ToolCall, tool: Tool, arguments: Mapping[str, Any], *, detect_loop: bool
    ) -> ToolOutput | Exception:
        """Run a call to its final state; return its output, or the error with which it failed."""
        context = CallContext(self._step, self, part["id"], call.id)
        self._late_starts[part["id"]] = partial(self.start, part, call, tool.id, arguments)
        if tool.id != QuestionTool.id or not context.starts_late:
            await self.start_late(part["id"])
        has_plugins = self._hooks.plugins.have_hooks
        task = asyncio.current_task()
        try:
            if detect_loop:
                await self._check_doom_loop(context, tool.id, arguments)
            if has_plugins:
                changed = await self._hooks.tool_before(self._step.plugin_tool_call(tool.id, call.id), arguments)
                if changed is not arguments:  # the record shows what runs
                    arguments = changed
                    await self.start(part, call, tool.id, arguments)
            await context.authorise(tool, arguments)
            # The record of a structured answer has no `truncated` in OpenCode.
            run = tool.run if isinstance(tool, StructuredOutput) else partial(invoke, tool)
            output = await run(arguments, context)
            if has_plugins:
                hook_input = self._step.plugin_tool_call(tool.id, call.id)
                output = await self._hooks.tool_after(hook_input, arguments, output)
        except BaseException as error:
            self._rejected |= isinstance(error, (PermissionRejectedError, QuestionRejectedError))
            self._corrected |= isinstance(error, PermissionCorrectedError)
            is_aborted = ends_task(error, task)
            if is_aborted and isinstance(error, GeneratorExit):  # nothing can be awaited in a coroutine that is closed
                raise
            reason = error.message if isinstance(error, OpenseshError) else describe(error)
            text = ABORTED if is_aborted else f"Error: {reason}"

            async def fail() -> None:
                await self.start_late(part["id"])
                known = as_object(self._writer.parts[part["id"]]["state"].get("metadata")) or {}
                kept = {name: value for name, value in known.items() if name != EXTENSION_KEY}
                await self.fail(part["id"], text, kept | await context.writes.summary())

            await run_uncancellable(fail())
            if is_aborted:
                raise
            return error if isinstance(error, Exception) else ToolFailedError(reason)
        metadata = output.metadata | await context.writes.summary()
        await self.start_late(part["id"])
        await self.complete(part["id"], output.output, output.title, metadata, output.attachments)
        return output

    async def _check_doom_loop(self, context: CallContext, tool: str, arguments: Mapping[str, Any]) -> None:
        reason = self._detector.record_call(tool, arguments)
        if reason is None:
            return
        metadata = {"tool": tool, "input": dict(arguments), "reason": reason}
        try:
            await context.ask("doom_loop", [tool], always=[tool], metadata=metadata)
        except PermissionDeniedError:
            self._rejected = True  # a model in a loop that is only given an error would repeat it
            raise
        self._detector.reset()

    # -- states of a part ----------------------------------------------------------------------------------------------

    async def start(
        self, part: Document, call: stream.ToolCall, name: str | None = None, arguments: Mapping[str, Any] | None = None
    ) -> None:
        """Store that a call is complete and about to run."""
        state = {"status": "running", "input": dict(call.input if arguments is None else arguments)}
        changed = part | {"tool": name or call.name, "state": state | {"time": {"start": ids.now_ms()}}}
        if call.metadata:
            changed["metadata"] = call.metadata
        await self._writer.put(changed)

    async def start_late(self, part_id: str) -> None:
        """Store that a call is running, unless that is stored already."""
        if (start := self._late_starts.pop(part_id, None)) is not None:
            await start()

    async def progress(self, part_id: str, title: str | None, metadata: Mapping[str, Any] | None) -> None:
        """Store the progress of a running call."""
        part = self._writer.parts.get(part_id)
        state = (part or {}).get("state", {})
        if part is None or state.get("status") != "running":
            return
        changed = {"status": "running", "input": state["input"]}
        changed |= {"title": title} if title is not None else {"title": state["title"]} if "title" in state else {}
        known = object_at(state, "metadata")
        extension = {EXTENSION_KEY: known[EXTENSION_KEY]} if EXTENSION_KEY in known else {}
        newest = known if metadata is None and "metadata" in state else metadata
        changed |= {"metadata": dict(newest) | extension} if newest is not None else {}
        await self._writer.put(part | {"state": changed | {"time": state["time"]}})

    async def announce_writes(self, part_id: str, metadata: Document) -> None:
        """Store which files a running call is about to change, before it does."""
        part = self._writer.parts.get(part_id)
        if part is not None and part["state"].get("status") == "running":
            state = part["state"].copy()
            time = state.pop("time")
            state["metadata"] = object_at(state, "metadata") | metadata
            await self._writer.put(part | {"state": state | {"time": time}})

    async def complete(
        self,
        part_id: str,
        output: str,
        title: str = "",
        metadata: Metadata | None = None,
        attachments: Sequence[dict[str, Any]] = (),
    ) -> None:
        """Store the output of a call."""
        part = self._writer.parts[part_id]
        state: Document = {
            "status": "completed",
            "input": part["state"]["input"],
            "output": output,
            "title": title,
            "metadata": metadata or {},
            "time": {"start": _start_of(part), "end": ids.now_ms()},
        }
        if attachments:
            state["attachments"] = list(attachments)
        await self._writer.put(part | {"state": state})

    async def fail(self, part_id: str, error: str, metadata: Metadata | None = None) -> None:
        """Store the error of a call; without ``metadata``, that of its last progress is kept."""
        part = self._writer.parts[part_id]
        if metadata is None:
            metadata = as_object(part["state"].get("metadata"))
        state: Document = {"status": "error", "input": part["state"]["input"], "error": error}
        if metadata:
            state["metadata"] = metadata
        await self._writer.put(part | {"state": state | {"time": {"start": _start_of(part), "end": ids.now_ms()}}})

    async def abort_open(self) -> None:
        """Store an error for every call that has not ended."""
        for part in list(self._writer.parts.values()):
            if part["type"] == "tool" and part["state"]["status"] in ("pending", "running"):
                await self.fail(part["id"], ABORTED)


def _start_of(part: Document) -> int:
    time = object_at(part["state"], "time")
    return time.get("start") or ids.now_ms()


class LoopDetector:
    """Detects a model that repeats itself: the same call, two calls in turns, or the same error.

    It stops nothing. The engine asks for the permission ``doom_loop``, which rules can answer too.
    """

    def __init__(self, limits: LoopLimits | None = None) -> None:
        self.limits = limits or LoopLimits()
        self._calls: deque[tuple[str, bytes]] = deque(maxlen=max(self.limits.same, 2 * self.limits.pairs))
        self._errors: dict[str, list[str]] = {}

    def record_call(self, tool: str, arguments: Mapping[str, Any]) -> str | None:
        """Record a call that is about to run, and return a reason for the user if it looks like a loop."""
        self._calls.append((tool, dumps_compact(dict(arguments))))
        calls, limits = list(self._calls), self.limits
        if len(calls) >= limits.same and len(set(calls[-limits.same :])) == 1:
            return f"the same call of {tool} {limits.same} times in a row"
        rounds = calls[-2 * limits.pairs :]
        alternating = len(rounds) == 2 * limits.pairs and len(set(rounds)) == 2
        if alternating and len(set(rounds[::2])) == len(set(rounds[1::2])) == 1:
            return f"{rounds[-2][0]} and {tool} in turns, {limits.pairs} times over"
        if len(self._errors.get(tool, ())) >= limits.errors:
            return f"{tool} failed {limits.errors} times with the same error"
        return None

    def record_result(self, tool: str, error: str | None) -> None:
        """Record the error of a call, or ``None`` if it succeeded."""
        errors = self._errors.setdefault(tool, [])
        if error is None or (errors and errors[-1] != error):
            errors.clear()
        if error is not None:
            errors.append(error)

    def reset(self) -> None:
        """Start counting anew."""
        self._calls.clear()
        self._errors.clear()
