"""A lock on a folder, which one run holds at a time. The system releases it when the process ends, however it ends."""

import errno
import os
import socket
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

NAME = ".steelyard-lock"
# What systems answer where the lock is taken, and where there are no locks at all, as on some network file systems.
TAKEN = {errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK}
UNKNOWN = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK, errno.EINVAL}
# Windows locks bytes, and nobody else may read them: one far behind what is written.
FAR = 1 << 20


class Busy(Exception):
    """Somebody else holds the lock; says who."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder. Where the file system has no locks, go on without, and warn.

    Raises:
        Busy: somebody else holds it, in this process or in another one.
        OSError: the folder cannot be written.
    """
    path = folder / NAME
    file = _open(path)
    try:
        os.ftruncate(file, 0)
        os.write(file, f"process {os.getpid()} on {socket.gethostname()}".encode())
        yield
    finally:
        # Removed while it is held: whoever has the file open sees that it is not the one of the folder any more.
        # Windows does not remove a file that is open, and there it stays.
        with suppress(OSError):
            path.unlink()
        os.close(file)


def _open(path: Path) -> int:
    """Open the file and lock it; again, if somebody removed it in between."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(file, path.parent)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), os.stat(path)):
                    return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def _lock(file: int, folder: Path) -> None:
    try:
        if sys.platform == "win32":
            os.lseek(file, FAR, os.SEEK_SET)
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in TAKEN:
            os.lseek(file, 0, os.SEEK_SET)
            raise Busy(os.read(file, 1000).decode(errors="replace") or "another process") from error
        if error.errno not in UNKNOWN:
            raise
        warnings.warn(f"{folder}: there are no locks here ({error}). See that no other run uses it.", stacklevel=2)
    os.lseek(file, 0, os.SEEK_SET)
