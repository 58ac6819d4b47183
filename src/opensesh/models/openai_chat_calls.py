"""Tool calls put together from what chat-completion servers send of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .stream_events import ToolInputDelta, ToolInputEnd, ToolInputStart
from .wire_helpers import object_field, read_arguments, tool_call, write_arguments

if TYPE_CHECKING:
    from collections.abc import Callable

    from .stream_events import StreamEvent


class Calls:
    """The calls of one answer, in the order they began.

    OpenAI sends a call's index with every fragment, its id and name with the first. Others send whole calls, leave
    out ids or indexes, repeat the name, or number every call 0. So a fragment with a name begins another call if its
    id is another; or if it has no id, and its name is another or the call before has all its arguments.
    """

    def __init__(self, mint_id: Callable[[], str]) -> None:
        self._mint_id = mint_id
        self._calls: list[_Call] = []
        self._at: dict[Any, _Call] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def read(self, fragment: dict[str, Any], out: list[StreamEvent]) -> None:
        """Take one entry of ``delta.tool_calls``."""
        function: dict[str, Any] = fragment.get("function") or {}
        name, given, index = function.get("name") or "", fragment.get("id") or "", fragment.get("index")
        text = function.get("arguments") or ""
        if not isinstance(text, str):
            text = write_arguments(text)
        call = self._find(index, given)
        if call and name and call.is_followed_by(given, name, text):
            call = None
        if call is None:
            call = self._begin(given, out)
        self._at[given if index is None else index] = call
        call.given = call.given or given
        call.name = call.name or name
        if extra := fragment.get("extra_content"):
            call.signature = object_field(extra, "google").get("thought_signature") or call.signature
        call.grow(text, out)

    def finish(self, out: list[StreamEvent]) -> None:
        """Complete every call that is not complete yet, whatever its arguments look like."""
        for call in self._calls:
            call.finish(out)

    def _find(self, index: int | None, given: str) -> _Call | None:
        if index is None and not given:
            return self._calls[-1] if self._calls else None
        return self._at.get(given if index is None else index)

    def _begin(self, given: str, out: list[StreamEvent]) -> _Call:
        for earlier in self._calls:
            if earlier.is_whole():
                earlier.finish(out)
        taken = {call.id for call in self._calls}
        call = _Call(given if given and given not in taken else self._mint_id())
        self._calls.append(call)
        return call


class _Call:
    """One call: announced once its name is known, complete at the latest when the answer is."""

    def __init__(self, call_id: str) -> None:
        self.id = call_id
        self.given = ""
        self.name = ""
        self.signature: str | None = None
        self._text: list[str] = []
        self._announced = False
        self._finished = False

    def is_followed_by(self, given: str, name: str, text: str) -> bool:
        """Whether a fragment in this call's place, with a name, is the beginning of another call."""
        if given:
            return bool(self.given) and given != self.given
        return name != (self.name or name) or (bool(text) and self.is_whole())

    def is_whole(self) -> bool:
        text = "".join(self._text)
        return bool(text) and read_arguments(text)[1] is None

    def grow(self, text: str, out: list[StreamEvent]) -> None:
        if self._finished:
            return
        if text:
            self._text.append(text)
        if self.name and not self._announced:
            self._announce(out)
        elif text and self._announced:
            out.append(ToolInputDelta(self.id, text))

    def finish(self, out: list[StreamEvent]) -> None:
        if self._finished:
            return
        self._finished = True
        if not self._announced:
            self._announce(out)
        metadata = {"google": {"thoughtSignature": self.signature}} if self.signature else None
        out += (ToolInputEnd(self.id), tool_call(self.id, self.name, "".join(self._text), metadata))

    def _announce(self, out: list[StreamEvent]) -> None:
        self._announced = True
        out.append(ToolInputStart(self.id, self.name))
        if self._text:
            out.append(ToolInputDelta(self.id, "".join(self._text)))
