from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opensesh.errors import ModelNotFoundError
from opensesh.models.auth import Keyring
from opensesh.models.catalogue import Catalogue
from opensesh.models.choice import (
    available_providers,
    default_model,
    in_order_of_preference,
    recent_models,
    small_model,
)
from opensesh.models.model import Capabilities, Model


class Setup:
    """A catalogue and a keyring for one configuration and one environment."""

    def __init__(self, folder: Path, *variables: str, **config: Any) -> None:
        self.config = config
        self.catalogue = Catalogue(config, environ={})
        self.keyring = Keyring(config, environ=dict.fromkeys(variables, "key"), folder=str(folder))

    def default(self, *recent: tuple[str, str]) -> str:
        return default_model(self.catalogue, self.keyring, self.config, recent).ref

    def small(self, provider_id: str) -> str | None:
        result = small_model(self.catalogue, self.keyring, self.config, provider_id)
        return result.ref if result else None

    def ready(self) -> list[str]:
        return [info.id for info in available_providers(self.catalogue, self.keyring)]


OLLAMA: dict[str, Any] = {
    "ollama": {"options": {"baseURL": "http://localhost:11434/v1"}, "models": {"llama3": {}, "qwen3": {}}}
}


def names(*ids: str) -> list[str]:
    models = [Model(id=name, provider_id="acme") for name in ids]
    return [model.id for model in in_order_of_preference(models)]


def test_later_favourites_come_first_and_strangers_last() -> None:
    ids = ("zeta", "gpt-5.2", "claude-sonnet-4-5", "big-pickle", "gemini-3-pro-preview")
    assert names(*ids) == ["gemini-3-pro-preview", "big-pickle", "claude-sonnet-4-5", "gpt-5.2", "zeta"]


def test_among_equals_the_latest_comes_first_then_the_last_by_name() -> None:
    assert names("gpt-5", "gpt-5.2", "gpt-5-chat-latest") == ["gpt-5-chat-latest", "gpt-5.2", "gpt-5"]


def test_models_that_cannot_call_tools_or_draw_pictures_come_last() -> None:
    mute = Model(id="gpt-5-z", provider_id="acme", capabilities=Capabilities(tools=False))
    painter = Model(id="gemini-3-pro-image", provider_id="acme", capabilities=Capabilities(output=frozenset({"image"})))
    worker = Model(id="a", provider_id="acme")
    assert in_order_of_preference([mute, painter, worker])[0] is worker


def test_the_configured_model_is_taken_without_asking_for_a_key(tmp_path: Path) -> None:
    assert Setup(tmp_path, model="groq/openai/gpt-oss-120b").default() == "groq/openai/gpt-oss-120b"


def test_a_configured_model_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="anthropic/claude-sonnet-4-5"):
        Setup(tmp_path, "OPENAI_API_KEY", model="anthropic/claude-sonet-4-5").default()


def test_the_model_used_last_is_taken_if_it_still_can_be(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "OPENAI_API_KEY", disabled_providers=["groq"])
    recent = [
        ("anthropic", "claude-haiku-4-5"),
        ("groq", "x"),
        ("openai", "gone"),
        ("openai", "gpt-4o"),
        ("openai", "gpt-5"),
    ]
    assert setup.default(*recent) == "openai/gpt-4o"


def test_otherwise_the_best_of_the_provider_with_a_key_is_taken(tmp_path: Path) -> None:
    assert Setup(tmp_path, "ANTHROPIC_API_KEY").default() == "anthropic/claude-sonnet-4-6"
    assert Setup(tmp_path, "OPENROUTER_API_KEY").default() == "openrouter/anthropic/claude-sonnet-4.6"


def test_a_local_provider_needs_no_key_to_count(tmp_path: Path) -> None:
    assert Setup(tmp_path, provider=OLLAMA).default() == "ollama/qwen3"


def test_a_configured_provider_comes_before_one_that_merely_has_a_key(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "ANTHROPIC_API_KEY", provider=OLLAMA)
    assert setup.ready() == ["anthropic", "ollama"]
    assert setup.default() == "ollama/qwen3"


def test_configuring_a_provider_without_a_key_does_not_shut_out_the_others(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "ANTHROPIC_API_KEY", provider={"openai": {"options": {"timeout": 5}}})
    assert setup.default().startswith("anthropic/")


