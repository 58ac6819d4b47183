"""Secrets, and the spellings in which they may be in a session: every way out has to remove all of them."""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from html import unescape
from unicodedata import normalize
from urllib.parse import quote, unquote

LOGIN = "KEYINAUTHJSON12345678"
CONFIGURED = "conf/igured+word=5577"
VARIABLE = "zq81-mvpl-0042-kkde-771x"
KNOWN = {"auth.json": LOGIN, "configuration": CONFIGURED, "variable": VARIABLE}

_KEY = "a1B2c3D4e5F6g7H8i9J0"
SHAPES = {
    "anthropic": "sk-ant-" + "api03-" + _KEY * 4,
    "openai": "sk-" + "proj-" + _KEY * 3,
    "github": "ghp_" + _KEY * 2,
    "aws": "AKIA" + "Q2W3E4R5T6Y7A2S3",
    "stripe": "sk_live_" + _KEY,
    "jwt": "eyJ" + "hbGciOiJIUzI1NiJ9.eyJ" + "zdWIiOiIxMjM0In0." + _KEY,
}


def _halves(secret: str) -> tuple[str, str]:
    return secret[: len(secret) // 2], secret[len(secret) // 2 :]


def _lines(text: str, size: int, between: str = "\n") -> str:
    return between.join(text[at : at + size] for at in range(0, len(text), size))


def attached(kind: str, content: bytes, between: str = "") -> str:
    """An attachment as a message has it, with something between its lines."""
    digits = b64encode(content).decode()
    return f"data:{kind};base64," + between.join(digits[at : at + 40] for at in range(0, len(digits), 40))


EVERYWHERE: dict[str, Callable[[str], str]] = {
    "alone": str,
    "in a sentence": "The key is {}, keep it.".format,
    "in quotes": "'{}'".format,
    "in JSON": lambda secret: json.dumps({"a": secret}),
    "in a query": "https://example.com/?a=b&c={}&d=e".format,
    "in a path": "/srv/{}/x".format,
    "in a file name": "notes-{}.txt".format,
    "split by a zero-width space": lambda secret: "\u200b".join(_halves(secret)),
    "split by a soft hyphen and a joiner": lambda secret: "\u00ad\u200d".join(_halves(secret)),
    "zero-width spaces everywhere": "\u200b".join,
    "split by a colour": lambda secret: "\x1b[31m".join(_halves(secret)) + "\x1b[0m",
    "split by a written colour": lambda secret: "\\u001b[1;31m".join(_halves(secret)),
    "split by a link of a terminal": lambda secret: "\x1b]8;;http://x\x07".join(_halves(secret)),
    "split over lines": lambda secret: "\n".join(_halves(secret)),
    "split over lines with indentation": lambda secret: "  \r\n      ".join(_halves(secret)),
    "split over lines of source code": lambda secret: 'x = "{}" +\n    "{}"'.format(*_halves(secret)),
    "split by a written line break": lambda secret: "\\n".join(_halves(secret)),
    "over lines of a JSON text": lambda secret: json.dumps({"a": "\n".join(_halves(secret))}),
    "percent-encoded throughout": lambda secret: "https://x/?q=" + "".join(f"%{ord(letter):02x}" for letter in secret),
    "percent-encoded in part": lambda secret: secret[:3] + "".join(f"%{ord(letter):02X}" for letter in secret[3:]),
    "written in JSON escapes": lambda secret: "".join(f"\\u{ord(letter):04x}" for letter in secret),
    "written in source code": lambda secret: "".join(f"\\x{ord(letter):02x}" for letter in secret),
    "percent-encoded twice": lambda secret: "".join(f"%25{ord(letter):02x}" for letter in secret),
    "percent-encoded in JSON": lambda secret: "".join(f"\\u0025{ord(letter):02x}" for letter in secret),
    "written in JSON in JSON": lambda secret: "".join(f"\\\\u{ord(letter):04x}" for letter in secret),
    "written in JavaScript": lambda secret: "".join(f"\\u{{{ord(letter):x}}}" for letter in secret),
    "written in octal": lambda secret: "".join(f"\\{ord(letter):03o}" for letter in secret),
    "written in octal by printf": lambda secret: "".join(f"\\0{ord(letter):03o}" for letter in secret),
    "written in octal in JSON": lambda secret: "".join(f"\\\\{ord(letter):03o}" for letter in secret),
    "written in HTML in HTML": lambda secret: "".join(f"&amp;#{ord(letter)};" for letter in secret),
    "in UTF-16 read as ASCII": "\0".join,
    "in full-width letters": lambda secret: "".join(chr(ord(letter) + 0xFEE0) for letter in secret),
    "in bold mathematical digits": lambda secret: "".join(
        chr(ord(letter) - ord("0") + 0x1D7CE) if letter in "0123456789" else letter for letter in secret
    ),
    "written in HTML": lambda secret: "".join(f"&#{ord(letter)};" for letter in secret),
    "written in hexadecimal HTML": lambda secret: "".join(f"&#x{ord(letter):x};" for letter in secret),
    "in capital hexadecimal HTML": lambda secret: "".join(f"&#X{ord(letter):X};" for letter in secret),
    "written in old JavaScript": lambda secret: "".join(f"%u{ord(letter):04x}" for letter in secret),
    "written in eight digits": lambda secret: "".join(f"\\U{ord(letter):08x}" for letter in secret),
    "split by an HTML space without width": lambda secret: "&#8203;".join(_halves(secret)),
    "split by an escaped space without width": lambda secret: "%E2%80%8B".join(_halves(secret)),
    "split by a bell": lambda secret: "\x07".join(_halves(secret)),
    "with marks above the letters": lambda secret: "".join(f"{letter}\u0336" for letter in secret),
    "with hyphens of a book": lambda secret: secret.replace("-", "\u2011"),
    "with raised digits": lambda secret: secret.replace("1", "\u00b9").replace("2", "\u00b2"),
    "in the title of a window": "\x1b]0;{}\x07".format,
    "in the address of a link of a terminal": "\x1b]8;;https://x/?k={}\x07link\x1b]8;;\x07".format,
    "in an answer of a terminal": "\x1bP{}\x1b\\".format,
    "behind a terminal code without an end": "x \x1b] y {} z".format,
    "behind the beginning of a terminal code": "\x1b[{}".format,
    "behind the written beginning of a terminal code": "\\e[{}".format,
    "behind a letter": "x{}".format,
    "behind a word and an underscore": "key_{}".format,
}
"""Spellings in which every secret is recognised."""

AS_A_WHOLE: dict[str, Callable[[str], str]] = {
    "in an event stream": 'data: {{"a": 1, "b": "{}"}}\n\n'.format,
    "behind data:": "data:{},x".format,
    "in the name of an attachment": "data:text/plain;name={};base64,aGVsbG8=".format,
    "in an attached drawing": lambda secret: attached("image/svg+xml", f"<svg><text>{secret}</text></svg>".encode()),
    "in an attachment of an unknown type": lambda secret: attached("application/octet-stream", f"k {secret}".encode()),
    "in an attachment in Latin-1": lambda secret: attached("text/plain", f"cl\u00e9 {secret}".encode("latin-1")),
    "in an attachment with blanks": lambda secret: attached("text/plain", f"the key is {secret} ".encode(), "\n "),
    "in an attachment for URLs": lambda secret: quote(attached("TEXT/PLAIN", f"key {secret}".encode()), safe=":/;,"),
}
"""Texts that are, or look like, an attachment. Every secret in them is recognised."""

ENCODED: dict[str, Callable[[str], str]] = {
    "Base64": lambda secret: b64encode(secret.encode()).decode(),
    "Base64 of more": lambda secret: b64encode(f"user:{secret}\n".encode()).decode(),
    "Base64 of a little more": lambda secret: b64encode(f"ab{secret}cd".encode()).decode(),
    "Base64 for URLs": lambda secret: urlsafe_b64encode(f"\u00ff\u00fe{secret}?".encode()).decode(),
    "Base64 of UTF-16": lambda secret: b64encode(f"$env:KEY='{secret}'".encode("utf-16-le")).decode(),
    "Base64 of big-endian UTF-16": lambda secret: b64encode(f"key '{secret}'".encode("utf-16-be")).decode(),
    "hexadecimal of UTF-16": lambda secret: f"key '{secret}'".encode("utf-16-le").hex(),
    "Base64 over short lines": lambda secret: _lines(b64encode(f"..{secret}..".encode()).decode(), 4),
    "Base64 over lines of source code": lambda secret: (
        "k = ('" + _lines(b64encode(f"..{secret}".encode()).decode(), 20, "'\n '") + "')"
    ),
    "hexadecimal over lines": lambda secret: _lines(secret.encode().hex(), 32),
    "Base64 of Base64": lambda secret: b64encode(b64encode(f"ab{secret}cd".encode())).decode(),
    "Base64 of JSON with Base64": lambda secret: b64encode(
        json.dumps({"authorization": "Basic " + b64encode(f"user:{secret}".encode()).decode()}).encode()
    ).decode(),
    "hexadecimal of Base64": lambda secret: b64encode(f"x{secret}".encode()).hex(),
    "Base64 of hexadecimal": lambda secret: b64encode(secret.encode().hex().encode()).decode(),
    "Base64 in a URL": lambda secret: quote(b64encode(f"ab{secret}cd?".encode()).decode(), safe=""),
    "Base64 over lines": lambda secret: "\n".join(_halves(b64encode(f"..{secret}..".encode()).decode())),
    "hexadecimal": lambda secret: secret.encode().hex(),
    "capital hexadecimal": lambda secret: f"x {secret}".encode().hex().upper(),
    "percent-encoded": lambda secret: quote(secret, safe=""),
    "JSON in JSON": lambda secret: json.dumps(json.dumps({"a": secret})),
}
"""Spellings in which known secrets are recognised."""


def spellings() -> dict[str, tuple[str, str]]:
    """Return all combinations: by name, the secret and its spelling."""
    combinations = {
        f"{name}, {how}": (secret, spell(secret))
        for name, secret in (SHAPES | KNOWN).items()
        for how, spell in EVERYWHERE.items()
    }
    encoded = {
        f"{name}, {how}": (secret, spell(secret)) for name, secret in KNOWN.items() for how, spell in ENCODED.items()
    }
    return combinations | encoded


def attachments() -> dict[str, tuple[str, str]]:
    """Return every secret in every attachment, like :func:`spellings`."""
    secrets = (SHAPES | KNOWN).items()
    return {f"{name}, {how}": (secret, spell(secret)) for name, secret in secrets for how, spell in AS_A_WHOLE.items()}


def _decoded(text: str) -> str:
    text = re.sub("[\u0300-\u036f\x07]|%E2%80%8B|&#8203;", "", text).replace("\u2011", "-")
    text = re.sub(r"(?:\\+(?:u00|u\{|x|U000000)|%u00)([0-9a-f]{2})\}?", lambda match: chr(int(match[1], 16)), text)
    text = re.sub(r"\\+0?([01][0-7]{2})", lambda match: chr(int(match[1], 8)), text)
    return normalize("NFKC", unescape(unquote(text)))


def remains(secret: str, text: str) -> list[str]:
    """Return the parts of a secret that are in a text: of 8 characters or more, in any of the encodings."""
    once = _decoded(text)
    # Most lines are the same after decoding, and every line is searched for some hundred pieces.
    text = "\n".join({line for version in (text, once, _decoded(once)) for line in version.splitlines()})
    encodings = {secret, secret.encode().hex(), secret.encode().hex().upper()}
    for before in range(3):
        for data in (secret.encode(), secret.encode("utf-16-le")):
            encodings.add(b64encode(bytes(before) + data).decode()[2:-4])
    return sorted({form[at : at + 8] for form in encodings for at in range(len(form) - 7) if form[at : at + 8] in text})


def remains_encoded_twice(secret: str, text: str) -> list[str]:
    """Return the parts of a secret that are in a text in an encoding of an encoding."""

    def encoded(data: bytes) -> set[str]:
        return {data.hex(), *(b64encode(bytes(before) + data).decode()[2:-4] for before in range(3))}

    forms = {form for first in encoded(secret.encode()) for form in encoded(first.encode())}
    return sorted({form[at : at + 8] for form in forms for at in range(len(form) - 7) if form[at : at + 8] in text})
