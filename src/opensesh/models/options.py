"""What to ask of a model beyond the words: sampling, the provider's own settings, and degrees of effort.

Everything here is a pure function of a :class:`~opensesh.models.model.Model`. Options carry the names OpenCode's
configuration uses (``reasoningEffort``, ``thinkingConfig``); the adapter puts them on the wire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from ..records import merged

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .model import Model

Options = dict[str, Any]
Variants = dict[str, Options]

OUTPUT_TOKENS = 32_000
"""How much a model may answer at once, unless it can do less."""

_COMPATIBLE = "@ai-sdk/openai-compatible"
_COPILOT = "@ai-sdk/github-copilot"
_OPENROUTER = "@openrouter/ai-sdk-provider"
_BEDROCK = "@ai-sdk/amazon-bedrock"
_SAP = "@jerome-benoit/sap-ai-provider-v2"
_RESPONSES = ("@ai-sdk/openai", "@ai-sdk/azure", _COPILOT)
_ANTHROPIC = ("@ai-sdk/anthropic", "@ai-sdk/google-vertex/anthropic")
_GOOGLE = ("@ai-sdk/google", "@ai-sdk/google-vertex")

# The first row whose words all occur in the model's id decides.
_TEMPERATURE: tuple[tuple[tuple[str, ...], float | None], ...] = (
    (("qwen",), 0.55),
    (("claude",), None),
    (("gemini",), 1.0),
    (("glm-4.6",), 1.0),
    (("glm-4.7",), 1.0),
    (("minimax-m2",), 1.0),
    (("kimi-k2", "thinking"), 1.0),
    (("kimi-k2", "k2."), 1.0),
    (("kimi-k2", "k2p"), 1.0),
    (("kimi-k2",), 0.6),
)
_TOP_P: tuple[tuple[tuple[str, ...], float | None], ...] = (
    (("qwen",), 1.0),
    (("minimax-m2",), 0.95),
    (("kimi-k2.5",), 0.95),
    (("kimi-k2p5",), 0.95),
    (("gemini",), 0.95),
)
_TOP_K: tuple[tuple[tuple[str, ...], int | None], ...] = (
    (("minimax-m2", "m2.1"), 40),
    (("minimax-m2",), 20),
    (("gemini",), 64),
)

_LOW_TO_HIGH = ("low", "medium", "high")
_ALL_EFFORTS = ("none", "minimal", *_LOW_TO_HIGH, "xhigh")
_NO_VARIANTS = ("deepseek", "minimax", "glm", "mistral", "kimi", "k2p5")
_NO_VARIANT_WIRES = ("@ai-sdk/mistral", "@ai-sdk/cohere", "@ai-sdk/perplexity")
_EFFORT_WIRES = {
    "@ai-sdk/gateway": _ALL_EFFORTS,
    "@ai-sdk/groq": ("none", *_LOW_TO_HIGH),
    "@ai-sdk/cerebras": _LOW_TO_HIGH,
    "@ai-sdk/togetherai": _LOW_TO_HIGH,
    "@ai-sdk/xai": _LOW_TO_HIGH,
    "@ai-sdk/deepinfra": _LOW_TO_HIGH,
    "venice-ai-sdk-provider": _LOW_TO_HIGH,
    _COMPATIBLE: _LOW_TO_HIGH,
    _BEDROCK: _LOW_TO_HIGH,
    _SAP: _LOW_TO_HIGH,
    "@ai-sdk/google": ("low", "high"),
    "@ai-sdk/google-vertex": ("low", "high"),
}
_BUDGET_HIGH, _BUDGET_MAX, _GEMINI_MAX, _COPILOT_BUDGET = 16_000, 31_999, 24_576, 4_000


class Sampling(Struct, frozen=True):
    """What to send unless the agent says otherwise; ``None`` is left to the provider."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None


def sampling(model: Model) -> Sampling:
    """The defaults this family of models works best with. No temperature for a model that takes none."""
    name = model.id.lower()
    temperature = _first(_TEMPERATURE, name) if model.capabilities.temperature else None
    return Sampling(temperature, _first(_TOP_P, name), _first(_TOP_K, name))


def max_output_tokens(model: Model, cap: int | None = None) -> int:
    """How many tokens to let the model answer: its own limit, but no more than ``cap``, or :data:`OUTPUT_TOKENS`."""
    most = cap or OUTPUT_TOKENS
    return min(model.limit.output, most) if model.limit.output > 0 else most


def options(model: Model, session_id: str, provider_options: Mapping[str, Any] | None = None) -> Options:
    """The settings for an ordinary call. ``provider_options`` are the configuration's ``provider.<id>.options``."""
    result = _thinking_options(model)
    if _keeps_nothing(model):
        result["store"] = False
    if _wire(model) == _OPENROUTER:
        result["usage"] = {"include": True}
        if "gemini-3" in model.wire_id:
            result["reasoning"] = {"effort": "high"}
    if model.provider_id in ("openai", "venice") or (provider_options or {}).get("setCacheKey"):
        result["promptCacheKey"] = session_id
    return result | _gpt5_options(model, session_id)


