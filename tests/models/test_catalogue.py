from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from opensesh.errors import ModelNotFoundError
from opensesh.models.catalogue import Catalogue
from opensesh.models.catalogue_sources import BundledSource
from opensesh.models.model import Limit, Model, Price, ProviderInfo, Rates, Tier
from opensesh.storage.protocol import Damage

ROOT = Path(__file__).parents[2]
COMPATIBLE = "@ai-sdk/openai-compatible"


@pytest.fixture(scope="module")
def snapshot() -> Catalogue:
    return Catalogue(environ={}, source=BundledSource())


def overlaid(provider: dict[str, Any], **config: Any) -> Catalogue:
    return Catalogue({"provider": provider, **config}, environ={}, source=BundledSource())


def test_a_reference_is_split_at_the_first_slash() -> None:
    result = overlaid({"mine": {"npm": "x", "models": {"b/c": {}}}}).find("mine/b/c")
    assert (result.provider_id, result.id) == ("mine", "b/c")


def test_the_snapshot_has_limits_and_prices(snapshot: Catalogue) -> None:
    sonnet = snapshot.find("anthropic/claude-sonnet-4-5")
    assert sonnet.price == Price(rates=Rates(input=3.0, output=15.0, cache_read=0.3, cache_write=3.75))
    assert sonnet.limit == Limit(context=1_000_000, output=64_000)
    assert (sonnet.npm, sonnet.family, sonnet.release_date) == ("@ai-sdk/anthropic", "claude-sonnet", "2025-09-29")
    assert sonnet.capabilities.input == {"text", "image", "pdf"}
    assert sonnet.capabilities.tools
    assert sonnet.capabilities.attachment
    assert sonnet.wire_id == "claude-sonnet-4-5"


def test_the_snapshot_keeps_tiers_and_their_own_sizes(snapshot: Catalogue) -> None:
    gemini = snapshot.find("google/gemini-2.5-pro").price
    gpt = snapshot.find("openai/gpt-5.6-sol").price
    assert gemini is not None
    assert gpt is not None
    assert gemini.tiers == (Tier(above=200_000, rates=Rates(input=2.5, output=15.0, cache_read=0.25)),)
    assert [tier.above for tier in gpt.tiers] == [272_000]
    assert gpt.tiers[0].rates.input == 8.0


def test_the_snapshot_keeps_input_limits_and_server_names(snapshot: Catalogue) -> None:
    assert snapshot.find("openai/gpt-5").limit == Limit(context=400_000, input=272_000, output=128_000)
    assert snapshot.find("opencode/gpt-5-nano").npm == "@ai-sdk/openai"
    assert snapshot.find("opencode/big-pickle").api_url == "https://opencode.ai/zen/v1"


def test_models_with_slashes_in_their_names_are_found(snapshot: Catalogue) -> None:
    assert snapshot.find("groq/openai/gpt-oss-120b").ref == "groq/openai/gpt-oss-120b"


def test_every_model_of_the_snapshot_can_be_built() -> None:
    reports: list[Damage] = []
    catalogue = Catalogue(environ={}, source=BundledSource(), report=reports.append)
    offered = {info.id: catalogue.models(info.id) for info in catalogue.providers()}
    assert reports == []
    assert len(offered) == 226
    assert sum(map(len, offered.values())) > 7_900
    prices = [model.price for models in offered.values() for model in models.values() if model.price]
    rates = [rates for price in prices for rates in (price.rates, *(tier.rates for tier in price.tiers))]
    assert all(value is None or value >= 0 for rate in rates for value in (rate.input, rate.output))
    assert sum(len(price.tiers) > 1 for price in prices) > 30
    assert all(list(price.tiers) == sorted(price.tiers, key=lambda tier: tier.above) for price in prices)


def test_a_model_without_a_price_has_none(snapshot: Catalogue) -> None:
    models = [model for info in snapshot.providers() for model in snapshot.models(info.id).values()]
    assert sum(model.price is None for model in models) > 300


