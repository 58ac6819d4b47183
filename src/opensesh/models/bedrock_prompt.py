"""A request in the words of Amazon Bedrock's Converse API."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from .anthropic_prompt import CACHE_POINTS, LEAST_BUDGET, thinking_budget
from .request import Assistant, File, Reasoning, Request, System, Text, ToolResults, ToolUse, ToolUseResult, User
from .wire_helpers import inline_data, nested, unsupported_file_note

if TYPE_CHECKING:
    from .request import ModelMessage

Block: TypeAlias = dict[str, Any]

_IMAGES = {"image/png": "png", "image/jpeg": "jpeg", "image/jpg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
_DOCUMENTS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
}
_FOREIGN_ID = re.compile(r"[^A-Za-z0-9_.:-]")
_FOREIGN_NAME = re.compile(r"[^A-Za-z0-9()\[\]-]+")
_PASSED_ON = ("guardrailConfig", "performanceConfig", "serviceTier", "requestMetadata")


def body(request: Request) -> dict[str, Any]:
    """What to POST; the model's name is in the address."""
    name = request.model.wire_id.lower()
    prompt = _Prompt(tells_failure="anthropic" in name or "claude" in name or "nova" in name)
    prompt.add(request.messages)
    inference, fields = _settings(request, name)
    out: dict[str, Any] = {"messages": prompt.messages}
    if prompt.system:
        out["system"] = prompt.system
    if inference:
        out["inferenceConfig"] = inference
    if tools := _tools(request, prompt.called):
        out["toolConfig"] = tools
    if fields:
        out["additionalModelRequestFields"] = fields
    out.update({key: request.options[key] for key in _PASSED_ON if key in request.options})
    return out


def _settings(request: Request, name: str) -> tuple[Block, Block]:
    """``inferenceConfig``, and what lies beside it because only some models know it."""
    inference: Block = {
        "maxTokens": request.max_output_tokens or request.model.limit.output or None,
        "temperature": request.temperature,
        "topP": request.top_p,
    }
    fields: Block = dict(request.options.get("additionalModelRequestFields") or {})
    if request.options.get("anthropicBeta"):
        fields["anthropic_beta"] = list(request.options["anthropicBeta"])
    option = request.options.get("reasoningConfig") or request.options.get("thinking")
    wanted = cast("Block", option) if isinstance(option, dict) else {}
    if "anthropic" in name or "claude" in name:
        _claude(request, wanted, inference, fields)
    elif wanted.get("maxReasoningEffort"):
        _effort(name, wanted, inference, fields)
    return {key: value for key, value in inference.items() if value is not None}, fields


def _claude(request: Request, wanted: Block, inference: Block, fields: Block) -> None:
    thinking = None if request.tool_choice == "required" else _thinking(request, wanted, inference)
    if thinking:
        fields["thinking"] = thinking
        inference.update(temperature=None, topP=None)
    elif request.top_k is not None:
        fields["top_k"] = request.top_k
    if wanted.get("maxReasoningEffort"):
        fields["output_config"] = {"effort": wanted["maxReasoningEffort"]}
    if inference["temperature"] is not None:  # recent models refuse both at once
        inference["topP"] = None


def _thinking(request: Request, wanted: Block, inference: Block) -> Block | None:
    """How Claude is to think; its budget comes out of ``maxTokens``, which grows by it as far as the model allows."""
    if wanted.get("type") == "adaptive":
        return {"type": "adaptive"}
    answer = inference["maxTokens"] or LEAST_BUDGET * 4
    given = thinking_budget(wanted, answer, request.model.limit.output) if wanted.get("type") == "enabled" else None
    if given is None:
        return None
    budget, inference["maxTokens"] = given
    return {"type": "enabled", "budget_tokens": budget}


def _effort(name: str, wanted: Block, inference: Block, fields: Block) -> None:
    effort = wanted["maxReasoningEffort"]
    if "openai" in name:
        fields["reasoning_effort"] = effort
        return
    fields["reasoningConfig"] = {"type": wanted.get("type", "enabled"), "maxReasoningEffort": effort}
    if effort == "high":  # Nova then decides these for itself, and refuses to be told
        inference.update(maxTokens=None, temperature=None, topP=None)


def _tools(request: Request, called: dict[str, None]) -> Block | None:
    """The tools on offer. A history with calls in it must offer some, so those it names stand in for none."""
    offered = [_spec(tool.name, tool.description, tool.parameters) for tool in request.tools]
    if request.tool_choice == "none" and not called:
        return None
    specs = offered or [_spec(name, "", {}) for name in called]
    if not specs:
        return None
    choice = {"required": "any", "auto": "auto"}.get(request.tool_choice)
    return {"tools": specs, "toolChoice": {choice: {}}} if choice and offered else {"tools": specs}