def small_options(model: Model) -> Options:
    """The settings for a small errand, such as a title: as little thought as the model allows."""
    name = model.wire_id
    if _keeps_nothing(model):
        if "gpt-5" not in name:
            return {"store": False}
        return {"store": False, "reasoningEffort": "low" if "5." in name else "minimal"}
    if model.provider_id == "google":
        return {"thinkingConfig": {"thinkingLevel": "minimal"} if "gemini-3" in name else {"thinkingBudget": 0}}
    if model.provider_id == "openrouter":
        return {"reasoning": {"enabled": False}} if "google" in name else {"reasoningEffort": "minimal"}
    return {}


def variants(model: Model, controls: Iterable[Mapping[str, Any]] | None = None) -> Variants:
    """The degrees of effort a reasoning model offers, by name, each with the options that ask for it.

    ``controls`` is what the catalogue knows of them (models.dev's ``reasoning_options``) and decides where given.
    Without, the model's name and wire do.
    """
    if not model.capabilities.reasoning or _wire(model) in _NO_VARIANT_WIRES:
        return {}
    return _guessed_variants(model) if controls is None else _catalogued_variants(model, tuple(controls))


def with_configured(generated: Variants, configured: Mapping[str, Mapping[str, Any]]) -> Variants:
    """``generated`` with the configuration's variants merged in; those marked ``disabled`` are gone."""
    whole = cast("Variants", merged(generated, configured))
    return {
        name: {key: value for key, value in each.items() if key != "disabled"}
        for name, each in whole.items()
        if each.get("disabled") is not True
    }


def _thinking_options(model: Model) -> Options:
    """What it takes for models that would not think, or not show it, unless told to."""
    name = model.wire_id.lower()
    match model.provider_id, _wire(model):
        case ("baseten", _) | ("opencode", _) if _wants_template(model):
            return {"chat_template_args": {"enable_thinking": True}}
        case (("zai" | "zhipuai"), "@ai-sdk/openai-compatible"):
            return {"thinking": {"type": "enabled", "clear_thinking": False}}
        case "alibaba-cn", "@ai-sdk/openai-compatible" if model.capabilities.reasoning:
            return {} if "kimi-k2-thinking" in name else {"enable_thinking": True}
        case _, ("@ai-sdk/google" | "@ai-sdk/google-vertex") if model.capabilities.reasoning:
            level = {"thinkingLevel": "high"} if "gemini-3" in model.wire_id else {}
            return {"thinkingConfig": {"includeThoughts": True, **level}}
        case _, wire if wire in _ANTHROPIC and _has(name, "k2p5", "kimi-k2.5", "kimi-k2p5"):
            return _budget(_high_budget(model))
        case _:
            return {}


def _wants_template(model: Model) -> bool:
    return model.provider_id == "baseten" or model.wire_id in ("kimi-k2-thinking", "glm-4.6")


def _gpt5_options(model: Model, session_id: str) -> Options:
    name = model.wire_id
    if "gpt-5" not in name or "gpt-5-chat" in name:
        return {}
    result: Options = {}
    if "gpt-5-pro" not in name:
        result = {"reasoningEffort": "medium", "reasoningSummary": "auto"}
    if "gpt-5." in name and not _has(name, "codex", "-chat") and model.provider_id != "azure":
        result["textVerbosity"] = "low"
    if model.provider_id.startswith("opencode"):
        result |= {
            "promptCacheKey": session_id,
            "include": ["reasoning.encrypted_content"],
            "reasoningSummary": "auto",
        }
    return result


def _catalogued_variants(model: Model, controls: tuple[Mapping[str, Any], ...]) -> Variants:
    kinds = {control.get("type"): control for control in controls}
    efforts = [effort for effort in kinds.get("effort", {}).get("values") or () if isinstance(effort, str)]
    by_budget = "budget_tokens" in kinds and (not efforts or _is_claude_wire(model))
    return _budget_variants(model) if by_budget else _effort_variants(model, efforts)


def _guessed_variants(model: Model) -> Variants:
    name = model.id.lower()
    wire = _wire(model)
    if _has(name, *_NO_VARIANTS):
        return {}
    if "grok" in name:
        return _effort_variants(model, ("low", "high") if "grok-3-mini" in name else ())
    if _is_claude_wire(model) or (wire in (*_GOOGLE, _SAP) and _has(name, "2.5", "anthropic")):
        return _budget_variants(model)
    if wire == _COPILOT and _has(name, "claude", "gemini"):
        return _budget_variants(model)
    return _effort_variants(model, _guessed_efforts(model, name, wire))


