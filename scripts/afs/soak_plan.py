"""The model and the plan of scripts/afs/soak.py: what volumes hold, and which step is next.

A plan follows from its seed alone. After a crash, the driver repeats what is missing. So the cell
is again what the plan says, and the outcome of a race changes no later step.
"""
import dataclasses
import random
import re

# Host 1 has OpenAFS's servers; the others have ours, and may be killed.
HOSTS, OURS = (1, 2, 3), (2, 3)
MOST_VOLUMES, MOST_NAMES, MOST_BYTES = 9, 30, 1 << 20
SIZES = (0, 1, 100, 4096, 5000, 70_000, 200_000)


def short(text):
    """A text for people: of a long name, how long it is."""
    return re.sub("x{9,}", lambda found: f"x*{len(found[0])}", text)


@dataclasses.dataclass(frozen=True)
class State:
    """A tree. `names`: path to ("d",), ("l", TARGET) or ("f", NUMBER); `data`: number to
    content."""
    names: dict = dataclasses.field(default_factory=dict)
    data: dict = dataclasses.field(default_factory=dict)

    def of_kind(self, kind):
        return sorted(path for path, node in self.names.items() if node[0] == kind)

    def links(self, path):
        return [other for other, node in self.names.items() if node == self.names[path]]


@dataclasses.dataclass(frozen=True)
class FileOp:
    """A call of a client. Which fields count follows from `kind`."""
    kind: str
    path: str
    to: str = ""
    number: int = 0
    at: int = 0
    bytes: bytes = b""
    size: int = 0
    fsync: bool = False

    def __str__(self):
        text = f"{self.kind} {self.path} {self.to}".rstrip()
        if self.kind == "store":
            text += f" {len(self.bytes)} bytes at {self.at}, size {self.size}{', fsync' * self.fsync}"
        return short(text)

    def content(self, old):
        """The content of a file after a store: it is cut first."""
        new = bytearray(old[:self.size])
        if len(new) < self.size:
            new.extend(bytes(self.size - len(new)))
        new[self.at:self.at + len(self.bytes)] = self.bytes
        return bytes(new)

    def apply(self, state):
        """The tree after the call. A KeyError says that the call fails on this tree."""
        names, data = dict(state.names), dict(state.data)
        if self.kind in ("create", "mkdir", "symlink", "link") and self.path in names:
            raise KeyError(self.path)
        for path in filter(None, (self.path, self.to if self.kind == "rename" else "")):
            parent = path.rpartition("/")[0]
            if parent and names.get(parent) != ("d",):
                raise KeyError(parent)
        if self.kind == "create":
            names[self.path], data[self.number] = ("f", self.number), b""
        elif self.kind == "mkdir":
            names[self.path] = ("d",)
        elif self.kind == "symlink":
            names[self.path] = ("l", self.to)
        elif self.kind == "link":
            names[self.path] = names[self.to]
        elif self.kind in ("remove", "rmdir"):
            del names[self.path]
        elif self.kind == "store":
            number = names[self.path][1]
            data[number] = self.content(data[number])
        elif self.kind == "rename":
            below = [path for path in names if path.startswith(self.path + "/")]
            names[self.to] = names.pop(self.path)
            for path in below:
                names[self.to + path[len(self.path):]] = names.pop(path)
        used = {node[1] for node in names.values() if node[0] == "f"}
        return State(names, {number: content for number, content in data.items() if number in used})


@dataclasses.dataclass
class Volume:
    """What the cell should know of a volume. `replicas`: host to tree."""
    key: int
    name: str
    site: int
    quota: int = 0
    tree: State = State()
    backup: State = None
    backup_quota: int = 0
    replicas: dict = dataclasses.field(default_factory=dict)
    replica_quota: int = 0


