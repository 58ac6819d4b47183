from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from .serving import Client, serving

PLUGIN = """
from opensesh.plugins import AuthCondition, AuthMethod, AuthOption, AuthPrompt, Authorization, hooks

OAUTH = {"type": "oauth", "refresh": "r", "access": "a", "expires": 5}


async def by_code(inputs):
    async def callback(code):
        if code == "broken":
            raise RuntimeError("no such code")
        return OAUTH | {"accountId": inputs["account"]} if code == "right" else None

    return Authorization(url="https://acme.example/login", instructions="Log in.", callback=callback, method="code")


async def by_device(inputs):
    async def callback(code):
        return {"type": "api", "key": "k"} if code is None else {"type": "nonsense"}

    return Authorization(url="https://acme.example/device", instructions="Enter code: 1", callback=callback)


@hooks.auth_methods
def offer(host, output):
    region = AuthPrompt(key="region", message="Region", options=(AuthOption(label="Europe", value="eu", hint="near"),))
    account = AuthPrompt(key="account", message="Account", when=AuthCondition(key="region", op="eq", value="eu"))
    output.methods += [
        AuthMethod(provider_id="acme", label="Acme account", authorize=by_code, prompts=(region, account)),
        AuthMethod(provider_id="acme", label="Acme device", authorize=by_device),
        AuthMethod(provider_id="acme", label="API key"),
    ]
"""


@pytest.fixture
async def client(tmp_path: Path, isolated: Path) -> AsyncGenerator[Client]:
    folder = isolated / ".config/opencode/plugin"
    folder.mkdir(parents=True)
    (folder / "acme.py").write_text(PLUGIN)
    async with serving(tmp_path / "p") as client:
        yield client


async def failure(client: Client, path: str, **body: object) -> tuple[int, str]:
    response = await client.http.post(path, json=body)
    return response.status_code, response.json()["name"]


async def test_the_methods_of_plugins_are_listed_as_opencode_does(client: Client) -> None:
    assert await client.get("/provider/auth") == {
        "acme": [
            {
                "type": "oauth",
                "label": "Acme account",
                "prompts": [
                    {
                        "type": "select",
                        "key": "region",
                        "message": "Region",
                        "options": [{"label": "Europe", "value": "eu", "hint": "near"}],
                    },
                    {
                        "type": "text",
                        "key": "account",
                        "message": "Account",
                        "when": {"key": "region", "op": "eq", "value": "eu"},
                    },
                ],
            },
            {"type": "oauth", "label": "Acme device"},
            {"type": "api", "label": "API key"},
        ]
    }


async def test_a_login_is_stored_in_opencodes_file(client: Client, isolated: Path) -> None:
    file = isolated / ".local/share/opencode/auth.json"
    begun = await client.post("/provider/acme/oauth/authorize", {"method": 0, "inputs": {"account": "ada"}})
    assert begun == {"url": "https://acme.example/login", "method": "code", "instructions": "Log in."}
    path = "/provider/acme/oauth/callback"
    assert await failure(client, path, method=0) == (400, "ProviderAuthOauthCodeMissing")
    assert await failure(client, path, method=0, code="wrong") == (400, "ProviderAuthOauthCallbackFailed")
    assert await failure(client, path, method=0, code="broken") == (400, "ProviderAuthOauthCallbackFailed")
    assert await client.post(path, {"method": 0, "code": "right"}) is True
    entry = {"type": "oauth", "access": "a", "refresh": "r", "expires": 5, "accountId": "ada"}
    assert file.read_text() == json.dumps({"acme": entry}, indent=2), "byte for byte what OpenCode writes"
    assert file.stat().st_mode & 0o777 == 0o600
    assert (await client.post("/provider/acme/oauth/authorize", {"method": 1}))["method"] == "auto"
    assert await client.post(path, {"method": 1}) is True
    assert json.loads(file.read_text()) == {"acme": {"type": "api", "key": "k"}}
    assert await failure(client, path, method=1) == (400, "ProviderAuthOauthMissing")


async def test_what_is_not_offered_cannot_be_used(client: Client) -> None:
    assert await client.post("/provider/acme/oauth/authorize", {"method": 2}) is None
    for method in (3, -1, 0.5):
        assert await failure(client, "/provider/acme/oauth/authorize", method=method) == (400, "ProviderAuthError")
    assert await failure(client, "/provider/nosuch/oauth/authorize", method=0) == (400, "ProviderAuthError")
    assert await failure(client, "/provider/nosuch/oauth/callback", method=0) == (400, "ProviderAuthOauthMissing")


async def test_credentials_that_auth_json_does_not_have_are_not_stored(client: Client, isolated: Path) -> None:
    await client.post("/provider/acme/oauth/authorize", {"method": 1})
    path = "/provider/acme/oauth/callback"
    assert await failure(client, path, method=1, code="x") == (400, "ProviderAuthOauthCallbackFailed")
    assert not (isolated / ".local/share/opencode/auth.json").exists()


async def test_the_id_of_a_provider_may_contain_a_slash(client: Client, isolated: Path) -> None:
    file = isolated / ".local/share/opencode/auth.json"
    entry = {"type": "api", "key": "k"}
    for provider_id, path in (("acme/models", "/auth/acme%2Fmodels"), ("acme%2Fmodels", "/auth/acme%252Fmodels")):
        assert (await client.http.put(path, json=entry)).json() is True
        assert json.loads(file.read_text()) == {provider_id: entry}
        assert (await client.http.delete(path)).json() is True
        assert json.loads(file.read_text()) == {}
    assert (await client.http.put("/auth/acme/models", json=entry)).status_code == 404
    assert await failure(client, "/provider/acme%2Fmodels/oauth/authorize", method=0) == (400, "ProviderAuthError")
