"""Default settings of model calls: sampling, options of the provider, reasoning variants.

Everything here is a pure function of a :class:`~opensesh.models.model.Model`. Options have the names of OpenCode's
configuration (``reasoningEffort``, ``thinkingConfig``); the adapters translate them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from ..records import merged
from .model import OPENAI_COMPATIBLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .model import Model

Options = dict[str, Any]
Variants = dict[str, Options]

MAX_OUTPUT_TOKENS = 32_000
"""The default limit of an answer."""

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
_MODELS_WITHOUT_VARIANTS = ("deepseek", "minimax", "glm", "mistral", "kimi", "k2p5")
_SDKS_WITHOUT_VARIANTS = ("@ai-sdk/mistral", "@ai-sdk/cohere", "@ai-sdk/perplexity")
_EFFORTS_BY_SDK = {
    "@ai-sdk/gateway": _ALL_EFFORTS,
    "@ai-sdk/groq": ("none", *_LOW_TO_HIGH),
    "@ai-sdk/cerebras": _LOW_TO_HIGH,
    "@ai-sdk/togetherai": _LOW_TO_HIGH,
    "@ai-sdk/xai": _LOW_TO_HIGH,
    "@ai-sdk/deepinfra": _LOW_TO_HIGH,
    "venice-ai-sdk-provider": _LOW_TO_HIGH,
    OPENAI_COMPATIBLE: _LOW_TO_HIGH,
    _BEDROCK: _LOW_TO_HIGH,
    _SAP: _LOW_TO_HIGH,
    "@ai-sdk/google": ("low", "high"),
    "@ai-sdk/google-vertex": ("low", "high"),
}
_BUDGET_HIGH, _BUDGET_MAX, _GEMINI_MAX, _COPILOT_BUDGET = 16_000, 31_999, 24_576, 4_000


class Sampling(Struct, frozen=True):
    """Sampling parameters; ``None`` leaves the choice to the provider."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None


def sampling(model: Model) -> Sampling:
    """Return the defaults that work best for this family of models."""
    name = model.id.lower()
    temperature = _first(_TEMPERATURE, name) if model.capabilities.temperature else None
    return Sampling(temperature, _first(_TOP_P, name), _first(_TOP_K, name))


def max_output_tokens(model: Model, cap: int | None = None) -> int:
    """Return the limit of an answer: the model's own, but at most ``cap`` or :data:`MAX_OUTPUT_TOKENS`."""
    limit = cap or MAX_OUTPUT_TOKENS
    return min(model.limit.output, limit) if model.limit.output > 0 else limit


def options(model: Model, session_id: str, provider_options: Mapping[str, Any]) -> Options:
    """Return the options of an ordinary call. ``provider_options`` are the configured ``provider.<id>.options``."""
    result = _thinking_options(model)
    if _stores_answers(model):
        result["store"] = False
    if _sdk(model) == _OPENROUTER:
        result["usage"] = {"include": True}
        if "gemini-3" in model.wire_id:
            result["reasoning"] = {"effort": "high"}
    if model.provider_id in ("openai", "venice") or provider_options.get("setCacheKey"):
        result["promptCacheKey"] = session_id
    return result | _gpt5_options(model, session_id)


def small_options(model: Model) -> Options:
    """Return the options of a small task such as a title: as little reasoning as the model allows."""
    name = model.wire_id
    if _stores_answers(model):
        if "gpt-5" not in name:
            return {"store": False}
        return {"store": False, "reasoningEffort": "low" if "5." in name else "minimal"}
    if model.provider_id == "google":
        return {"thinkingConfig": {"thinkingLevel": "minimal"} if "gemini-3" in name else {"thinkingBudget": 0}}
    if model.provider_id == "openrouter":
        return {"reasoning": {"enabled": False}} if "google" in name else {"reasoningEffort": "minimal"}
    return {}


