"""Taking secrets out of what leaves the machine, and saying what was taken out.

Only the text inside of strings is touched, never names or numbers, so that what was valid JSON stays valid and what
reads it still finds every field. What is replaced leaves the name of its rule: ``[redacted:github-token]``.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from collections import Counter
from typing import TYPE_CHECKING, Any

from ...records import as_list, as_object
from .redaction_rules import HOMES, NAMED, RULES, SECRET_FIELDS, WORDS, is_named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...records import Document
    from .redaction_rules import RedactionRule

_SHORTEST = 8
_MOST_NAMES = 10_000
_DATA_URL = re.compile(r"data:(?P<kind>[^,;]*)(?P<options>[^,]*),")
_READABLE = re.compile(r"text/|application/(?:json|xml|x-|javascript|toml|yaml)|\Z")


class Redactor:
    """Replaces secrets, and counts what it replaced by rule."""

    def __init__(self, *, paths: bool = False) -> None:
        """With ``paths``, home folders become ``~`` as well."""
        self._text_rules = [rule for rule in RULES if not rule.word]
        self._word_hints = [(hint, rule) for rule in RULES if rule.word for hint in rule.hint.split("|")]
        self._secret_names: dict[str, bool] = {}
        self.paths = paths
        self.counts: Counter[str] = Counter()

    def value(self, value: Any) -> Any:
        """A JSON value without secrets; the same shape, and the same object where there was nothing to replace."""
        if isinstance(value, str):
            return self.text(value)
        if (document := as_object(value)) is not None:
            return self.document(document)
        items = as_list(value)
        if items is None:
            return value
        cleaned = [self.value(item) for item in items]
        return cleaned if any(new is not old for new, old in zip(cleaned, items, strict=True)) else items

    def document(self, document: Document) -> Document:
        """An object without secrets. A field that is named like a secret has its text taken out whole."""
        changed: Document = {}
        for name, held in document.items():
            if isinstance(held, str):
                if not held or (len(held) < _SHORTEST and not self._is_secret(name)):
                    continue
                cleaned: Any = self._field(name, held)
            else:
                cleaned = self.value(held)
            if cleaned is not held:
                changed[name] = cleaned
        return {**document, **changed} if changed else document

    def _field(self, name: str, held: str) -> str:
        if not self._is_secret(name):
            return self.text(held)
        return held if held.startswith("[redacted:") else self._replaced("secret-field")

    def _is_secret(self, name: str) -> bool:
        known = self._secret_names.get(name)
        if known is None:
            known = SECRET_FIELDS.fullmatch(name) is not None
            if len(self._secret_names) < _MOST_NAMES:
                self._secret_names[name] = known
        return known

    def text(self, text: str) -> str:
        """Text without secrets. Of an attachment, which is text in disguise, only what can be read is looked at."""
        if text.startswith("data:") and (head := _DATA_URL.match(text)):
            return self._attachment(text, head)
        if len(text) < _SHORTEST:
            return text
        # Most texts hold no secret, and the hints say so without a pattern being tried.
        if words := WORDS.findall(text):
            long = " ".join(words).lower()
            likely = [rule for hint, rule in self._word_hints if hint in long]
            if likely:
                text = WORDS.sub(lambda found: self._word(found[0], likely), text)
        lowered = text.lower()
        for rule in self._text_rules:
            if is_named(lowered) if rule.hint is NAMED else rule.hint in lowered:
                text = rule.pattern.sub(lambda found, name=rule.name: self._without(found, name), text)
        if self.paths and ("/" in text or "\\" in text):
            text = HOMES.sub(self._home, text)
        return text

    def _word(self, word: str, likely: Sequence[RedactionRule]) -> str:
        """A long word without the tokens in it."""
        for rule in likely:
            word = rule.pattern.sub(lambda found, name=rule.name: self._without(found, name), word)
        return word

    def _attachment(self, url: str, head: re.Match[str]) -> str:
        if not _READABLE.match(head["kind"]):
            return url
        body = url[head.end() :]
        if "base64" not in head["options"]:
            return url[: head.end()] + self.text(body)
        try:
            plain = b64decode(body, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError, ValueError):
            return url
        cleaned = self.text(plain)
        return url if cleaned == plain else url[: head.end()] + b64encode(cleaned.encode()).decode()

    def _without(self, found: re.Match[str], name: str) -> str:
        whole = found[0]
        if "secret" not in found.re.groupindex:
            return self._replaced(name)
        if found["secret"].startswith("[redacted:"):
            return whole
        start, end = found.start("secret") - found.start(), found.end("secret") - found.start()
        return whole[:start] + self._replaced(name) + whole[end:]

    def _home(self, _: re.Match[str]) -> str:
        self.counts["home-folder"] += 1
        return "~"

    def _replaced(self, name: str) -> str:
        self.counts[name] += 1
        return f"[redacted:{name}]"
