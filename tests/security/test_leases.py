from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from opensesh.errors import BusyError
from opensesh.storage import open_store
from opensesh.storage.leases import leases_of
from tests.cli.running import Terminal
from tests.history.sample_tree import Sample, contents

FIXTURES = Path(__file__).parents[1] / "fixtures"
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="folders cannot be locked there")


def test_l11_processes_with_different_state_folders_do_not_run_one_session_at_once(
    sample: Sample, terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, other = sample.talk("Work")["id"], sample.talk("Other")["id"]
    before = contents(sample.root)
    lease = leases_of(open_store(str(sample.root))).acquire(session, "test")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "container"))
    leases = leases_of(open_store(str(sample.root)))
    holder = leases.holder(session)
    assert holder is not None
    assert holder.owner == "a process with another state folder"
    with pytest.raises(BusyError, match="another state folder"):
        leases.acquire(session, "container")
    terminal.run("session", "remove", session, "--yes")
    assert terminal.code == 4, terminal.error
    leases.acquire(other, "container").release()
    lease.release()
    assert leases.holder(session) is None
    with leases.acquire(session, "container"):
        monkeypatch.delenv("XDG_STATE_HOME")
        with pytest.raises(BusyError):
            leases_of(open_store(str(sample.root))).acquire(session, "test")
    assert contents(sample.root) == before


def test_l11_the_tree_beside_a_database_is_locked_too(
    sample: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = sample.talk("Work")["id"]
    shutil.copy(FIXTURES / "opencode-1.18.33" / "opencode.db", sample.root.parent)
    store = open_store(str(sample.root.parent))
    with leases_of(store).acquire(session, "test"):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "container"))
        with pytest.raises(BusyError, match="another state folder"):
            leases_of(store).acquire(session, "container")


def test_l11_a_session_that_gets_its_first_message_while_it_runs_is_locked_by_the_next_heartbeat(
    sample: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = sample.session("New")
    with leases_of(open_store(str(sample.root))).acquire(session["id"], "test") as lease:
        sample.prompt(session)
        lease.heartbeat()
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "container"))
        with pytest.raises(BusyError):
            leases_of(open_store(str(sample.root))).acquire(session["id"], "container")


def test_l11_the_lock_of_a_process_that_dies_is_free(
    sample: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = sample.talk("Work")["id"]
    script = (
        "import os, sys; from opensesh.storage import open_store; from opensesh.storage.leases import leases_of\n"
        "lease = leases_of(open_store(sys.argv[1])).acquire(sys.argv[2], 'child'); os._exit(0)"
    )
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path / "container")}
    subprocess.run([sys.executable, "-c", script, str(sample.root), session], check=True, env=environment)
    leases_of(open_store(str(sample.root))).acquire(session, "test").release()
