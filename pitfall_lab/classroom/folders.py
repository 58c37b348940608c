"""Folders that a submission has filled: what is in them is counted (:func:`is_overfull`, :func:`unlinked`), and removed
(:func:`removed`, :func:`emptied`), however deep it made them.

Python's own ``shutil.rmtree`` and ``os.walk`` call themselves for each level, and a path of more than 4,096 bytes has
no name for the kernel. So nothing here recurses, and what is nested deeply is first moved up: no path is longer than a
folder and one name.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path


def removed(folder: Path) -> bool:
    """Remove a folder with everything in it and return whether it is gone. Raises nothing; links are not followed."""
    emptied(folder)
    with contextlib.suppress(OSError):
        folder.rmdir()
    return not os.path.lexists(folder)


def emptied(folder: Path) -> bool:
    """Remove everything in a folder and return whether it is empty. Raises nothing; links are not followed."""
    try:
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        while _lift(place):
            pass
        return not os.listdir(place)  # noqa: PTH208 - a folder that is open
    except OSError:
        return False
    finally:
        os.close(place)


def _lift(place: int) -> bool:
    """Remove what is in the open folder ``place``, except that folders two levels down are moved into ``place``.

    Returns whether anything was removed; to be called until it returns False.
    """
    done = False
    for name in os.listdir(place):
        with contextlib.suppress(OSError):
            if not stat.S_ISDIR(os.lstat(name, dir_fd=place).st_mode):
                os.unlink(name, dir_fd=place)
            else:
                _raise_up(place, name)
                os.rmdir(name, dir_fd=place)
            done = True
    return done


def _raise_up(place: int, name: str) -> None:
    """Move the subfolders of the folder ``name`` into its parent ``place``, under random names, and remove its
    files.
    """
    os.chmod(name, 0o700, dir_fd=place)  # a folder can be made that its own owner may not list
    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
    try:
        for entry in os.listdir(inner):  # noqa: PTH208 - as above
            if stat.S_ISDIR(os.lstat(entry, dir_fd=inner).st_mode):
                os.chmod(entry, 0o700, dir_fd=inner)  # a folder that may not be written cannot be moved
                os.rename(entry, secrets.token_hex(16), src_dir_fd=inner, dst_dir_fd=place)
            else:
                os.unlink(entry, dir_fd=inner)
    finally:
        os.close(inner)


def is_overfull(folder: Path, *, size: int, files: int) -> bool:
    """Whether there is more in ``folder`` than ``size`` bytes or ``files`` files and folders, or
    something that cannot be counted.

    A folder that is gone when it is opened may have another name by now, so everything is counted again, a few times.
    """
    return next((found for _ in range(8) if (found := _is_over(folder, size, files)) is not None), True)


def _is_over(folder: Path, left: int, count: int) -> bool | None:
    """Like :func:`is_overfull`, from a single look; None if something disappeared before it could be counted."""
    waiting, gone = [str(folder)], False
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    count -= 1
                    with contextlib.suppress(FileNotFoundError):
                        left -= entry.stat(follow_symlinks=False).st_size
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    if left < 0 or count < 0:
                        return True
        except OSError as problem:  # too deep, or shut to us, which is nothing that an exercise needs
            if problem.errno not in (errno.ENOENT, errno.ENOTDIR):
                return True
            gone = True
    return None if gone else left < 0


def unlinked(process: int, folder: Path, *, largest: int) -> int:
    """How many bytes ``process`` (its id) still holds in removed files: those it has open, and those mapped from
    ``folder``.

    0 if the process has ended. The size of a file that is only mapped cannot be seen, so it counts as ``largest``, the
    most that a file may have. The threads of a process share open files and memory; they are read from a thread that
    still runs, which the first one need not be.
    """
    sizes: dict[int, int] = {}
    with contextlib.suppress(OSError):  # it has ended
        threads = [f"/proc/{process}/task/{number}" for number in os.listdir(f"/proc/{process}/task")]  # noqa: PTH208 - ten times a second
        for thread in threads:
            if mapped := Path(thread, "maps").read_bytes():
                break
        else:
            return 0
        for name in os.listdir(f"{thread}/fd"):  # noqa: PTH208 - as above
            with contextlib.suppress(OSError):
                seen = os.stat(f"{thread}/fd/{name}")  # noqa: PTH116 - as above
                if stat.S_ISREG(seen.st_mode) and seen.st_nlink == 0:
                    sizes[seen.st_ino] = seen.st_size
        for line in mapped.splitlines():
            if line.endswith(b" (deleted)") and os.fsencode(folder) in line:
                sizes.setdefault(int(line.split(maxsplit=5)[4]), largest)
    return sum(sizes.values())
