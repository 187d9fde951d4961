"""Network file systems, whose locks and shared memory programs on several machines cannot rely on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

NETWORK = frozenset(
    "nfs nfs4 lustre cifs smb3 smbfs gpfs beegfs ceph fuse.sshfs fuse.glusterfs afs pvfs2 panfs".split()
)
"""Their types, as Linux lists its mounts."""


def type_at(real: Path, types: Mapping[str, str]) -> str:
    """Return the type of the file system of a path without links; "" where that is unknown.

    `types`: those of all file systems, by the folder where each is mounted."""
    return next((types[str(folder)] for folder in (real, *real.parents) if str(folder) in types), "")
