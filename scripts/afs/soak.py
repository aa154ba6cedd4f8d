#!/usr/bin/env python3
"""Usage: soak.py --seed S [--steps N] [--minutes N] [--judge-every K] --plan | --client PROGRAM ...

A soak of a cell of three servers, of which hosts 2 and 3 are ours. Seeded steps change volumes and
files, and ours are killed now and then, also amid a step. All copies of all volumes must be what a
model says. scripts/afs/lib.sh runs it on host 1 of a cell.

Each line on standard output is a request: `restart HOST`, or `files 1` for OpenAFS's file server. A
line on standard input answers it. The log goes to standard error.
"""
import argparse
import copy
import re
import sys
import threading
import time

import soak_plan
from soak_cell import PATIENCE, WAIT, Cell, NoAnswer, Past, Tree, Wrong, address, differences
from soak_cell import entries, log, shape
from soak_plan import HOSTS, OURS, Plan


class Soak:
    """Does the steps of a plan in a cell."""

    def __init__(self, args):
        self.args, self.plan, self.cell = args, Plan(args.seed), Cell(args)
        self.client = self.cell.client
        self.past, self.ids = {}, {}
        self.counts, self.step = {}, None
        self.at_once = threading.Event()

    # Doing

    def volume(self, step=None):
        return self.plan.volumes[(step or self.step).volume]

    def number(self, volume, kind="RWrite"):
        """The number of a volume. It is asked again where vos may have given it since."""
        if kind not in self.ids.get(volume.key, {}):
            entry = self.cell.entry(volume.name)
            if not entry:
                raise Wrong(f"expected {volume.name} in the volume database")
            self.ids[volume.key] = entry[0]
        return self.ids[volume.key][kind]

    def commands(self, step):
        """The commands of vos of a step, but for those of files."""
        name, to = step.name, address(step.host) if step.host else ""
        one = self.plan.volumes.get(step.volume)
        old, dump = one.name if one else "", f"{self.args.work}/soak.dump"
        site = address(one.site) if one else ""
        return {
            "create": lambda: [("create", to, "a", name, "-maxquota", 0),
                               ("restore", to, "a", name, "-file", self.cell.dump, "-overwrite", "full")],
            "backup": lambda: [("backup", old)],
            "release": lambda: [("release", old)],
            "addsite": lambda: [("addsite", to, "a", old), ("release", old)],
            "site": lambda: [("addsite", to, "a", old), ("remsite", to, "a", old)],
            "unsite": lambda: [("remove", "-server", to, "-partition", "a", "-id", old + ".readonly")],
            "move": lambda: [("move", old, site, "a", to, "a")],
            "remove": lambda: [("remove", "-id", old)],
            "rename": lambda: [("rename", old, name)],
            "quota": lambda: [("setfields", old, "-maxquota", step.quota)],
            "copy": lambda: [("dump", self.plan.volumes[step.source].name + step.of, "-file", dump),
                             ("restore", to, "a", name, "-file", dump)],
            "back": lambda: [("dump", old + ".backup", "-file", dump),
                             # Else the next release is an increment since a date, and the files
                             # that came back are older than that.
                             ("restore", site, "a", old, "-file", dump, "-overwrite", step.how,
                              "-creation", "new", "-lastupdate", "new")],
        }[step.verb]()

    def act(self, step):
        """Does a step. Returns whether all of it was acknowledged, and the call of a client that
        was not."""
        if step.verb == "kill":
            return True, None
        if step.verb == "files":
            return self.act_on_files(step)
        for command in self.commands(step):
            code, text = self.cell.vos(*command)
            if code:
                if not step.kill:
                    raise Wrong(f"expected status 0 of vos {' '.join(map(str, command))}, found {code}: {text.strip()}")
                return False, None
        return True, None

    def fid(self, volume, path, host, wait):
        fid = (self.number(volume), 1, 1)
        for name in filter(None, path.split("/")):
            _, blob = self.client.call("fetch", host, fid, wait=wait)
            found = entries(blob).get(name)
            if not found:
                raise NoAnswer(2)
            fid = (fid[0], *found)
        return fid

    def call(self, volume, op, at=0):
        """Makes a call of a client at the volume's host. `at`: another host, which may say that
        it waits."""
        host, wait = at or volume.site, not at
        folder, _, name = op.path.rpartition("/")

        def fid(path):
            return self.fid(volume, path, host, wait)

        if op.kind == "store":
            rest = f"{op.at} {len(op.bytes)} {op.size} {int(op.fsync)}"
            self.client.call("store", host, fid(op.path), rest, op.bytes, wait)
            return
        rest = name
        if op.kind == "symlink":
            rest += " " + op.to
        elif op.kind == "link":
            _, vnode, unique = fid(op.to)
            rest += f" {vnode} {unique}"
        elif op.kind == "rename":
            to, _, new = op.to.rpartition("/")
            _, vnode, unique = fid(to)
            rest += f" {vnode} {unique} {new}"
        self.client.call(op.kind, host, fid(folder), rest, wait=wait)

    def act_on_files(self, step):
        volume = self.volume(step)
        tree, past = volume.tree, self.past[volume.key]
        for op in step.files:
            try:
                self.call(volume, op)
            except NoAnswer as error:
                if not self.at_once.is_set():
                    raise Wrong(f"expected an answer to {op}, found {error}") from error
                log(f"{op}: {error}")
                return False, op
            if self.at_once.is_set():
                return False, op
            tree = op.apply(tree)
            past.after(op, tree)
        return True, None

    def do(self, step):
        """Does a step, with a kill meanwhile if it has one."""
        log(step.text(self.plan.volumes))
        self.counts[step.verb] = self.counts.get(step.verb, 0) + 1
        self.at_once.clear()
        one = self.plan.volumes.get(step.volume)
        if one and 1 in {step.host, one.site, *one.replicas}:
            self.cell.close_stale(one.name)
        if not step.kill:
            if step.files and step.verb != "files":
                self.beside(step)
            else:
                self.act(step)
            return
        for past in self.past.values():
            past.forget()
        restarted = []

        def killer():
            time.sleep(step.delay)
            self.at_once.set()
            try:
                self.cell.kill(step.kill)
                self.cell.restart(step.kill)
            except (Wrong, OSError) as error:
                restarted.append(error)

        thread = threading.Thread(target=killer)
        thread.start()
        self.cell.limit = 40
        done, uncertain = self.act(step)
        self.cell.limit = PATIENCE
        thread.join()
        if restarted:
            raise restarted[0]
        log(f"host {step.kill} was killed; the step was {'done' if done else 'broken off'}")
        self.after_kill(step, done, uncertain)

    def beside(self, step):
        """A command of vos while clients change the volume. A clone has the tree after one of
        their calls. Then it is made anew, so that the model knows which."""
        one, command, result = self.volume(step), self.commands(step), []
        thread = threading.Thread(target=lambda: result.append(self.cell.vos(*command[0])))
        thread.start()
        trees, site = [one.tree], one.site
        for op in step.files:
            site = self.call_anywhere(one, op, site)
            trees.append(op.apply(trees[-1]))
            self.past[one.key].after(op, trees[-1])
            time.sleep(0.003)
        going = thread.is_alive()
        thread.join()
        log(f"vos ended {'after' if going else 'before'} the last call of a client")
        if result[0][0]:
            raise Wrong(f"expected status 0 of vos {' '.join(command[0])} beside clients, found {result[0][1].strip()}")
        if step.verb == "move":
            # The last calls came after its end.
            self.cell.settle(self.number(one))
            return
        kind = "Backup" if step.verb == "backup" else "ROnly"
        number = self.cell.entry(one.name)[0][kind]
        for host in [one.site] if kind == "Backup" else one.replicas:
            found = Tree(self.client, host, number).state
            if all(differences(tree, found) for tree in trees):
                raise Wrong(f"expected {kind} of {one.name} on host {host} as after a call, found beside the first: "
                            f"{differences(trees[0], found)}; beside the last: {differences(trees[-1], found)}")
        self.again(step)

    def call_anywhere(self, volume, op, host):
        """Makes a call at the host that has the volume now, and returns the host. As clients do, it asks
        the database where the volume is after 103 VNOVOL and 111 VMOVED."""
        until = time.time() + PATIENCE
        while True:
            try:
                self.call(volume, op, host)
                return host
            except NoAnswer as error:
                if error.code not in (103, 111, *WAIT) or time.time() > until:
                    raise Wrong(f"expected an answer to {op} from host {host}, found {error}") from error
                if error.code not in WAIT:
                    host, = [one for kind, one, _ in self.cell.entry(volume.name)[1] if kind == "RW"]
            time.sleep(0.05)

    # After a kill

    def after_kill(self, step, done, uncertain):
        """All that was acknowledged is there. What was not is wholly there, or not at all. Then
        the rest of the step is done."""
        one = self.plan.volumes.get(step.volume)
        self.wait_for(step.kill)
        self.cell.end_transactions()
        if uncertain:
            self.past[one.key].with_op(uncertain)
        # What a step may have read: it may have begun after the crash, or before it.
        read = {volume.key: copy.copy(self.past[volume.key]) if volume.site == step.kill else Past(volume.tree)
                for volume in self.plan.volumes.values()}
        for volume in self.plan.volumes.values():
            # Some are looked at when they are whole again.
            if volume.site == step.kill and not (volume is one and (
                    step.verb in ("move", "remove") or step.verb == "back" and (done or step.how == "full"))):
                self.check_past(volume, [volume.backup] if volume is one and step.verb == "back" else [])
        if step.verb in ("backup", "release", "addsite"):
            self.check_clones(step, done, read[one.key])
        if not done and step.verb != "files":
            self.complete(step)
        elif step.verb in ("backup", "release", "addsite"):
            self.cell.must(*self.commands(step)[-1])
        elif step.verb == "move":
            self.check_copy(one, step.host, read[one.key], one.tree)
        elif step.verb == "copy":
            tree, quota = self.plan.source(step)
            new = soak_plan.Volume(step.volume, step.name, step.host, quota, tree)
            self.check_copy(new, step.host, Past(tree) if step.of else read[step.source], tree)
        elif step.verb == "files":
            target = one.tree
            for op in step.files:
                target = op.apply(target)
            self.make_equal(one, target)

    def check_copy(self, volume, host, past, target):
        """A whole copy of what a volume was, which then becomes what the model says."""
        found = Tree(self.client, host, self.number(volume)).state
        why = past.why_not(found)
        if why:
            raise Wrong(f"expected {volume.name} on host {host} as before or after a call, found {why}")
        moved = copy.copy(volume)
        moved.site = host
        self.past.setdefault(volume.key, Past(target))
        self.make_equal(moved, target)

    def check_past(self, volume, others):
        """The read-write volume after a crash of its server."""
        found = Tree(self.client, volume.site, self.number(volume)).state
        why = self.past[volume.key].why_not(found)
        if why and not any(not differences(other, found) for other in others):
            raise Wrong(f"expected {volume.name} as before or after a call, found {why}")
        behind = differences(volume.tree, found)
        log(f"{volume.name} after the crash: {behind or 'as the model says'}")
        if self.step.verb != "files" or volume.key != self.step.volume:
            self.make_equal(volume, volume.tree)

    def check_clones(self, step, done, past):
        """Clones on our hosts after a step that makes them: new ones, or the old ones if it failed."""
        one = self.plan.volumes[step.volume]
        kind = "Backup" if step.verb == "backup" else "ROnly"
        entry = self.cell.entry(one.name)
        copies = {one.site: one.backup} if kind == "Backup" else one.replicas
        for host, old in copies.items():
            if host not in OURS or old is None:
                continue
            found = Tree(self.client, host, entry[0][kind]).state
            if past.why_not(found) and (done or differences(old, found)):
                raise Wrong(f"expected {kind} of {one.name} on host {host} as {'' if done else 'before the step or '}"
                            f"after it, found: {past.why_not(found)}; beside the old one: {differences(old, found)}")

    def make_equal(self, volume, target):
        """Makes the tree of a volume that of the model, by calls of a client."""
        for _ in range(3):
            tree = Tree(self.client, volume.site, self.number(volume))
            if not differences(target, tree.state):
                break
            self.repair(volume, target, tree)
        else:
            raise Wrong(f"expected to repair {volume.name}, found {differences(target, tree.state)}")
        self.cell.settle(self.number(volume))
        self.past[volume.key].durable(target)

    def repair(self, volume, target, tree):
        want, have = shape(target.names), shape(tree.state.names)
        host = volume.site

        def call(op, path, rest=""):
            folder, _, name = path.rpartition("/")
            self.client.call(op, host, tree.fids[folder], f"{name} {rest}")

        for path in sorted(have, reverse=True):
            if have[path] != want.get(path):
                call("rmdir" if have[path] == ("d",) else "remove", path)
        made = {}
        for path in sorted(want):
            folder, _, name = path.rpartition("/")
            node, there = want[path], have.get(path) == want[path]
            if node[0] == "l":
                if not there:
                    call("symlink", path, node[1])
                continue
            if not there and node[0] == "f" and node[1] != path:
                made[path] = node[1]
                continue
            if not there:
                words, _ = self.client.call("mkdir" if node == ("d",) else "create", host, tree.fids[folder], name)
                tree.fids[path] = (tree.fids[""][0], *words)
            if node[0] == "f" and node[1] == path:
                content = target.data[target.names[path][1]]
                if not there or tree.state.data[tree.state.names[path][1]] != content:
                    self.client.call("store", host, tree.fids[path], f"0 {len(content)} {len(content)} 0", content)
        for path, of in made.items():
            call("link", path, f"{tree.fids[of][1]} {tree.fids[of][2]}")

    def wait_for(self, host):
        until = time.time() + PATIENCE
        while self.cell.vos("listpart", address(host))[0]:
            if time.time() > until:
                raise Wrong(f"expected the volume server of host {host} to answer after a restart")
            time.sleep(0.5)

    def zap(self, name, numbers, but=()):
        """Removes copies of a volume, by its numbers or its name, from all hosts but some."""
        for host in HOSTS:
            for (number, kind), (listed, _) in sorted(self.cell.listed(host).items(), key=lambda one: -one[0][0]):
                of = listed.removesuffix(".backup").removesuffix(".readonly")
                if number and (number in numbers or of == name or kind == "??") and (host, kind) not in but:
                    log(f"left over on host {host}: {listed} {number} {kind}")
                    # OpenAFS's server takes the files of a replica with those of its volume, by force.
                    force = [] if (host, "RO") in but else ["-force"]
                    self.cell.must("zap", address(host), "a", "-id", number, *force)

    def complete(self, step):
        """Ends a step that was broken off, with the documented commands."""
        log(f"completing: {step.verb}")
        one = self.plan.volumes.get(step.volume)
        for name in filter(None, [one.name if one else "", step.name]):
            if self.cell.entry(name):
                self.cell.vos("unlock", name)
        getattr(self, f"complete_{step.verb}", self.again)(step)

    def again(self, step):
        for command in self.commands(step):
            self.cell.must(*command)

    def complete_create(self, step):
        """What is half made is removed, and made again."""
        if self.cell.entry(step.name):
            self.cell.vos("remove", "-id", step.name)
        self.zap(step.name, ())
        if self.cell.entry(step.name):
            self.cell.must("delentry", step.name)
        self.again(step)

    complete_copy = complete_create

    def complete_back(self, step):
        """With `-overwrite full`, vos removes the volume first. So it may be absent."""
        one = self.volume(step)
        if (self.number(one), "RW") in self.cell.listed(one.site):
            found = Tree(self.client, one.site, self.number(one)).state
            why = self.past[one.key].why_not(found)
            if why and differences(one.backup, found):
                raise Wrong(f"expected {one.name} as before a restore or after it, found {why}")
        elif step.how != "full":
            raise Wrong(f"expected {one.name} on host {one.site} after a broken restore, found none")
        self.again(step)

    def complete_addsite(self, step):
        one = self.volume(step)
        entry = self.cell.entry(one.name)
        if ("RO", step.host) not in [(kind, host) for kind, host, _ in entry[1]]:
            self.cell.must("addsite", address(step.host), "a", one.name)
        self.cell.must("release", one.name)

    def complete_unsite(self, step):
        one = self.volume(step)
        number = self.number(one, "ROnly")
        if (number, "RO") in self.cell.listed(step.host):
            if self.cell.vos(*self.commands(step)[0])[0]:
                self.cell.must("zap", address(step.host), "a", "-id", number)
        entry = self.cell.entry(one.name)
        if ("RO", step.host) in [(kind, host) for kind, host, _ in entry[1]]:
            self.cell.must("remsite", address(step.host), "a", one.name)

    def complete_remove(self, step):
        one = self.volume(step)
        entry = self.cell.entry(one.name)
        if entry:
            self.cell.vos("remove", "-id", one.name)
        self.zap(one.name, self.ids[one.key].values())
        if self.cell.entry(one.name):
            self.cell.must("delentry", one.name)

    def complete_rename(self, step):
        """The database may have the new name, and servers the old one."""
        if self.cell.entry(step.name):
            self.cell.must("rename", step.name, "between")
            self.cell.must("rename", "between", step.name)
        else:
            self.again(step)

    def complete_move(self, step):
        """The site in the database is the volume; what another host has is left over."""
        one = self.volume(step)
        ids, sites, _ = self.cell.entry(one.name)
        at, = [host for kind, host, _ in sites if kind == "RW"]
        found = Tree(self.client, at, ids["RWrite"]).state
        why = self.past[one.key].why_not(found)
        if why:
            raise Wrong(f"expected {one.name} whole on host {at} after a broken move, found {why}")
        log(f"{one.name} is on host {at} after the broken move")
        keep = [(at, "RW"), (at, "BK")] + [(host, "RO") for host in one.replicas]
        self.zap(one.name, ids.values(), keep)
        here = copy.copy(one)
        here.site = at
        self.make_equal(here, one.tree)
        if at == one.site:
            self.again(step)

    # Checking

    def settled(self, step):
        """The model after a step."""
        one = self.plan.volumes.get(step.volume)
        self.plan.apply(step)
        if step.verb in ("create", "copy"):
            self.past[step.volume] = Past(self.volume(step).tree)
        elif step.verb == "remove":
            del self.past[step.volume], self.ids[step.volume]
        elif one and step.verb in ("backup", "release", "addsite", "move", "back"):
            self.past[one.key].durable(one.tree)
        if one and step.verb in ("backup", "release", "addsite"):
            self.ids.pop(one.key, None)

    def check(self, volume):
        """Each copy of a volume is what the model says."""
        copies = [("RWrite", volume.site, volume.tree)]
        if volume.backup is not None:
            copies.append(("Backup", volume.site, volume.backup))
        copies += [("ROnly", host, tree) for host, tree in volume.replicas.items()]
        for kind, host, tree in copies:
            try:
                found = Tree(self.client, host, self.number(volume, kind)).state
            except NoAnswer as error:
                raise Wrong(f"expected {kind} of {volume.name} on host {host}, found {error}") from error
            wrong = differences(tree, found)
            if wrong:
                raise Wrong(f"expected {kind} of {volume.name} on host {host} as in the model, found {wrong}")

    def check_entry(self, volume):
        entry = self.cell.entry(volume.name)
        if not entry:
            raise Wrong(f"expected {volume.name} in the volume database")
        ids, sites, locked = entry
        want = sorted([("RW", volume.site)] + [("RO", host) for host in volume.replicas])
        if sorted((kind, host) for kind, host, _ in sites) != want or locked or any(more for _, _, more in sites):
            raise Wrong(f"expected the sites {want} of {volume.name}, unlocked, found {sites}{' locked' * locked}")
        text = self.cell.must("examine", volume.name)
        quota = re.search(r"MaxQuota +(\d+) K", text)
        if not quota or int(quota[1]) != volume.quota:
            raise Wrong(f"expected a quota of {volume.quota} K of {volume.name}, found {quota and quota[1]}")

    def check_host(self, host):
        want = {}
        for volume in self.plan.volumes.values():
            if volume.site == host:
                want[(self.number(volume), "RW")] = (volume.name, "On-line")
                if volume.backup is not None:
                    want[(self.number(volume, "Backup"), "BK")] = (volume.name + ".backup", "On-line")
            if host in volume.replicas:
                want[(self.number(volume, "ROnly"), "RO")] = (volume.name + ".readonly", "On-line")
        found = self.cell.listed(host)
        if want != found:
            wrong = {key: (want.get(key), found.get(key)) for key in want.keys() | found.keys()
                     if want.get(key) != found.get(key)}
            raise Wrong(f"expected other volumes on host {host}: (number, type): (expected, found) {wrong}")
        for verb in ("syncvldb", "syncserv"):
            text = self.cell.must(verb, "-server", address(host), "-dryrun", "-verbose")
            if not re.search(r"Failed to process 0, Would change 0$", text, re.M) or "***" in text.replace("**no change**", ""):
                raise Wrong(f"expected nothing to do of vos {verb} -dryrun of host {host}, found {text}")

    def judge(self):
        """Everything is what the model says."""
        for volume in self.plan.volumes.values():
            self.check(volume)
            self.check_entry(volume)
        for host in HOSTS:
            self.check_host(host)
        log(f"judged: {len(self.plan.volumes)} volumes are as in the model")

    def run(self):
        begun = time.time()
        while True:
            if self.args.steps and self.plan.steps >= self.args.steps:
                break
            if self.args.minutes and time.time() - begun > 60 * self.args.minutes:
                break
            self.step = step = self.plan.next()
            self.do(step)
            self.settled(step)
            if step.volume in self.plan.volumes:
                self.check(self.volume(step))
            if self.plan.steps % self.args.judge_every == 0:
                self.judge()
        self.judge()
        counts = ", ".join(f"{verb} {count}" for verb, count in sorted(self.counts.items()))
        log(f"seed {self.args.seed}: {self.plan.steps} steps, {self.cell.killed} kills, "
            f"{(time.time() - begun) / 60:.1f} minutes: {counts}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--judge-every", type=int, default=25)
    parser.add_argument("--plan", action="store_true", help="print the steps, and do nothing")
    for name in ("--client", "--dump", "--state", "--work"):
        parser.add_argument(name)
    args = parser.parse_args()
    if args.plan:
        plan = Plan(args.seed)
        for _ in range(args.steps or 100):
            step = plan.next()
            print(step.text(plan.volumes))
            plan.apply(step)
        return
    soak = Soak(args)
    try:
        soak.run()
    except (Wrong, NoAnswer) as error:
        log(f"FAILED: seed {args.seed}, {soak.step.text(soak.plan.volumes)}")
        log(str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
