"""The rules by which secrets are known: one a kind, each anchored on what makes that kind unmistakable.

A rule's pattern matches the secret and as little around it as possible; the group ``secret``, where there is one, is
what is replaced. Nothing here guesses by how random a word looks: hashes, identifiers and encoded files stay.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_BEFORE = r"(?<![A-Za-z0-9_-])"
_AFTER = r"(?![A-Za-z0-9_-])"


class RedactionRule(NamedTuple):
    """One kind of secret."""

    name: str
    pattern: re.Pattern[str]
    hint: str
    """What the text holds if it holds such a secret, in lower case (any of several, between bars): looked for first,
    since that is fast."""
    word: bool = False
    """Whether the secret is one long word, so that only :data:`WORDS` have to be looked at."""


def _token(name: str, pattern: str, hint: str) -> RedactionRule:
    """A rule for a word of its own."""
    return RedactionRule(name, re.compile(_BEFORE + pattern + _AFTER), hint, word=True)


def _text(name: str, pattern: str, hint: str) -> RedactionRule:
    return RedactionRule(name, re.compile(pattern, re.IGNORECASE), hint)


WORDS = re.compile(r"[A-Za-z0-9_./+=:~-]{15,}")
"""Long words: nothing shorter is a token."""

# A value that stands for a secret to come, or for one that was taken out already, is none.
_NAMED_VALUE = (
    r"(?P<secret>(?!\$|<|\[|\{|process\.env|os\.environ|env\.|getenv|None\b|null\b|true\b|false\b|x{3,}|\*{3,}|\.{3})"
    r"[^\s\"'`,;&|()<>{}\[\]\\]{8,})"
)

NAMED = "a name"
"""The hint of rules that go by a secret's name rather than its looks; see :func:`is_named`."""

# A quote, with the backslashes that it has inside of another string.
_QUOTE = r"(?:\\*[\"'])?"
_NAMES = re.compile(rf"(?:key|secret|token|passw(?:or)?d|credentials?){_QUOTE}\s*[:=]")
_NAME_HINTS = ("key", "secret", "token", "passw", "credential")


def is_named(lowered: str) -> bool:
    """Whether something named like a secret is given a value in a text in lower case."""
    if (":" in lowered or "=" in lowered) and any(name in lowered for name in _NAME_HINTS):
        return _NAMES.search(lowered) is not None
    return False


