from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensesh.records import as_list, as_object, dumps
from opensesh.redaction import Redactor
from opensesh.redaction.secret_patterns import RULES

AZ09 = "a1B2c3D4e5F6g7H8i9J0"
HEX = "0123456789abcdef"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabc\n-----END RSA PRIVATE KEY-----"

SECRETS: dict[str, str] = {
    "private-key": PEM,
    "age-secret-key": "AGE-SECRET-KEY-1" + "Q" * 58,
    "anthropic-key": "sk-ant-" + "api03-" + AZ09 * 4,
    "openrouter-key": "sk-or-v1-" + HEX * 4,
    "openai-key": "sk-" + "proj-" + AZ09 * 3,
    "sk-key": "sk-" + AZ09 * 2,
    "google-api-key": "AIza" + (AZ09 * 2)[:35],
    "groq-key": "gsk_" + AZ09 * 3,
    "xai-key": "xai-" + AZ09 * 4,
    "perplexity-key": "pplx-" + AZ09 * 3,
    "huggingface-token": "hf_" + "aBcDeFgHiJ" * 4,
    "replicate-token": "r8_" + (AZ09 * 2)[:37],
    "langfuse-key": "sk-lf-" + "01234567-0123-0123-0123-0123456789ab",
    "fireworks-key": "fw_" + AZ09 * 2,
    "github-token": "ghp_" + AZ09 * 2,
    "github-fine-grained-token": "github_pat_" + "A" * 22 + "_" + "b" * 59,
    "gitlab-token": "glpat-" + AZ09,
    "bitbucket-token": "ATBB" + AZ09 * 2,
    "atlassian-token": "ATATT3" + AZ09 * 4,
    "npm-token": "npm_" + (AZ09 * 2)[:36],
    "pypi-token": "pypi-AgEIcHlwaS5vcmc" + AZ09 * 4,
    "rubygems-key": "rubygems_" + HEX * 3,
    "crates-token": "cio" + (AZ09 * 2)[:32],
    "docker-token": "dckr_pat_" + AZ09 * 2,
    "linear-key": "lin_api_" + AZ09 * 2,
    "sentry-token": "sntrys_" + AZ09 * 3,
    "aws-access-key": "AKIA" + "Q2W3E4R5T6Y7A2S3",
    "aws-secret-key": "aws_secret_access_key = " + (AZ09 * 2)[:40],
    "google-oauth-token": "ya29." + AZ09 * 2,
    "google-client-secret": "GOCSPX-" + (AZ09 * 2)[:28],
    "azure-storage-key": "AccountKey=" + (AZ09 * 5)[:86] + "==",
    "digitalocean-token": "dop_v1_" + HEX * 4,
    "heroku-key": "HRKU-" + AZ09 * 2,
    "vault-token": "hvs." + AZ09 * 2,
    "terraform-token": "A1b2C3d4E5f6G7" + ".atlasv1." + AZ09 * 4,
    "pulumi-token": "pul-" + (HEX * 3)[:40],
    "cloudflare-origin-key": "v1.0-" + (HEX * 2)[:24] + "-" + (HEX * 10)[:146],
    "supabase-token": "sbp_" + AZ09 * 2,
    "slack-token": "xoxb-" + "1234567890-" + AZ09,
    "slack-app-token": "xapp-1-" + "A0123456789-1234567890123-" + AZ09,
    "slack-webhook": "https://hooks.slack.com/services/" + "T00000000/B00000000/" + AZ09,
    "discord-webhook": "https://discord.com/api/webhooks/" + "123456789012345678/" + AZ09 * 3,
    "telegram-token": "123456789:" + "AA" + (AZ09 * 2)[:33],
    "stripe-key": "sk_live_" + AZ09,
    "stripe-webhook-secret": "whsec_" + AZ09 * 2,
    "twilio-key": "SK" + HEX * 2,
    "sendgrid-key": "SG." + AZ09 + "." + AZ09 * 2,
    "mailgun-key": "key-" + HEX * 2,
    "shopify-token": "shpat_" + HEX * 2,
    "square-token": "sq0atp-" + (AZ09 * 2)[:22],
    "figma-token": "figd_" + AZ09 * 3,
    "notion-token": "ntn_" + AZ09 * 3,
    "airtable-token": "pat" + "A1b2C3d4E5f6G7" + "." + HEX * 4,
    "databricks-token": "dapi" + HEX * 2,
    "newrelic-key": "NRAK-" + "A1B2C3D4E5F6G7H8I9J0K1L2M3N"[:27],
    "grafana-token": "glsa_" + (AZ09 * 2)[:32] + "_01234567",
    "jwt": "eyJ" + "hbGciOiJIUzI1NiJ9.eyJ" + "zdWIiOiIxMjM0In0." + AZ09,
    "url-password": "postgres://app:hunter22@db.example.com/shop",
    "bearer-token": "Authorization: Bearer " + AZ09,
    "basic-auth": "authorization: Basic " + "dXNlcjpwYXNzd29yZA==",
    "named-secret": "DB_PASSWORD=correct-horse-battery",
    "netrc-password": "machine example.com login me password swordfish1",
    "command-password": "curl -s -u ann:swordfish1",
    "mysql-password": "mysql -u root -pswordfish1",
}