def test_the_field_for_earlier_reasoning_is_known(snapshot: Catalogue) -> None:
    fields = {model.capabilities.interleaved for model in snapshot.models("openrouter").values()}
    assert "reasoning_details" in fields


def test_providers_say_which_variables_hold_their_key(snapshot: Catalogue) -> None:
    anthropic = snapshot.provider("anthropic")
    assert (anthropic.name, anthropic.env, anthropic.configured) == ("Anthropic", ("ANTHROPIC_API_KEY",), False)
    assert anthropic in snapshot.providers()


def test_outdated_models_are_not_offered_but_found_by_name(snapshot: Catalogue) -> None:
    bundle = BundledSource()
    outdated = [
        (provider_id, name)
        for provider_id in bundle.headers
        for name in bundle.models(provider_id)
        if (known := snapshot.known(provider_id, name)) and known.status == "deprecated"
    ]
    assert len(outdated) > 200
    provider_id, name = outdated[0]
    assert name not in snapshot.models(provider_id)
    assert snapshot.model(provider_id, name).status == "deprecated"


def test_copilot_for_enterprises_sells_what_copilot_does(snapshot: Catalogue) -> None:
    twin = snapshot.find("github-copilot-enterprise/gpt-5-mini")
    assert twin.provider_id == "github-copilot-enterprise"
    assert twin.limit == snapshot.find("github-copilot/gpt-5-mini").limit
    assert snapshot.provider("github-copilot-enterprise").name == "GitHub Copilot Enterprise"


@pytest.mark.parametrize(
    ("ref", "first"),
    [
        ("anthropic/claude-sonet-4.5", "anthropic/claude-sonnet-4-5"),
        ("antropic/claude-sonnet-4-5", "anthropic/claude-sonnet-4-5"),
        ("claude-sonnet-4-5", "anthropic/claude-sonnet-4-5"),
        ("gpt5", "openai/gpt-5"),
        ("openai/GPT5", "openai/gpt-5"),
        ("openrouter/opus-5.5", "openrouter/anthropic/claude-opus-5.5"),
    ],
)
def test_a_typo_gets_suggestions(snapshot: Catalogue, ref: str, first: str) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        snapshot.find(ref)
    assert caught.value.suggestions[0] == first
    assert len(caught.value.suggestions) <= 3
    assert f"Did you mean {first}" in str(caught.value)
    assert all(snapshot.find(suggestion) for suggestion in caught.value.suggestions)


@pytest.mark.parametrize(
    "ref", ["", "/", "anthropic/", "qqqqqqqqqqqqqqqq/x", "anthropic/qqqqqqqqqqqqqqqqqqqqqq", "nope", "anthropic/nope"]
)
def test_without_a_similar_name_the_error_says_how_to_list_models(snapshot: Catalogue, ref: str) -> None:
    with pytest.raises(ModelNotFoundError, match="opensesh models") as caught:
        snapshot.find(ref)
    assert caught.value.suggestions == []


def test_a_provider_that_does_not_exist_is_an_error_with_names_that_come_close(snapshot: Catalogue) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        snapshot.provider("antropic")
    assert caught.value.suggestions[0] == "anthropic"
    with pytest.raises(ModelNotFoundError):
        snapshot.models("antropic")


def test_what_is_not_known_is_nothing_rather_than_an_error(snapshot: Catalogue) -> None:
    assert snapshot.known("nobody", "nothing") is None
    assert snapshot.known("anthropic", "nothing") is None


def test_a_configured_model_of_a_configured_provider_has_unknown_price_and_limits() -> None:
    catalogue = overlaid({"acme": {"name": "Acme", "npm": "@ai-sdk/anthropic", "models": {"large": {}}}})
    large = catalogue.find("acme/large")
    assert large == Model(id="large", provider_id="acme", name="large", npm="@ai-sdk/anthropic")
    assert large.price is None
    assert large.limit == Limit()
    assert [info.id for info in catalogue.providers()][-1] == "acme"
    assert catalogue.provider("acme").configured


