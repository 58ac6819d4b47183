"""Redaction: removes secrets from exports and shares, and counts what was removed.

Only texts inside of JSON strings change, never field names or numbers, so the JSON stays valid and complete. A secret
is replaced by the name of its rule: ``[redacted:github-token]``. Each rule is anchored on something unmistakable;
nothing is guessed by how random a word looks, so hashes, ids and encoded files stay.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ...records import as_list, as_object

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...records import Document

_MIN_SECRET_LENGTH = 8
_DATA_URL = re.compile(r"data:(?P<kind>[^,;]*)(?P<options>[^,]*),")
_TEXT_TYPES = re.compile(r"text/|application/(?:json|xml|x-|javascript|toml|yaml)|\Z")
_WORD_START = r"(?<![A-Za-z0-9_-])"
_WORD_END = r"(?![A-Za-z0-9_-])"


class RedactionRule(NamedTuple):
    """A kind of secret. The group ``secret`` of the pattern is what is replaced, or the whole match without one."""

    name: str
    pattern: re.Pattern[str]
    hint: str
    """A lower-case text that occurs wherever such a secret does (alternatives between bars): searched first, because
    that is fast."""
    word: bool = False
    """Whether the secret is one long word, so that only words as in ``_LONG_WORDS`` have to be searched."""


def _token(name: str, pattern: str, hint: str) -> RedactionRule:
    return RedactionRule(name, re.compile(_WORD_START + pattern + _WORD_END), hint, word=True)


def _text(name: str, pattern: str, hint: str) -> RedactionRule:
    return RedactionRule(name, re.compile(pattern, re.IGNORECASE), hint)


_LONG_WORDS = re.compile(r"[A-Za-z0-9_./+=:~-]{15,}")
"""No token is shorter."""

# Placeholders, and values that were redacted already, are not secrets.
_NAMED_VALUE = (
    r"(?P<secret>(?!\$|<|\[|\{|process\.env|os\.environ|env\.|getenv|None\b|null\b|true\b|false\b|x{3,}|\*{3,}|\.{3})"
    r"[^\s\"'`,;&|()<>{}\[\]\\]{8,})"
)

_BY_NAME = "a name"
"""The hint of the rule that recognises a secret by the name of what it is assigned to."""

# A quote, with backslashes if it is inside another string.
_QUOTE = r"(?:\\*[\"'])?"
_NAMES = re.compile(rf"(?:key|secret|token|passw(?:or)?d|credentials?){_QUOTE}\s*[:=]")
_NAME_HINTS = ("key", "secret", "token", "passw", "credential")


RULES: tuple[RedactionRule, ...] = (
    # blocks between two lines
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
    # code hosting and package registries
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
    # generic
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
        _BY_NAME,
    ),
    _text(
        "netrc-password",
        r"\bmachine\s+\S+\s+login\s+\S+\s+password\s+(?P<secret>\S+?)(?=\s|\Z|\W+machine\s)",
        "machine",
    ),
)  # fmt: skip

_SECRET_FIELDS = re.compile(
    r"(?i:api_?key|apikey|access_?key|secret|client_?secret|secret_?key|auth_?token|access_?token|refresh_?token|"
    r"password|passwd|private_?key|authorization|x-api-key)"
)
"""Names of fields whose value is always a secret."""
_match_secret_field = lru_cache(maxsize=10_000)(_SECRET_FIELDS.fullmatch)

_HOME_FOLDERS = re.compile(
    r"(?:(?<![\w.])/(?:home|Users)/[^/\s\"'<>|:*?\\]+|(?<![A-Za-z])[A-Za-z]:[\\/]+Users[\\/]+[^\\/\s\"'<>|:*?]+)"
)
"""The home folder of any user, on any system."""


class Redactor:
    """Replaces secrets, and counts the replacements by rule."""

    def __init__(self, *, paths: bool = False) -> None:
        """With ``paths``, home folders are replaced by ``~`` as well."""
        self._text_rules = [rule for rule in RULES if not rule.word]
        self._word_hints = [(hint, rule) for rule in RULES if rule.word for hint in rule.hint.split("|")]
        self.paths = paths
        self.counts: Counter[str] = Counter()

    def value(self, value: Any) -> Any:
        """Return a JSON value of the same shape without secrets; the same object if there was nothing to replace."""
        if isinstance(value, str):
            return self.text(value)
        if (document := as_object(value)) is not None:
            return self.document(document)
        items = as_list(value)
        if items is None:
            return value
        redacted = [self.value(item) for item in items]
        return redacted if any(new is not old for new, old in zip(redacted, items, strict=True)) else items

    def document(self, document: Document) -> Document:
        """Return an object without secrets. The text of a field named like a secret is replaced as a whole."""
        changed: Document = {}
        for name, value in document.items():
            if not isinstance(value, str):
                redacted = self.value(value)
            elif not value:
                continue
            elif _match_secret_field(name):
                redacted = value if value.startswith("[redacted:") else self._placeholder("secret-field")
            else:
                redacted = self.text(value)
            if redacted is not value:
                changed[name] = redacted
        return {**document, **changed} if changed else document

    def text(self, text: str) -> str:
        """Return a text without secrets. An attachment (a ``data:`` URL) is decoded if it contains text."""
        if text.startswith("data:") and (head := _DATA_URL.match(text)):
            return self._attachment(text, head)
        if len(text) < _MIN_SECRET_LENGTH:
            return text
        # Most texts contain no secret; the hints tell that without trying every pattern.
        if words := _LONG_WORDS.findall(text):
            joined = " ".join(words).lower()
            likely = [rule for hint, rule in self._word_hints if hint in joined]
            if likely:
                text = _LONG_WORDS.sub(lambda word: self._apply(likely, word[0]), text)
        lowered = text.lower()
        for rule in self._text_rules:
            if rule.hint is _BY_NAME:
                has_name = (":" in lowered or "=" in lowered) and any(name in lowered for name in _NAME_HINTS)
                is_likely = has_name and _NAMES.search(lowered) is not None
            else:
                is_likely = rule.hint in lowered
            if is_likely:
                text = self._apply([rule], text)
        if self.paths and ("/" in text or "\\" in text):
            text, count = _HOME_FOLDERS.subn("~", text)
            if count:
                self.counts["home-folder"] += count
        return text

    def _apply(self, rules: Iterable[RedactionRule], text: str) -> str:
        for rule in rules:
            text = rule.pattern.sub(lambda match, name=rule.name: self._redact_match(match, name), text)
        return text

    def _attachment(self, url: str, head: re.Match[str]) -> str:
        if not _TEXT_TYPES.match(head["kind"]):
            return url
        body = url[head.end() :]
        if "base64" not in head["options"]:
            return url[: head.end()] + self.text(body)
        try:
            plain = b64decode(body, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError, ValueError):
            return url
        redacted = self.text(plain)
        return url if redacted == plain else url[: head.end()] + b64encode(redacted.encode()).decode()

    def _redact_match(self, match: re.Match[str], name: str) -> str:
        if "secret" not in match.re.groupindex:
            return self._placeholder(name)
        whole = match[0]
        if match["secret"].startswith("[redacted:"):
            return whole
        start, end = match.start("secret") - match.start(), match.end("secret") - match.start()
        return whole[:start] + self._placeholder(name) + whole[end:]

    def _placeholder(self, name: str) -> str:
        self.counts[name] += 1
        return f"[redacted:{name}]"
