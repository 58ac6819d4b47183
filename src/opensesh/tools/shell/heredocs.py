"""Heredocs: the text behind ``<<WORD``, which begins on the next line and ends with a line that is the word."""

from __future__ import annotations

from msgspec import Struct

from .lexer import Unparsable, Word


class Heredoc(Struct, frozen=True):
    """A heredoc that was announced."""

    delimiter: str
    quoted: bool
    """Whether the text is literal: there are no expansions in it."""
    strip_tabs: bool
    bodies: list[str]
    """Receives the text."""

    @classmethod
    def announced(cls, target: Word, *, strip_tabs: bool) -> Heredoc:
        """Return the heredoc with ``target`` behind its operator. Raises :class:`Unparsable`."""
        if "\\\n" in target.text:
            raise Unparsable("a continued line in the delimiter of a heredoc, which does not quote it")
        if not target.static and ("(" in target.text or "`" in target.text):
            raise Unparsable("a substitution as the delimiter of a heredoc")
        return cls(target.value, any(char in target.text for char in "'\"\\"), strip_tabs, [])

    def read(self, source: str, start: int) -> int:
        """Read the text, which begins at ``start``, and return where it ends. Raises :class:`Unparsable`."""
        body: list[str] = []
        joined = ""
        at = start
        while at < len(source):
            end = source.find("\n", at)
            end = len(source) if end < 0 else end
            line = source[at:end]
            at = min(end + 1, len(source))
            line = line.lstrip("\t") if self.strip_tabs else line
            is_continued = (len(joined) - len(joined.rstrip("\\"))) % 2 == 1
            if not self.quoted and is_continued:
                joined = joined[:-1] + line
                if self.delimiter in (line, joined):
                    raise Unparsable("a continued line at the end of a heredoc, which shells read differently")
            elif line == self.delimiter:
                self.bodies.append("\n".join(body))
                return at
            else:
                joined = line
            # In a substitution, bash ends the text at the delimiter if a parenthesis follows in the same line.
            if joined.startswith(self.delimiter) and ")" in joined:
                raise Unparsable("a heredoc with a line that begins with its delimiter and has a parenthesis")
            body.append(line)
        raise Unparsable(f"no {self.delimiter} to end a heredoc")