def variants(model: Model, controls: Iterable[Mapping[str, Any]] | None = None) -> Variants:
    """Return the variants of a reasoning model by name, each with the options that select it.

    ``controls`` are models.dev's ``reasoning_options``; without them, variants are inferred from name and SDK.
    """
    if not model.capabilities.reasoning or _sdk(model) in _SDKS_WITHOUT_VARIANTS:
        return {}
    if controls is None:
        return _inferred_variants(model)
    kinds = {control.get("type"): control for control in controls}
    efforts = [effort for effort in kinds.get("effort", {}).get("values") or () if isinstance(effort, str)]
    by_budget = "budget_tokens" in kinds and (not efforts or _uses_claude_options(model))
    return _budget_variants(model) if by_budget else _effort_variants(model, efforts)


def with_configured(generated: Variants, configured: Mapping[str, Mapping[str, Any]]) -> Variants:
    """Merge the configured variants into ``generated``; those marked ``disabled`` are removed."""
    variants = cast("Variants", merged(generated, configured))
    return {
        name: {key: value for key, value in variant.items() if key != "disabled"}
        for name, variant in variants.items()
        if variant.get("disabled") is not True
    }


def _thinking_options(model: Model) -> Options:
    """Return the options for models that do not reason, or do not show it, by default."""
    name = model.wire_id.lower()
    match model.provider_id, _sdk(model):
        case (("baseten" | "opencode" as provider), _) if provider == "baseten" or model.wire_id in (
            "kimi-k2-thinking",
            "glm-4.6",
        ):
            return {"chat_template_args": {"enable_thinking": True}}
        case (("zai" | "zhipuai"), "@ai-sdk/openai-compatible"):
            return {"thinking": {"type": "enabled", "clear_thinking": False}}
        case "alibaba-cn", "@ai-sdk/openai-compatible" if model.capabilities.reasoning:
            return {} if "kimi-k2-thinking" in name else {"enable_thinking": True}
        case _, ("@ai-sdk/google" | "@ai-sdk/google-vertex") if model.capabilities.reasoning:
            level = {"thinkingLevel": "high"} if "gemini-3" in model.wire_id else {}
            return {"thinkingConfig": {"includeThoughts": True, **level}}
        case _, sdk if sdk in _ANTHROPIC and _has(name, "k2p5", "kimi-k2.5", "kimi-k2p5"):
            return _budget(_high_budget(model))
        case _:
            return {}


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


def _inferred_variants(model: Model) -> Variants:
    name = model.id.lower()
    sdk = _sdk(model)
    if _has(name, *_MODELS_WITHOUT_VARIANTS):
        return {}
    if "grok" in name:
        return _effort_variants(model, ("low", "high") if "grok-3-mini" in name else ())
    if _uses_claude_options(model) or (sdk in (*_GOOGLE, _SAP) and _has(name, "2.5", "anthropic")):
        return _budget_variants(model)
    if sdk == _COPILOT and _has(name, "claude", "gemini"):
        return _budget_variants(model)
    return _effort_variants(model, _inferred_efforts(model, name, sdk))


def _inferred_efforts(model: Model, name: str, sdk: str) -> tuple[str, ...]:
    match sdk:
        case "@openrouter/ai-sdk-provider":
            return _ALL_EFFORTS if "gpt" in name or "gemini-3" in name else ()
        case "@ai-sdk/github-copilot":
            return (*_LOW_TO_HIGH, "xhigh") if _has(name, "5.1-codex-max", "5.2", "5.3") else _LOW_TO_HIGH
        case "@ai-sdk/azure":
            return () if name == "o1-mini" else (*_minimal(name), *_LOW_TO_HIGH)
        case "@ai-sdk/openai" if "codex" in name:
            return (*_LOW_TO_HIGH, "xhigh") if _has(name, "5.2", "5.3") else _LOW_TO_HIGH
        case "@ai-sdk/openai":
            first = ("none",) if model.release_date >= "2025-11-13" else ()
            last = ("xhigh",) if model.release_date >= "2025-12-04" else ()
            return () if name == "gpt-5-pro" else (*first, *_minimal(name), *_LOW_TO_HIGH, *last)
        case _:
            return _EFFORTS_BY_SDK.get(sdk, ())