@dataclasses.dataclass
class Step:
    """What to do, with which volume, and whom to kill meanwhile."""
    number: int
    verb: str
    volume: int = 0
    host: int = 0
    name: str = ""
    quota: int = 0
    source: int = 0
    of: str = ""
    how: str = ""
    files: tuple = ()
    kill: int = 0
    delay: float = 0.0

    def text(self, volumes):
        parts = [f"step {self.number}: {self.verb}"]
        one = volumes.get(self.volume)
        if one:
            parts.append(f"{one.name} (on host {one.site})")
        if self.source:
            parts.append(f"from {volumes[self.source].name}{self.of}")
        if self.name:
            parts.append(f"name {self.name}")
        if self.host:
            parts.append(f"host {self.host}")
        if self.verb == "quota":
            parts.append(f"{self.quota} K")
        if self.files:
            parts.append("; ".join(map(str, self.files)))
        if self.kill and self.verb != "kill":
            parts.append(f"[kill host {self.kill} after {self.delay:.3f} s]")
        return " ".join(parts)


class Plan:
    """The steps of a seed. `next` chooses a step, `apply` does it in the model."""
    WEIGHTS = {"files": 40, "create": 5, "backup": 7, "release": 8, "addsite": 5, "site": 1, "unsite": 3, "move": 9,
               "remove": 2, "rename": 3, "quota": 2, "copy": 4, "back": 3, "kill": 3}

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.volumes, self.steps, self.made, self.files = {}, 0, 0, 0

    def hosts(self, step):
        """The hosts of ours that take part in a step."""
        volume = self.volumes.get(step.volume)
        hosts = {step.host}
        if volume:
            hosts.add(volume.site)
            if step.verb in ("release", "addsite", "rename"):
                hosts.update(volume.replicas)
        if step.source:
            hosts.add(self.volumes[step.source].site)
        return sorted(hosts.intersection(OURS))

    def next(self):
        self.steps += 1
        while True:
            verbs = list(self.WEIGHTS)
            verb = self.random.choices(verbs, list(self.WEIGHTS.values()))[0]
            step = self.choose(verb if len(self.volumes) > 2 else "create")
            if step:
                break
        hosts = self.hosts(step)
        if step.verb in ("backup", "release", "move") and self.random.random() < 0.3:
            # Clients go on meanwhile.
            step.files = tuple(self.file_ops(self.volumes[step.volume].tree, 40))
        elif step.verb not in ("kill", "site") and hosts and self.random.random() < (
                0.1 if step.verb == "files" else 0.3):
            step.kill = self.random.choice(hosts)
            # Calls of clients take milliseconds, vos takes a tenth of a second.
            step.delay = self.random.random() * self.random.choice(
                [0.01, 0.03] if step.verb == "files" else [0.1, 0.2, 0.4])
        return step

    def new_name(self):
        self.made += 1
        return f"v{self.made}"

    def choose(self, verb):
        """A step of a kind, or None if there is none now."""
        choice, step = self.random.choice, Step(self.steps, verb)
        one = self.volumes[choice(sorted(self.volumes))] if self.volumes else None
        if verb in ("create", "copy"):
            if len(self.volumes) >= MOST_VOLUMES:
                return None
            if verb == "copy":
                step.source = one.key
                step.of = choice([""] + [".backup"] * (one.backup is not None) + [".readonly"] * bool(one.replicas))
            step.host, step.name, step.volume = choice(HOSTS), self.new_name(), self.made
            return step
        if verb == "kill":
            step.kill = step.host = choice(OURS)
            return step
        step.volume = one.key
        others = [host for host in HOSTS if host not in one.replicas]
        if (verb in ("release", "unsite") and not one.replicas or verb in ("addsite", "site") and not others
                or verb == "back" and one.backup is None or verb == "remove" and one.replicas):
            return None
        if verb == "files":
            step.files = tuple(self.file_ops(one.tree, self.random.randint(1, 8)))
        elif verb in ("addsite", "site"):
            step.host = choice(others)
        elif verb == "unsite":
            step.host = choice(sorted(one.replicas))
        elif verb == "move":
            step.host = choice([host for host in HOSTS if host != one.site])
        elif verb == "rename":
            step.name = self.new_name()
        elif verb == "back":
            step.how = choice(["full", "incremental"])
        elif verb == "quota":
            step.quota = choice([0, 100_000, 500_000, 1_000_000])
        return step

    def apply(self, step):
        volume = self.volumes.get(step.volume)
        if step.verb == "create":
            self.volumes[step.volume] = Volume(step.volume, step.name, step.host, step.quota)
        elif step.verb == "copy":
            tree, quota = self.source(step)
            self.volumes[step.volume] = Volume(step.volume, step.name, step.host, quota, tree)
        if step.files:
            for op in step.files:
                volume.tree = op.apply(volume.tree)
        if step.verb == "backup":
            volume.backup, volume.backup_quota = volume.tree, volume.quota
        elif step.verb in ("release", "addsite"):
            hosts = set(volume.replicas) | ({step.host} if step.host else set())
            volume.replicas, volume.replica_quota = {host: volume.tree for host in hosts}, volume.quota
        elif step.verb == "unsite":
            del volume.replicas[step.host]
        elif step.verb == "move":
            volume.site, volume.backup = step.host, None
        elif step.verb == "remove":
            del self.volumes[step.volume]
        elif step.verb == "rename":
            volume.name = step.name
        elif step.verb == "quota":
            volume.quota = step.quota
        elif step.verb == "back":
            volume.tree, volume.quota = volume.backup, volume.backup_quota

    def source(self, step):
        """The tree that a `copy` dumps, and its quota."""
        of = self.volumes[step.source]
        if step.of == ".backup":
            return of.backup, of.backup_quota
        return (of.tree, of.quota) if not step.of else (next(iter(of.replicas.values())), of.replica_quota)

    def file_ops(self, tree, count):
        for _ in range(count):
            op = None
            while not op:
                op = self.file_op(tree)
            tree = op.apply(tree)
            yield op

    def free_path(self, tree):
        self.files += 1
        folder = self.random.choice([""] * 3 + [path + "/" for path in tree.of_kind("d") if path.count("/") < 3])
        return folder + f"n{self.files}" + "x" * self.random.choice([0, 0, 0, 40, 150])

    def file_op(self, tree):
        """A call that the tree allows, or None."""
        choice = self.random.choice
        kinds = ["create"] * 4 + ["store"] * 9 + ["rename"] * 3 + ["remove"] * 2 + ["mkdir", "symlink", "link", "rmdir"]
        kind, files, folders = choice(kinds), tree.of_kind("f"), tree.of_kind("d")
        if len(tree.names) >= MOST_NAMES:
            kind = choice(["remove", "store", "rmdir"])
        if kind in ("create", "mkdir"):
            return FileOp(kind, self.free_path(tree), number=self.files)
        if kind == "symlink":
            return FileOp(kind, self.free_path(tree), to=f"target{self.random.randrange(1000)}")
        if kind == "rmdir":
            empty = [path for path in folders if not any(other.startswith(path + "/") for other in tree.names)]
            return FileOp(kind, choice(empty)) if empty else None
        if kind == "remove":
            removable = files + tree.of_kind("l")
            return FileOp(kind, choice(removable)) if removable else None
        if not files:
            return None
        if kind == "link":
            of = choice(files)
            folder, slash, _ = of.rpartition("/")
            self.files += 1
            return FileOp(kind, f"{folder}{slash}h{self.files}", to=of)
        if kind == "rename":
            return self.rename(tree, files, folders)
        return self.store(tree, choice(files))

    def rename(self, tree, files, folders):
        path = self.random.choice(files + folders)
        to = self.random.choice(files) if path in files and self.random.random() < 0.3 else self.free_path(tree)
        # A hard link stays in its directory; a directory does not go into itself.
        moves = path.rpartition("/")[0] != to.rpartition("/")[0]
        linked = path in files and (len(tree.links(path)) > 1 or to in files and tree.names[to] == tree.names[path])
        if path == to or moves and linked or linked and to in files or (to + "/").startswith(path + "/"):
            return None
        return FileOp("rename", path, to=to)

    def store(self, tree, path):
        old = len(tree.data[tree.names[path][1]])
        length = self.random.choice(SIZES + (700_000,) * (self.random.random() < 0.1))
        at = self.random.choice([0, 0, old, self.random.randrange(old + 1), old + 3000])
        at = min(at, MOST_BYTES)
        end = at + length
        size = self.random.choice([end, max(end, old), max(end, old), max(end, old // 2)])
        if not length and size == old:
            length, size = 1, max(old, at + 1)
        return FileOp("store", path, at=at, bytes=self.random.randbytes(length), size=size,
                      fsync=self.random.random() < 0.2)