def _guessed_efforts(model: Model, name: str, wire: str) -> tuple[str, ...]:
    match wire:
        case "@openrouter/ai-sdk-provider":
            return _ALL_EFFORTS if "gpt" in name or "gemini-3" in name else ()
        case "@ai-sdk/github-copilot":
            return (*_LOW_TO_HIGH, "xhigh") if _has(name, "5.1-codex-max", "5.2", "5.3") else _LOW_TO_HIGH
        case "@ai-sdk/azure":
            return () if name == "o1-mini" else (*_minimal(name), *_LOW_TO_HIGH)
        case "@ai-sdk/openai":
            return _openai_efforts(model, name)
        case _:
            return _EFFORT_WIRES.get(wire, ())


def _openai_efforts(model: Model, name: str) -> tuple[str, ...]:
    if name == "gpt-5-pro":
        return ()
    if "codex" in name:
        return (*_LOW_TO_HIGH, "xhigh") if _has(name, "5.2", "5.3") else _LOW_TO_HIGH
    first = ("none",) if model.release_date >= "2025-11-13" else ()
    last = ("xhigh",) if model.release_date >= "2025-12-04" else ()
    return (*first, *_minimal(name), *_LOW_TO_HIGH, *last)


def _minimal(name: str) -> tuple[str, ...]:
    return ("minimal",) if "gpt-5-" in name or name == "gpt-5" else ()


def _effort_variants(model: Model, efforts: Iterable[str]) -> Variants:
    return {effort: _effort(model, effort) for effort in efforts}


def _effort(model: Model, effort: str) -> Options:
    """How this wire is asked for ``effort``."""
    match _wire(model):
        case "@openrouter/ai-sdk-provider":
            return {"reasoning": {"effort": effort}}
        case wire if wire in _RESPONSES:
            return {
                "reasoningEffort": effort,
                "reasoningSummary": "auto",
                "include": ["reasoning.encrypted_content"],
            }
        case wire if wire in _ANTHROPIC:
            return {"thinking": {"type": "adaptive"}, "effort": effort}
        case "@ai-sdk/amazon-bedrock":
            kind = "adaptive" if _is_claude_wire(model) else "enabled"
            return {"reasoningConfig": {"type": kind, "maxReasoningEffort": effort}}
        case wire if wire in _GOOGLE:
            return {"thinkingConfig": {"includeThoughts": True, "thinkingLevel": effort}}
        case _:
            return {"reasoningEffort": effort}


def _budget_variants(model: Model) -> Variants:
    """Mostly two, ``high`` and ``max``, for models whose thought is measured in tokens."""
    wire = _wire(model)
    if wire == _COPILOT and "claude" in model.id.lower():
        return {"thinking": {"thinking_budget": _COPILOT_BUDGET}}
    if wire in _GOOGLE or (wire == _SAP and "gemini" in model.id.lower()):
        return {
            name: {"thinkingConfig": {"includeThoughts": True, "thinkingBudget": tokens}}
            for name, tokens in (("high", _BUDGET_HIGH), ("max", _GEMINI_MAX))
        }
    if wire == _BEDROCK:
        return {
            name: {"reasoningConfig": {"type": "enabled", "budgetTokens": tokens}}
            for name, tokens in (("high", _BUDGET_HIGH), ("max", _BUDGET_MAX))
        }
    if wire in (*_ANTHROPIC, _SAP):
        return {"high": _budget(_high_budget(model)), "max": _budget(_max_budget(model))}
    return {}


def _budget(tokens: int) -> Options:
    return {"thinking": {"type": "enabled", "budgetTokens": tokens}}


def _high_budget(model: Model) -> int:
    return min(_BUDGET_HIGH, model.limit.output // 2 - 1) if model.limit.output else _BUDGET_HIGH


def _max_budget(model: Model) -> int:
    return min(_BUDGET_MAX, model.limit.output - 1) if model.limit.output else _BUDGET_MAX


def _wire(model: Model) -> str:
    """The catalogue lists Copilot as merely OpenAI-compatible; it has settings of its own."""
    return _COPILOT if model.provider_id.startswith("github-copilot") else model.npm


def _keeps_nothing(model: Model) -> bool:
    """Whether the provider would keep the answer on its side unless told not to."""
    return model.provider_id == "openai" or _wire(model) in ("@ai-sdk/openai", _COPILOT)


def _is_claude_wire(model: Model) -> bool:
    wire = _wire(model)
    return wire in _ANTHROPIC or (wire == _BEDROCK and _has(model.wire_id, "anthropic", "claude"))


def _has(name: str, *words: str) -> bool:
    return any(word in name for word in words)


def _first(table: tuple[tuple[tuple[str, ...], Any], ...], name: str) -> Any:
    return next((value for words, value in table if all(word in name for word in words)), None)
