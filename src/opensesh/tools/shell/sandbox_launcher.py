"""Apply the kernel's locks to this process, then become the program that is given.

Run as a script, by its path and without the package: ``python -I -S sandbox_launcher.py [FLAG...] -- PROGRAM ARG...``.
Landlock decides which files may be written, and a seccomp filter refuses system calls that Landlock does not cover.
Every process that the program starts inherits both and cannot remove them. If one of them cannot be applied, the
program is not run and the exit code is 126.

``--landlock``
    Refuse to write anything but device files without content, and what is in or below the paths of ``--write PATH``.
``--strict``
    Also refuse to change modes, owners, times and attributes, to send signals to processes outside, and Unix sockets.
``--no-network``
    Refuse sockets of networks.
"""

from __future__ import annotations

import ctypes
import os
import platform
import stat
import struct
import sys
from itertools import pairwise

FAILED = 126
MIN_LANDLOCK_ABI = 3
"""The first that covers truncation, without which every file could be emptied."""

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULESET_VERSION = 1
_PATH_BENEATH = 1
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _SECCOMP_MODE_FILTER = 22, 38, 2
_ABI_NETWORK, _ABI_DEVICES, _ABI_SCOPES = 4, 5, 6
_WRITE_FILE, _TRUNCATE, _IOCTL_DEV = 1 << 1, 1 << 14, 1 << 15
_CHANGE_FOLDER = sum(1 << bit for bit in range(4, 14))
"""Remove (4, 5), create (6 to 12), and move between folders (13)."""
_CREATE_DEVICE = 1 << 6 | 1 << 11
"""Character and block devices: behind one that root creates, a disk could be written past all checks of files."""
_TCP = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/random", "/dev/urandom")

_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_AUDIT_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000
"""Numbers from here on are system calls of x86_64 for programs with short pointers."""
_NONE = -1

# By name, the number on x86_64 and on aarch64.
_ALWAYS_REFUSED = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_setup": (425, 425),  # it makes other system calls, which the filter would not see
    "ioperm": (173, _NONE),
    "iopl": (172, _NONE),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "pivot_root": (155, 41),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "umount2": (166, 39),
}
_METADATA = {
    "chmod": (90, _NONE),
    "chown": (92, _NONE),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "file_setattr": (469, 469),
    "fremovexattr": (199, 16),
    "fsetxattr": (190, 7),
    "futimesat": (261, _NONE),
    "lchown": (94, _NONE),
    "lremovexattr": (198, 15),
    "lsetxattr": (189, 6),
    "removexattr": (197, 14),
    "removexattrat": (466, 466),
    "setxattr": (188, 5),
    "setxattrat": (463, 463),
    "utime": (132, _NONE),
    "utimensat": (280, 88),
    "utimes": (235, _NONE),
}
_OTHER_PROGRAMS = {
    "mq_open": (240, 180),
    "mq_timedsend": (242, 182),
    "mq_unlink": (241, 181),
    "msgctl": (71, 187),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "semctl": (66, 191),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmget": (29, 194),
}
"""Messages to other programs, and memory and semaphores shared with them: what they do then, they do outside of the
sandbox. The kernel keeps these objects until they are removed."""
_SOCKET = (41, 198)
_SOCKET_PAIR = (53, 199)
_CONNECTED_SOCKETS = (1, 5)
"""Streams and sequences of packets. One of another type, even of a pair, can send to any socket of its family."""
_SOCKET_TYPE = 0xF
_NETLINK_ROUTE = 0
"""What programs look up addresses with. Through other protocols, root could have the services of the system act."""
_PRLIMIT = (302, 261)
_IOCTL = (16, 29)
_TYPED_INPUT = (0x5412, 0x541C)
"""Input for a terminal as if it were typed."""
_REFUSED_IOCTLS = (
    *_TYPED_INPUT,
    *(0x40086602, 0x40046602, 0x401C5820, 0x40047211, 0x40086604, 0x40087602),  # attributes and versions of files
    *(0x40806685, 0x800C6613),  # verity and encryption, which make a file read-only or unreadable
    # Subvolumes of btrfs, which are created, changed and removed without the checks that Landlock is part of.
    *(0x50009401, 0x5000940E, 0x5000940F, 0x50009417, 0x50009418, 0x5000943F, 0x4008941A),
)
_CLASS = 0xFF00
_READING_CLASSES = (0x5400, 0x8900)
"""Of terminals and pipes, and of network interfaces."""
_READING_IOCTLS = (0x1, 0x2, 0x1260, 0x80081272, 0x80086601, 0x801C581F, 0xC020660B)
"""Sizes, attributes and extents of files and disks."""