def test_without_any_key_the_error_explains_what_to_do(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    assert setup.ready() == []
    with pytest.raises(ModelNotFoundError, match="ANTHROPIC_API_KEY"):
        setup.default()


def test_disabled_providers_do_not_count(tmp_path: Path) -> None:
    keys = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY")
    assert Setup(tmp_path, *keys, disabled_providers=["anthropic"]).ready() == ["openai"]
    assert Setup(tmp_path, *keys, enabled_providers=["anthropic"]).ready() == ["anthropic"]


def test_keys_in_the_environment_come_before_those_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "auth.json").write_text(json.dumps({"anthropic": {"type": "api", "key": "k"}}))
    setup = Setup(tmp_path, "OPENAI_API_KEY")
    assert setup.ready() == ["openai", "anthropic"]


def test_credentials_that_serve_other_ends_too_come_last(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "GITHUB_TOKEN", "AWS_PROFILE", "OPENAI_API_KEY")
    assert setup.ready()[0] == "openai"
    assert {"github-copilot", "amazon-bedrock"} < set(setup.ready())


def test_the_configured_small_model_is_taken(tmp_path: Path) -> None:
    assert Setup(tmp_path, small_model="openai/gpt-4o-mini").small("anthropic") == "openai/gpt-4o-mini"


@pytest.mark.parametrize(
    ("variable", "provider_id", "expected"),
    [
        ("ANTHROPIC_API_KEY", "anthropic", "anthropic/claude-haiku-4-5"),
        ("OPENAI_API_KEY", "openai", "openai/gpt-5-nano"),
        ("GEMINI_API_KEY", "google", "google/gemini-3-flash-preview"),
        ("OPENCODE_API_KEY", "opencode", "opencode/gpt-5-nano"),
        ("GITHUB_TOKEN", "github-copilot", "github-copilot/gpt-5-mini"),
        ("GROQ_API_KEY", "groq", None),
    ],
)
def test_each_provider_has_its_small_model(
    tmp_path: Path, variable: str, provider_id: str, expected: str | None
) -> None:
    assert Setup(tmp_path, variable).small(provider_id) == expected


def test_a_key_for_opencode_lends_a_small_model_to_those_without(tmp_path: Path) -> None:
    assert Setup(tmp_path, "GROQ_API_KEY", "OPENCODE_API_KEY").small("groq") == "opencode/gpt-5-nano"


def test_a_provider_without_a_key_lends_none(tmp_path: Path) -> None:
    assert Setup(tmp_path, "GROQ_API_KEY").small("anthropic") is None
    assert Setup(tmp_path).small("nobody") is None


def bedrock(tmp_path: Path, *models: str, **options: str) -> Setup:
    provider = {"amazon-bedrock": {"options": options, "whitelist": list(models)}}
    return Setup(tmp_path, "AWS_BEARER_TOKEN_BEDROCK", provider=provider)


HAIKU = "anthropic.claude-haiku-4-5-20251001-v1:0"


def test_bedrock_prefers_the_world_then_ones_own_region_then_no_region(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.delenv("AWS_REGION", raising=False)
    every = [f"{prefix}{HAIKU}" for prefix in ("us.", "", "eu.", "global.")]
    assert bedrock(tmp_path, *every).small("amazon-bedrock") == f"amazon-bedrock/global.{HAIKU}"
    regional = bedrock(tmp_path, *every[:3])
    assert regional.small("amazon-bedrock") == f"amazon-bedrock/us.{HAIKU}"
    monkeypatch.setenv("AWS_REGION", "sa-east-1")
    assert regional.small("amazon-bedrock") == f"amazon-bedrock/{HAIKU}"
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert regional.small("amazon-bedrock") == f"amazon-bedrock/eu.{HAIKU}"
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    configured = bedrock(tmp_path, *every[:3], region="eu-central-1")
    assert configured.small("amazon-bedrock") == f"amazon-bedrock/eu.{HAIKU}"
    assert bedrock(tmp_path, f"eu.{HAIKU}").small("amazon-bedrock") is None


def test_recent_models_are_read_as_the_terminal_left_them(tmp_path: Path) -> None:
    document = {"recent": [{"providerID": "a", "modelID": "b/c"}, {"providerID": "d", "modelID": "e"}], "favorite": []}
    (tmp_path / "model.json").write_text(json.dumps(document))
    assert recent_models(str(tmp_path)) == [("a", "b/c"), ("d", "e")]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"recent": 3}', '{"recent": [3]}', '{"recent": null}'])
def test_a_file_that_names_no_recent_models_counts_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "model.json").write_text(text)
    assert recent_models(str(tmp_path)) == []


def test_recent_models_are_looked_for_in_opencodes_state_folder(isolated: Path) -> None:
    assert recent_models() == []
    folder = isolated / ".local" / "state" / "opencode"
    folder.mkdir(parents=True)
    (folder / "model.json").write_text('{"recent": [{"providerID": "a", "modelID": "b"}]}')
    assert recent_models() == [("a", "b")]