INNOCENT = [
    "ses_e1f505ae8ffev56KO8VQGT1kHX and msg_1e0afa5c5001HCVKrrFfv4DU9s",
    "commit 6909399b254c721579bd193635882646b4739c16",
    "sk-learn and scikit-learn, task-force, risk-averse-and-long-hyphenated-words",
    "the api key is missing; set OPENAI_API_KEY",
    "OPENAI_API_KEY=$OPENAI_API_KEY python run.py",
    'api_key = os.environ["OPENAI_API_KEY"]',
    "apiKey: process.env.OPENAI_API_KEY",
    "password: <your password>",
    "token: null, password = None, secret: true",
    "API_KEY=xxxxxxxxxxxx and SECRET=********",
    "https://example.com/a:b@c is a path",
    "https://user@example.com/without-password",
    "ssh://git@github.com:22/me/repo.git",
    "def get_token(self) -> Token: ...",
    "tokens: 12345678, max_tokens=8192",
    "Bearer tokens are described in RFC 6750",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
    "AKIAIOSFODNN7EXAMPL",
    "a path like /usr/lib/python3.11/site-packages/some_module_name_that_is_long",
    "npm_config_registry and gh_actions and hf_hub_download",
    "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
    "key-value store, keyboard-shortcuts, hotkey-for-something",
    "123456:AAbout",
    "eyJust a word. eyJust another",
]


def test_every_rule_has_an_example_and_its_name_once() -> None:
    names = [rule.name for rule in RULES]
    assert sorted(SECRETS) == sorted(names)
    assert len(set(names)) == len(names)
    assert len(names) >= 40


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_redacted_and_counted_under_its_rule(name: str) -> None:
    redactor = Redactor()
    text = f"before {SECRETS[name]} after"
    cleaned = redactor.text(text)
    assert f"[redacted:{name}]" in cleaned
    assert dict(redactor.counts) == {name: 1}
    assert cleaned.startswith("before ")
    assert cleaned.endswith(" after")
    assert AZ09 not in cleaned
    assert "hunter22" not in cleaned
    assert "swordfish1" not in cleaned
    assert "MIIEow" not in cleaned


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_known_in_quotes_json_and_shell(name: str) -> None:
    for around in ('"{}"', "'{}'", "({})", "X={};", "\n{}\n", "`{}`", '{{"a": "{}"}}'):
        redactor = Redactor()
        redactor.text(around.format(SECRETS[name]))
        assert redactor.counts.total() >= 1, around


@pytest.mark.parametrize(
    "text",
    [
        r'curl -d "{\"password\": \"%\"}"',
        r"{\"api_key\":\"%\"}",
        r"\\\"client_secret\\\": \\\"%\\\"",
        r"{\"headers\": {\"Authorization\": \"Basic %\"}}",
        r"{\"aws_secret_access_key\": \"%%\"}",
    ],
)
def test_a_named_secret_is_known_in_a_string_within_a_string(text: str) -> None:
    cleaned = Redactor().text(text.replace("%", AZ09))
    assert AZ09 not in cleaned
    assert re.sub(r"\[redacted:[a-z-]+\]", "%", cleaned) == text.replace("%%", "%")