def test_configured_fields_override_and_the_rest_stays() -> None:
    models = {
        "gpt-5": {"name": "Mine", "limit": {"context": 50_000}, "cost": {"input": 9}, "temperature": True},
        "gpt-5.6-sol": {"cost": {"output": 1}},
    }
    catalogue = overlaid({"openai": {"models": models}})
    changed = catalogue.find("openai/gpt-5")
    assert (changed.name, changed.capabilities.temperature, changed.capabilities.reasoning) == ("Mine", True, True)
    assert changed.limit == Limit(context=50_000, input=272_000, output=128_000)
    assert changed.price == Price(rates=Rates(input=9.0, output=10.0, cache_read=0.125))
    tiered = catalogue.find("openai/gpt-5.6-sol").price
    assert tiered is not None
    assert tiered.rates.output == 1.0
    assert [tier.above for tier in tiered.tiers] == [272_000]
    assert catalogue.find("openai/gpt-4o") == Catalogue(environ={}, source=BundledSource()).find("openai/gpt-4o")


def test_a_model_may_go_back_to_another_of_the_catalogue() -> None:
    catalogue = overlaid({"anthropic": {"models": {"work": {"id": "claude-sonnet-4-5", "headers": {"x-team": "a"}}}}})
    work = catalogue.find("anthropic/work")
    assert (work.id, work.wire_id, work.name) == ("work", "claude-sonnet-4-5", "work")
    assert work.price == catalogue.find("anthropic/claude-sonnet-4-5").price
    assert work.headers == {"x-team": "a"}


def test_the_wire_and_address_of_a_provider_can_be_set_for_all_its_models_or_one() -> None:
    provider = {
        "npm": COMPATIBLE,
        "api": "https://proxy.example/v1",
        "models": {"gpt-5": {"provider": {"npm": "@ai-sdk/openai", "api": "https://other.example"}}},
    }
    catalogue = overlaid({"openai": provider})
    one, rest = catalogue.find("openai/gpt-5"), catalogue.find("openai/gpt-4o")
    assert (one.npm, one.api_url) == ("@ai-sdk/openai", "https://other.example")
    assert (rest.npm, rest.api_url) == (COMPATIBLE, "https://proxy.example/v1")


def test_a_base_url_beats_every_address_and_headers_reach_every_model() -> None:
    options = {"baseURL": "http://localhost:1/v1", "headers": {"x-a": "1", "x-n": 3}, "apiKey": "sk-hidden"}
    catalogue = overlaid({"opencode": {"options": options, "models": {"gpt-5-nano": {"headers": {"x-b": "2"}}}}})
    nano = catalogue.find("opencode/gpt-5-nano")
    assert (nano.api_url, nano.headers) == ("http://localhost:1/v1", {"x-a": "1", "x-b": "2"})
    own = {"m": {"provider": {"api": "https://elsewhere.example"}}}
    assert overlaid({"acme": {"options": options, "models": own}}).find("acme/m").api_url == "http://localhost:1/v1"


def test_a_provider_holds_no_key_and_shows_no_options() -> None:
    info = overlaid(
        {"acme": {"options": {"apiKey": "sk-1", "token": "sk-2", "timeout": 5}, "models": {"m": {}}}}
    ).provider("acme")
    assert info.options == {"token": "sk-2", "timeout": 5}
    assert "sk-" not in repr(info)


def test_variants_can_be_added_changed_and_disabled() -> None:
    own = {"low": {"disabled": True}, "high": {"textVerbosity": "high"}, "mine": {"reasoningEffort": "minimal"}}
    variants = overlaid({"openai": {"models": {"gpt-5": {"variants": own}}}}).find("openai/gpt-5").variants
    assert list(variants) == ["minimal", "medium", "high", "mine"]
    assert variants["high"]["textVerbosity"] == "high"
    assert variants["high"]["reasoningEffort"] == "high"


