#!/usr/bin/env python3
"""Usage: open-dump.py <DUMP >NEW

Gives anonymous users all rights to the root of a new, empty volume, in its dump. A cell without
Kerberos has no other users, and `vos create` gives rights to administrators only.
"""
import struct
import sys

ADMINISTRATORS, ANYUSER, ALL = -204, -101, 127


def access_list(users):
    """The 192 bytes of an access list: size, version, total, positive, negative, entries."""
    entries = b"".join(struct.pack(">2i", user, ALL) for user in users)
    return struct.pack(">5i", 20 + len(entries), 1, len(users), len(users), 0) + entries


dump = sys.stdin.buffer.read()
old = access_list([ADMINISTRATORS])
place = dump.find(old[4:])
if place < 0 or dump.find(old[4:], place + 1) >= 0:
    sys.exit("not the dump of a new volume")
new = access_list([ADMINISTRATORS, ANYUSER])
place -= 4
sys.stdout.buffer.write(dump[:place] + new + dump[place + len(new):])
