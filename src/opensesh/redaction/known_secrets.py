"""The secrets that are known on this machine, of any form, and the encodings in which they may occur."""

from __future__ import annotations

import html
import json
import os
import re
from base64 import b64encode, urlsafe_b64encode
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

from ..errors import RecordError
from ..records import as_list, as_object, loads
from ..storage import paths
from ..storage.disk import read_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_MIN_LENGTH = 12
"""Shorter values may occur in a text by chance..."""
_MIN_MIXED_LENGTH = 8
"""...unless they mix letters and digits."""
_SECRET_NAME = re.compile(
    r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|PASS|PAT|CREDENTIALS?)\Z"
    r"|(?:\A|[_-])(?:SECRET|TOKEN|PASSWORD|PASSWD|APIKEY)[_-]",
    re.IGNORECASE,
)
"""Names of environment variables and fields that hold secrets."""
_SECRET_FIELD = re.compile(r"access|refresh|(?:.*-)?authorization", re.IGNORECASE)
"""Names of fields that hold secrets, in addition."""
_SECRET_SETTING = re.compile(r"api_?key|token|secret|passw|credential|authorization|cookie|private_?key", re.IGNORECASE)
_NAMED_IN_ADDRESS = re.compile(
    r"((?:[?&;]|\A--?)(?:[\w.-]*[_.-])?(?:api_?key|key|token|secret|passw(?:or)?d|auth|sig(?:nature)?)=)[^&\s]+",
    re.IGNORECASE,
)
_SECRET_SECTIONS = ("environment", "env", "headers")
"""Sections of a configuration with variables and headers, which may have any name."""
_AUTH_SCHEME = re.compile(r"(?:bearer|basic|token) +(?=\S+\Z)", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"://[^\s/:@]*:([^\s/@]+)@")


def known_secrets(config: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> set[str]:
    """Return the secrets of this machine: from the environment, OpenCode's login files and the configuration."""
    secrets: set[str] = set()
    for name, value in environ.items():
        # The path of a key file is not a secret. A key may begin with a slash too, so the file must exist.
        if _SECRET_NAME.search(name) and not (os.path.isabs(value) and os.path.exists(value)):
            secrets.add(value)
        secrets.update(_URL_PASSWORD.findall(value))
    for name in ("auth.json", "mcp-auth.json"):
        with suppress(OSError, RecordError):  # no such file: no logins
            secrets.update(_secrets_in(loads(read_file(os.path.join(paths.data(), name)))))
    secrets.update(*(_secrets_in(value) for name, value in config.items() if name != "keybinds"))
    return {word for word in secrets if not word.isspace() and _is_long_enough(word)}


def is_secret_setting(path: Sequence[str]) -> bool:
    """Whether a text in a configuration may be a secret, by the names that lead to it."""
    is_in_section = len(path) > 1 and path[-2] in _SECRET_SECTIONS
    return is_in_section or (bool(path) and _SECRET_SETTING.search(path[-1]) is not None)


def without_named(setting: str, placeholder: str) -> str:
    """Return an address or an argument of a configuration without the secrets that are named in it: ``?token=...``."""
    return _NAMED_IN_ADDRESS.sub(lambda match: match[1] + placeholder, setting)


def flags_before(arguments: Sequence[Any]) -> list[str]:
    """Return the name of the flag before each argument of a command, empty without one: ``--token`` names a secret."""
    words = ["", *(word if isinstance(word, str) else "" for word in arguments[:-1])]
    return [word.lstrip("-") if word.startswith("-") else "" for word in words][: len(arguments)]


def _is_long_enough(word: str) -> bool:
    is_mixed = any(map(str.isdigit, word)) and any(map(str.isalpha, word))
    return len(word) >= (_MIN_MIXED_LENGTH if is_mixed else _MIN_LENGTH)


def _secrets_in(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, str) and (_SECRET_NAME.search(name) or _SECRET_FIELD.fullmatch(name)):
        yield from {value, _AUTH_SCHEME.sub("", value)}
    for field, inner in (as_object(value) or {}).items():
        yield from _secrets_in(inner, field)
    for inner in as_list(value) or ():
        yield from _secrets_in(inner)


def escaped_forms(secret: str) -> set[str]:
    """Return a secret as it is, and as it is written in JSON, URLs and HTML."""
    percent = {quote(secret, safe=""), quote(secret), quote_plus(secret)}
    lower = {re.sub(r"%[0-9A-F]{2}", lambda match: match[0].lower(), form) for form in percent}
    escaped = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], html.escape(secret)}
    return {secret, *percent, *lower, *escaped}


def encoded_forms(secret: str) -> set[str]:
    """Return the forms that a secret has inside of data that was encoded once or twice, as hexadecimal or Base64.

    The secret may begin anywhere in the data.
    """
    data = secret.encode(errors="surrogatepass")
    once = {data.hex(), *_base64_forms(data)}
    twice = {form for first in once for form in (first.encode().hex(), *_base64_forms(first.encode()))}
    # UTF-16 is what PowerShell encodes.
    wide = [secret.encode(encoding, errors="surrogatepass") for encoding in ("utf-16-le", "utf-16-be")]
    return once | twice | {data.hex().upper(), *(form for text in wide for form in (text.hex(), *_base64_forms(text)))}


def _base64_forms(data: bytes) -> Iterator[str]:
    for before in range(3):
        # The first and last digits also depend on the bytes around the data.
        first, last = -(-before * 8 // 6), (before + len(data)) * 8 // 6
        for encode in (b64encode, urlsafe_b64encode):
            yield encode(bytes(before) + data).decode()[first:last]
