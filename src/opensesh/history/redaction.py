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

from ..records import as_list, as_object
from .redaction_rules import HOMES, NAMED, NAMES, RULES, SECRET_FIELDS, WORDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..records import Document
    from .redaction_rules import Rule

_SHORTEST = 8
_DATA_URL = re.compile(r"data:(?P<kind>[^,;]*)(?P<options>[^,]*),")
_READABLE = re.compile(r"text/|application/(?:json|xml|x-|javascript|toml|yaml)|\Z")


class Redactor:
    """Replaces secrets, and counts what it replaced by rule."""

    def __init__(self, *, paths: bool = False, rules: Sequence[Rule] = RULES) -> None:
        """With ``paths``, home folders become ``~`` as well."""
        self._rules = rules
        self._word_rules = [(hint, rule) for rule in rules if rule.word for hint in rule.hint.split("|")]
        self._paths = paths
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
            if isinstance(held, str) and held and SECRET_FIELDS.fullmatch(name):
                cleaned: Any = self._replaced("secret-field") if not held.startswith("[redacted:") else held
            else:
                cleaned = self.value(held)
            if cleaned is not held:
                changed[name] = cleaned
        return {**document, **changed} if changed else document

    def text(self, text: str) -> str:
        """Text without secrets. Of an attachment, which is text in disguise, only what can be read is looked at."""
        if text.startswith("data:") and (head := _DATA_URL.match(text)):
            return self._attachment(text, head)
        if len(text) < _SHORTEST:
            return text
        text = WORDS.sub(self._word, text)
        lowered = text.lower()
        for rule in self._rules:
            if not rule.word and (NAMES.search(lowered) if rule.hint is NAMED else rule.hint in lowered):
                text = rule.pattern.sub(lambda found, name=rule.name: self._without(found, name), text)
        if self._paths and ("/" in text or "\\" in text):
            text = HOMES.sub(self._home, text)
        return text

    def _word(self, found: re.Match[str]) -> str:
        """A long word without the tokens in it. Most hold none, and the hints say so without a pattern being tried."""
        word = found[0]
        lowered = word.lower()
        for hint, rule in self._word_rules:
            if hint in lowered:
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
