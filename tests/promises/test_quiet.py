from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WATCHED = """
import sys
calls = []
sys.addaudithook(lambda event, arguments: calls.append(event) if event.startswith("socket.") else None)
from opensesh.cli.main import run
prompt = ["run", "--quiet", "-m", "scripted/prompt", "SAY hi"]
for words in (prompt, ["list"], ["search", "hi"], ["stats"], ["doctor"], ["export", "last"]):
    assert run(words) == 0, words
names = ("connect", "bind", "sendto", "sendmsg", "getaddrinfo", "gethostbyname")
print([call for call in calls if call.removeprefix("socket.") in names], file=sys.stderr)
"""


def test_a_run_connects_to_nothing_and_listens_on_nothing(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WATCHED], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1:]) == (0, ["[]"]), done.stderr
