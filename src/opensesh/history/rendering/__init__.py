"""Transcripts as HTML: the one renderer of the web pages, the HTML export and the pages of the share server.

* :mod:`.turns`: messages and parts, folded tool calls, the templates;
* :mod:`.markdown_html`, :mod:`.highlighting`, :mod:`.diff_html`: what parts contain;
* :mod:`.visible_text`: characters that must not disappear or act;
* :mod:`.pictures`: which attachments are shown as pictures.

Content of a session is escaped before it is marked up: no character of it can become a tag, an attribute or a script.
Time and output are proportional to the length of any text.
"""
