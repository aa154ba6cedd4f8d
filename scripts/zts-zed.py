#!/usr/bin/python3
"""Usage: zed [-vF] -d FOLDER -P PATH -s STATE [-j JOBS]

Only OpenZFS's test suite runs this; scripts/zts-inside.sh calls it `zed`.

It runs the executables of a directory for each event, as OpenZFS's zed(8) runs its zedlets: those
named all*, CLASS* or SUBCLASS*, in the order of their names, one at a time. Each gets the event in
ZEVENT_* variables.

Our daemon does that itself (`serve --event-dir`), for events that occur while it runs. The suite's
tests start and stop a process of this name. They give it a directory that did not exist before,
and expect the events of the time when it was stopped. So this program reads `zpool events -f`, and
keeps its position in STATE.

It does not do what zed does with devices: the daemon does that, and reports it in its own log.
"""

import atexit
import getopt
import os
import re
import signal
import stat
import subprocess
import sys
import time

# The time limit of a zedlet in seconds.
LIMIT = 60
STATES = {"UNKNOWN": 0, "OFFLINE": 2, "REMOVED": 3, "UNAVAIL": 4, "FAULTED": 5, "DEGRADED": 6, "ONLINE": 7}
POOL_STATES = ["ACTIVE", "EXPORTED", "DESTROYED", "SPARE", "L2CACHE", "UNINITIALIZED", "UNAVAIL", "POTENTIALLY_ACTIVE"]


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def number(name, n):
    return f"0x{n:016X}" if name.endswith(("_guid", "_guids")) else str(n)


def variables(lines):
    """The variables of an event for zedlets, from the lines of `zpool events -v`."""
    found = {}
    for line in lines:
        match = re.fullmatch(r" {8}(\w[^=]*) = (.*)", line, re.S)
        if not match:
            continue
        name, value = match[1], match[2]
        variable = "ZEVENT_" + re.sub(r"[^A-Z0-9]", "_", name.upper())
        state = re.fullmatch(r'"(.*)" \((0x[0-9a-f]+)\)', value)
        if state:
            found[variable] = str(int(state[2], 16))
            found[variable + "_STR"] = state[1]
        elif value.startswith('"'):
            found[variable] = value[1:-1]
        elif value.startswith("0x"):
            found[variable] = " ".join(number(name, int(n, 16)) for n in value.split())
        else:
            found[variable] = "_NOT_IMPLEMENTED_"
    if "ZEVENT_POOL_STATE" in found:
        found["ZEVENT_POOL_STATE_STR"] = POOL_STATES[int(found["ZEVENT_POOL_STATE"])]
    seconds, nanoseconds = found["ZEVENT_TIME"].split()
    found["ZEVENT_TIME_SECS"], found["ZEVENT_TIME_NSECS"] = seconds, nanoseconds
    found["ZEVENT_TIME_STRING"] = time.strftime("%Y-%m-%d %H:%M:%S%z", time.localtime(int(seconds)))
    found["ZEVENT_SUBCLASS"] = re.sub(r"^.*\.fs\.zfs\.", "", found["ZEVENT_CLASS"])
    return found


def fitting(folder, event):
    """The zedlets that fit an event, in order."""
    for name in sorted(os.listdir(folder)):
        starts = ("all", event["ZEVENT_CLASS"], event["ZEVENT_SUBCLASS"])
        if not any(name.startswith(start) and not name[len(start) : len(start) + 1].isalnum() for start in starts):
            continue
        path = os.path.join(folder, name)
        of = os.stat(path)
        if stat.S_ISREG(of.st_mode) and of.st_uid == 0 and of.st_mode & stat.S_IXUSR and not of.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            yield path


def run(path, event, environment, zfs):
    eid = event["ZEVENT_EID"]
    say(f'Invoking "{os.path.basename(path)}" eid={eid}')
    # As with zed, file descriptor 3 of a zedlet is the event device.
    child = subprocess.Popen(
        [path], env=environment | event, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", pass_fds=[zfs], start_new_session=True
    )
    try:
        say(f'Finished "{os.path.basename(path)}" eid={eid} exit={child.wait(LIMIT)}')
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        say(f'Killed "{os.path.basename(path)}" eid={eid}')
        child.wait()


class Ending:
    """Delays the end of the process until an event is done, so that each event runs exactly once."""

    busy = wanted = False

    def asked(self, *_):
        self.wanted = True
        if not self.busy:
            sys.exit(0)

    def during(self, busy):
        self.busy = busy
        if self.wanted and not busy:
            sys.exit(0)


def events():
    """Yields the variables of each event, without end."""
    while True:
        asked = subprocess.Popen(["zpool", "events", "-vHf"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace")
        atexit.register(asked.terminate)
        lines = []
        for line in asked.stdout:
            line = line.rstrip("\n")
            if line:
                lines.append(line)
            elif lines:
                yield variables(lines)
                lines = []
        asked.wait()
        atexit.unregister(asked.terminate)
        # Another daemon is starting.
        time.sleep(0.5)


def main():
    options = dict(getopt.getopt(sys.argv[1:], "vFfMZIhd:P:s:p:j:")[0])
    folder, state, path = options["-d"], options["-s"], options["-P"]
    zfs = 3
    if (opened := os.open("/dev/zfs", os.O_RDWR)) != zfs:
        os.dup2(opened, zfs)
    os.set_inheritable(zfs, True)
    environment = {"IFS": " \t\n", "PATH": path, "ZED_PID": str(os.getpid()), "ZED_ZEDLET_DIR": folder, "ZFS_ALIAS": "zfs-2.3.2-1", "ZFS_VERSION": "2.3.2", "ZFS_RELEASE": "1"}
    environment |= {name.upper(): os.path.join(path, name) for name in ("zdb", "zfs", "zinject", "zpool")}
    # A new daemon numbers its events from the beginning, so its later times count.
    seen = (0, (0, 0))
    if os.path.exists(state):
        with open(state, encoding="ascii") as kept:
            words = [int(word) for word in kept.read().split()]
            seen = (words[0], (words[1], words[2]))
    ending = Ending()
    signal.signal(signal.SIGTERM, ending.asked)
    say(f"Processing events since eid={seen[0]}")
    for event in events():
        eid, when = int(event["ZEVENT_EID"]), (int(event["ZEVENT_TIME_SECS"]), int(event["ZEVENT_TIME_NSECS"]))
        if eid <= seen[0] and when <= seen[1]:
            continue
        ending.during(True)
        for zedlet in fitting(folder, event):
            run(zedlet, event, environment, zfs)
        seen = (eid, max(when, seen[1]))
        with open(state + ".new", "w", encoding="ascii") as kept:
            print(seen[0], *seen[1], file=kept)
        os.replace(state + ".new", state)
        ending.during(False)


if __name__ == "__main__":
    main()