def test_addresses_take_their_variables_from_the_environment() -> None:
    source = BundledSource()
    name = next(iter(source.models("cloudflare-workers-ai")))
    set_up = Catalogue(environ={"CLOUDFLARE_ACCOUNT_ID": "acc"}, source=source).model("cloudflare-workers-ai", name)
    missing = Catalogue(environ={}, source=source).model("cloudflare-workers-ai", name)
    assert "/accounts/acc/" in set_up.api_url
    assert "${CLOUDFLARE_ACCOUNT_ID}" in missing.api_url


def test_disabled_providers_are_refused_by_name() -> None:
    catalogue = overlaid({}, disabled_providers=["openai"])
    with pytest.raises(ModelNotFoundError, match="disabled_providers"):
        catalogue.find("openai/gpt-5")
    assert "openai" not in [info.id for info in catalogue.providers()]
    assert catalogue.known("openai", "gpt-5") is not None


def test_only_enabled_providers_may_be_used() -> None:
    catalogue = overlaid({}, enabled_providers=["anthropic"])
    assert [info.id for info in catalogue.providers()] == ["anthropic"]
    with pytest.raises(ModelNotFoundError, match="enabled_providers"):
        catalogue.provider("openai")
    assert overlaid({}, enabled_providers=[]).providers() == ()


def test_black_and_white_lists_rule_models_out() -> None:
    catalogue = overlaid({"openai": {"whitelist": ["gpt-5", "gpt-4o"], "blacklist": ["gpt-4o"]}})
    assert list(catalogue.models("openai")) == ["gpt-5"]
    with pytest.raises(ModelNotFoundError, match="blacklist"):
        catalogue.find("openai/gpt-4o")
    with pytest.raises(ModelNotFoundError, match="whitelist"):
        catalogue.find("openai/gpt-5-mini")
    assert catalogue.known("openai", "gpt-5-mini") is not None


def test_unfinished_models_are_offered_on_request() -> None:
    config = {"provider": {"acme": {"models": {"early": {"status": "alpha"}, "chat": {}, "gpt-5-chat-latest": {}}}}}
    shy = Catalogue(config, environ={}, source=BundledSource())
    bold = Catalogue(config, environ={"OPENCODE_ENABLE_EXPERIMENTAL_MODELS": "TRUE"}, source=BundledSource())
    assert list(shy.models("acme")) == ["chat"]
    assert list(bold.models("acme")) == ["early", "chat"]


@pytest.mark.parametrize(
    ("provider", "ref", "text"),
    [
        ({"acme": {"models": []}}, "acme/m", "provider.acme in the configuration is invalid"),
        ({"acme": {"models": {"m": {"limit": {"context": "big"}}}}}, "acme/m", "limit.context"),
    ],
)
def test_settings_of_the_wrong_shape_are_reported_and_named(provider: dict[str, Any], ref: str, text: str) -> None:
    reports: list[Damage] = []
    catalogue = Catalogue({"provider": provider}, environ={}, source=BundledSource(), report=reports.append)
    with pytest.raises(ModelNotFoundError, match=text):
        catalogue.find(ref)
    assert len(reports) == 1
    assert catalogue.find("anthropic/claude-haiku-4-5")


