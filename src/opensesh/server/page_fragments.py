from __future__ import annotations

from html import escape

from .page_streams import Fragments

FRAGMENTS = Fragments(
    escape,
    lambda p: f"<p>{escape(str(p.get('text')))}</p>",
    lambda p: "<div><div class=settled></div><div class=tail></div></div>",
    lambda info: f"<article id=t-{info['id']}>",
    lambda r, s: f"<form>{escape(str(r))}</form>",
)
