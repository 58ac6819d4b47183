from __future__ import annotations

from typing import Any

import pytest

from opensesh.models.catalogue import Catalogue
from opensesh.models.model import Capabilities, Limit, Model
from opensesh.models.options import (
    Sampling,
    max_output_tokens,
    options,
    sampling,
    small_options,
    variants,
    with_configured,
)
from opensesh.records import merged

ENCRYPTED = ["reasoning.encrypted_content"]
COMPATIBLE = "@ai-sdk/openai-compatible"
EFFORT = [{"type": "effort", "values": ["low", "high", "max"]}]
BUDGET = [{"type": "budget_tokens", "min": 1024}]


def model(name: str, provider: str = "acme", npm: str = COMPATIBLE, **fields: Any) -> Model:
    abilities = fields.pop("capabilities", Capabilities(reasoning=True, temperature=True))
    return Model(id=name, provider_id=provider, npm=npm, capabilities=abilities, **fields)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Qwen3-Coder", Sampling(0.55, 1.0, None)),
        ("claude-sonnet-4-5", Sampling()),
        ("gemini-2.5-pro", Sampling(1.0, 0.95, 64)),
        ("glm-4.6", Sampling(1.0)),
        ("glm-4.7-flash", Sampling(1.0)),
        ("glm-4.5", Sampling()),
        ("minimax-m2", Sampling(1.0, 0.95, 20)),
        ("MiniMax-M2.1", Sampling(1.0, 0.95, 40)),
        ("kimi-k2-instruct", Sampling(0.6)),
        ("kimi-k2-thinking", Sampling(1.0)),
        ("kimi-k2.5", Sampling(1.0, 0.95)),
        ("kimi-k2p5", Sampling(1.0, 0.95)),
        ("llama-3", Sampling()),
    ],
)
def test_families_have_the_sampling_they_work_best_with(name: str, expected: Sampling) -> None:
    assert sampling(model(name)) == expected


def test_a_model_that_takes_no_temperature_gets_none() -> None:
    fixed = model("gemini-3-pro", capabilities=Capabilities(temperature=False))
    assert sampling(fixed) == Sampling(None, 0.95, 64)


@pytest.mark.parametrize(("limit", "expected"), [(0, 32_000), (8_192, 8_192), (128_000, 32_000)])
def test_an_answer_is_as_long_as_the_model_can_but_no_longer_than_the_cap(limit: int, expected: int) -> None:
    assert max_output_tokens(model("x", limit=Limit(output=limit))) == expected
    assert max_output_tokens(model("x", limit=Limit(output=limit)), 4_000) == 4_000


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (model("gpt-4o", "openai", "@ai-sdk/openai"), {"store": False, "promptCacheKey": "ses_1"}),
        (model("gpt-4o", "acme", "@ai-sdk/openai"), {"store": False}),
        (
            model("gpt-5", "openai", "@ai-sdk/openai"),
            {
                "store": False,
                "promptCacheKey": "ses_1",
                "reasoningEffort": "medium",
                "reasoningSummary": "auto",
            },
        ),
        (model("gpt-5-pro", "acme", "@ai-sdk/openai"), {"store": False}),
        (model("gpt-5-chat-latest", "acme", "@ai-sdk/openai"), {"store": False}),
        (
            model("gpt-5.2", "acme", "@ai-sdk/openai"),
            {"store": False, "reasoningEffort": "medium", "reasoningSummary": "auto", "textVerbosity": "low"},
        ),
        (
            model("gpt-5.2-codex", "acme", "@ai-sdk/openai"),
            {"store": False, "reasoningEffort": "medium", "reasoningSummary": "auto"},
        ),
        (
            model("gpt-5.2", "azure", "@ai-sdk/azure"),
            {"reasoningEffort": "medium", "reasoningSummary": "auto"},
        ),
        (
            model("gpt-5-nano", "opencode", "@ai-sdk/openai"),
            {
                "store": False,
                "reasoningEffort": "medium",
                "reasoningSummary": "auto",
                "promptCacheKey": "ses_1",
                "include": ENCRYPTED,
            },
        ),
        (model("gpt-4.1", "github-copilot"), {"store": False}),
        (model("x", "openrouter", "@openrouter/ai-sdk-provider"), {"usage": {"include": True}}),
        (
            model("google/gemini-3-pro", "openrouter", "@openrouter/ai-sdk-provider"),
            {"usage": {"include": True}, "reasoning": {"effort": "high"}},
        ),
        (model("any", "baseten"), {"chat_template_args": {"enable_thinking": True}}),
        (model("glm-4.6", "opencode"), {"chat_template_args": {"enable_thinking": True}}),
        (model("glm-4.7", "opencode"), {}),
        (model("glm-4.7", "zai"), {"thinking": {"type": "enabled", "clear_thinking": False}}),
        (model("glm-4.7", "zhipuai", "@ai-sdk/anthropic"), {}),
        (model("qwen", "venice", "venice-ai-sdk-provider"), {"promptCacheKey": "ses_1"}),
        (
            model("gemini-2.5-pro", "google", "@ai-sdk/google"),
            {"thinkingConfig": {"includeThoughts": True}},
        ),
        (
            model("gemini-3-pro", "google-vertex", "@ai-sdk/google-vertex"),
            {"thinkingConfig": {"includeThoughts": True, "thinkingLevel": "high"}},
        ),
        (model("gemma-3", "google", "@ai-sdk/google", capabilities=Capabilities()), {}),
        (
            model("kimi-k2.5", "acme", "@ai-sdk/anthropic", limit=Limit(output=8_000)),
            {"thinking": {"type": "enabled", "budgetTokens": 3_999}},
        ),
        (model("qwen3-max", "alibaba-cn"), {"enable_thinking": True}),
        (model("kimi-k2-thinking", "alibaba-cn"), {}),
        (model("qwen3-max", "alibaba-cn", capabilities=Capabilities()), {}),
        (model("claude-sonnet-4-5", "anthropic", "@ai-sdk/anthropic"), {}),
    ],
    ids=lambda value: value.ref if isinstance(value, Model) else "",
)
def test_an_ordinary_call_has_the_settings_its_provider_needs(subject: Model, expected: dict[str, Any]) -> None:
    assert options(subject, "ses_1", {}) == expected


