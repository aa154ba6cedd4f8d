#!/usr/bin/env python3
"""Usage: model.py FOLDER SEED STEPS

Random writes, truncations, reads, renames and removals of files in a folder, beside a model of them
in memory. Each read must give the model's bytes. Prints a line for each mismatch, and the sums of
the files at the end. The same seed does the same. Hard links are missing: libfuse gives each name
an inode and a cached size of its own.
"""
import hashlib
import os
import random
import sys

LARGEST = 3 << 20


class Model:
    """The files of the folder, by name."""

    def __init__(self, folder, seed):
        self.folder, self.random = folder, random.Random(seed)
        self.files, self.wrong, self.made = {}, 0, 0

    def path(self, name):
        return os.path.join(self.folder, name)

    def any(self):
        return self.random.choice(sorted(self.files))

    def report(self, step, what):
        self.wrong += 1
        print(f"step {step}: {what}")

    def create(self, _):
        name = f"f{self.made}"
        self.made += 1
        os.close(os.open(self.path(name), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        self.files[name] = bytearray()

    def write(self, _):
        name = self.any()
        content = self.files[name]
        at = self.random.randrange(min(len(content) + 5000, LARGEST))
        data = self.random.randbytes(self.random.choice([1, 100, 4096, 5000, 70000, 300000]))
        with open(self.path(name), "r+b", buffering=0) as file:
            file.seek(at)
            left = memoryview(data)
            while left:
                left = left[file.write(left):]
            if self.random.random() < 0.2:
                os.fsync(file.fileno())
        if at > len(content):
            content.extend(bytes(at - len(content)))
        content[at:at + len(data)] = data

    def truncate(self, _):
        name = self.any()
        content = self.files[name]
        size = self.random.randrange(min(2 * len(content) + 4097, LARGEST))
        os.truncate(self.path(name), size)
        if size <= len(content):
            del content[size:]
        else:
            content.extend(bytes(size - len(content)))

    def read(self, step):
        name = self.any()
        content = self.files[name]
        at = self.random.randrange(len(content) + 1)
        size = self.random.choice([1, 4096, 66000, LARGEST])
        with open(self.path(name), "rb", buffering=0) as file:
            file.seek(at)
            data = b""
            while len(data) < size:
                more = file.read(size - len(data))
                if not more:
                    break
                data += more
        expected = bytes(content[at:at + size])
        if data != expected:
            same = next((i for i, (a, b) in enumerate(zip(data, expected)) if a != b), "none")
            self.report(step, f"{name} at {at}: {len(data)} bytes, not {len(expected)}; first wrong: {same}")

    def rename(self, _):
        name, to = self.any(), f"f{self.random.randrange(self.made + 3)}"
        if to == name:
            return
        os.rename(self.path(name), self.path(to))
        self.files[to] = self.files.pop(name)
        self.made = max(self.made, int(to[1:]) + 1)

    def remove(self, _):
        name = self.any()
        os.remove(self.path(name))
        del self.files[name]

    def check(self, step):
        names = sorted(os.listdir(self.folder))
        if names != sorted(self.files):
            self.report(step, f"names differ: {set(names) ^ set(self.files)}")
        for name, content in self.files.items():
            size = os.stat(self.path(name)).st_size
            if size != len(content):
                self.report(step, f"{name} has {size} bytes, not {len(content)}")

    def run(self, steps):
        ways = [self.write] * 8 + [self.read] * 6 + [self.truncate] * 3 + [self.create, self.rename,
                                                                            self.remove]
        for step in range(steps):
            way = self.random.choice(ways)
            if len(self.files) < 3:
                way = self.create
            way(step)
            if step % 200 == 199:
                self.check(step)
        self.check(steps)
        for name in sorted(self.files):
            with open(self.path(name), "rb") as file:
                data = file.read()
            if data != self.files[name]:
                self.report(steps, f"{name} differs at the end")
            print(name, len(data), hashlib.sha256(data).hexdigest())


folder, seed, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
os.makedirs(folder)
model = Model(folder, seed)
print("seed", seed)
model.run(steps)
print("mismatches", model.wrong)
sys.exit(model.wrong > 0)
