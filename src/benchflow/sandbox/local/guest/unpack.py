"""Extracting an archive into a folder, in a process of its own: `python -c ... ARCHIVE FOLDER`.

The folder is made the root of the process first, so that no link in the archive leads out of it.
"""

from __future__ import annotations

import bz2  # noqa: F401 - here and below: what is loaded on demand must be there before the root changes
import gzip  # noqa: F401
import lzma  # noqa: F401
import os
import sys
import tarfile
import zlib  # noqa: F401
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import StrOrBytesPath


class _Archive(tarfile.TarFile):
    def makedev(self, tarinfo: tarfile.TarInfo, targetpath: StrOrBytesPath) -> None:
        """A user namespace lets nobody make devices; a box has a /dev of its own in any case."""
        with suppress(PermissionError):
            super().makedev(tarinfo, targetpath)


def main(archive: str, folder: str) -> None:
    """Everything as it is in the archive: modes, links, devices, owners by number.

    Names of users are not looked up: the C library would load plug-ins from the new root.
    """
    with open(archive, "rb") as file:
        os.chdir(folder)
        os.chroot(".")
        sys.path.clear()
        try:
            with _Archive.open(fileobj=file) as members:
                members.extractall("/", numeric_owner=True, filter="fully_trusted")  # noqa: S202 - see the module
        except (tarfile.TarError, OSError) as error:
            sys.exit(str(error))
