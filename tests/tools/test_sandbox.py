from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from opensesh.config import load
from opensesh.errors import ToolFailedError
from opensesh.tools.bash import BashTool
from opensesh.tools.shell import sandbox, sandbox_launcher
from opensesh.tools.shell.sandbox import Confinement, Lock, SandboxPolicy, find_lock, sandboxed_arguments

from .bench import Bench

LANDLOCK, BUBBLEWRAP = Lock("landlock", ""), Lock("bubblewrap", "")
LOCKS = [
    pytest.param(
        LANDLOCK,
        marks=pytest.mark.skipif(
            sys.platform != "linux" or sandbox_launcher.landlock_abi() < sandbox_launcher.MIN_LANDLOCK_ABI,
            reason="needs Landlock",
        ),
    ),
    pytest.param(BUBBLEWRAP, marks=pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")),
]
needs_lock = pytest.mark.skipif(find_lock() is None, reason="this machine has no sandbox")


def run(command: str, folder: Path, policy: SandboxPolicy, lock: Lock) -> subprocess.CompletedProcess[str]:
    arguments = sandboxed_arguments(["/bin/sh", "-c", command], policy, lock)
    return subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "writable").mkdir()
    (tmp_path / "file").write_text("one\n")
    return tmp_path


@pytest.mark.parametrize("lock", LOCKS)
@pytest.mark.parametrize(
    "command",
    [
        "echo x > file",
        "echo x >> file",
        "echo x > new",
        "rm file",
        "mv file other",
        "mkdir new",
        "ln -s file new",
        "ln file writable/link && echo x > writable/link",
        "mkfifo new",
        "chmod 600 file",
        "touch -d 2001-01-01 file",
        "python3 -c 'import os; os.truncate(\"file\", 0)'",
        "python3 -c 'import os; os.chown(\"file\", 1, 1)'",
        'python3 -c \'import os; os.setxattr("file", "user.x", b"1")\'',
        "ln -s ../file writable/link && echo x > writable/link",
        "sh -c 'echo x > file'",
        "(echo x > file) & wait",
        "exec 3<file; echo x > /proc/self/fd/3",
        "exec 3<file; echo x > /dev/fd/3",
        "echo x > /proc/self/cwd/file; echo x > /proc/1/cwd/file; echo x > /proc/self/root$PWD/file",
        "python3 -c 'import os; os.open(\".\", os.O_TMPFILE | os.O_RDWR)'",
        'python3 -c \'import os; os.link("file", "new")\'',
        'python3 -c \'import os; os.rename("writable", "elsewhere")\'',
        'python3 -c \'import os; os.utime("file", (1, 1)); os.chmod("file", 0)\'',
        "python3 -c 'import os; os.mknod(\"new\")'",
        "python3 -c 'import os; os.posix_fallocate(os.open(\"file\", os.O_RDONLY), 0, 99)'",
        'python3 -c \'import fcntl; fcntl.ioctl(open("file"), 0x40086602, b"\\x40" + bytes(7))\'',
        "unshare -rm sh -c 'mount --bind writable . ; echo x > file'",
        "unshare -rm sh -c 'mount -o remount,rw / ; echo x > file'",
        "ulimit -c unlimited; sh -c 'kill -SEGV $$'",
        "dd if=/dev/zero of=file bs=1 count=1 conv=notrunc",
        "cp /bin/true writable/t && writable/t && cp -p file writable/f && chmod 600 file",
        "ln -s $PWD writable/up && cd writable/up && echo x > new",
    ],
)
def test_a_command_changes_nothing_outside_of_its_folders(lock: Lock, command: str, folder: Path) -> None:
    before = os.stat(folder / "file")
    run(command, folder, SandboxPolicy(writable=(str(folder / "writable"),)), lock)
    after = os.stat(folder / "file")
    assert (folder / "file").read_text() == "one\n"
    assert (before.st_mode, before.st_mtime_ns, before.st_uid) == (after.st_mode, after.st_mtime_ns, after.st_uid)
    assert {path.name for path in folder.iterdir()} == {"file", "writable"}
    assert os.listxattr(folder / "file") == []


@pytest.mark.parametrize("lock", LOCKS)
def test_a_command_works_in_its_folders_and_with_devices(lock: Lock, folder: Path) -> None:
    command = "cat file > writable/a && mv writable/a writable/b && rm writable/b && echo x > /dev/null && echo done"
    done = run(command, folder, SandboxPolicy(writable=(str(folder / "writable"),)), lock)
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)


CONNECT = "import socket; socket.socket(socket.{family}); print('opened')"


@pytest.mark.parametrize("lock", LOCKS)
@pytest.mark.parametrize(
    ("strict", "network", "family", "opens"),
    [
        (True, False, "AF_INET", False),
        (True, True, "AF_INET", True),
        (True, True, "AF_UNIX", False),
        (False, False, "AF_INET", False),
        (False, False, "AF_UNIX", True),
        (False, True, "AF_INET6", True),
    ],
)
def test_sockets_are_opened_as_the_policy_says(
    lock: Lock, strict: bool, network: bool, family: str, opens: bool, folder: Path
) -> None:
    policy = SandboxPolicy(strict=strict, network=network)
    done = run(f'python3 -c "{CONNECT.format(family=family)}"', folder, policy, lock)
    assert (done.stdout == "opened\n") is opens, done


