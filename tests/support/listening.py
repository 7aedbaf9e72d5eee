"""Where processes listen, as Linux tells it."""

import contextlib
import ipaddress
import os
import struct
from pathlib import Path

LISTEN = "0A"


def family(process: int) -> list[int]:
    """Return a process and all that it, and they, began."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = [process]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def listening(process: int) -> list[str]:
    """Return the addresses on which a process, or one that it began, waits to be spoken to."""
    sockets = set()
    for one in family(process):
        for handle in Path(f"/proc/{one}/fd").glob("*"):
            with contextlib.suppress(OSError):
                sockets.add(os.readlink(handle))
    rows = [line.split() for kind in ("tcp", "tcp6") for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]]
    return sorted(address(row[1]) for row in rows if row[3] == LISTEN and f"socket:[{row[9]}]" in sockets)


def address(told: str) -> str:
    """Return an address of /proc/net, whose words of four bytes are in this machine's order."""
    raw = bytes.fromhex(told.partition(":")[0])
    found = ipaddress.ip_address(b"".join(struct.pack("!I", word) for (word,) in struct.iter_unpack("=I", raw)))
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)
