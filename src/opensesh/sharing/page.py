"""The pages of a share server: a session to read, and a few plain words where there is none."""

from __future__ import annotations

from ..history.formats import ExportedSession, FormatOptions
from ..history.formats.html_page import HtmlFormat, page_policy
from .items import ShareItem, assemble

_NO_FORMS = "form-action 'none'; frame-ancestors 'none'"
PLAIN_POLICY = f"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; {_NO_FORMS}"
_PLAIN = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; max-width: 36rem;
  margin: 18vh auto 0; padding: 0 1.25rem; }}
h1 {{ font-size: 1.4rem; margin: 0 0 .4rem; }}
p {{ margin: .4rem 0; opacity: .75; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{words}</p>
</body>
</html>
"""


def session_page(items: list[ShareItem]) -> bytes:
    """A shared session as a page."""
    session = assemble(items, report=lambda damage: None)
    if session is None:
        return _plain("Nothing here yet", "This session was shared a moment ago, and its content is on its way.")
    name = str(session.info.get("id", ""))
    exported = ExportedSession(name, str(session.info.get("projectID", "")), session.info, session.messages)
    form = HtmlFormat(FormatOptions(utc=True), note="Shared with opensesh. Times are in UTC.", user="User")
    return b"".join(form.pieces(exported))


def policy() -> str:
    """What the page of a session may do, for the header of the same name; the page says so itself as well."""
    return f"{page_policy()}; {_NO_FORMS}"


def about_page() -> bytes:
    """What there is at the root: nothing that tells of a share."""
    return _plain("Shared sessions", "This server shows sessions to those who were given a link to one.")


def missing_page() -> bytes:
    """There is no such share, or there is none any more."""
    return _plain("No such session", "It was never shared here, or it was taken down by the one who shared it.")


def _plain(title: str, words: str) -> bytes:
    return _PLAIN.format(title=title, words=words).encode()
