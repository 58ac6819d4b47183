"""Examples of the commands, for their help texts and the reference."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "run": (
        ("opensesh run 'Why does the parser fail on empty input?'", "start a session here"),
        ("opensesh run -c 'Now fix it.'", "continue the last session here"),
        ("git diff | opensesh run 'Review this.'", "append standard input to the prompt"),
        ("opensesh run --budget 0.50 --yes 'Make the tests pass.'", "spend at most $0.50, ask nothing"),
    ),
    "list": (
        ("opensesh list --here --since 2w", "this project, two weeks"),
        ("opensesh list --project shop --prompts", "with the first and last prompt"),
        ("opensesh list --json --limit 0", "all of them, for a program"),
    ),
    "show": (
        ("opensesh show last", "the newest session of this project"),
        ("opensesh show Fdf5a2 --outputs", "the end of an id; with tool outputs"),
        ("opensesh show last --follow", "watch a session that runs elsewhere"),
        ("opensesh show last --context", "what the next request would contain"),
    ),
    "search": (
        ("opensesh search retry policy --role user", "prompts with both words"),
        ("opensesh search --file client.py --since 2026-08", "sessions that touched a file"),
        ("opensesh search --tool bash --in errors pytest", "calls that failed"),
    ),
    "projects": (("opensesh projects shop", "projects with such a name, worktree or remote"),),
    "export": (
        ("opensesh export last -o session.html", "a page to read or send"),
        ("opensesh export --project shop --format markdown --split notes", "a file for each session"),
        ("opensesh export --format json -o all.json", "everything, complete, for 'opensesh import'"),
        ("opensesh export last --redact -o session.md", "without secrets"),
    ),
    "import": (
        ("opensesh import all.json", "what 'opensesh export --format json' wrote"),
        ("opensesh import /mnt/laptop/opencode --map /home/ann=/home/me", "another machine's sessions"),
        ("opensesh import https://opncd.ai/share/AbCd1234", "a shared session"),
    ),
    "stats": (
        ("opensesh stats --by month", "what each month cost"),
        ("opensesh stats --by model --since 2026-08 --project shop", "the models of one project"),
        ("opensesh stats --by session --csv", "a row a session, for a spreadsheet"),
    ),
    "doctor": (
        ("opensesh doctor", "only look"),
        ("opensesh doctor --fix", "repair what is safe; prints how to undo it"),
    ),
    "session fork": (("opensesh session fork last", "continue a copy; the original stays"),),
    "session rename": (("opensesh session rename last 'Retry policy'", "give it another title"),),
    "session compact": (
        ("opensesh session compact last", "free space in the context window"),
        ("opensesh session compact last --undo", "show the model everything again"),
    ),
    "session diff": (("opensesh session diff last --stat", "the files, and how many lines"),),
    "session revert": (
        ("opensesh session revert last --dry-run", "see which files would change"),
        ("opensesh session revert last", "undo the last prompt"),
    ),
    "session unrevert": (("opensesh session unrevert last", "bring everything back"),),
    "session share": (("opensesh session share last", "asks first, and prints the link"),),
    "session unshare": (("opensesh session unshare last", "remove it from the server"),),
    "session archive": (("opensesh session archive --project shop --before 90d", "all that were not used lately"),),
    "session move": (("opensesh session move --from ~/old/shop ~/shop", "after a folder was moved"),),
    "session remove": (
        ("opensesh session remove --empty --dry-run", "sessions without messages"),
        ("opensesh session remove --before 26w", "asks first; can be undone"),
    ),
    "session restore": (("opensesh session restore last", "undo the last remove, archive or move"),),
    "session trash": (("opensesh session trash --empty --older 30d", "delete for good"),),
    "web": (("opensesh web", "sign in this machine's browser and open the pages"),),
    "serve": (("opensesh serve --port 4096", "then: opencode attach http://127.0.0.1:4096"),),
    "serve-share": (("opensesh serve-share --port 4097", "for this machine only"),),
    "models": (("opensesh models anthropic", "the models of one provider"),),
    "agents": (("opensesh agents build", "its permission rules and its prompt"),),
    "tools": (("opensesh tools --dir ~/shop", "what models are offered there"),),
    "mcp auth": (("opensesh mcp auth linear", "log in in the browser"),),
    "auth login": (
        ("opensesh auth login anthropic", "asks for the key"),
        ("pass show openai | opensesh auth login openai", "reads the key from a pipe"),
    ),
    "config": (("opensesh config permission", "one setting, and where it is set"),),
    "plugins": (("opensesh plugins --trust", "use those of this project"),),
    "demo": (("opensesh demo --keep", "leave the project, to look around in it"),),
}
"""Command lines and what they do, by command or by command and action."""


def aligned_examples(command: str) -> list[str]:
    """Return the examples of a command, one a line, with what they do in a column; below the line where it is long."""
    examples = EXAMPLES.get(command, ())
    width = max((len(line) for line, _ in examples), default=0)
    if width > 44:
        return [text for line, what in examples for text in (line, f"    {what}")]
    return [f"{line:<{width}}   {what}" for line, what in examples]
