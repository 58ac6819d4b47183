from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from opensesh.models.auth import Credential, Keyring, KeySource, Secret
from opensesh.models.catalogue import Catalogue
from opensesh.models.model import ProviderInfo
from opensesh.storage.protocol import Damage

KEY = "sk-ant-very-secret-0123456789"
ANTHROPIC = ProviderInfo(id="anthropic", name="Anthropic", env=("ANTHROPIC_API_KEY",))

ACME = ProviderInfo(id="acme", env=("ACME_API_KEY",))


class KeySetup:
    """A data folder, an environment and a configuration, and what was said about them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ: dict[str, str] = {}
        self.reports: list[Damage] = []

    @property
    def file(self) -> Path:
        return self.folder / "auth.json"

    def store(self, entries: Any) -> None:
        self.file.write_text(json.dumps(entries))

    def keyring(self, config: Mapping[str, Any] | None = None) -> Keyring:
        return Keyring(config, environ=self.environ, folder=str(self.folder), report=self.reports.append)


@pytest.fixture
def setup(tmp_path: Path) -> KeySetup:
    return KeySetup(tmp_path)


def configured(provider_id: str, **options: Any) -> dict[str, Any]:
    return {"provider": {provider_id: {"options": options}}}


def test_a_credential_never_shows_its_secret(setup: KeySetup) -> None:
    setup.environ["ANTHROPIC_API_KEY"] = KEY
    credential = setup.keyring().credential(ANTHROPIC)
    assert credential is not None
    assert credential.key == KEY
    shown = f"{credential} {credential!r} {credential.secret} {credential.secret!r} {[credential]} {credential.source}"
    assert KEY not in shown
    assert "ANTHROPIC_API_KEY" in shown
    with pytest.raises(TypeError):
        msgspec.json.encode(credential)


def sources(keyring: Keyring, provider: ProviderInfo) -> tuple[KeySource, ...]:
    return tuple(credential.source for credential in keyring.credentials(provider))


def available(keyring: Keyring, provider: ProviderInfo) -> bool:
    result = keyring.credential(provider)
    return result is not None and result.source.kind != "public"


def test_secrets_are_equal_by_what_they_hold() -> None:
    assert Secret("a") == Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a")}) == 1


def test_without_any_key_the_credential_is_none(setup: KeySetup) -> None:
    keyring = setup.keyring()
    assert keyring.credential(ANTHROPIC) is None
    assert not available(keyring, ANTHROPIC)
    assert sources(keyring, ANTHROPIC) == ()


def test_the_environment_is_used_and_empty_variables_are_ignored(setup: KeySetup) -> None:
    setup.environ["ANTHROPIC_API_KEY"] = ""
    keyring = setup.keyring()
    assert not available(keyring, ANTHROPIC)
    setup.environ["ANTHROPIC_API_KEY"] = KEY
    assert sources(keyring, ANTHROPIC) == (KeySource("environment", "ANTHROPIC_API_KEY"),)
    assert str(sources(keyring, ANTHROPIC)[0]) == "environment variable ANTHROPIC_API_KEY"


def test_configuration_beats_the_file_and_the_file_beats_the_environment(setup: KeySetup) -> None:
    setup.environ["ANTHROPIC_API_KEY"] = "from-env"
    setup.store({"anthropic": {"type": "api", "key": "from-file"}})
    both = setup.keyring()
    every = setup.keyring(configured("anthropic", apiKey="from-config"))
    assert [credential.key for credential in both.credentials(ANTHROPIC)] == ["from-file", "from-env"]
    assert [credential.key for credential in every.credentials(ANTHROPIC)] == ["from-config", "from-file", "from-env"]
    assert [source.kind for source in sources(every, ANTHROPIC)] == ["config", "auth.json", "environment"]


def test_the_file_is_read_with_any_mode_and_never_written(setup: KeySetup) -> None:
    setup.store({"anthropic": {"type": "api", "key": KEY}, "broken": {"type": "api"}})
    setup.file.chmod(0o644)
    before = setup.file.read_bytes(), setup.file.stat().st_mtime_ns, setup.file.stat().st_mode
    assert available(setup.keyring(), ANTHROPIC)
    assert (setup.file.read_bytes(), setup.file.stat().st_mtime_ns, setup.file.stat().st_mode) == before


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "api"},
        {"type": "api", "key": 7},
        {"type": "oauth", "access": "a", "refresh": "r"},
        {"type": "wellknown", "key": "X"},
        {"type": "magic", "key": KEY},
        {"key": KEY},
        "sk-plain",
        None,
        [],
    ],
    ids=str,
)
def test_an_invalid_entry_is_ignored_and_affects_no_other(setup: KeySetup, entry: Any) -> None:
    setup.store({"openai": entry, "anthropic": {"type": "api", "key": KEY}})
    keyring = setup.keyring()
    assert not available(keyring, ProviderInfo(id="openai", env=("OPENAI_API_KEY",)))
    assert available(keyring, ANTHROPIC)
    [report] = setup.reports
    assert report.path == str(setup.file)
    assert "openai" in report.reason
    assert KEY not in report.reason


@pytest.mark.parametrize("text", ["", "{", "[]", "\0\0", '{"anthropic":'])
def test_a_damaged_file_is_reported_once_and_the_environment_still_counts(setup: KeySetup, text: str) -> None:
    setup.file.write_text(text)
    setup.environ["ANTHROPIC_API_KEY"] = KEY
    keyring = setup.keyring()
    assert available(keyring, ANTHROPIC)
    assert available(keyring, ANTHROPIC)
    assert [report.path for report in setup.reports] == [str(setup.file)]


def test_a_file_that_cannot_be_opened_is_reported(setup: KeySetup) -> None:
    setup.file.mkdir()
    assert not available(setup.keyring(), ANTHROPIC)
    assert "cannot be read" in setup.reports[0].reason


def test_a_new_login_is_seen_at_once(setup: KeySetup) -> None:
    keyring = setup.keyring()
    assert not available(keyring, ANTHROPIC)
    setup.store({"anthropic": {"type": "api", "key": KEY}})
    assert available(keyring, ANTHROPIC)
    setup.file.unlink()
    assert not available(keyring, ANTHROPIC)


def test_the_default_folder_is_opencodes(isolated: Path) -> None:
    folder = isolated / ".local" / "share" / "opencode"
    folder.mkdir(parents=True)
    (folder / "auth.json").write_text(json.dumps({"anthropic": {"type": "api", "key": KEY}}))
    assert available(Keyring(environ={}), ANTHROPIC)


def test_an_access_token_counts_until_it_expires(setup: KeySetup) -> None:
    entry = {"type": "oauth", "access": "token", "refresh": "r", "accountId": "acc", "enterpriseUrl": "https://e"}
    setup.store({"acme": {**entry, "expires": 4_102_444_800_000.5}})
    credential = setup.keyring().credential(ACME)
    assert credential is not None
    assert (credential.kind, credential.key, credential.account_id) == ("oauth", "token", "acc")
    assert credential.enterprise_url == "https://e"
    assert not credential.expired(4_102_444_799_999)
    assert credential.expired(4_102_444_800_000)


def test_an_expired_token_gives_way_but_is_still_listed(setup: KeySetup) -> None:
    setup.store({"acme": {"type": "oauth", "access": "old", "refresh": "r", "expires": 1}})
    assert not available(setup.keyring(), ACME)
    assert "has expired" in setup.keyring().unusable_login("acme")
    setup.environ["ACME_API_KEY"] = KEY
    keyring = setup.keyring()
    credential = keyring.credential(ACME)
    assert credential is not None
    assert credential.key == KEY
    assert [source.kind for source in sources(keyring, ACME)] == ["auth.json", "environment"]


def test_a_token_without_an_end_does_not_expire(setup: KeySetup) -> None:
    setup.store({"acme": {"type": "oauth", "access": "t", "refresh": "r", "expires": 0}})
    assert available(setup.keyring(), ACME)
    assert setup.keyring().unusable_login("acme") == ""


@pytest.mark.parametrize(("provider", "plan"), [("anthropic", "Claude"), ("openai", "ChatGPT")])
def test_the_login_of_a_plan_is_not_sent_to_the_api_and_the_reason_is_said(
    setup: KeySetup, provider: str, plan: str
) -> None:
    setup.store({provider: {"type": "oauth", "access": "t", "refresh": "r", "expires": 4_102_444_800_000}})
    keyring = setup.keyring()
    assert keyring.credentials(ProviderInfo(id=provider, env=("SOME_API_KEY",))) == ()
    assert f"a {plan} plan, which needs a plugin" in keyring.unusable_login(provider)
    stored = keyring.stored_entry(provider)
    assert stored == {"type": "oauth", "refresh": "r", "access": "t", "expires": 4_102_444_800_000}


def test_copilot_uses_the_token_of_github_also_after_the_one_it_was_exchanged_for_expired(setup: KeySetup) -> None:
    setup.store({"github-copilot": {"type": "oauth", "access": "exchanged", "refresh": "gho_x", "expires": 1}})
    credential = setup.keyring().credential(ProviderInfo(id="github-copilot", env=("GITHUB_TOKEN",)))
    assert credential is not None
    assert (credential.key, credential.expires) == ("gho_x", 0)


def test_an_organisations_token_stands_for_the_variable_it_names(setup: KeySetup) -> None:
    setup.environ["ANTHROPIC_API_KEY"] = "mine"
    setup.store({"https://acme.example": {"type": "wellknown", "key": "ANTHROPIC_API_KEY", "token": "theirs"}})
    credential = setup.keyring().credential(ANTHROPIC)
    assert credential is not None
    assert (credential.key, credential.source.kind) == ("theirs", "auth.json")


def test_of_several_variables_only_those_that_hold_a_key_count(setup: KeySetup) -> None:
    azure = ProviderInfo(id="azure", env=("AZURE_RESOURCE_NAME", "AZURE_API_KEY"))
    setup.environ["AZURE_RESOURCE_NAME"] = "my-resource"
    assert not available(setup.keyring(), azure)
    setup.environ["AZURE_API_KEY"] = KEY
    assert [credential.key for credential in setup.keyring().credentials(azure)] == [KEY]


def test_a_login_that_holds_no_token_yet_is_none(setup: KeySetup) -> None:
    waiting = {"type": "oauth", "refresh": "gho_x", "access": "", "expires": 0}
    setup.store({"copilot": waiting, "acme": {"type": "api", "key": ""}})
    for name in ("copilot", "acme"):
        assert setup.keyring().credential(ProviderInfo(id=name, env=("NOT_SET",))) is None


def test_any_of_several_keys_will_do(setup: KeySetup) -> None:
    google = ProviderInfo(id="google", env=("GOOGLE_API_KEY", "GEMINI_API_KEY"))
    setup.environ["GEMINI_API_KEY"] = KEY
    assert sources(setup.keyring(), google) == (KeySource("environment", "GEMINI_API_KEY"),)


def test_a_variable_with_an_unusual_name_is_used_as_the_key(setup: KeySetup) -> None:
    acme = ProviderInfo(id="acme", env=("ACME_LOGIN",))
    setup.environ["ACME_LOGIN"] = KEY
    assert available(setup.keyring(), acme)


def test_bedrock_takes_a_bearer_token_or_the_clouds_own_credentials(setup: KeySetup) -> None:
    bedrock = Catalogue(environ={}).provider("amazon-bedrock")
    setup.environ["AWS_ACCESS_KEY_ID"] = "AKIA"
    assert not available(setup.keyring(), bedrock)
    setup.environ["AWS_SECRET_ACCESS_KEY"] = KEY
    ambient = setup.keyring().credential(bedrock)
    assert ambient is not None
    assert (ambient.kind, ambient.key) == ("ambient", "")
    setup.environ["AWS_BEARER_TOKEN_BEDROCK"] = KEY
    bearer = setup.keyring().credential(bedrock)
    assert bearer is not None
    assert (bearer.kind, bearer.key) == ("api", KEY)


@pytest.mark.parametrize(
    "name",
    [
        "AWS_PROFILE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ],
)
def test_credentials_of_an_aws_container_are_used(setup: KeySetup, name: str) -> None:
    bedrock = Catalogue(environ={}).provider("amazon-bedrock")
    setup.environ[name] = "x"
    assert sources(setup.keyring(), bedrock) == (KeySource("environment", name),)


def test_a_profile_in_the_configuration_counts_after_a_key(setup: KeySetup) -> None:
    config = configured("amazon-bedrock", profile="work")
    bedrock = Catalogue(config, environ={}).provider("amazon-bedrock")
    path = "provider.amazon-bedrock.options.profile in the configuration"
    assert sources(setup.keyring(config), bedrock) == (KeySource("config", path),)
    setup.environ["AWS_BEARER_TOKEN_BEDROCK"] = KEY
    chosen = setup.keyring(config).credential(bedrock)
    assert chosen is not None
    assert chosen.key == KEY


def test_vertex_does_not_take_a_path_for_a_key(setup: KeySetup) -> None:
    vertex = Catalogue(environ={}).provider("google-vertex")
    setup.environ["GOOGLE_APPLICATION_CREDENTIALS"] = "/path/to.json"
    credential = setup.keyring().credential(vertex)
    assert credential is not None
    assert (credential.kind, credential.secret) == ("ambient", None)


def test_a_provider_of_ones_own_without_variables_needs_no_key(setup: KeySetup) -> None:
    config: dict[str, Any] = {
        "provider": {"ollama": {"models": {"llama": {}}, "options": {"baseURL": "http://10.0.0.5:11434/v1"}}}
    }
    ollama = Catalogue(config, environ={}).provider("ollama")
    credential = setup.keyring(config).credential(ollama)
    assert credential is not None
    assert (credential.kind, credential.key) == ("none", "")
    assert available(setup.keyring(config), ollama)


def test_a_server_on_this_machine_needs_no_key_once_it_is_configured(setup: KeySetup) -> None:
    config: dict[str, Any] = {"provider": {"lmstudio": {}}}
    listed = Catalogue(environ={}).provider("lmstudio")
    mentioned = Catalogue(config, environ={}).provider("lmstudio")
    assert listed.env
    assert not available(setup.keyring(), listed)
    assert available(setup.keyring(config), mentioned)


def test_a_known_provider_needs_its_key_even_when_configured(setup: KeySetup) -> None:
    config = configured("anthropic", timeout=5)
    assert not available(setup.keyring(config), Catalogue(config, environ={}).provider("anthropic"))


def test_the_public_key_is_good_for_free_models_and_does_not_make_a_provider_available(setup: KeySetup) -> None:
    catalogue = Catalogue(environ={})
    zen = catalogue.provider("opencode")
    keyring = setup.keyring()
    credential = keyring.credential(zen)
    assert credential is not None
    assert (credential.key, credential.source.kind) == ("public", "public")
    assert not available(keyring, zen)
    assert credential.covers(catalogue.find("opencode/big-pickle"))
    assert not credential.covers(catalogue.find("opencode/gpt-5-nano"))


def test_a_key_of_ones_own_covers_every_model_of_its_provider_and_none_of_another() -> None:
    catalogue = Catalogue(environ={})
    own = Credential(provider_id="opencode", source=KeySource("config", "x"), secret=Secret("k"))
    assert own.covers(catalogue.find("opencode/gpt-5-nano"))
    assert not own.covers(catalogue.find("openai/gpt-5-nano"))


@pytest.mark.parametrize("provider", [None, [], {"anthropic": []}, {"anthropic": {"options": "x"}}], ids=str)
def test_a_configuration_of_another_shape_holds_no_key(setup: KeySetup, provider: Any) -> None:
    assert not available(setup.keyring({"provider": provider}), ANTHROPIC)


def test_the_environment_is_the_process_own_unless_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(os.environ, "ANTHROPIC_API_KEY", KEY)
    assert available(Keyring(folder=str(tmp_path)), ANTHROPIC)