_LOAD, _EQUAL, _AT_LEAST, _RETURN, _AND = 0x20, 0x15, 0x35, 0x06, 0x54
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | 1  # the error is EPERM
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET, _FIRST_ARGUMENT, _SECOND_ARGUMENT, _THIRD_ARGUMENT = 0, 4, 16, 24, 32


class LockError(Exception):
    """A lock that could not be applied."""


def landlock_abi() -> int:
    """Return the version of Landlock in this kernel; 0 without it."""
    return max(0, _syscall(_CREATE_RULESET, None, 0, _RULESET_VERSION))


def has_filter() -> bool:
    """Return whether the numbers of this architecture's system calls are known."""
    return platform.machine() in _AUDIT_ARCHITECTURE


def _syscall(number: int, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc.syscall(ctypes.c_long(number), *arguments)


def _control(option: int, value: int, argument: bytes | None = None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), argument, None, None):
        raise LockError(f"prctl {option} failed: {os.strerror(ctypes.get_errno())}")


def restrict_files(writable: list[str], *, strict: bool, network: bool) -> None:
    """Apply Landlock: refuse to change any file but devices and what is in or below ``writable``."""
    abi = landlock_abi()
    if abi < MIN_LANDLOCK_ABI:
        raise LockError(f"Landlock has version {abi} in this kernel, and {MIN_LANDLOCK_ABI} is needed")
    handled = _WRITE_FILE | _CHANGE_FOLDER | _TRUNCATE | (_IOCTL_DEV if abi >= _ABI_DEVICES else 0)
    fields = [handled]
    if abi >= _ABI_NETWORK:
        fields.append(0 if network else _TCP)
    if abi >= _ABI_SCOPES:
        fields.append(_ABSTRACT_SOCKETS_AND_SIGNALS if strict else 0)
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    ruleset = _syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        raise LockError(f"Landlock refused the rules: {os.strerror(ctypes.get_errno())}")
    for path in (*_DEVICES, *writable):
        _allow_writing(ruleset, path, handled)
    if _syscall(_RESTRICT_SELF, ruleset, 0):
        raise LockError(f"Landlock was not applied: {os.strerror(ctypes.get_errno())}")
    os.close(ruleset)


