"""The cell of scripts/afs/soak.py: its commands and servers, and what a client finds."""
import os
import re
import signal
import struct
import subprocess
import sys
import time

from soak_plan import HOSTS, State, short

# A file server may say: wait. 110 VBUSY, 106 VOFFLINE, 101 VSALVAGE, -100 RX_RESTARTING.
WAIT = (110, 106, 101, -100)
PATIENCE = 120
# What a client did so long ago is on disk without a commit: a group ends after 5 s, on an idle
# machine.
LOSS = 40


# The digits of OpenAFS's names of files, in which numbers of volumes are.
DIGITS = "+=0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class Wrong(Exception):
    """The cell is not what the model says."""


class NoAnswer(Exception):
    """A call failed. `code` is that of Rx or of the file server."""

    def __init__(self, code):
        super().__init__(f"code {code}")
        self.code = code


def address(host):
    return f"10.92.0.{host}"


def log(text):
    text = short(text)
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Client:
    """Calls of a file server, by scripts/afs/soak.c."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def call(self, op, host, fid, rest="", data=b"", wait=True):
        """The rest of the answer, as words, and the bytes of a fetch."""
        until = time.time() + PATIENCE
        while True:
            line = f"{op} {address(host)} {fid[0]} {fid[1]} {fid[2]} {rest}\n"
            self.process.stdin.write(line.encode() + data)
            self.process.stdin.flush()
            words = self.process.stdout.readline().split()
            if not words:
                raise SystemExit("the client has ended")
            code = int(words[0])
            if code == 0:
                length = int(words[3]) if op == "fetch" else 0
                return list(map(int, words[1:])), self.process.stdout.read(length)
            if code not in WAIT or not wait or time.time() > until:
                raise NoAnswer(code)
            time.sleep(0.2)


def entries(blob):
    """The entries of a directory as clients get it: name to (vnode, unique)."""
    found = {}
    for bucket in range(128):
        slot, = struct.unpack_from(">H", blob, 160 + 2 * bucket)
        while slot:
            flag, following, vnode, unique = struct.unpack_from(">BxHII", blob, 32 * slot)
            start = 32 * slot + 12
            name = blob[start:blob.index(b"\0", start)].decode()
            if flag != 1 or name in found:
                raise Wrong(f"expected a sound directory, found slot {slot} of {name} with flag {flag}")
            found[name], slot = (vnode, unique), following
    return found


class Tree:
    """A tree as a client finds it. `state` has vnodes as numbers; `fids` has paths."""

    def __init__(self, client, host, volume):
        self.client, self.host = client, host
        names, data, links = {}, {}, {}
        self.fids = {"": (volume, 1, 1)}
        folders = [""]
        while folders:
            folder = folders.pop()
            _, blob = client.call("fetch", host, self.fids[folder])
            for name, (vnode, unique) in entries(blob).items():
                if name in (".", ".."):
                    continue
                path = f"{folder}/{name}" if folder else name
                fid = self.fids[path] = (volume, vnode, unique)
                if vnode % 2:
                    names[path] = ("d",)
                    folders.append(path)
                elif vnode in data:
                    names[path] = ("f", vnode)
                else:
                    (kind, count, _), content = client.call("fetch", host, fid)
                    if kind == 3:
                        names[path] = ("l", content.decode())
                    else:
                        names[path], data[vnode], links[vnode] = ("f", vnode), content, count
        for vnode, count in links.items():
            named = sum(node == ("f", vnode) for node in names.values())
            if named != count:
                raise Wrong(f"expected {count} names of vnode {vnode} of {volume}, found {named}")
        self.state = State(names, data)


def shape(names):
    """Names with files numbered by the first of their paths, so that two trees can be compared."""
    first = {}
    for path in sorted(names):
        first.setdefault(names[path], path)
    return {path: ("f", first[node]) if node[0] == "f" else node for path, node in names.items()}


def differences(expected, found):
    """What differs between two trees, as text; empty if nothing does."""
    one, other, lines = shape(expected.names), shape(found.names), []
    for path in sorted(one.keys() | other.keys()):
        if one.get(path) != other.get(path):
            lines.append(f"{path}: expected {one.get(path)}, found {other.get(path)}")
        elif one[path][0] == "f":
            want, got = expected.data[expected.names[path][1]], found.data[found.names[path][1]]
            if want != got:
                at = next((i for i, (a, b) in enumerate(zip(want, got)) if a != b), "the shorter end")
                lines.append(f"{path}: expected {len(want)} bytes, found {len(got)}, first other byte: {at}")
    return "; ".join(lines[:6]) + (f"; and {len(lines) - 6} more" if len(lines) > 6 else "")


class Past:
    """What a crash may bring back of a volume: trees of names, and contents of each file, by
    time."""

    def __init__(self, state):
        self.durable(state)

    def durable(self, state):
        self.names = [(0, state.names)]
        self.data = {number: [(0, content)] for number, content in state.data.items()}

    def after(self, op, state):
        """An acknowledged call, and the tree after it."""
        now = time.time()
        self.names.append((now, state.names))
        for number, content in state.data.items():
            versions = self.data.setdefault(number, [])
            if not versions or versions[-1][1] != content:
                versions.append((now, content))
        if op.kind == "store" and op.fsync:
            number = state.names[op.path][1]
            self.names, self.data[number] = self.names[-1:], self.data[number][-1:]

    def forget(self):
        """Drops what was replaced so long ago that a crash does not bring it back."""
        limit = time.time() - LOSS
        for versions in [self.names, *self.data.values()]:
            while len(versions) > 1 and versions[1][0] < limit:
                del versions[0]

    def with_op(self, op):
        """Adds what a call without an answer may have made of each tree."""
        names, data = list(self.names), {number: list(versions) for number, versions in self.data.items()}
        for at, tree in self.names:
            contents = {number: versions[-1][1] for number, versions in self.data.items()}
            try:
                names.append((at, op.apply(State(tree, contents)).names))
                if op.kind == "create":
                    data.setdefault(op.number, []).append((at, b""))
                elif op.kind == "store":
                    number = tree[op.path][1]
                    data[number] += [(at, op.content(content)) for at, content in self.data[number]]
            except KeyError:
                pass
        self.names, self.data = names, data

    def why_not(self, found):
        """Why this can't be the tree after a crash, or nothing."""
        of_names = [tree for _, tree in self.names if shape(tree) == shape(found.names)]
        if not of_names:
            newest = State(self.names[-1][1], {n: versions[-1][1] for n, versions in self.data.items()})
            return f"none of {len(self.names)} trees: beside the newest, {differences(newest, found)}"
        for tree in of_names:
            wrong = [path for path, node in tree.items() if node[0] == "f" and found.data[found.names[path][1]]
                     not in [content for _, content in self.data[node[1]]]]
            if not wrong:
                return ""
        sizes = [len(content) for _, content in self.data[of_names[-1][wrong[0]][1]]]
        return f"{wrong[0]}: {len(found.data[found.names[wrong[0]][1]])} bytes, none of its versions of {sizes} bytes"