@pytest.mark.parametrize("name", SECRETS)
def test_half_a_secret_is_none(name: str) -> None:
    redactor = Redactor()
    secret = SECRETS[name]
    head = secret[: min(len(secret) // 3, 12)]
    assert redactor.text(f"see {head} there") == f"see {head} there"
    assert not redactor.counts


@pytest.mark.parametrize("text", INNOCENT)
def test_text_without_a_secret_stays(text: str) -> None:
    redactor = Redactor()
    assert redactor.text(text) == text
    assert not redactor.counts


def test_a_key_that_was_cut_off_is_redacted_to_the_end() -> None:
    assert Redactor().text("x -----BEGIN PRIVATE KEY-----\nMIIEow") == "x [redacted:private-key]"


def test_a_field_that_is_named_like_a_secret_loses_its_text_and_nothing_else() -> None:
    redactor = Redactor()
    kept = {"apiKey": "short", "password": "x", "token": 7, "tokens": {"input": 1}, "secret": None, "key": "value"}
    assert redactor.value(kept) == kept | {
        "apiKey": "[redacted:secret-field]",
        "password": "[redacted:secret-field]",
    }
    assert redactor.counts == {"secret-field": 2}


def test_doing_it_twice_changes_nothing_and_counts_nothing() -> None:
    redactor = Redactor(paths=True)
    kept = {"text": " ".join(SECRETS.values()) + " /home/ann/x", "password": "hunter22"}
    once = redactor.value(kept)
    again = Redactor(paths=True)
    assert again.value(once) == once
    assert not again.counts


def test_what_holds_no_secret_is_the_same_object() -> None:
    kept = {"a": ["b", {"c": "nothing to see"}], "n": 1}
    assert Redactor().value(kept) is kept


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/ann/dev/shop", "~/dev/shop"),
        ("cd /Users/bob && ls", "cd ~ && ls"),
        ("C:\\Users\\Carol\\x.py", "~\\x.py"),
        ("file:///home/ann/x", "file://~/x"),
        ("/srv/home/ann", "/srv/home/ann"),
        ("/homes/ann", "/homes/ann"),
    ],
)
def test_home_folders_are_redacted_when_asked(text: str, expected: str) -> None:
    assert Redactor(paths=True).text(text) == expected
    assert Redactor().text(text) == text


def test_pictures_stay_whole_and_attached_text_is_cleaned() -> None:
    secret = SECRETS["github-token"]
    picture = "data:image/png;base64," + b64encode(b"\x89PNG\r\n" + secret.encode() * 20).decode()
    attached = "data:text/plain;base64," + b64encode(f"token {secret}\n".encode()).decode()
    redactor = Redactor()
    assert redactor.text(picture) == picture
    cleaned = redactor.text(attached)
    assert b64decode(cleaned.partition(",")[2]) == b"token [redacted:github-token]\n"
    wide = "data:text/plain;base64," + b64encode(f"token {secret}\n".encode("utf-16")).decode()
    assert b64decode(redactor.text(wide).partition(",")[2]).decode("utf-16") == "token [redacted:github-token]\n"
    assert redactor.text("data:text/plain,x " + secret) == "data:text/plain,x [redacted:github-token]"
    assert redactor.text("data:text/plain;base64,***") == "data:text/plain;base64,***"
    assert redactor.text(f"data:text/plain;base64,{secret}") == "data:text/plain;base64,[redacted:github-token]"


secrets = st.sampled_from(sorted(SECRETS.values()))
texts = st.lists(st.one_of(st.text(max_size=40), secrets), max_size=6).map(" ".join)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=12), inner, max_size=4)),
    max_leaves=20,
)


def shape(value: Any) -> Any:
    if (members := as_object(value)) is not None:
        return {name: shape(item) for name, item in members.items()}
    if (items := as_list(value)) is not None:
        return [shape(item) for item in items]
    return str if isinstance(value, str) else value


@given(values)
def test_json_stays_valid_and_keeps_its_shape(value: Any) -> None:
    cleaned = Redactor(paths=True).value(value)
    assert shape(cleaned) == shape(value)
    again = json.loads(dumps(cleaned))
    assert shape(again) == shape(json.loads(dumps(value)))


@pytest.mark.parametrize("command", ["curl -s -u ann:swordfish1", "mysql -u ann -pswordfish1"])
def test_a_command_that_follows_a_password_without_a_space_is_recognised(command: str) -> None:
    assert "swordfish1" not in Redactor().text(f"[{command}[{command}[")


@given(st.lists(secrets, min_size=1, max_size=4), st.text(alphabet=" \n\t\"'{}[](),;", min_size=1, max_size=5))
def test_no_secret_survives_among_others(result: list[str], between: str) -> None:
    cleaned = Redactor().text(between.join(["", *result, ""]))
    for token in (SECRETS["github-token"], SECRETS["openai-key"], SECRETS["jwt"], "hunter22", "swordfish1"):
        assert token not in cleaned
