from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from opensesh.errors import PermissionDeniedError, ToolFailedError
from opensesh.tools.bash import BashTool
from opensesh.tools.shell.execution import Capture, select_shell
from opensesh.tools.truncation import Outputs

from .bench import Bench

pytestmark = pytest.mark.skipif(os.name == "nt", reason="POSIX shells")

QUICK = BashTool(grace_seconds=0.3)


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(") ")[2][0] not in "ZX"


def command_lines() -> list[str]:
    result: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended meanwhile
            result.append(path.read_bytes().decode(errors="replace"))
    return result


async def pid_in(path: Path) -> int:
    while not (path.exists() and path.read_text().strip()):
        await asyncio.sleep(0.01)
    return int(path.read_text())


async def test_the_answer_is_as_opencode_stores_it(bench: Bench) -> None:
    bench.put("README.md", "x")
    answer = await bench.run(QUICK, command="echo hi; ls", description="list")
    assert answer.title == "list"
    assert answer.output == "hi\nREADME.md\n"
    assert answer.metadata == {"output": "hi\nREADME.md\n", "exit": 0, "description": "list", "truncated": False}
    assert bench.patterns("bash") == ["echo hi", "ls"]
    assert bench.asked[0].always == ["echo *", "ls *"]


async def test_a_non_zero_exit_code_is_a_result_and_not_a_failure(bench: Bench) -> None:
    answer = await bench.run(QUICK, command="echo no >&2; exit 3", description="d")
    assert answer.output == "no\n\n\n<bash_metadata>\nexit code 3\n</bash_metadata>"
    assert answer.metadata["exit"] == 3
    assert answer.metadata["output"] == "no\n"


async def test_a_command_without_output_says_so(bench: Bench) -> None:
    assert (await bench.run(QUICK, command="true", description="d")).output == "(no output)"


async def test_a_signal_is_an_exit_code(bench: Bench) -> None:
    assert (await bench.run(QUICK, command="kill -9 $$", description="d")).metadata["exit"] == 137


async def test_a_command_has_no_standard_input(bench: Bench) -> None:
    answer = await bench.run(QUICK, command="cat; echo done", description="d")
    assert answer.output == "done\n"


async def test_the_environment_is_the_engines_with_what_it_adds(bench: Bench) -> None:
    bench.variables = {"OPENSESH_TEST_VALUE": "ünï 漢字"}
    answer = await bench.run(QUICK, command='printf %s "$OPENSESH_TEST_VALUE"', description="d")
    assert answer.output == "ünï 漢字"


async def test_bytes_that_are_no_text_are_shown_as_such(bench: Bench) -> None:
    answer = await bench.run(QUICK, command="printf 'a\\377b'", description="d")
    assert answer.output == "a\ufffdb"


async def test_workdir_is_where_it_runs(bench: Bench) -> None:
    bench.put("sub/x", "")
    answer = await bench.run(QUICK, command="pwd", workdir="sub", description="d")
    assert answer.output.strip() == os.path.realpath(bench.path("sub"))
    with pytest.raises(ToolFailedError, match="does not exist"):
        await bench.run(QUICK, command="pwd", workdir="nowhere")


@pytest.mark.parametrize("timeout", [-1, 0, "nan"])
async def test_a_timeout_must_be_positive(bench: Bench, timeout: Any) -> None:
    with pytest.raises(ToolFailedError, match="positive"):
        await bench.run(QUICK, command="true", timeout=timeout)


