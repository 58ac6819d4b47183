"""The shapes of secrets that redaction recognises.

Each rule is anchored on something unmistakable; nothing is guessed by how random a word looks, so hashes, ids and
encoded files stay. Every pattern takes linear time: after a repetition without a limit, either the match cannot fail,
or the repeated characters cannot contain the beginning of another match.
"""

from __future__ import annotations

import re
from functools import cached_property

_WORD_START = r"(?<![A-Za-z0-9_-])"
_WORD_END = r"(?![A-Za-z0-9_-])"


class RedactionRule:
    """A kind of secret. The group ``secret`` of the pattern is what is replaced, or the whole match without one."""

    def __init__(
        self,
        name: str,
        pattern: str,
        hint: str,
        *,
        ignore_case: bool = False,
        word: bool = False,
        distinct: bool = False,
    ) -> None:
        self.name = name
        self._pattern = pattern
        self._flags = re.IGNORECASE if ignore_case else re.NOFLAG
        self.hint = hint
        """A lower-case text that occurs wherever such a secret does (alternatives between bars): searched first,
        because that is fast."""
        self.word = word
        """Whether the secret is one long word, so that only words as in :data:`LONG_WORDS` have to be searched."""
        self.distinct = distinct
        """Whether its beginning is so distinct that it is recognised behind other letters and when it is split over
        lines."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The pattern, compiled when a text first has the hint: few texts have more than some of the hints."""
        return re.compile(self._pattern, self._flags)


def _token(name: str, pattern: str, hint: str) -> RedactionRule:
    return RedactionRule(name, pattern, hint, word=True, distinct=True)


def _word(name: str, pattern: str, hint: str) -> RedactionRule:
    """Return a rule for a token with a short beginning, which also occurs within words, ids and Base64."""
    return RedactionRule(name, _WORD_START + pattern + _WORD_END, hint, word=True)


def _text(name: str, pattern: str, hint: str) -> RedactionRule:
    return RedactionRule(name, pattern, hint, ignore_case=True)


WORD_CHARACTERS = r"A-Za-z0-9_./+=:~-"
LONG_WORDS = re.compile(rf"[{WORD_CHARACTERS}]{{15,}}")
"""No token is shorter."""

# Placeholders, and values that were redacted already, are not secrets.
_NAMED_VALUE = (
    r"(?P<secret>(?!\$|<|\[|\{|process\.env|os\.environ|env\.|getenv|None\b|null\b|true\b|false\b|x{3,}|\*{3,}|\.{3})"
    r"[^\s\"'`,;&|()<>{}\[\]\\]{8,})"
)

BY_NAME = "a name"
"""The hint of the rule that recognises a secret by the name of what it is assigned to."""

# A quote, with backslashes if it is inside another string.
_QUOTE = r"(?:\\*[\"'])?"
NAMES = re.compile(rf"(?:key|secret|token|passw(?:or)?d|credentials?){_QUOTE}\s*[:=]")
NAME_HINTS = ("key", "secret", "token", "passw", "credential")