def _allow_writing(ruleset: int, path: str, handled: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what does not exist stays refused
    is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
    allowed = handled & (~_CREATE_DEVICE if is_folder else _WRITE_FILE | _TRUNCATE | _IOCTL_DEV)
    rule = struct.pack("=Qi", allowed, descriptor)
    failed = _syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    os.close(descriptor)
    if failed:
        raise LockError(f"Landlock refused a rule for {path}: {os.strerror(ctypes.get_errno())}")


def restrict_system_calls(*, strict: bool, network: bool) -> None:
    """Apply the seccomp filter."""
    instructions = filter_program(platform.machine(), strict=strict, network=network)
    program = b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    _control(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header)


def filter_program(machine: str, *, strict: bool, network: bool) -> list[tuple[int, int, int, int]]:
    """Return a program for the kernel's filter: refuse these numbers and arguments, allow everything else."""
    if machine not in _AUDIT_ARCHITECTURE:
        raise LockError(f"the system calls of {machine} are not known")
    column = list(_AUDIT_ARCHITECTURE).index(machine)
    refuse = (_RETURN, 0, 0, _REFUSE)
    allow = (_RETURN, 0, 0, _ALLOW)
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE_OFFSET),
        (_EQUAL, 1, 0, _AUDIT_ARCHITECTURE[machine]),
        refuse,  # a program for another architecture, with other numbers
        (_LOAD, 0, 0, _NUMBER_OFFSET),
    ]
    if machine == "x86_64":
        program += [(_AT_LEAST, 0, 1, _X32), refuse]
    for numbers in (*_ALWAYS_REFUSED.values(), *(({**_METADATA, **_OTHER_PROGRAMS}).values() if strict else ())):
        if numbers[column] != _NONE:
            program += [(_EQUAL, 0, 1, numbers[column]), refuse]
    families = [_AF_UNIX] * (not strict) + [_AF_INET, _AF_INET6] * network + [_AF_NETLINK] * (not strict)
    if strict or not network:
        allowed = [step for family in families for step in ((_EQUAL, 0, 1, family), allow)]
        if strict and network:
            routes = [(_LOAD, 0, 0, _THIRD_ARGUMENT), (_EQUAL, 0, 1, _NETLINK_ROUTE), allow]
            allowed += [(_EQUAL, 0, len(routes), _AF_NETLINK), *routes]
        program += [(_EQUAL, 0, len(allowed) + 2, _SOCKET[column]), (_LOAD, 0, 0, _FIRST_ARGUMENT), *allowed, refuse]
    if strict:
        allowed = [step for kind in _CONNECTED_SOCKETS for step in ((_EQUAL, 0, 1, kind), allow)]
        checks = [(_LOAD, 0, 0, _SECOND_ARGUMENT), (_AND, 0, 0, _SOCKET_TYPE), *allowed, refuse]
        program += [(_EQUAL, 0, len(checks), _SOCKET_PAIR[column]), *checks]
        # A limit of processor time or file size ends another process as a signal does. 0 is the process itself.
        program += [(_EQUAL, 0, 4, _PRLIMIT[column]), (_LOAD, 0, 0, _FIRST_ARGUMENT), (_EQUAL, 0, 1, 0), allow, refuse]
        # File systems have too many of their own to list what they change, so only what is known to read is allowed.
        checks = [step for command in _TYPED_INPUT for step in ((_EQUAL, 0, 1, command), refuse)]
        checks += [step for command in _READING_IOCTLS for step in ((_EQUAL, 0, 1, command), allow)]
        checks.append((_AND, 0, 0, _CLASS))
        checks += [step for kind in _READING_CLASSES for step in ((_EQUAL, 0, 1, kind), allow)]
        checks.append(refuse)
    else:
        checks = [step for command in _REFUSED_IOCTLS for step in ((_EQUAL, 0, 1, command), refuse)]
    program += [(_EQUAL, 0, len(checks) + 1, _IOCTL[column]), (_LOAD, 0, 0, _SECOND_ARGUMENT), *checks]
    return [*program, allow]


def main(arguments: list[str]) -> int:
    """Apply what the flags say and run the program. Returns only if that fails."""
    import resource  # does not exist on Windows, where this module is imported by tests only

    separator = arguments.index("--")
    flags, program = arguments[:separator], arguments[separator + 1 :]
    writable = [value for flag, value in pairwise(flags) if flag == "--write"]
    strict, network = "--strict" in flags, "--no-network" not in flags
    try:
        if strict and resource.getrlimit(resource.RLIMIT_CORE)[1] != 0:
            # Only with 1 does the kernel start no program that stores the memory of a crashed process in a file.
            resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
        _control(_PR_SET_NO_NEW_PRIVS, 1)
        if "--landlock" in flags:
            restrict_files(writable, strict=strict, network=network)
        restrict_system_calls(strict=strict, network=network)
    except (LockError, OSError) as error:
        print(f"the command was not run, because its sandbox could not be set up: {error}", file=sys.stderr)
        return FAILED
    try:
        os.execv(program[0], program)
    except OSError as error:
        print(f"{program[0]} could not be started: {error.strerror}", file=sys.stderr)
    return FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
