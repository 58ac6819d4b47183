"""A request in the dialect of Gemini's ``streamGenerateContent``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .google_schema import simplified
from .request import Assistant, File, Reasoning, System, Text, ToolResults, ToolUse, User
from .wire_helpers import inline_data, joined_text, nested, unsupported_file_note

if TYPE_CHECKING:
    from .model import Model
    from .request import ModelMessage, Request, ToolSpec, ToolUseResult

Content = dict[str, Any]
Part = dict[str, Any]

UNSIGNED = "skip_thought_signature_validator"
"""What Gemini 3 takes in place of the signature of a call that it did not make."""

_MODES = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
_TOP_LEVEL = frozenset({"cachedContent", "labels", "safetySettings", "serviceTier"})
_ELSEWHERE = frozenset({"retrievalConfig", "structuredOutputs", "threshold"})
_HARMS = ("HATE_SPEECH", "DANGEROUS_CONTENT", "HARASSMENT", "SEXUALLY_EXPLICIT")
_GEMINI_3 = re.compile(r"gemini-(?:[3-9]|\d\d)")


def body(request: Request) -> dict[str, Any]:
    """The body to POST."""
    model = request.model
    out: dict[str, Any] = {"contents": [], "generationConfig": _generation(request)}
    out["contents"] = [content for turn in request.messages for content in _turn(turn, model)]
    system: list[Part] = [{"text": turn.text} for turn in request.messages if isinstance(turn, System)]
    if system and model.wire_id.startswith("gemma-"):
        _tell_the_user(out["contents"], system)
    elif system:
        out["systemInstruction"] = {"parts": system}
    if request.tools:
        out["tools"] = [{"functionDeclarations": [_declaration(tool) for tool in request.tools]}]
        out["toolConfig"] = {"functionCallingConfig": {"mode": _MODES[request.tool_choice]}}
    return out | _top_level(request.options, out)


def _generation(request: Request) -> dict[str, Any]:
    given = {
        "maxOutputTokens": request.max_output_tokens,
        "temperature": request.temperature,
        "topP": request.top_p,
        "topK": request.top_k,
    }
    ours = {name: value for name, value in given.items() if value is not None}
    placed = _TOP_LEVEL | _ELSEWHERE
    return ours | {name: value for name, value in request.options.items() if name not in placed}


def _top_level(options: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    settings = {name: options[name] for name in _TOP_LEVEL if name in options}
    if "threshold" in options and "safetySettings" not in options:
        categories = [f"HARM_CATEGORY_{harm}" for harm in _HARMS]
        settings["safetySettings"] = [{"category": name, "threshold": options["threshold"]} for name in categories]
    if "retrievalConfig" in options:
        settings["toolConfig"] = {**body.get("toolConfig", {}), "retrievalConfig": options["retrievalConfig"]}
    return settings


def _declaration(tool: ToolSpec) -> dict[str, Any]:
    parameters = simplified(tool.parameters)
    return {
        "name": tool.name,
        "description": tool.description,
        **({"parameters": parameters} if parameters else {}),
    }


def _tell_the_user(contents: list[Content], system: list[Part]) -> None:
    """Gemma knows no system prompt: it stands before the first thing the user says."""
    if contents and contents[0]["role"] == "user":
        contents[0]["parts"] = [*system, *contents[0]["parts"]]


def _turn(turn: ModelMessage, model: Model) -> list[Content]:
    match turn:
        case System():
            return []
        case User():
            return _content("user", [_part(part) for part in turn.content])
        case Assistant():
            return _content("model", _model_parts(turn, model))
        case ToolResults():
            return _tool_results(turn, model)


def _content(role: str, parts: list[Part]) -> list[Content]:
    return [{"role": role, "parts": parts}] if parts else []


def _part(part: Text | File) -> Part:
    if isinstance(part, Text):
        return {"text": part.text}
    carried = inline_data(part)
    if carried:
        mime, data = carried
        return {"inlineData": {"mimeType": mime, "data": data}} if data else {"text": unsupported_file_note(part)}
    return {"fileData": {"mimeType": part.mime, "fileUri": part.url}}


def _model_parts(turn: Assistant, model: Model) -> list[Part]:
    parts: list[Part] = []
    excused = _GEMINI_3.search(model.wire_id) is None
    for part in turn.content:
        signature = nested(part.metadata, "google", "vertex").get("thoughtSignature")
        match part:
            case Text():
                written: Part = {"text": part.text}
            case Reasoning():
                written = {"text": part.text, "thought": True}
            case ToolUse():
                written = {"functionCall": {"id": part.id, "name": part.name, "args": part.input}}
                signature = signature or (None if excused else UNSIGNED)
                excused = True  # only the first call of a step has to be signed
        if signature:
            written["thoughtSignature"] = signature
        if signature or written.get("text") != "":
            parts.append(written)
    return parts


def _tool_results(turn: ToolResults, model: Model) -> list[Content]:
    """The answers, one a call. Before Gemini 3 they hold words alone, and files follow as the user's."""
    within = _GEMINI_3.search(model.wire_id) is not None
    answers: list[Part] = []
    after: list[Part] = []
    for result in turn.content:
        files = [_part(part) for part in result.output if isinstance(part, File)]
        answers.append({"functionResponse": _response(result, files if within else [])})
        if files and not within:
            after += [{"text": f"Files returned by the {result.name} tool:"}, *files]
    return [*_content("user", answers), *_content("user", after)]


def _response(result: ToolUseResult, files: list[Part]) -> dict[str, Any]:
    said = {"error" if result.failed else "output": joined_text(result.output)}
    return {"id": result.id, "name": result.name, "response": said, **({"parts": files} if files else {})}