def _minimal(name: str) -> tuple[str, ...]:
    return ("minimal",) if "gpt-5-" in name or name == "gpt-5" else ()


def _effort_variants(model: Model, efforts: Iterable[str]) -> Variants:
    return {effort: _effort(model, effort) for effort in efforts}


def _effort(model: Model, effort: str) -> Options:
    """Return the options that select ``effort``."""
    match _sdk(model):
        case "@openrouter/ai-sdk-provider":
            return {"reasoning": {"effort": effort}}
        case sdk if sdk in _RESPONSES:
            return {
                "reasoningEffort": effort,
                "reasoningSummary": "auto",
                "include": ["reasoning.encrypted_content"],
            }
        case sdk if sdk in _ANTHROPIC:
            return {"thinking": {"type": "adaptive"}, "effort": effort}
        case "@ai-sdk/amazon-bedrock":
            kind = "adaptive" if _uses_claude_options(model) else "enabled"
            return {"reasoningConfig": {"type": kind, "maxReasoningEffort": effort}}
        case sdk if sdk in _GOOGLE:
            return {"thinkingConfig": {"includeThoughts": True, "thinkingLevel": effort}}
        case _:
            return {"reasoningEffort": effort}


def _budget_variants(model: Model) -> Variants:
    """Return variants, mostly ``high`` and ``max``, for models with a thinking budget in tokens."""
    sdk = _sdk(model)
    if sdk == _COPILOT and "claude" in model.id.lower():
        return {"thinking": {"thinking_budget": _COPILOT_BUDGET}}
    if sdk in _GOOGLE or (sdk == _SAP and "gemini" in model.id.lower()):
        return {
            name: {"thinkingConfig": {"includeThoughts": True, "thinkingBudget": tokens}}
            for name, tokens in (("high", _BUDGET_HIGH), ("max", _GEMINI_MAX))
        }
    if sdk == _BEDROCK:
        return {
            name: {"reasoningConfig": {"type": "enabled", "budgetTokens": tokens}}
            for name, tokens in (("high", _BUDGET_HIGH), ("max", _BUDGET_MAX))
        }
    if sdk in (*_ANTHROPIC, _SAP):
        limit = model.limit.output
        return {
            "high": _budget(_high_budget(model)),
            "max": _budget(min(_BUDGET_MAX, limit - 1 if limit else _BUDGET_MAX)),
        }
    return {}


def _budget(tokens: int) -> Options:
    return {"thinking": {"type": "enabled", "budgetTokens": tokens}}


def _high_budget(model: Model) -> int:
    return min(_BUDGET_HIGH, model.limit.output // 2 - 1) if model.limit.output else _BUDGET_HIGH


def _sdk(model: Model) -> str:
    # The catalogue lists Copilot as OpenAI-compatible; it has options of its own.
    return _COPILOT if model.provider_id.startswith("github-copilot") else model.npm


def _stores_answers(model: Model) -> bool:
    """Return whether the provider stores answers unless ``store`` is false."""
    return model.provider_id == "openai" or _sdk(model) in ("@ai-sdk/openai", _COPILOT)


def _uses_claude_options(model: Model) -> bool:
    sdk = _sdk(model)
    return sdk in _ANTHROPIC or (sdk == _BEDROCK and _has(model.wire_id, "anthropic", "claude"))


def _has(name: str, *words: str) -> bool:
    return any(word in name for word in words)


def _first(table: tuple[tuple[tuple[str, ...], Any], ...], name: str) -> Any:
    for words, value in table:
        if all(word in name for word in words):
            return value
    return None
