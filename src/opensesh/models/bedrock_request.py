"""Requests to Amazon Bedrock's Converse API, and the names of models and regions there."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ..errors import ModelError
from .anthropic_request import MAX_CACHE_POINTS, MIN_THINKING_TOKENS, thinking_budget
from .request import Assistant, File, Reasoning, Request, System, Text, ToolResults, ToolUse, User
from .wire_helpers import inline_data, nested, unsupported_file_note

if TYPE_CHECKING:
    from ..records import Document
    from .request import ModelMessage

REGION_PREFIXES = ("global.", "us.", "eu.", "apac.", "jp.", "au.", "ca.", "in.", "us-gov.")
"""Prefixes of model ids that name the regions where the model is served."""

_EUROPE = ("eu-west-1", "eu-west-2", "eu-west-3", "eu-north-1", "eu-central-1", "eu-south-1", "eu-south-2")


class _PrefixRule(NamedTuple):
    regions: tuple[str, ...]
    """Prefixes of regions."""
    models: tuple[str, ...]
    """Substrings of model ids."""
    prefix: str


# The first match decides.
_PREFIX_RULES = (
    _PrefixRule(("us-gov-",), ("",), ""),
    _PrefixRule(
        ("us-",), ("claude", "deepseek", "nova-micro", "nova-lite", "nova-pro", "nova-premier", "nova-2"), "us."
    ),
    _PrefixRule(_EUROPE, ("claude", "nova-lite", "nova-micro", "llama3", "pixtral"), "eu."),
    _PrefixRule(("ap-southeast-2", "ap-southeast-4"), ("anthropic.claude-sonnet-4-5", "anthropic.claude-haiku"), "au."),
    _PrefixRule(("ap-northeast-1",), ("claude", "nova-lite", "nova-micro", "nova-pro"), "jp."),
    _PrefixRule(("ap-",), ("claude", "nova-lite", "nova-micro", "nova-pro"), "apac."),
)

_IMAGE_FORMATS = {
    "image/png": "png",
    "image/jpeg": "jpeg",
    "image/jpg": "jpeg",
    "image/gif": "gif",
    "image/webp": "webp",
}
_DOCUMENT_FORMATS = {
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
_NOT_IN_ID = re.compile(r"[^A-Za-z0-9_.:-]")
_NOT_IN_DOCUMENT_NAME = re.compile(r"[^A-Za-z0-9()\[\]-]+")
_TOP_LEVEL_OPTIONS = ("guardrailConfig", "performanceConfig", "serviceTier", "requestMetadata")


def aws_region(configured: str | None) -> str:
    """Return the region to call: ``configured``, else the environment's, else ``us-east-1``."""
    name = configured or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    if not re.fullmatch(r"[A-Za-z0-9-]+", name):  # it becomes part of the URL
        raise ModelError(f"{name!r} is not an AWS region; an example is us-east-1")
    return name


def regional_model_id(region: str, model_id: str) -> str:
    """Return the id under which ``region`` serves a model; ids with a prefix and ARNs stay as they are.

    Bedrock serves many models only across the regions of a continent: what the catalogue lists as
    ``anthropic.claude-...`` is rejected in ``us-east-1``, and ``us.anthropic.claude-...`` is served.
    """
    if not model_id.startswith((*REGION_PREFIXES, "arn:")):
        for rule in _PREFIX_RULES:
            if region.startswith(rule.regions) and any(word in model_id for word in rule.models):
                return rule.prefix + model_id
    return model_id


def request_body(request: Request) -> dict[str, Any]:
    """Return the body to POST; the model's name is in the URL."""
    name = request.model.wire_id.lower()
    conversation = _ConverseMessages(reports_failure="anthropic" in name or "claude" in name or "nova" in name)
    conversation.add(request.messages)
    inference, fields = _settings(request, name)
    out: dict[str, Any] = {"messages": conversation.messages}
    if conversation.system:
        out["system"] = conversation.system
    if inference:
        out["inferenceConfig"] = inference
    if tools := _tools(request, conversation.called):
        out["toolConfig"] = tools
    if fields:
        out["additionalModelRequestFields"] = fields
    out.update({key: request.options[key] for key in _TOP_LEVEL_OPTIONS if key in request.options})
    return out


def _settings(request: Request, name: str) -> tuple[Document, Document]:
    """Return ``inferenceConfig``, and the fields that only some models know."""
    inference: Document = {
        "maxTokens": request.max_output_tokens or request.model.limit.output or None,
        "temperature": request.temperature,
        "topP": request.top_p,
    }
    fields: Document = dict(request.options.get("additionalModelRequestFields") or {})
    if request.options.get("anthropicBeta"):
        fields["anthropic_beta"] = list(request.options["anthropicBeta"])
    option = request.options.get("reasoningConfig") or request.options.get("thinking")
    reasoning = cast("Document", option) if isinstance(option, dict) else {}
    effort = reasoning.get("maxReasoningEffort")
    if "anthropic" in name or "claude" in name:
        _add_claude_settings(request, reasoning, inference, fields)
    elif effort and "openai" in name:
        fields["reasoning_effort"] = effort
    elif effort:
        fields["reasoningConfig"] = {"type": reasoning.get("type", "enabled"), "maxReasoningEffort": effort}
        if effort == "high":  # Nova then chooses these itself, and rejects other values
            inference.update(maxTokens=None, temperature=None, topP=None)
    return {key: value for key, value in inference.items() if value is not None}, fields