_SEND = """
import socket, sys
for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET, socket.SOCK_STREAM):
    try:
        socket.socketpair(socket.AF_UNIX, kind)[0].sendto(b"from inside", "service")
    except OSError:
        print("refused")
"""


@pytest.mark.parametrize("lock", LOCKS)
@pytest.mark.parametrize("network", [True, False])
def test_no_socket_of_a_pair_reaches_a_service(lock: Lock, network: bool, folder: Path) -> None:
    (folder / "send.py").write_text(_SEND)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as service:
        service.bind(os.path.relpath(folder / "service"))
        run(f"{sys.executable} send.py", folder, SandboxPolicy(network=network), lock)
        with pytest.raises(BlockingIOError):
            service.recv(100, socket.MSG_DONTWAIT)


@pytest.mark.parametrize("lock", LOCKS)
@pytest.mark.parametrize(("protocol", "opens"), [(0, True), (9, False), (15, False), (16, False)])
def test_a_strict_policy_lets_programs_ask_the_kernel_for_addresses_only(
    lock: Lock, protocol: int, opens: bool, folder: Path
) -> None:
    code = f"import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, {protocol}); print('opened')"
    done = run(f'{sys.executable} -c "{code}"', folder, SandboxPolicy(network=True), lock)
    assert (done.stdout == "opened\n") is opens, done


_MEMORY = """
import ctypes, os, sys
pid, address = int(sys.argv[1]), int(sys.argv[2])
try:
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(address)
        memory.write(b"changed")
except OSError:
    pass
libc = ctypes.CDLL(None, use_errno=True)
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
text = ctypes.create_string_buffer(b"changed")
libc.process_vm_writev(pid, ctypes.byref(Vector(ctypes.addressof(text), 7)), 1, ctypes.byref(Vector(address, 7)), 1, 0)
"""


@pytest.mark.parametrize("lock", LOCKS)
@pytest.mark.parametrize("strict", [True, False])
def test_the_memory_of_a_process_outside_is_not_changed(lock: Lock, strict: bool, folder: Path) -> None:
    memory = ctypes.create_string_buffer(b"as it was")
    (folder / "attack.py").write_text(_MEMORY)
    address = ctypes.addressof(memory)
    run(
        f"{sys.executable} attack.py {os.getpid()} {address}",
        folder,
        SandboxPolicy(writable=(str(folder / "writable"),), strict=strict),
        lock,
    )
    assert memory.value == b"as it was"


@pytest.mark.parametrize("strict", [True, False])
def test_the_filter_refuses_what_landlock_does_not_know(strict: bool) -> None:
    calls = {"mount": 165, "fsopen": 430, "move_mount": 429, "io_uring_setup": 425, "setns": 308}
    only_strict = {"fchmod": 91, "setxattr": 188, "utimensat": 280, "shmat": 30, "file_setattr": 469, "mq_open": 240}
    ioctls = {"FS_IOC_SETFLAGS": 0x40086602, "BTRFS_IOC_SUBVOL_CREATE": 0x5000940E, "TIOCSTI": 0x5412}
    for number in (*calls.values(), *(only_strict.values() if strict else ())):
        assert outcome(number, 0, strict=strict) == "refused", number
    for command in (*ioctls.values(), *((0xABCD1234, 0x4004F50A) if strict else ())):
        assert outcome(16, command, strict=strict) == "refused", hex(command)
    for command in (0x5401, 0x5413, 0x541B, 0x80086601, 0x802C542A, 0x8933):
        assert outcome(16, command, strict=strict) == "allowed", hex(command)
    assert outcome(0, 0, strict=strict) == "allowed"
    assert outcome(302, 0, strict=strict, first_argument=0) == "allowed"  # limits of the process itself
    assert outcome(302, 0, strict=strict, first_argument=1) == ("refused" if strict else "allowed")


def outcome(number: int, second_argument: int, *, strict: bool, first_argument: int = 0) -> str:
    """What the filter decides about a system call of x86_64, by running its program as the kernel would."""
    data = {0: number, 4: 0xC000003E, 16: first_argument, 24: second_argument}
    accumulator, position = 0, 0
    program = sandbox_launcher.filter_program("x86_64", strict=strict, network=True)
    while True:
        code, if_true, if_false, value = program[position]
        position += 1
        match code:
            case 0x20:
                accumulator = data[value]
            case 0x54:
                accumulator &= value
            case 0x06:
                return "allowed" if value == 0x7FFF0000 else "refused"
            case _:
                is_true = accumulator == value if code == 0x15 else accumulator >= value
                position += if_true if is_true else if_false