def test_the_configuration_may_ask_for_a_cache_key() -> None:
    assert options(model("x"), "ses_1", {"setCacheKey": True}) == {"promptCacheKey": "ses_1"}
    assert options(model("x"), "ses_1", {"setCacheKey": False}) == {}


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (model("gpt-4o", "openai", "@ai-sdk/openai"), {"store": False}),
        (model("gpt-5-nano", "openai", "@ai-sdk/openai"), {"store": False, "reasoningEffort": "minimal"}),
        (model("gpt-5.4-nano", "openai", "@ai-sdk/openai"), {"store": False, "reasoningEffort": "low"}),
        (model("gpt-5-mini", "github-copilot"), {"store": False, "reasoningEffort": "minimal"}),
        (model("gemini-3-flash", "google", "@ai-sdk/google"), {"thinkingConfig": {"thinkingLevel": "minimal"}}),
        (model("gemini-2.5-flash", "google", "@ai-sdk/google"), {"thinkingConfig": {"thinkingBudget": 0}}),
        (model("google/gemini", "openrouter", "@openrouter/ai-sdk-provider"), {"reasoning": {"enabled": False}}),
        (model("other", "openrouter", "@openrouter/ai-sdk-provider"), {"reasoningEffort": "minimal"}),
        (model("claude-haiku-4-5", "anthropic", "@ai-sdk/anthropic"), {}),
    ],
    ids=lambda value: value.ref if isinstance(value, Model) else "",
)
def test_a_small_errand_gets_as_little_thought_as_can_be(subject: Model, expected: dict[str, Any]) -> None:
    assert small_options(subject) == expected


@pytest.mark.parametrize(
    ("subject", "names"),
    [
        (model("plain", capabilities=Capabilities()), []),
        (model("some-model"), ["low", "medium", "high"]),
        (model("deepseek-r1"), []),
        (model("MiniMax-M2"), []),
        (model("glm-5"), []),
        (model("magistral", npm="@ai-sdk/mistral"), []),
        (model("k2p5"), []),
        (model("grok-4", npm="@ai-sdk/xai"), []),
        (model("grok-3-mini", npm="@ai-sdk/xai"), ["low", "high"]),
        (
            model("openai/gpt-5", npm="@openrouter/ai-sdk-provider"),
            ["none", "minimal", "low", "medium", "high", "xhigh"],
        ),
        (model("qwen/qwen3", npm="@openrouter/ai-sdk-provider"), []),
        (model("any", npm="@ai-sdk/gateway"), ["none", "minimal", "low", "medium", "high", "xhigh"]),
        (model("gpt-5.2", "github-copilot"), ["low", "medium", "high", "xhigh"]),
        (model("gpt-5-mini", "github-copilot"), ["low", "medium", "high"]),
        (model("claude-sonnet-4", "github-copilot"), ["thinking"]),
        (model("gemini-3-pro", "github-copilot"), []),
        (model("o1-mini", npm="@ai-sdk/azure"), []),
        (model("gpt-5", npm="@ai-sdk/azure"), ["minimal", "low", "medium", "high"]),
        (model("gpt-5-pro", npm="@ai-sdk/openai"), []),
        (model("gpt-5", npm="@ai-sdk/openai", release_date="2025-08-07"), ["minimal", "low", "medium", "high"]),
        (model("gpt-5.1", npm="@ai-sdk/openai", release_date="2025-11-13"), ["none", "low", "medium", "high"]),
        (
            model("gpt-5.2", npm="@ai-sdk/openai", release_date="2025-12-11"),
            ["none", "low", "medium", "high", "xhigh"],
        ),
        (model("gpt-5.1-codex", npm="@ai-sdk/openai", release_date="2026-01-01"), ["low", "medium", "high"]),
        (model("gpt-5.2-codex", npm="@ai-sdk/openai"), ["low", "medium", "high", "xhigh"]),
        (model("claude-x", npm="@ai-sdk/anthropic"), ["high", "max"]),
        (model("nova", npm="@ai-sdk/amazon-bedrock"), ["low", "medium", "high"]),
        (model("gemini-2.5-pro", npm="@ai-sdk/google"), ["high", "max"]),
        (model("gemini-3-pro", npm="@ai-sdk/google"), ["low", "high"]),
        (model("qwen3", npm="@ai-sdk/groq"), ["none", "low", "medium", "high"]),
        (model("command", npm="@ai-sdk/cohere"), []),
        (model("sonar", npm="@ai-sdk/perplexity"), []),
        (model("x", npm="some-other-wire"), []),
    ],
    ids=lambda value: f"{value.npm}:{value.id}" if isinstance(value, Model) else "",
)
def test_without_the_catalogue_name_and_wire_tell_the_variants(subject: Model, names: list[str]) -> None:
    assert list(variants(subject)) == names


