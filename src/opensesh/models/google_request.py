"""Requests to Google's Gemini API, and tool schemas in the subset of OpenAPI 3.0 that it accepts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from ..records import as_object, object_at
from .request import Assistant, File, Reasoning, System, Text, ToolResults, ToolUse, User
from .wire_helpers import inline_data, joined_text, nested, unsupported_file_note

if TYPE_CHECKING:
    from .request import ModelMessage, Request

Content = dict[str, Any]
Part = dict[str, Any]
Schema = dict[str, Any]

NO_SIGNATURE = "skip_thought_signature_validator"
"""What Gemini 3 accepts instead of a signature, for a call that it did not make."""

_MODES = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
_TOP_LEVEL_OPTIONS = frozenset({"cachedContent", "labels", "safetySettings", "serviceTier"})
_CONVERTED_OPTIONS = frozenset({"retrievalConfig", "structuredOutputs", "threshold"})
_HARMS = ("HATE_SPEECH", "DANGEROUS_CONTENT", "HARASSMENT", "SEXUALLY_EXPLICIT")
_GEMINI_3 = re.compile(r"gemini-(?:[3-9]|\d\d)")

_SCHEMA_KEYWORDS = {
    "array": ("description", "minItems", "maxItems"),
    "integer": ("description", "minimum", "maximum"),
    "number": ("description", "minimum", "maximum"),
}
_SCHEMA_FORMATS = frozenset({"date-time", "float", "double", "int32", "int64"})


def request_body(request: Request) -> dict[str, Any]:
    """Return the body to POST."""
    model, options = request.model, request.options
    is_gemini_3 = _GEMINI_3.search(model.wire_id) is not None
    settings = {
        "maxOutputTokens": request.max_output_tokens,
        "temperature": request.temperature,
        "topP": request.top_p,
        "topK": request.top_k,
    }
    elsewhere = _TOP_LEVEL_OPTIONS | _CONVERTED_OPTIONS
    generation = {name: value for name, value in settings.items() if value is not None}
    generation |= {name: value for name, value in options.items() if name not in elsewhere}
    contents = [content for message in request.messages for content in _contents(message, is_gemini_3=is_gemini_3)]
    out: dict[str, Any] = {"contents": contents, "generationConfig": generation}
    system: list[Part] = [{"text": message.text} for message in request.messages if isinstance(message, System)]
    if system and not model.wire_id.startswith("gemma-"):
        out["systemInstruction"] = {"parts": system}
    elif system and contents and contents[0]["role"] == "user":
        contents[0]["parts"] = [*system, *contents[0]["parts"]]  # Gemma has no system prompt
    if request.tools:
        declarations: list[dict[str, Any]] = []
        for tool in request.tools:
            schema = simplify_schema(tool.parameters)
            parameters = {"parameters": schema} if schema else {}
            declarations.append({"name": tool.name, "description": tool.description, **parameters})
        out["tools"] = [{"functionDeclarations": declarations}]
        out["toolConfig"] = {"functionCallingConfig": {"mode": _MODES[request.tool_choice]}}
    out |= {name: options[name] for name in _TOP_LEVEL_OPTIONS if name in options}
    if "threshold" in options and "safetySettings" not in options:
        categories = [f"HARM_CATEGORY_{harm}" for harm in _HARMS]
        out["safetySettings"] = [{"category": name, "threshold": options["threshold"]} for name in categories]
    if "retrievalConfig" in options:
        out["toolConfig"] = {**out.get("toolConfig", {}), "retrievalConfig": options["retrievalConfig"]}
    return out


def _contents(message: ModelMessage, *, is_gemini_3: bool) -> list[Content]:
    match message:
        case System():
            return []
        case User():
            return _content("user", [_part(part) for part in message.content])
        case Assistant():
            return _content("model", _model_parts(message, is_gemini_3=is_gemini_3))
        case ToolResults():
            # One response for each call. Before Gemini 3 they hold only text, and files follow as the user's.
            responses: list[Part] = []
            user_parts: list[Part] = []
            for result in message.content:
                files = [_part(part) for part in result.output if isinstance(part, File)]
                text = {"error" if result.failed else "output": joined_text(result.output)}
                response: dict[str, Any] = {"id": result.id, "name": result.name, "response": text}
                if files and is_gemini_3:
                    response["parts"] = files
                elif files:
                    user_parts += [{"text": f"Files returned by the {result.name} tool:"}, *files]
                responses.append({"functionResponse": response})
            return [*_content("user", responses), *_content("user", user_parts)]


def _content(role: str, parts: list[Part]) -> list[Content]:
    return [{"role": role, "parts": parts}] if parts else []


def _part(part: Text | File) -> Part:
    if isinstance(part, Text):
        return {"text": part.text}
    inline = inline_data(part)
    if inline:
        mime, data = inline
        return {"inlineData": {"mimeType": mime, "data": data}} if data else {"text": unsupported_file_note(part)}
    return {"fileData": {"mimeType": part.mime, "fileUri": part.url}}


def _model_parts(message: Assistant, *, is_gemini_3: bool) -> list[Part]:
    parts: list[Part] = []
    needs_signature = is_gemini_3
    for part in message.content:
        signature = nested(part.metadata, "google", "vertex").get("thoughtSignature")
        match part:
            case Text():
                content: Part = {"text": part.text}
            case Reasoning():
                content = {"text": part.text, "thought": True}
            case ToolUse():
                content = {"functionCall": {"id": part.id, "name": part.name, "args": part.input}}
                signature = signature or (NO_SIGNATURE if needs_signature else None)
                needs_signature = False  # only the first call of a step has to be signed
        if signature:
            content["thoughtSignature"] = signature
        if signature or content.get("text") != "":
            parts.append(content)
    return parts


def simplify_schema(schema: Schema) -> Schema | None:
    """Return the ``schema`` of an object as Gemini accepts it; ``None`` if the object has no properties.

    Enumerations become strings, references are replaced by their target (a recursive one by a plain object), and
    keywords for which Gemini would reject the request are left out.
    """
    simple = _SchemaConverter(schema).convert(schema)
    if "anyOf" in simple:  # the top level must be one object, so it gets the properties of all branches
        branches = [object_at(branch, "properties") for branch in simple["anyOf"]]
        properties = {name: branch[name] for branch in branches for name in branch}
        simple = {"type": "object", "properties": properties}
    return simple if simple.get("properties") else None


class _SchemaConverter:
    """Converts the parts of one schema; references point into its ``root``."""

    def __init__(self, root: Schema) -> None:
        self._root = root

    def convert(self, schema: object, within: frozenset[str] = frozenset()) -> Schema:
        """Return the simplified ``schema``; ``within`` are the references that led here."""
        if not isinstance(schema, dict):
            return {"type": "string"}
        schema = cast("Schema", schema)
        reference = schema.get("$ref")
        if isinstance(reference, str):
            if reference in within:
                return {"type": "object"}
            target = self._root
            for step in reference.removeprefix("#").strip("/").split("/"):
                target = object_at(target, step.replace("~1", "/").replace("~0", "~"))
            siblings = {key: value for key, value in schema.items() if key != "$ref"}
            return self.convert({**target, **siblings}, within | {reference})
        schema = self._with_all_of(schema, within)
        branches = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(branches, list) and "properties" not in schema:
            return self._any_of(schema, cast("list[object]", branches), within)
        return self._plain(schema, within)

    def _with_all_of(self, schema: Schema, within: frozenset[str]) -> Schema:
        """Return ``schema`` with the members of its ``allOf`` merged in."""
        members = schema.get("allOf")
        if not isinstance(members, list):
            return schema
        whole = {key: value for key, value in schema.items() if key != "allOf"}
        for member in cast("list[object]", members):
            part = self.convert(member, within)
            properties = {**object_at(whole, "properties"), **object_at(part, "properties")}
            required: list[str] = [*whole.get("required", ()), *part.get("required", ())]
            whole = {**part, **whole}
            if properties:
                whole |= {"type": "object", "properties": properties, "required": required}
        return whole

    def _any_of(self, schema: Schema, branches: list[object], within: frozenset[str]) -> Schema:
        # Gemini allows nothing beside anyOf, so siblings of it move into the branches.
        real = [branch for branch in branches if (as_object(branch) or {}).get("type") != "null"]
        siblings: Schema = {"nullable": True} if len(real) < len(branches) else {}
        if schema.get("description"):
            siblings["description"] = schema["description"]
        simple = [{**siblings, **self.convert(branch, within)} for branch in real]
        if not simple:
            return {"type": "string", **siblings}
        return simple[0] if len(simple) == 1 else {"anyOf": simple}

    def _plain(self, schema: Schema, within: frozenset[str]) -> Schema:
        kind, nullable, others = _types(schema)
        if others:
            return self._any_of(schema, [{**schema, "type": name} for name in (kind, *others)], within)
        keywords = _SCHEMA_KEYWORDS.get(kind, ("description",))
        simple: Schema = {"type": kind, **{key: schema[key] for key in keywords if key in schema}}
        if nullable:
            simple["nullable"] = True
        if schema.get("format") in _SCHEMA_FORMATS:
            simple["format"] = schema["format"]
        properties = object_at(schema, "properties")
        if kind == "array":
            simple["items"] = self.convert(schema.get("items") or {}, within)
        elif kind == "string" and (values := _enum(schema)):
            simple["enum"] = values
        elif kind == "object" and properties:
            simple["properties"] = {name: self.convert(member, within) for name, member in properties.items()}
            required = [name for name in schema.get("required") or () if name in properties]
            simple |= {"required": required} if required else {}
        return simple


def _types(schema: Schema) -> tuple[str, bool, list[str]]:
    """Return the type, whether null is allowed, and the other types that are."""
    declared = schema.get("type")
    names = cast("list[str]", declared) if isinstance(declared, list) else [declared] if declared else []
    nullable = "null" in names or schema.get("nullable") is True or None in (schema.get("enum") or ())
    kinds = [name for name in names if name != "null"]
    if _enum(schema):
        return "string", nullable, []
    if kinds:
        return kinds[0], nullable, kinds[1:]
    if "properties" in schema:
        return "object", nullable, []
    return "array" if "items" in schema else "string", nullable, []


def _enum(schema: Schema) -> list[str]:
    values = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    return [str(value).lower() if isinstance(value, bool) else str(value) for value in values if value is not None]