RULES: tuple[RedactionRule, ...] = (
    # keys in blocks, which hold everything between two lines
    RedactionRule(
        "private-key",
        re.compile(
            r"-----BEGIN (?P<kind>[A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?)-----[\s\S]*?(?:-----END (?P=kind)-----|\Z)"
        ),
        "private key",
    ),
    RedactionRule("age-secret-key", re.compile(r"AGE-SECRET-KEY-1[02-9AC-HJ-NP-Z]{58}"), "age-secret-key-1"),
    # model providers
    _token("anthropic-key", r"sk-ant-[a-z0-9]+-[A-Za-z0-9_-]{20,}", "sk-ant-"),
    _token("openrouter-key", r"sk-or-v1-[0-9a-f]{32,}", "sk-or-v1-"),
    _token("openai-key", r"sk-(?!ant-|or-v1-|lf-)(?:proj-|svcacct-|admin-)?[A-Za-z0-9_-]{20,}", "sk-"),
    _token("google-api-key", r"AIza[A-Za-z0-9_-]{35}", "aiza"),
    _token("groq-key", r"gsk_[A-Za-z0-9]{40,}", "gsk_"),
    _token("xai-key", r"xai-[A-Za-z0-9]{60,}", "xai-"),
    _token("perplexity-key", r"pplx-[A-Za-z0-9]{40,}", "pplx-"),
    _token("huggingface-token", r"(?:hf|api_org)_[A-Za-z]{30,}", "hf_|api_org_"),
    _token("replicate-token", r"r8_[A-Za-z0-9]{37}", "r8_"),
    _token("langfuse-key", r"sk-lf-[0-9a-f]{8}-[0-9a-f-]{27}", "sk-lf-"),
    _token("fireworks-key", r"fw_[A-Za-z0-9]{20,}", "fw_"),
    # where code lives
    _token("github-token", r"gh[pousr]_[A-Za-z0-9]{36,251}", "ghp_|gho_|ghu_|ghs_|ghr_"),
    _token("github-fine-grained-token", r"github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}", "github_pat_"),
    _token(
        "gitlab-token",
        r"gl(?:pat|ptt|dt|rt|cbt|ft|soat)-[A-Za-z0-9_.-]{20,}",
        "glpat-|glptt-|gldt-|glrt-|glcbt-|glft-|glsoat-",
    ),
    _token("bitbucket-token", r"ATBB[A-Za-z0-9]{28,}", "atbb"),
    _token("atlassian-token", r"ATATT3[A-Za-z0-9_=-]{50,}", "atatt3"),
    _token("npm-token", r"npm_[A-Za-z0-9]{36}", "npm_"),
    _token("pypi-token", r"pypi-AgEIcHlwaS5vcmc[A-Za-z0-9_-]{50,}", "pypi-age"),
    _token("rubygems-key", r"rubygems_[0-9a-f]{48}", "rubygems_"),
    _token("crates-token", r"cio[A-Za-z0-9]{32}", "cio"),
    _token("docker-token", r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,}", "dckr_"),
    _token("linear-key", r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}", "lin_"),
    _token("sentry-token", r"sntry[us]_[A-Za-z0-9_+/=.-]{40,}", "sntry"),
    # clouds
    _token("aws-access-key", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}", "akia|asia|abia|acca"),
    RedactionRule(
        "aws-secret-key",
        re.compile(
            r"(?i:aws_?secret_?(?:access_?)?key(?:_?id)?|secretaccesskey)"
            rf"{_QUOTE}\s*[:=]\s*{_QUOTE}"
            r"(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])"
        ),
        "secret",
    ),
    _token("google-oauth-token", r"ya29\.[A-Za-z0-9_-]{20,}", "ya29."),
    _token("google-client-secret", r"GOCSPX-[A-Za-z0-9_-]{28}", "gocspx-"),
    RedactionRule(
        "azure-storage-key",
        re.compile(r"AccountKey=(?P<secret>[A-Za-z0-9+/]{86}==)"),
        "accountkey=",
    ),
    _token("digitalocean-token", r"do[opr]_v1_[0-9a-f]{64}", "_v1_"),
    _token("heroku-key", r"HRKU-[A-Za-z0-9_-]{36,}", "hrku-"),
    _token("vault-token", r"hv[sbr]\.[A-Za-z0-9_-]{24,}", "hvs.|hvb.|hvr."),
    _token("terraform-token", r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,}", ".atlasv1."),
    _token("pulumi-token", r"pul-[0-9a-f]{40}", "pul-"),
    _token("cloudflare-origin-key", r"v1\.0-[0-9a-f]{24}-[0-9a-f]{146}", "v1.0-"),
    _token("supabase-token", r"sb[ps]_(?:secret_)?[A-Za-z0-9_]{30,}", "sbp_|sbs_"),
    # services
    _token("slack-token", r"xox[abeoprs]-[A-Za-z0-9-]{10,}", "xox"),
    _token("slack-app-token", r"xapp-\d-[A-Z0-9]+-\d+-[A-Za-z0-9]+", "xapp-"),
    _text("slack-webhook", r"https://hooks\.slack\.com/[a-z]+/(?P<secret>[A-Za-z0-9/_-]{20,})", "hooks.slack.com"),
    _text("discord-webhook", r"discord(?:app)?\.com/api/webhooks/(?P<secret>\d+/[A-Za-z0-9_-]{40,})", "api/webhooks"),
    _token("telegram-token", r"\d{8,10}:AA[A-Za-z0-9_-]{33}", ":aa"),
    _token("stripe-key", r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}", "k_live_|k_test_"),
    _token("stripe-webhook-secret", r"whsec_[A-Za-z0-9+/=]{24,}", "whsec_"),
    _token("twilio-key", r"SK[0-9a-f]{32}", "sk"),
    _token("sendgrid-key", r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{30,}", "sg."),
    _token("mailgun-key", r"key-[0-9a-f]{32}", "key-"),
    _token("shopify-token", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}", "shp"),
    _token("square-token", r"(?:EAAA[A-Za-z0-9_-]{60}|sq0(?:atp|csp)-[A-Za-z0-9_-]{22,43})", "eaaa|sq0"),
    _token("figma-token", r"fig[du]_[A-Za-z0-9_-]{40,}", "figd_|figu_"),
    _token("notion-token", r"(?:ntn_[A-Za-z0-9]{40,}|secret_[A-Za-z0-9]{43})", "ntn_|secret_"),
    _token("airtable-token", r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}", "pat"),
    _token("databricks-token", r"dapi[0-9a-f]{32}(?:-\d)?", "dapi"),
    _token("newrelic-key", r"NRAK-[A-Z0-9]{27}", "nrak-"),
    _token("grafana-token", r"gl(?:sa_[A-Za-z0-9]{32}_[0-9a-f]{8}|c_[A-Za-z0-9+/=]{32,})", "glsa_|glc_"),
    # shapes that any service may use
    _token("jwt", r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}", "eyj"),
    _text("url-password", r"[a-z][a-z0-9+.-]{1,20}://[^\s/:@\"'<>]*:(?P<secret>[^\s/@\"'<>$]{3,})@[^\s\"'<>]", "://"),
    _text("bearer-token", r"\bbearer[ ]+(?P<secret>[A-Za-z0-9_.~+/-]{16,}=*)", "bearer"),
    _text(
        "basic-auth",
        rf"\bauthorization{_QUOTE}\s*[:=]\s*{_QUOTE}basic[ ]+" + r"(?P<secret>[A-Za-z0-9+/]{8,}=*)",
        "basic",
    ),
    _text(
        "named-secret",
        r"(?:API_?KEY|ACCESS_?KEY|SECRET(?:_?KEY)?|AUTH_?TOKEN|ACCESS_?TOKEN|_TOKEN|PASSWORD|PASSWD|PRIVATE_?KEY|"
        rf"CREDENTIALS?){_QUOTE}\s*(?:=|:(?!//))[ \t]*{_QUOTE}" + _NAMED_VALUE,
        NAMED,
    ),
    _text(
        "netrc-password",
        r"\bmachine\s+\S+\s+login\s+\S+\s+password\s+(?P<secret>\S+?)(?=\s|\Z|\W+machine\s)",
        "machine",
    ),
)  # fmt: skip

SECRET_FIELDS = re.compile(
    r"(?i:api_?key|apikey|access_?key|secret|client_?secret|secret_?key|auth_?token|access_?token|refresh_?token|"
    r"password|passwd|private_?key|authorization|x-api-key)"
)
"""Names of fields whose value is a secret whatever it looks like."""

HOMES = re.compile(
    r"(?:(?<![\w.])/(?:home|Users)/[^/\s\"'<>|:*?\\]+|(?<![A-Za-z])[A-Za-z]:[\\/]+Users[\\/]+[^\\/\s\"'<>|:*?]+)"
)
"""A home folder, of anybody, on any system."""