async def test_places_outside_are_asked_for_by_their_real_directory(bench: Bench, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("x")
    os.symlink(outside, bench.path("link"))
    for command in (
        f"cat {outside}/file",
        "cat link/file",
        "cat link/../outside/file",
        "cat ../outside/file",
        "cd ../outside && cat file",
        "cd link && cat file",
    ):
        bench.asked.clear()
        assert (await bench.run(QUICK, command=command, description="d")).output == "x"
        assert bench.asked[0].permission == "external_directory"
        assert f"{os.path.realpath(outside)}/*" in bench.asked[0].patterns


async def test_writing_by_redirection_needs_the_permission_to_edit(bench: Bench) -> None:
    bench.refuse["edit"] = PermissionDeniedError("no")
    with pytest.raises(PermissionDeniedError):
        await bench.run(QUICK, command="cat > src/new.py <<'EOF'\nx\nEOF", description="d")
    assert bench.patterns("edit") == ["src/new.py"]
    assert not bench.path("src").exists()
    await bench.run(QUICK, command="echo x > /dev/null 2>&1", description="d")


async def test_writing_outside_needs_the_permission_to_edit_as_well(bench: Bench, tmp_path: Path) -> None:
    bench.refuse["edit"] = PermissionDeniedError("no")
    for command in ("echo x > ../made", "echo x | tee ../made"):
        with pytest.raises(PermissionDeniedError):
            await bench.run(QUICK, command=command, description="d")
    assert bench.permissions() == ["external_directory", "edit"] * 2
    assert bench.patterns("edit") == ["../made"] * 2
    assert not (tmp_path / "made").exists()


async def test_cd_leads_nowhere_that_the_command_does_not_say(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "outside" / "there").mkdir(parents=True)
    bench.variables = {"CDPATH": str(tmp_path / "outside"), "OLDPWD": str(tmp_path / "outside")}
    for command in ("cd there", "cd -"):
        answer = await bench.run(QUICK, command=f"{command} 2>/dev/null; pwd", description="d")
        assert answer.output == f"{bench.directory}\n"
    assert "external_directory" not in bench.permissions()


async def test_nothing_runs_that_was_refused(bench: Bench) -> None:
    bench.refuse["bash"] = PermissionDeniedError("no")
    with pytest.raises(PermissionDeniedError):
        await bench.run(QUICK, command="touch made")
    assert not bench.path("made").exists()


async def test_a_command_that_takes_too_long_is_stopped_with_all_it_started(bench: Bench) -> None:
    command = "echo begun; (sleep 60 & echo $! > pid; wait) & wait"
    started = time.monotonic()
    answer = await bench.run(QUICK, command=command, timeout=300, description="d")
    assert time.monotonic() - started < 30
    assert answer.output.startswith("begun\n\n\n<bash_metadata>\nThe command exceeded its timeout of 300 ms")
    assert answer.metadata["exit"] is None
    assert not is_alive(int(bench.path("pid").read_text()))


async def test_what_ignores_being_asked_to_end_is_ended(bench: Bench) -> None:
    command = "trap '' TERM; echo $$ > pid; while :; do sleep 0.05; done"
    await bench.run(QUICK, command=command, timeout=300, description="d")
    assert not is_alive(int(bench.path("pid").read_text()))


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
async def test_what_left_the_group_is_ended_as_well(bench: Bench) -> None:
    command = "setsid sh -c 'echo $$ > pid; exec sleep 60' & wait"
    await bench.run(QUICK, command=command, timeout=500, description="d")
    assert not is_alive(int(bench.path("pid").read_text()))


DAEMON = """
import os, sys, time
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
os.closerange(0, 3)
if "deaf" in sys.argv:
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open("draft", "w") as file:
    file.write(str(os.getpid()))
os.rename("draft", "pid")
time.sleep(60)
"""


def daemon(bench: Bench, *words: str) -> str:
    bench.put("daemon.py", DAEMON)
    return f"{shlex.quote(sys.executable)} -I -S daemon.py {' '.join(words)}; while [ ! -e pid ]; do sleep 0.02; done"


needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")


@needs_proc
async def test_a_daemon_ends_with_a_command_that_takes_too_long(bench: Bench) -> None:
    await bench.run(QUICK, command=f"{daemon(bench)}; sleep 60", timeout=3000, description="d")
    assert not is_alive(int(bench.path("pid").read_text()))


@needs_proc
@pytest.mark.parametrize("words", [(), ("deaf",)])
async def test_a_daemon_ends_with_a_command_that_is_cancelled(bench: Bench, words: tuple[str, ...]) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(bench.run(QUICK, command=f"{daemon(bench, *words)}; sleep 60", description="d"))
        pid = await pid_in(bench.path("pid"))
        task.cancel()
    assert not is_alive(pid)


@needs_proc
async def test_a_daemon_of_a_finished_command_survives_a_later_cancelled_command(bench: Bench) -> None:
    answer = await bench.run(QUICK, command=daemon(bench), description="d")
    pid = int(bench.path("pid").read_text())
    try:
        assert answer.metadata["exit"] == 0
        await bench.run(QUICK, command="sleep 60", timeout=200, description="d")
        assert is_alive(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


@needs_proc
async def test_a_command_within_a_command_bears_both_marks(bench: Bench) -> None:
    inner = BashTool(grace_seconds=0.3, environment={**os.environ, "OPENSESH_CALL": "outer"})
    outer, mark = (await bench.run(inner, command="echo $OPENSESH_CALL", description="d")).output.strip().split(":")
    assert outer == "outer"
    assert len(mark) == 16
    assert (await bench.run(QUICK, command="echo $OPENSESH_CALL", description="d")).output.strip() != mark


async def test_cancelling_ends_the_command_and_keeps_its_output(bench: Bench) -> None:
    command = "echo partial; sleep 60 & echo $! > pid; wait"
    async with asyncio.TaskGroup() as group:
        task = group.create_task(bench.run(QUICK, command=command, description="d"))
        pid = await pid_in(bench.path("pid"))
        task.cancel()
    assert task.cancelled()
    assert not is_alive(pid)
    assert bench.shown[-1][1]["output"] == "partial\n"


async def test_the_command_is_ended_after_any_error(bench: Bench) -> None:
    class Broken(Bench):
        async def progress(self, *, title: str | None = None, metadata: Mapping[str, Any] | None = None) -> None:
            if metadata and metadata["output"]:
                raise OSError("the screen is gone")

    broken = Broken(Path(bench.directory))
    with pytest.raises(OSError, match="the screen is gone"):
        await broken.run(QUICK, command="sleep 60 & echo $! > pid; echo x; wait", description="d")
    assert not is_alive(int(bench.path("pid").read_text()))


@pytest.mark.parametrize("turns", range(12))
async def test_cancelling_at_any_moment_leaves_nothing_running(bench: Bench, turns: int) -> None:
    marker = f"37.{os.getpid()}{turns}"
    async with asyncio.TaskGroup() as group:
        task = group.create_task(bench.run(QUICK, command=f"sleep {marker} & sleep {marker}; wait", description="d"))
        for _ in range(turns):
            await asyncio.sleep(0.001 if turns % 2 else 0)
        time.sleep(0.03)  # the command goes on while the loop stands still
        task.cancel()
    assert task.cancelled()
    assert not [command for command in command_lines() if marker in command]


async def test_progress_is_shown_while_it_runs(bench: Bench) -> None:
    await bench.run(QUICK, command="echo one; sleep 0.5; echo two", description="d")
    outputs = [metadata["output"] for _, metadata in bench.shown]
    assert outputs[0] == ""
    assert "one\n" in outputs
    assert len(outputs) < 6


async def test_it_ends_when_the_command_does_not_when_its_output_is_closed(bench: Bench) -> None:
    started = time.monotonic()
    answer = await bench.run(QUICK, command="sleep 60 & echo $! > pid; echo done", description="d")
    assert time.monotonic() - started < 30
    assert answer.output.startswith("done\n")
    assert "background process" in answer.output
    os.kill(int(bench.path("pid").read_text()), 9)


async def test_long_output_is_kept_whole_in_a_file_and_its_end_is_shown(bench: Bench) -> None:
    answer = await bench.run(QUICK, command="seq 1 5000", description="d")
    assert answer.metadata["truncated"] is True
    path = Path(answer.metadata["outputPath"])
    assert path.read_text() == "".join(f"{number}\n" for number in range(1, 5001))
    assert answer.output.startswith("...3001 lines truncated...\n")
    assert answer.output.endswith("\n4999\n5000\n")
    assert str(path) in answer.output
    assert answer.metadata["output"].startswith("1\n")


async def test_huge_output_costs_no_memory(bench: Bench) -> None:
    answer = await bench.run(QUICK, command="head -c 30000000 /dev/zero | tr '\\0' x; echo; echo end", description="d")
    assert answer.output.endswith("\nend\n")
    assert "bytes truncated" in answer.output
    assert len(answer.output) < 60_000
    assert len(answer.metadata["output"]) < 31_000
    assert os.path.getsize(answer.metadata["outputPath"]) == 30_000_005


def test_what_does_not_fit_on_disk_is_counted(tmp_path: Path) -> None:
    capture = Capture(Outputs(directory=str(tmp_path), max_bytes=10), max_file_bytes=20)
    for _ in range(10):
        capture.feed(b"123456789\n")
    preview = capture.finish()
    assert preview.path is not None
    assert Path(preview.path).read_text() == "123456789\n" * 2 + "\n[80 more bytes were not saved]\n"


def test_the_end_of_a_long_output_starts_with_a_whole_character(tmp_path: Path) -> None:
    capture = Capture(Outputs(directory=str(tmp_path), max_bytes=100))
    for offset in range(4):
        capture.feed(b"x" * offset)
        for _ in range(30_000):
            capture.feed("漢字😀".encode())
        assert "\ufffd" not in capture.recent()
    capture.close()


async def test_output_that_cannot_be_kept_costs_no_command(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    bench.outputs = Outputs(directory=str(tmp_path / "file" / "below"))
    answer = await bench.run(QUICK, command="seq 1 5000", description="d")
    assert answer.metadata["truncated"] is True
    assert "outputPath" not in answer.metadata
    assert "The rest is lost" in answer.output
    assert answer.output.endswith("\n5000\n")


async def test_what_a_command_printed_can_be_read_by_its_owner_alone(bench: Bench) -> None:
    answer = await bench.run(QUICK, command="seq 1 5000", description="d")
    assert os.stat(answer.metadata["outputPath"]).st_mode & 0o777 == 0o600
    assert os.stat(bench.outputs.directory).st_mode & 0o777 == 0o700


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_ends_the_keeping_and_nothing_else(tmp_path: Path) -> None:
    class Full(Outputs, frozen=True, kw_only=True):
        def new_file(self) -> tuple[str, FileIO]:
            return "/dev/full", FileIO("/dev/full", "wb")

    capture = Capture(Full(directory=str(tmp_path), max_bytes=15))
    for _ in range(3):
        capture.feed(b"0123456789\n")
    text = capture.finish().text
    assert text.endswith("\n0123456789\n")
    assert "The rest is lost" in text


async def test_a_nul_cannot_be_run(bench: Bench) -> None:
    with pytest.raises(ToolFailedError, match="NUL"):
        await bench.run(QUICK, command="echo a\0b")


async def test_a_missing_shell_is_reported(bench: Bench, tmp_path: Path) -> None:
    broken = tmp_path / "bash"
    broken.write_bytes(b"\x7fELF")
    broken.chmod(0o755)
    with pytest.raises(ToolFailedError, match="could not be started"):
        await bench.run(BashTool(environment={"SHELL": str(broken)}), command="make")


def test_the_users_shell_is_used_unless_it_speaks_another_language(tmp_path: Path) -> None:
    for name in ("zsh", "fish", "bash"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    path = str(tmp_path)
    assert select_shell({"SHELL": f"{path}/zsh", "PATH": path}).language == "zsh"
    assert select_shell({"SHELL": f"{path}/fish", "PATH": path}).path == f"{path}/bash"
    assert select_shell({"SHELL": f"{path}/gone", "PATH": path}).path == f"{path}/bash"
    assert select_shell({"SHELL": "/bin/sh", "PATH": path}).language == "posix"
    assert select_shell({"PATH": str(tmp_path / "empty")}).path in ("/bin/bash", "/bin/sh")


async def test_it_works_where_git_and_ripgrep_are_missing(bench: Bench) -> None:
    tool = BashTool(environment={"SHELL": "/bin/sh", "PATH": "/nonexistent"})
    assert (await bench.run(tool, command="echo x", description="d")).output == "x\n"


async def test_calls_run_at_the_same_time(bench: Bench) -> None:
    command = "touch mark{0}; until [ -e mark0 -a -e mark1 -a -e mark2 -a -e mark3 ]; do sleep 0.02; done; echo met"
    async with asyncio.TaskGroup() as group:
        calls = [
            group.create_task(bench.run(QUICK, command=command.format(number), description="d")) for number in range(4)
        ]
    assert [call.result().output for call in calls] == ["met\n"] * 4
