from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opensesh.errors import AuthFailedError, ModelConnectionError, ModelError, OverloadedError
from opensesh.models.anthropic import Anthropic
from opensesh.models.auth import Keyring
from opensesh.models.bedrock import Bedrock
from opensesh.models.catalogue import Catalogue
from opensesh.models.choice import small_model
from opensesh.models.connect import Connections, configured_timeouts
from opensesh.models.google import Google
from opensesh.models.model import Model
from opensesh.models.openai_chat import OpenAIChat
from opensesh.models.openai_responses import OpenAIResponses
from opensesh.models.request import Request

from .loopback import Exchange, serving


def connections(environ: dict[str, str]) -> Connections:
    config: dict[str, Any] = {
        "provider": {
            "mine": {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": "http://127.0.0.1:9/v1"},
                "models": {"m": {}},
            }
        }
    }
    return Connections(Catalogue(config), Keyring(config, environ=environ))


def model(provider: str, npm: str) -> Model:
    return Model(id="m", provider_id=provider, npm=npm)


KEYS = {"ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "o", "GEMINI_API_KEY": "g"}


@pytest.mark.parametrize(
    ("provider", "npm", "adapter"),
    [
        ("anthropic", "@ai-sdk/anthropic", Anthropic),
        ("openai", "@ai-sdk/openai", OpenAIResponses),
        ("google", "@ai-sdk/google", Google),
        ("mine", "@ai-sdk/openai-compatible", OpenAIChat),
    ],
)
async def test_each_wire_has_its_adapter_which_is_used_again(provider: str, npm: str, adapter: type) -> None:
    open_ = connections(KEYS)
    result = open_.provider(model(provider, npm))
    assert isinstance(result, adapter)
    assert open_.provider(model(provider, npm)) is result
    await open_.aclose()


async def busy(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")


async def test_a_variable_in_a_configured_address_is_filled_in() -> None:
    async with serving(busy) as server:
        provider: dict[str, Any] = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": "${PLACE}/v1"},
            "models": {"m": {}},
        }
        config: dict[str, Any] = {"provider": {"mine": provider}}
        catalogue = Catalogue(config, environ={"PLACE": server.url})
        open_ = Connections(catalogue, Keyring(config, environ={}))
        asked = catalogue.find("mine/m")
        with pytest.raises(OverloadedError):
            async for _ in open_.provider(asked).stream(Request(model=asked, messages=())):
                pass
        await open_.aclose()
    assert server.exchanges[0].head.startswith("POST /v1/chat/completions")


async def test_bedrock_uses_the_configured_endpoint() -> None:
    async with serving(busy) as server:
        config: dict[str, Any] = {"provider": {"amazon-bedrock": {"options": {"baseURL": server.url, "apiKey": "k"}}}}
        open_ = Connections(Catalogue(config), Keyring(config, environ={}))
        asked = model("amazon-bedrock", "@ai-sdk/amazon-bedrock")
        with pytest.raises(OverloadedError):
            async for _ in open_.provider(asked).stream(Request(model=asked, messages=())):
                pass
        await open_.aclose()
    assert server.exchanges[0].head.startswith("POST /model/m/converse-stream")


@pytest.mark.parametrize("option", ["baseURL", "endpoint"])
async def test_a_profile_in_the_configuration_is_enough_for_bedrock(
    option: str, isolated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("botocore")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(isolated / "aws-credentials"))
    (isolated / "aws-credentials").write_text("[work]\naws_access_key_id = AKIDWORK\naws_secret_access_key = hush\n")
    async with serving(busy) as server:
        options = {"profile": "work", "region": "eu-west-1", option: server.url}
        config: dict[str, Any] = {"provider": {"amazon-bedrock": {"options": options}}}
        open_ = Connections(Catalogue(config), Keyring(config, environ={}))
        asked = model("amazon-bedrock", "@ai-sdk/amazon-bedrock")
        with pytest.raises(OverloadedError):
            async for _ in open_.provider(asked).stream(Request(model=asked, messages=())):
                pass
        await open_.aclose()
    assert "akidwork/" in server.exchanges[0].head
    assert "/eu-west-1/bedrock/" in server.exchanges[0].head


@pytest.mark.parametrize("expected", [True, False])
async def test_usage_is_not_requested_if_the_configuration_disables_it(expected: bool) -> None:
    async with serving(busy) as server:
        options = {"baseURL": f"{server.url}/v1", "includeUsage": expected}
        config: dict[str, Any] = {"provider": {"mine": {"options": options, "models": {"m": {}}}}}
        open_ = Connections(Catalogue(config), Keyring(config, environ={}))
        asked = model("mine", "@ai-sdk/openai-compatible")
        with pytest.raises(OverloadedError):
            async for _ in open_.provider(asked).stream(Request(model=asked, messages=())):
                pass
        await open_.aclose()
    assert (b'"include_usage":true' in server.exchanges[0].body) is expected


@pytest.mark.parametrize("option", ["region", "endpoint", "profile"])
@pytest.mark.parametrize("value", [5, True, ["eu-west-1"], {"a": "b"}])
async def test_an_option_that_is_not_text_is_ignored(option: str, value: Any) -> None:
    config: dict[str, Any] = {"provider": {"amazon-bedrock": {"options": {option: value}}}}
    keyring = Keyring(config, environ={"AWS_BEARER_TOKEN_BEDROCK": "b"})
    open_ = Connections(Catalogue(config), keyring)
    assert isinstance(open_.provider(model("amazon-bedrock", "@ai-sdk/amazon-bedrock")), Bedrock)
    assert small_model(Catalogue(config), keyring, config, "amazon-bedrock") is not None
    await open_.aclose()


async def silent(exchange: Exchange) -> None:
    await exchange.hung_up()


def slow(url: str, timeout: Any) -> Connections:
    options = {"baseURL": f"{url}/v1", "timeout": timeout}
    config: dict[str, Any] = {"provider": {"mine": {"options": options, "models": {"m": {}}}}}
    return Connections(Catalogue(config), Keyring(config, environ={}))


async def test_timeouts_come_from_the_configuration() -> None:
    asked = model("mine", "@ai-sdk/openai-compatible")
    async with serving(silent) as server:
        open_ = slow(server.url, 50)
        with pytest.raises(ModelConnectionError, match=r"took longer than 0\.05 s"):
            async for _ in open_.provider(asked).stream(Request(model=asked, messages=())):
                pass
        await open_.aclose()


@pytest.mark.parametrize(
    ("timeout", "most", "silence"),
    [
        (1_800_000, 1800.0, 1800.0),
        (60_000, 60.0, 300.0),
        (False, None, None),
        (True, None, 300.0),
        (0, None, 300.0),
        ("soon", None, 300.0),
    ],
)
def test_silence_is_borne_for_as_long_as_the_whole_answer_may_take(
    timeout: Any, most: float | None, silence: float | None
) -> None:
    assert configured_timeouts({"timeout": timeout}) == (most, silence)


async def test_a_key_that_changes_is_used_from_the_next_request_on() -> None:
    environ = dict(KEYS)
    open_ = connections(environ)
    before = open_.provider(model("anthropic", "@ai-sdk/anthropic"))
    environ["ANTHROPIC_API_KEY"] = "another"
    assert open_.provider(model("anthropic", "@ai-sdk/anthropic")) is not before
    await open_.aclose()


def test_a_missing_key_error_names_where_to_put_it() -> None:
    with pytest.raises(AuthFailedError, match="ANTHROPIC_API_KEY"):
        connections({}).provider(model("anthropic", "@ai-sdk/anthropic"))


def test_a_login_that_cannot_be_used_is_named_where_the_key_is_missing(isolated: Path) -> None:
    folder = isolated / ".local/share/opencode"
    folder.mkdir(parents=True)
    (folder / "auth.json").write_text('{"openai": {"type": "oauth", "access": "a", "refresh": "r", "expires": 0}}')
    with pytest.raises(AuthFailedError, match=r"that of a ChatGPT plan, which needs a plugin.*: set OPENAI_API_KEY"):
        connections({}).provider(model("openai", "@ai-sdk/openai"))


async def test_copilot_of_an_enterprise_has_an_address_of_its_own(isolated: Path) -> None:
    folder = isolated / ".local/share/opencode"
    folder.mkdir(parents=True)
    login = {"type": "oauth", "access": "a", "refresh": "r", "expires": 0, "enterpriseUrl": "https://acme.ghe.com/"}
    (folder / "auth.json").write_text(json.dumps({"github-copilot-enterprise": login}))
    open_ = connections({})
    adapter = open_.provider(model("github-copilot-enterprise", "@ai-sdk/openai-compatible"))
    assert vars(adapter)["_url"] == "https://copilot-api.acme.ghe.com/chat/completions"
    await open_.aclose()


async def test_a_wire_that_is_not_spoken_is_named() -> None:
    open_ = connections({**KEYS, "AZURE_API_KEY": "z", "AZURE_RESOURCE_NAME": "r"})
    with pytest.raises(ModelError, match="@ai-sdk/azure"):
        open_.provider(model("azure", "@ai-sdk/azure"))
    await open_.aclose()
