"""Make the pictures of the README from the output of the demo.

    python scripts/pictures.py

``docs/pictures/session.svg`` is the demo as a terminal shows it: it runs in a pseudo-terminal, and what it printed is
drawn. ``docs/pictures/transcript.png`` is the page that ``opensesh export`` makes of that session, in a real browser.
Needs a POSIX system, and Chromium for the second.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
BIN = Path(sys.executable).parent
COLUMNS = 96
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
MOST = 200_000
"""The largest size of a picture in bytes."""


def main() -> int:
    """Make both pictures."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    printed = demo()
    (PICTURES / "session.svg").write_text(drawn(printed), "utf-8")
    match = re.search(r"(\S+opensesh-demo-\S+) is kept", plain(printed))
    if match is None:
        print("the demo did not say where it is kept", file=sys.stderr)
        return 1
    folder = Path(match[1])
    try:
        photograph(transcript(folder), PICTURES / "transcript.png")
    finally:
        shutil.rmtree(folder)
    sizes = {path.name: path.stat().st_size for path in sorted(PICTURES.iterdir())}
    print(sizes)
    return 1 if max(sizes.values()) > MOST else 0


def demo() -> str:
    """Return what the demo prints on a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, COLUMNS, 0, 0))
    environ = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    process = subprocess.Popen(
        [BIN / "opensesh", "demo", "--keep", "--utc"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environ | {"TERM": "xterm-256color"},
    )
    os.close(theirs)
    pieces: list[bytes] = []
    while piece := read(ours):
        pieces.append(piece)
    os.close(ours)
    process.wait()
    return b"".join(pieces).decode()


def read(terminal: int) -> bytes:
    """Return the next chunk; empty at the end, which a terminal reports as an error."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def settled(printed: str) -> str:
    """Return what stays on the screen, without lines that were overwritten or erased."""
    return re.sub(r"[^\n]*\r\x1b\[K", "", printed).replace("\r\n", "\n")


def plain(printed: str) -> str:
    """Remove colours."""
    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", settled(printed))


def drawn(printed: str) -> str:
    """Return the main part of the output as an SVG picture."""
    from rich.console import Console
    from rich.terminal_theme import SVG_EXPORT_THEME
    from rich.text import Text

    bold = r"(?:\x1b\[1m)?"
    shown = rf"A temporary project: \S+\s+({bold})\s*(.*?){bold}\s*The stored session"
    match = re.search(shown, settled(printed), re.DOTALL)
    if match is None:
        raise SystemExit("the demo prints other headings than this script knows")
    story = f"{match[1]}{match[2]}".strip("\n")
    console = Console(width=COLUMNS, record=True, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(story))
    svg = console.export_svg(title="opensesh", theme=SVG_EXPORT_THEME, unique_id="session")
    # Web fonts would be downloaded; use the reader's own.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace")


def transcript(folder: Path) -> Path:
    """Export the session as an HTML page."""
    page = folder / "transcript.html"
    words = ["export", "--format", "html", "--store", str(folder / "data" / "opencode"), "-o", str(page), "--utc"]
    environ = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "XDG_STATE_HOME": str(folder / "state")}
    listed = subprocess.run(
        [BIN / "opensesh", "list", "--json", "--store", str(folder / "data" / "opencode")],
        env=environ,
        capture_output=True,
        check=True,
    )
    session = next(item["id"] for item in json.loads(listed.stdout)["sessions"] if "fork" not in item["title"])
    subprocess.run([BIN / "opensesh", *words, session], env=environ, check=True, capture_output=True)
    return page


def photograph(page: Path, target: Path) -> None:
    """Take a screenshot of the page."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        raise SystemExit("there is no Chromium (apt-get install chromium)")
    with tempfile.TemporaryDirectory() as profile:
        words = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        words += [f"--user-data-dir={profile}", "--window-size=1100,850", f"--screenshot={target}", page.as_uri()]
        subprocess.run(words, check=True, capture_output=True)


if __name__ == "__main__":
    sys.exit(main())