@pytest.mark.parametrize("lock", LOCKS)
def test_no_process_outside_is_signalled(lock: Lock, folder: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        assert run(f"kill {sleeper.pid}", folder, SandboxPolicy(), lock).returncode != 0
        assert sleeper.poll() is None
        sleeper.kill()


@pytest.mark.parametrize("lock", LOCKS)
def test_no_limit_of_a_process_outside_is_set(lock: Lock, folder: Path) -> None:
    set_limits = "import resource, sys; resource.prlimit(int(sys.argv[1]), resource.RLIMIT_FSIZE, (0, 0))"
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        done = run(f"python3 -c '{set_limits}' {sleeper.pid}", folder, SandboxPolicy(), lock)
        assert done.returncode != 0
        assert "Max file size             0 " not in Path(f"/proc/{sleeper.pid}/limits").read_text()
        sleeper.kill()


@pytest.mark.parametrize("lock", LOCKS)
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("device", ["c 1 3", "b 7 0"])
def test_root_writes_to_no_device_that_it_creates(lock: Lock, strict: bool, device: str, folder: Path) -> None:
    command = f"mknod writable/device {device}; dd if=/dev/zero of=writable/device conv=notrunc,nocreat count=0"
    done = run(command, folder, SandboxPolicy(writable=(str(folder / "writable"),), strict=strict), lock)
    assert done.returncode != 0, done


@pytest.mark.parametrize("lock", LOCKS)
@pytest.mark.parametrize("strict", [True, False])
def test_root_changes_no_setting_of_the_kernel(lock: Lock, strict: bool, folder: Path) -> None:
    setting = "/proc/sys/kernel/core_pattern"
    done = run(
        f"cat {setting} > writable/old && cat writable/old > {setting}",
        folder,
        SandboxPolicy(writable=(str(folder / "writable"),), strict=strict),
        lock,
    )
    assert (folder / "writable" / "old").exists()
    assert done.returncode != 0, done


@pytest.mark.parametrize("lock", LOCKS)
def test_no_program_stores_the_memory_of_a_command_that_crashes(lock: Lock, folder: Path) -> None:
    read_limit = "import resource; print(resource.getrlimit(resource.RLIMIT_CORE))"
    assert run(f"python3 -c '{read_limit}'", folder, SandboxPolicy(), lock).stdout in ("(1, 1)\n", "(0, 0)\n")


def test_a_command_does_not_run_where_its_lock_cannot_be_applied(tmp_path: Path) -> None:
    launcher = Path(sandbox_launcher.__file__).read_text()
    broken = tmp_path / "launcher.py"
    broken.write_text(launcher.replace("MIN_LANDLOCK_ABI = 3", "MIN_LANDLOCK_ABI = 99"))
    arguments = [sys.executable, "-I", "-S", str(broken), "--landlock", "--", "/bin/sh", "-c", "echo ran"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == sandbox_launcher.FAILED
    assert done.stdout == ""
    assert "could not be set up" in done.stderr


@needs_lock
async def test_the_configured_sandbox_confines_ordinary_commands(bench: Bench, tmp_path: Path) -> None:
    bench.confined = Confinement(policy=SandboxPolicy(writable=(bench.directory,), strict=False))
    await bench.run(
        BashTool(), command=f"cp /etc/hostname inside; cp /etc/hostname {tmp_path}/outside; chmod 600 inside"
    )
    assert bench.path("inside").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "outside").exists()


@needs_lock
async def test_a_command_that_only_reads_cannot_write_in_any_mode(bench: Bench) -> None:
    evil = bench.path("bin")
    evil.mkdir()
    (evil / "ls").write_text(f"#!/bin/sh\ntouch {bench.path('new')}\necho ran\n")
    (evil / "ls").chmod(0o755)
    tool = BashTool(environment={**os.environ, "PATH": f"{evil}:{os.environ['PATH']}"})
    assert "ran" in (await bench.run(tool, command="ls")).output
    assert not bench.path("new").exists()


async def test_without_a_lock_a_configured_sandbox_refuses_to_run(bench: Bench) -> None:
    tool = BashTool(lock=lambda: None)
    bench.confined = Confinement(policy=SandboxPolicy(strict=False))
    with pytest.raises(ToolFailedError, match="sandbox"):
        await bench.run(tool, command="touch new")
    assert not bench.path("new").exists()
    assert (await bench.run(tool, command="echo read")).output == "read\n"


def test_a_project_can_only_tighten_the_sandbox(isolated: Path) -> None:
    own = isolated / ".config" / "opencode"
    own.mkdir(parents=True)
    settings = {"enabled": True, "network": True, "writable": ["~/cache"]}
    (own / "opencode.json").write_text(json.dumps({"opensesh": {"sandbox": settings}}))
    project = isolated / "work"
    policy = sandbox.sandbox_policy(load(str(project), str(project)), [str(project)])
    assert policy is not None
    assert policy.network
    assert str(isolated / "cache") in policy.writable
    hostile = {"enabled": False, "network": True, "writable": ["/"]}
    (project / "opencode.json").write_text(json.dumps({"opensesh": {"sandbox": hostile}}))
    policy = sandbox.sandbox_policy(load(str(project), str(project)), [str(project)])
    assert policy is not None
    assert not policy.network
    assert "/" not in policy.writable
