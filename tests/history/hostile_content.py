"""Content that must never become part of a page: as markup, as an address, or as work without end."""

from __future__ import annotations

from typing import Any

from opensesh.storage.protocol import StoredMessage

HOSTILE_TEXTS = (
    "<script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    "<svg onload=window.pwned=1><animate onbegin=window.pwned=1>",
    "</textarea></template></title></pre></article><b>out</b>",
    "]]><![CDATA[<i>",
    "<!-- <b> --!> <!--> -->",
    "{{7*7}} {% raw %} {# x #}",
    '" onmouseover="window.pwned=1" x="',
    "' autofocus onfocus='window.pwned=1",
    "[a](javascript:window.pwned=1) [b](JaVaScRiPt:1) [c](java\tscript:1) [d](java\nscript:1) [e](&#106;avascript:1)",
    "[a](data:text/html,<script>1</script>) [b](vbscript:1) [c](\x01javascript:1) <javascript:1> [d]( javascript:1)",
    "[a]: javascript:1\n\n[a] [b][a]",
    '[a](http://x/"onmouseover="1) [b](<http://x/" onclick="1>) [c](http://x "title\\" onclick=1")',
    "![picture](http://tracker.invalid/x.png) ![x](//tracker.invalid/y.png) ![y](data:image/svg+xml,<svg onload=1>)",
    "<base href=//evil.invalid><meta http-equiv=refresh content='0;url=//evil.invalid'>",
    "<form action=//evil.invalid><input name=id id=log><button hx-get=/x>",
    '```html\n<script>1</script>\n```\n```"><img src=x onerror=1>\nx\n```',
    "`<script>1</script>` **<svg onload=1>** # <iframe srcdoc=x>",
    '| <script> | `<b>` |\n|---|:-:|\n| <img onerror=1> | " onload=1 |',
    "- [x] <b>done</b>\n- [ ] [x](javascript:1)",
    "\x00\x1b[31mred\x1b]8;;http://evil.invalid\x07link\x1b]8;;\x07\x9b\ud800\udfff",
    "git push \u202e; # moc.elpmaxe\u202c \u2066x\u2069 zero\u200bwidth \ufeff",
    "x" + "\u0301" * 500,
    "../../etc/passwd\r\nContent-Type: text/html\r\n\r\n<b>",
)
LONG_TEXTS = (
    " ".join("`" * number for number in range(1, 300)),
    "[" * 20_000,
    "> " * 10_000,
    ">" * 10_000,
    "- " * 10_000,
    "|" * 800 + "\n" + "|-" * 800 + "|\n" + "|x\n" * 400,
    "a" * 5_000_000,
    "line\n" * 100_000,
    "*_" * 50_000,
    "![a](" * 10_000,
    "<a" * 20_000,
    "\\" * 50_000,
    "&amp" * 20_000,
    "http://" * 10_000,
    "\x1b]8;;" * 20_000,
    "\u202e" * 50_000,
)


def hostile_message(text: str, role: str = "assistant") -> StoredMessage:
    """A message with the text in every place that is shown."""
    info: dict[str, Any] = {
        "id": "msg_1",
        "sessionID": "ses_1",
        "role": role,
        "time": {"created": 1, "completed": 2_000},
        "agent": text,
        "modelID": text,
        "providerID": text,
        "cost": 0.5,
        "error": {"name": text, "data": {"message": text}},
    }
    diff = f"--- {text}\n+++ {text}\n@@ -1,2 +1,2 @@\n-{text}\n+{text} other\n"
    states: list[dict[str, Any]] = [
        {"status": "completed", "input": {"command": text, text: [text]}, "output": text, "metadata": {}},
        {"status": "completed", "input": {"filePath": text}, "output": text, "metadata": {"diff": diff, "exit": 1}},
        {"status": "error", "input": {"content": text, "filePath": "a.py"}, "error": text},
        {"status": text, "input": {"todos": [{"content": text, "status": text}]}},
    ]
    tools = [text, "edit", "write", "todowrite"]
    picture = {"id": "prt_f", "type": "file", "mime": text, "filename": text, "url": f"data:image/png;base64,{text}"}
    lie = {
        "id": "prt_g",
        "type": "file",
        "mime": "image/png",
        "filename": text,
        "url": "data:image/png;base64,PHN2Zz4=",
    }
    states[0]["attachments"] = [picture, lie]
    parts: list[dict[str, Any]] = [
        {"id": "prt_1", "type": "text", "text": text},
        {"id": "prt_2", "type": "reasoning", "text": text, "time": {"start": 1, "end": 2}},
        *({"id": f"prt_t{n}", "type": "tool", "tool": tools[n], "state": state} for n, state in enumerate(states)),
        picture,
        lie,
        {"id": "prt_h", "type": "file", "mime": "", "filename": "", "url": text},
        {"id": "prt_3", "type": "subtask", "agent": text, "description": text},
        {"id": "prt_4", "type": "patch", "files": [text]},
        {"id": "prt_5", "type": "compaction", "auto": True},
        {"id": "prt_6", "type": "agent", "name": text},
        {"id": "prt_7", "type": text},
        {"id": "prt_8", "type": "text", "text": text, "synthetic": True},
    ]
    return StoredMessage(info, parts)