class Cell:
    """The commands of the cell, and the servers."""

    def __init__(self, args):
        self.state, self.dump = args.state, args.dump
        self.client = Client(args.client)
        self.killed = 0
        # How many times OpenAFS's volume server was started anew.
        self.anew = 0
        # Seconds that a command may take.
        self.limit = PATIENCE

    def vos(self, *words):
        """Runs vos: status and output."""
        begun = time.time()
        try:
            done = subprocess.run(["vos", *map(str, words), "-localauth", "-noresolve"], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=self.limit, check=False)
            code, text = done.returncode, done.stdout.decode(errors="replace")
        except subprocess.TimeoutExpired:
            code, text = 124, f"no end after {self.limit} s"
        log(f"+ vos {' '.join(map(str, words))}: {code} ({time.time() - begun:.1f} s)")
        if code:
            log(text.strip())
        return code, text

    def must(self, *words):
        code, text = self.vos(*words)
        for _ in range(5):
            # After a restore that ended with its server, OpenAFS's has files of the volume left
            # over. The next restore fails by them, and has the volume salvaged.
            if not code or not self.anew or "Problems encountered in reading the dump file" not in text:
                break
            time.sleep(2)
            code, text = self.vos(*words)
        if code:
            raise Wrong(f"expected status 0 of vos {' '.join(map(str, words))}, found {code}: {text.strip()}")
        return text

    def settle(self, number):
        """Changes the header of a volume, and back. With the end of a transaction that changed
        it, what clients did before is on disk."""
        quota = int(re.search(r"MaxQuota +(\d+) K", self.must("examine", number))[1])
        for one in (quota + 1, quota):
            self.must("setfields", number, "-maxquota", one)

    def kill(self, host):
        with open(f"{self.state}/h{host}/run/ours.pid", encoding="utf-8") as file:
            os.kill(int(file.read()), signal.SIGKILL)
        self.killed += 1

    def restart(self, host):
        print(f"restart {host}", flush=True)
        if sys.stdin.readline().strip() != "ok":
            raise Wrong(f"expected the server of host {host} to start")

    def stale(self):
        """The numbers of volumes whose special files are deleted, and still open in OpenAFS's file
        server."""
        with open(f"{self.state}/h1/run/dafileserver.pid", encoding="utf-8") as file:
            folder = f"/proc/{int(file.read())}/fd"
        found = set()
        for name in os.listdir(folder):
            try:
                path = os.readlink(f"{folder}/{name}")
            except OSError:
                continue
            file = re.fullmatch(r".*/AFSIDat/[^/]+/([^/]+)/special/\S+ \(deleted\)", path)
            if file:
                found.add(sum(DIGITS.index(digit) << 6 * at for at, digit in enumerate(file[1])))
        return found

    def close_stale(self, name):
        """OpenAFS's file server may keep special files of a volume open that has left it. If the
        volume returns, it reads their old contents, and has the volume salvaged again and again."""
        stale = self.stale()
        if stale and stale.intersection((self.entry(name) or [{}])[0].values()):
            log(f"OpenAFS's file server is started anew: it holds deleted files of {name}")
            print("files 1", flush=True)
            if sys.stdin.readline().strip() != "ok":
                raise Wrong("expected OpenAFS's file server to start")

    def entry(self, name):
        """The numbers of a volume by type, and its sites by type, in the database. None: no
        entry."""
        code, text = self.vos("listvldb", "-name", name)
        if code:
            return None
        ids = {kind: int(number) for kind, number in re.findall(r"(RWrite|ROnly|Backup): (\d+)", text)}
        sites = re.findall(r"server 10\.92\.0\.(\d) partition /vicepa (RW|RO|BK) Site *(.*)", text)
        return ids, [(kind, int(host), more.strip(" -")) for host, kind, more in sites], "LOCKED" in text

    def listed(self, host):
        """The volumes of a host: (number, type) to (name, state)."""
        text = self.must("listvol", address(host), "a")
        bad = re.search(r"^Total volumes onLine \d+ ; Total volumes offLine (\d+) ; Total busy (\d+)", text, re.M)
        found = {(int(number), kind): (name, state) for name, number, kind, state
                 in re.findall(r"^(\S+) +(\d+) (RW|RO|BK) +\d+ K (\S+)", text, re.M)}
        if bad and (bad[1], bad[2]) != ("0", "0"):
            log(text.strip())
            found[(0, "??")] = ("offline or busy", f"{bad[1]} {bad[2]}")
            for number in re.findall(r"Could not attach volume (\d+)", text):
                found[(int(number), "??")] = ("", "not attached")
        return found

    def end_transactions(self):
        """Ends what a broken command left. OpenAFS's volume server waits 420 s for a killed
        peer, so it is started anew."""
        for host in HOSTS:
            until = time.time() + (10 if host == 1 else PATIENCE)
            while True:
                code, text = self.vos("status", address(host))
                numbers = re.findall(r"^transaction: (\d+)", text, re.M)
                if not code and not numbers:
                    break
                log(text.strip())
                if time.time() > until:
                    if host != 1:
                        raise Wrong(f"expected the transactions of host {host} to end, found {text}")
                    log("OpenAFS's volume server is started anew")
                    self.restart(1)
                    self.anew += 1
                    until = time.time() + PATIENCE
                for number in numbers:
                    self.vos("endtrans", address(host), number)
                time.sleep(1)