def _spec(name: str, description: str, parameters: Block) -> Block:
    schema = {"json": {**parameters, "type": "object"}}
    described = {"description": description} if description.strip() else {}
    return {"toolSpec": {"name": name, **described, "inputSchema": schema}}


class _Prompt:
    """The conversation as it is written down."""

    def __init__(self, *, tells_failure: bool) -> None:
        self.system: list[Block] = []
        self.messages: list[Block] = []
        self.called: dict[str, None] = {}
        """The names of the tools that were called."""
        self._tells_failure = tells_failure
        self._names: set[str] = set()

    def add(self, turns: tuple[ModelMessage, ...]) -> None:
        """Write ``turns`` down, so that user and assistant alternate."""
        points = [index for index, turn in enumerate(turns) if turn.cache]
        if len(points) > CACHE_POINTS:
            points = points[:2] + points[-2:]
        for index, turn in enumerate(turns):
            role, blocks = self._blocks(turn)
            if blocks and index in points and "reasoningContent" not in blocks[-1]:
                blocks.append({"cachePoint": {"type": "default"}})
            if role == "system":
                self.system += blocks
            elif self.messages and self.messages[-1]["role"] == role:
                self.messages[-1]["content"] += blocks
            elif blocks:
                self.messages.append({"role": role, "content": blocks})
        self._trim_end()

    def _trim_end(self) -> None:
        """An answer to be continued must not end in white space."""
        if self.messages and self.messages[-1]["role"] == "assistant":
            last = self.messages[-1]["content"][-1]
            if "text" in last:
                last["text"] = last["text"].rstrip()

    def _blocks(self, turn: ModelMessage) -> tuple[str, list[Block]]:
        match turn:
            case System():
                return "system", _text(turn.text)
            case User():
                return "user", self._user(turn)
            case Assistant():
                return "assistant", [block for piece in turn.content for block in self._said(piece)]
            case ToolResults():
                return "user", [self._result(result) for result in turn.content]

    def _user(self, turn: User) -> list[Block]:
        blocks = self._shown(turn.content)
        if any("document" in block for block in blocks) and not any("text" in block for block in blocks):
            blocks.insert(0, {"text": "Here is a document."})  # one without words beside it is refused
        return blocks

    def _shown(self, content: tuple[Text | File, ...]) -> list[Block]:
        return [
            block
            for piece in content
            for block in (_text(piece.text) if isinstance(piece, Text) else [self._file(piece)])
        ]

    def _said(self, piece: Text | Reasoning | ToolUse) -> list[Block]:
        match piece:
            case Text():
                return _text(piece.text)
            case Reasoning():
                return _thought(piece)
            case ToolUse():
                self.called[piece.name] = None
                return [{"toolUse": {"toolUseId": tool_id(piece.id), "name": piece.name, "input": piece.input}}]

    def _result(self, result: ToolUseResult) -> Block:
        content = self._shown(result.output) or _text("(no output)")
        out: Block = {"toolUseId": tool_id(result.id), "content": content}
        if result.failed and self._tells_failure:
            out["status"] = "error"
        return {"toolResult": out}

    def _file(self, file: File) -> Block:
        mime, data = inline_data(file) or ("", "")
        if data and mime in _IMAGES:
            return {"image": {"format": _IMAGES[mime], "source": {"bytes": data}}}
        if data and mime in _DOCUMENTS:
            return {
                "document": {"format": _DOCUMENTS[mime], "name": self._name(file), "source": {"bytes": data}},
            }
        return {"text": unsupported_file_note(file)}

    def _name(self, file: File) -> str:
        """A name in the few characters that are allowed, and no other document's."""
        stem = (file.filename or "document").rsplit("/", 1)[-1].rsplit(".", 1)[0]
        name = base = _FOREIGN_NAME.sub("-", stem).strip("-")[:150] or "document"
        number = 1
        while name in self._names:
            number += 1
            name = f"{base}-{number}"
        self._names.add(name)
        return name


def _text(text: str) -> list[Block]:
    """A block, or none: one without a visible character is refused."""
    return [{"text": text}] if text.strip() else []


def _thought(piece: Reasoning) -> list[Block]:
    """Thought that cannot be proved to be the model's own is refused, so it is left out."""
    match nested(piece.metadata, "bedrock"):
        case {"redactedData": str(data)}:
            return [{"reasoningContent": {"redactedContent": data}}]
        case {"signature": str(signature)} if signature:
            return [{"reasoningContent": {"reasoningText": {"text": piece.text, "signature": signature}}}]
        case _:
            return []


def tool_id(call_id: str) -> str:
    """``call_id`` in the characters that are allowed, and no longer than that."""
    return _FOREIGN_ID.sub("_", call_id)[:64]