RULES: tuple[RedactionRule, ...] = (
    # blocks between two lines
    RedactionRule(
        "private-key",
        r"-----BEGIN (?P<kind>[A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?)-----[\s\S]*?(?:-----END (?P=kind)-----|\Z)",
        "private key",
    ),
    RedactionRule("age-secret-key", r"AGE-SECRET-KEY-1[02-9AC-HJ-NP-Z]{58}", "age-secret-key-1"),
    # model providers
    _token("anthropic-key", r"sk-ant-[a-z0-9]+-[A-Za-z0-9_-]{20,}", "sk-ant-"),
    _token("openrouter-key", r"sk-or-v1-[0-9a-f]{32,}", "sk-or-v1-"),
    _token(
        "openai-key",
        r"sk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{20,}|sk-[A-Za-z0-9]{16,24}T3BlbkFJ[A-Za-z0-9]{16,}",
        "sk-proj-|sk-svcacct-|sk-admin-|t3blbkfj",
    ),
    _word("sk-key", r"sk-(?!ant-|or-v1-|lf-|proj-|svcacct-|admin-)[A-Za-z0-9_-]{20,}", "sk-"),
    _word("google-api-key", r"AIza[A-Za-z0-9_-]{35}", "aiza"),
    _token("groq-key", r"gsk_[A-Za-z0-9]{40,}", "gsk_"),
    _token("xai-key", r"xai-[A-Za-z0-9]{60,}", "xai-"),
    _token("perplexity-key", r"pplx-[A-Za-z0-9]{40,}", "pplx-"),
    _word("huggingface-token", r"(?:hf|api_org)_[A-Za-z]{30,}", "hf_|api_org_"),
    _token("replicate-token", r"r8_[A-Za-z0-9]{37,}", "r8_"),
    _token("langfuse-key", r"sk-lf-[0-9a-f]{8}-[0-9a-f-]{27}", "sk-lf-"),
    _word("fireworks-key", r"fw_[A-Za-z0-9]{20,}", "fw_"),
    # code hosting and package registries
    _token("github-token", r"gh[pousr]_[A-Za-z0-9]{36,}", "ghp_|gho_|ghu_|ghs_|ghr_"),
    _token("github-fine-grained-token", r"github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59,}", "github_pat_"),
    _token(
        "gitlab-token",
        r"gl(?:pat|ptt|dt|rt|cbt|ft|soat)-[A-Za-z0-9_.-]{20,}",
        "glpat-|glptt-|gldt-|glrt-|glcbt-|glft-|glsoat-",
    ),
    _word("bitbucket-token", r"ATBB[A-Za-z0-9]{28,}", "atbb"),
    _token("atlassian-token", r"ATATT3[A-Za-z0-9_=-]{50,}", "atatt3"),
    _token("npm-token", r"npm_[A-Za-z0-9]{36,}", "npm_"),
    _token("pypi-token", r"pypi-AgEIcHlwaS5vcmc[A-Za-z0-9_-]{50,}", "pypi-age"),
    _token("rubygems-key", r"rubygems_[0-9a-f]{48,}", "rubygems_"),
    _word("crates-token", r"cio[A-Za-z0-9]{32}", "cio"),
    _token("docker-token", r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,}", "dckr_"),
    _token("linear-key", r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}", "lin_"),
    _token("sentry-token", r"sntry[us]_[A-Za-z0-9_+/=.-]{40,}", "sntry"),
    # clouds
    _token("aws-access-key", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}(?![A-Z0-9])", "akia|asia|abia|acca"),
    RedactionRule(
        "aws-secret-key",
        r"(?i:aws_?secret_?(?:access_?)?key(?:_?id)?|secretaccesskey)"
        rf"{_QUOTE}\s*[:=]\s*{_QUOTE}"
        r"(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
        "secret",
    ),
    _token("google-oauth-token", r"ya29\.[A-Za-z0-9_-]{20,}", "ya29."),
    _token("google-client-secret", r"GOCSPX-[A-Za-z0-9_-]{28,}", "gocspx-"),
    RedactionRule(
        "azure-storage-key",
        r"AccountKey=(?P<secret>[A-Za-z0-9+/]{86}==)",
        "accountkey=",
    ),
    _token("digitalocean-token", r"do[opr]_v1_[0-9a-f]{64,}", "_v1_"),
    _token("heroku-key", r"HRKU-[A-Za-z0-9_-]{36,}", "hrku-"),
    _token("vault-token", r"hv[sbr]\.[A-Za-z0-9_-]{24,}", "hvs.|hvb.|hvr."),
    _word("terraform-token", r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,}", ".atlasv1."),
    _token("pulumi-token", r"pul-[0-9a-f]{40,}", "pul-"),
    _word("cloudflare-origin-key", r"v1\.0-[0-9a-f]{24}-[0-9a-f]{146}", "v1.0-"),
    _token("supabase-token", r"sb[ps]_(?:secret_)?[A-Za-z0-9_]{30,}", "sbp_|sbs_"),
    # services
    _token("slack-token", r"xox[abeoprs]-[A-Za-z0-9-]{10,}", "xox"),
    _token("slack-app-token", r"xapp-\d-[A-Z0-9]+-\d+-[A-Za-z0-9]+", "xapp-"),
    _text("slack-webhook", r"https://hooks\.slack\.com/[a-z]+/(?P<secret>[A-Za-z0-9/_-]{20,})", "hooks.slack.com"),
    _text("discord-webhook", r"discord(?:app)?\.com/api/webhooks/(?P<secret>\d+/[A-Za-z0-9_-]{40,})", "api/webhooks"),
    _word("telegram-token", r"\d{8,10}:AA[A-Za-z0-9_-]{33}", ":aa"),
    _token("stripe-key", r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}", "k_live_|k_test_"),
    _token("stripe-webhook-secret", r"whsec_[A-Za-z0-9+/=]{24,}", "whsec_"),
    _word("twilio-key", r"SK[0-9a-f]{32}", "sk"),
    _token("sendgrid-key", r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{30,}", "sg."),
    _word("mailgun-key", r"key-[0-9a-f]{32}", "key-"),
    _token("shopify-token", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32,}", "shp"),
    _word("square-token", r"(?:EAAA[A-Za-z0-9_-]{60}|sq0(?:atp|csp)-[A-Za-z0-9_-]{22,43})", "eaaa|sq0"),
    _token("figma-token", r"fig[du]_[A-Za-z0-9_-]{40,}", "figd_|figu_"),
    _token("notion-token", r"(?:ntn_[A-Za-z0-9]{40,}|secret_[A-Za-z0-9]{43})", "ntn_|secret_"),
    _word("airtable-token", r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}", "pat"),
    _token("databricks-token", r"dapi[0-9a-f]{32}(?:-\d)?", "dapi"),
    _token("newrelic-key", r"NRAK-[A-Z0-9]{27}", "nrak-"),
    _token("grafana-token", r"gl(?:sa_[A-Za-z0-9]{32}_[0-9a-f]{8}|c_[A-Za-z0-9+/=]{32,})", "glsa_|glc_"),
    # generic
    _token("jwt", r"eyJ(?:(?!eyJ)[A-Za-z0-9_-]){8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}", "eyj"),
    _text("url-password", r"(?<=[a-z0-9+.-])://[^\s/:@\"'<>]*+:(?P<secret>[^\s/@\"'<>$]{3,})@[^\s\"'<>]", "://"),
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
        BY_NAME,
    ),
    # A line break within a string within a string is written "\\n".
    _text(
        "netrc-password",
        r"\bmachine\s++\S++\s++login\s++\S++\s++password\s++(?P<secret>(?:(?!\\{1,8}n|\W{1,4}machine\s)\S)++)",
        "machine",
    ),
    # The end of what looks like a password may be the next command: looked at only, so that the search finds that too.
    _text(
        "command-password",
        r"\bcurl\b[^\n]{0,200}?\s(?:-u|--(?:proxy-)?user)[ =]?[\"']?[^\s:\"'$<>]{1,80}:"
        r"(?=(?P<secret>[^\s\"'$<>;&|)]{3,}))",
        "curl",
    ),
    _text(
        "mysql-password",
        r"\bmysql(?:dump|admin)?\b[^\n]{0,200}?\s-p[\"']?(?=(?P<secret>[^\s\"'$<>;&|)-][^\s\"'$<>;&|)]{2,}))",
        "mysql",
    ),
)  # fmt: skip

SECRET_FIELDS = re.compile(
    r"(?i:api_?key|apikey|access_?key|secret|client_?secret|secret_?key|auth_?token|access_?token|refresh_?token|"
    r"password|passwd|private_?key|authorization|x-api-key)"
)
"""Names of fields whose text is always a secret."""

HOME_FOLDERS = re.compile(
    r"(?:(?<![\w.])/(?:home|Users)/[^/\s\"'<>|:*?\\]+|(?<![A-Za-z])[A-Za-z]:[\\/]+Users[\\/]+[^\\/\s\"'<>|:*?]+)"
)
"""The home folder of any user, on any system."""