@pytest.mark.parametrize(
    ("npm", "expected"),
    [
        (COMPATIBLE, {"reasoningEffort": "max"}),
        ("@openrouter/ai-sdk-provider", {"reasoning": {"effort": "max"}}),
        (
            "@ai-sdk/openai",
            {"reasoningEffort": "max", "reasoningSummary": "auto", "include": ENCRYPTED},
        ),
        ("@ai-sdk/anthropic", {"thinking": {"type": "adaptive"}, "effort": "max"}),
        ("@ai-sdk/google", {"thinkingConfig": {"includeThoughts": True, "thinkingLevel": "max"}}),
        ("@ai-sdk/amazon-bedrock", {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "max"}}),
    ],
)
def test_effort_uses_the_options_of_the_sdk(npm: str, expected: dict[str, Any]) -> None:
    offered = variants(model("glm-6", npm=npm), EFFORT)
    assert list(offered) == ["low", "high", "max"]
    assert offered["max"] == expected


def test_claude_on_bedrock_thinks_adaptively_where_it_takes_no_budget() -> None:
    claude = model("us.anthropic.claude-opus-5", npm="@ai-sdk/amazon-bedrock")
    assert variants(claude, EFFORT)["low"] == {"reasoningConfig": {"type": "adaptive", "maxReasoningEffort": "low"}}
    assert variants(claude, BUDGET)["max"] == {"reasoningConfig": {"type": "enabled", "budgetTokens": 31_999}}


def test_claude_gets_a_budget_where_it_takes_one_that_fits_into_its_output() -> None:
    roomy = variants(model("claude", npm="@ai-sdk/anthropic", limit=Limit(output=64_000)), [*EFFORT, *BUDGET])
    tight = variants(model("claude", npm="@ai-sdk/anthropic", limit=Limit(output=8_192)), BUDGET)
    assert [value["thinking"]["budgetTokens"] for value in roomy.values()] == [16_000, 31_999]
    assert [value["thinking"]["budgetTokens"] for value in tight.values()] == [4_095, 8_191]


def test_controls_that_offer_no_degrees_offer_no_variants() -> None:
    assert variants(model("x"), []) == {}
    assert variants(model("x"), [{"type": "toggle"}]) == {}
    assert variants(model("x"), BUDGET) == {}
    assert variants(model("x"), [{"type": "effort", "values": [None, "high"]}]) == {"high": {"reasoningEffort": "high"}}


def test_the_configuration_adds_overrides_and_disables_variants() -> None:
    generated = {"low": {"reasoningEffort": "low"}, "high": {"reasoningEffort": "high"}}
    configured = {
        "low": {"disabled": True},
        "high": {"textVerbosity": "high"},
        "mine": {"reasoningEffort": "xhigh", "disabled": False},
    }
    assert with_configured(generated, configured) == {
        "high": {"reasoningEffort": "high", "textVerbosity": "high"},
        "mine": {"reasoningEffort": "xhigh"},
    }
    assert generated == {"low": {"reasoningEffort": "low"}, "high": {"reasoningEffort": "high"}}


def test_merging_goes_into_objects_replaces_the_rest_and_leaves_its_arguments_alone() -> None:
    below = {"a": {"b": 1, "c": [1]}, "d": 1}
    above = {"a": {"c": [2], "e": {"f": 1}}, "d": {"g": 2}}
    whole = merged(below, above)
    whole["a"]["e"]["f"] = 3
    assert whole == {"a": {"b": 1, "c": [2], "e": {"f": 3}}, "d": {"g": 2}}
    assert below == {"a": {"b": 1, "c": [1]}, "d": 1}
    assert above == {"a": {"c": [2], "e": {"f": 1}}, "d": {"g": 2}}


def test_models_of_the_snapshot_offer_what_their_makers_do() -> None:
    catalogue = Catalogue(environ={})
    result = {ref: list(catalogue.find(ref).variants) for ref in ("openai/gpt-5", "anthropic/claude-haiku-4-5")}
    assert result == {
        "openai/gpt-5": ["minimal", "low", "medium", "high"],
        "anthropic/claude-haiku-4-5": ["high", "max"],
    }
    newest = catalogue.find("anthropic/claude-opus-5-5").variants
    assert newest["xhigh"] == {"thinking": {"type": "adaptive"}, "effort": "xhigh"}