@pytest.mark.parametrize(
    ("cost", "price"),
    [
        (None, None),
        ({}, None),
        ({"input": -1, "output": -1}, None),
        ({"input": 0, "output": 0}, Price(rates=Rates(input=0.0, output=0.0))),
        ({"input": 1, "reasoning": 4}, Price(rates=Rates(input=1.0, reasoning=4.0))),
        (
            {"input": 1, "context_over_200k": {"input": 2}},
            Price(rates=Rates(input=1.0), tiers=(Tier(above=200_000, rates=Rates(input=2.0)),)),
        ),
        (
            {
                "input": 1,
                "tiers": [{"input": 3, "tier": {"size": 64_000}}, {"input": 2, "tier": {"size": 32_000}}],
                "context_over_200k": {"input": 9},
            },
            Price(
                rates=Rates(input=1.0),
                tiers=(Tier(above=32_000, rates=Rates(input=2.0)), Tier(above=64_000, rates=Rates(input=3.0))),
            ),
        ),
    ],
)
def test_prices_come_from_the_entry_and_are_unknown_otherwise(cost: Any, price: Price | None) -> None:
    entry = {} if cost is None else {"cost": cost}
    assert overlaid({"acme": {"models": {"m": entry}}}).find("acme/m").price == price


@pytest.mark.parametrize(
    ("entry", "tools", "field"),
    [
        ({}, True, None),
        ({"tool_call": False, "interleaved": True}, False, None),
        ({"tool_call": {"supported": False}}, False, None),
        ({"tool_call": {"supported": True}, "interleaved": {"field": "reasoning_content"}}, True, "reasoning_content"),
    ],
)
def test_abilities_may_be_written_as_flags_or_objects(entry: dict[str, Any], tools: bool, field: str | None) -> None:
    abilities = overlaid({"acme": {"models": {"m": entry}}}).find("acme/m").capabilities
    assert (abilities.tools, abilities.interleaved) == (tools, field)


@pytest.mark.parametrize(("written", "context"), [(2e5, 200_000), (7, 7), (-1, 0), (None, 0)])
def test_limits_are_whole_numbers_of_tokens_or_unknown(written: float | None, context: int) -> None:
    model = overlaid({"acme": {"models": {"m": {"limit": {"context": written}}}}}).find("acme/m")
    assert repr(model.limit) == repr(Limit(context=context))


def test_unknown_modalities_are_left_out() -> None:
    entry = {"modalities": {"input": ["text", "smell"], "output": ["text"]}, "status": "retired"}
    model = overlaid({"acme": {"models": {"m": entry}}}).find("acme/m")
    assert model.capabilities.input == {"text"}
    assert model.status == "active"


def test_one_model_is_found_within_five_milliseconds() -> None:
    best = 1.0
    for _ in range(20):
        begun = time.perf_counter()
        Catalogue(environ={}, source=BundledSource()).find("anthropic/claude-sonnet-4-5")
        best = min(best, time.perf_counter() - begun)
    assert best < 0.005


def test_importing_the_catalogue_neither_reads_the_snapshot_nor_loads_what_is_heavy() -> None:
    script = """
import builtins, io, sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
import opensesh.models.catalogue, opensesh.models.auth, opensesh.models.choice, opensesh.models.pricing
heavy = {"httpx2", "rapidfuzz", "asyncio", "dataclasses", "zipfile", "ssl"} & set(sys.modules)
assert not heavy, heavy
assert not [path for path in opened if "models.zip" in path or "models.json" in path]
"""
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})


def test_many_threads_may_ask_one_catalogue() -> None:
    catalogue = Catalogue(environ={}, source=BundledSource())
    refs = ["openai/gpt-5", "anthropic/claude-haiku-4-5", "google/gemini-2.5-pro", "groq/openai/gpt-oss-120b"] * 25
    with ThreadPoolExecutor(8) as pool:
        result = list(pool.map(catalogue.find, refs))
    assert [model.ref for model in result] == refs
    assert all(model is catalogue.find(model.ref) for model in result)


def test_the_snapshot_is_dated(snapshot: Catalogue) -> None:
    assert snapshot.origin.date == "2026-09-28"
    assert datetime.fromisoformat(snapshot.origin.date).replace(tzinfo=UTC) < datetime.now(UTC)


def test_a_listed_provider_is_described_without_its_models() -> None:
    assert ProviderInfo(id="x").base_url == ""
    assert ProviderInfo(id="x", options={"headers": "no"}).headers == {}