def _add_claude_settings(request: Request, reasoning: Document, inference: Document, fields: Document) -> None:
    thinking: Document | None = None
    if request.tool_choice == "required":
        pass  # a forced call excludes thinking
    elif reasoning.get("type") == "adaptive":
        thinking = {"type": "adaptive"}
    elif reasoning.get("type") == "enabled":
        # The budget is part of maxTokens, which grows by it within the limit.
        answer = inference["maxTokens"] or MIN_THINKING_TOKENS * 4
        if tokens := thinking_budget(reasoning, answer, request.model.limit.output):
            thinking, inference["maxTokens"] = {"type": "enabled", "budget_tokens": tokens[0]}, tokens[1]
    if thinking:
        fields["thinking"] = thinking
        inference.update(temperature=None, topP=None)
    elif request.top_k is not None:
        fields["top_k"] = request.top_k
    if reasoning.get("maxReasoningEffort"):
        fields["output_config"] = {"effort": reasoning["maxReasoningEffort"]}
    if inference["temperature"] is not None:  # recent models reject both at once
        inference["topP"] = None


def _tools(request: Request, called: dict[str, None]) -> Document | None:
    """Return the tools. A history with calls needs some, so the called names stand in where none are offered."""
    offered = [_tool(tool.name, tool.description, tool.parameters) for tool in request.tools]
    if request.tool_choice == "none" and not called:
        return None
    specs = offered or [_tool(name, "", {}) for name in called]
    if not specs:
        return None
    choice = {"required": "any", "auto": "auto"}.get(request.tool_choice)
    return {"tools": specs, "toolChoice": {choice: {}}} if choice and offered else {"tools": specs}


def _tool(name: str, description: str, parameters: Document) -> Document:
    schema = {"json": {**parameters, "type": "object"}}
    described = {"description": description} if description.strip() else {}
    return {"toolSpec": {"name": name, **described, "inputSchema": schema}}


class _ConverseMessages:
    """Collects system blocks, and messages in which user and assistant alternate."""

    def __init__(self, *, reports_failure: bool) -> None:
        self.system: list[Document] = []
        self.messages: list[Document] = []
        self.called: dict[str, None] = {}
        """Names of the tools that were called."""
        self._reports_failure = reports_failure
        self._document_names: set[str] = set()

    def add(self, history: tuple[ModelMessage, ...]) -> None:
        points = [index for index, message in enumerate(history) if message.cache]
        if len(points) > MAX_CACHE_POINTS:
            points = points[:2] + points[-2:]
        for index, message in enumerate(history):
            role, blocks = self._blocks(message)
            if blocks and index in points and "reasoningContent" not in blocks[-1]:
                blocks.append({"cachePoint": {"type": "default"}})
            if role == "system":
                self.system += blocks
            elif self.messages and self.messages[-1]["role"] == role:
                self.messages[-1]["content"] += blocks
            elif blocks:
                self.messages.append({"role": role, "content": blocks})
        if self.messages and self.messages[-1]["role"] == "assistant":
            last = self.messages[-1]["content"][-1]
            if "text" in last:
                last["text"] = last["text"].rstrip()  # an answer to be continued must not end in white space

    def _blocks(self, message: ModelMessage) -> tuple[str, list[Document]]:
        match message:
            case System():
                return "system", _text(message.text)
            case User():
                blocks = self._input(message.content)
                if any("document" in block for block in blocks) and not any("text" in block for block in blocks):
                    blocks.insert(0, {"text": "Here is a document."})  # a document without text is rejected
                return "user", blocks
            case Assistant():
                return "assistant", [block for part in message.content for block in self._output(part)]
            case ToolResults():
                results: list[Document] = []
                for result in message.content:
                    content = self._input(result.output) or _text("(no output)")
                    failed = {"status": "error"} if result.failed and self._reports_failure else {}
                    results.append({"toolResult": {"toolUseId": tool_id(result.id), "content": content, **failed}})
                return "user", results

    def _input(self, content: tuple[Text | File, ...]) -> list[Document]:
        return [
            block for part in content for block in (_text(part.text) if isinstance(part, Text) else [self._file(part)])
        ]

    def _output(self, part: Text | Reasoning | ToolUse) -> list[Document]:
        match part:
            case Text():
                return _text(part.text)
            case ToolUse():
                self.called[part.name] = None
                return [{"toolUse": {"toolUseId": tool_id(part.id), "name": part.name, "input": part.input}}]
            case Reasoning():
                # Reasoning without a signature is rejected, so it is left out.
                match nested(part.metadata, "bedrock"):
                    case {"redactedData": str(data)}:
                        return [{"reasoningContent": {"redactedContent": data}}]
                    case {"signature": str(signature)} if signature:
                        return [{"reasoningContent": {"reasoningText": {"text": part.text, "signature": signature}}}]
                    case _:
                        return []

    def _file(self, file: File) -> Document:
        mime, data = inline_data(file) or ("", "")
        if data and mime in _IMAGE_FORMATS:
            return {"image": {"format": _IMAGE_FORMATS[mime], "source": {"bytes": data}}}
        if data and mime in _DOCUMENT_FORMATS:
            # A name is unique, and of the few characters that are allowed.
            stem = (file.filename or "document").rsplit("/", 1)[-1].rsplit(".", 1)[0]
            name = base = _NOT_IN_DOCUMENT_NAME.sub("-", stem).strip("-")[:150] or "document"
            number = 1
            while name in self._document_names:
                number += 1
                name = f"{base}-{number}"
            self._document_names.add(name)
            return {"document": {"format": _DOCUMENT_FORMATS[mime], "name": name, "source": {"bytes": data}}}
        return {"text": unsupported_file_note(file)}


def _text(text: str) -> list[Document]:
    # The API rejects text blocks without a visible character.
    return [{"text": text}] if text.strip() else []


def tool_id(call_id: str) -> str:
    """Replace characters that Bedrock does not allow in ids, and shorten to its limit."""
    return _NOT_IN_ID.sub("_", call_id)[:64]
