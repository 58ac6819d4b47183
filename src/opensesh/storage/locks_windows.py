"""File locks on Windows: ``LockFileEx`` on a byte far beyond the end of the file, which keeps its content readable."""

from __future__ import annotations

import ctypes
import sys

_EXCLUSIVE = 0x2
_AT_ONCE = 0x1
_LOCK_VIOLATION = 33
_OFFSET = 0x4000_0000


class _Overlapped(ctypes.Structure):
    _fields_ = (
        ("internal", ctypes.c_void_p),
        ("internal_high", ctypes.c_void_p),
        ("offset", ctypes.c_uint32),
        ("offset_high", ctypes.c_uint32),
        ("event", ctypes.c_void_p),
    )


def lock_file(descriptor: int, *, shared: bool) -> None:
    """Wait for the lock. It is released when the descriptor is closed or the process ends."""
    error = _lock(descriptor, 0 if shared else _EXCLUSIVE)
    if error:
        raise OSError(error, "LockFileEx failed")


def try_lock_file(descriptor: int, *, shared: bool = False) -> bool:
    """Take the lock if it is free; return whether it was."""
    error = _lock(descriptor, _AT_ONCE if shared else _EXCLUSIVE | _AT_ONCE)
    if error not in (0, _LOCK_VIOLATION):
        raise OSError(error, "LockFileEx failed")
    return not error


def _lock(descriptor: int, flags: int) -> int:
    if sys.platform != "win32":
        raise OSError("LockFileEx is a call of Windows")
    import msvcrt

    kernel = ctypes.WinDLL("kernel32", use_last_error=True)
    handle = ctypes.c_void_p(msvcrt.get_osfhandle(descriptor))
    region = _Overlapped(offset=_OFFSET)
    taken = kernel.LockFileEx(handle, flags, 0, 1, 0, ctypes.byref(region))
    return 0 if taken else ctypes.get_last_error()
