#!/usr/bin/env python3
"""The load `large` of scripts/bench-afs.sh: a volume of many files is restored, dumped, cloned and
removed.

The program `vos` restores and dumps, and the CPU time of the server counts: OpenAFS's has two programs.
The example `afs_verbs` makes the calls of `vos backup` and `vos remove`, and their time counts, without
the cell's databases. The servers take turns in each round.
"""
import os
import statistics

import bench
import verbs

# The numbers of the volumes, since the database has one server for each.
VOLUMES = {"peer": 720_000_000, "ours": 720_000_010, "base": 720_000_020}
MORE = {"peer": ["davolserver"]}
# Verb: what it does, the most that ours may take, and with how many files that was said.
VERBS = {
    "restore": ("`vos restore`, CPU s", 1.2, [20_000]),
    "dump": ("`vos dump`, CPU s", 0.6, [20_000]),
    "backup": ("`vos backup`, the first, ms", 10, [20_000, 1_000_000]),
    "backup-again": ("`vos backup`, again, ms", 10, [20_000, 1_000_000]),
    "remove-backup": ("`vos remove` of the backup volume, ms", None, []),
    "remove": ("`vos remove`, ms", 20, [20_000]),
}


def vos(*words):
    got = bench.on_host(1, "vos", *words, "-localauth")
    if got.returncode:
        raise SystemExit(f"vos {words} failed: {got.stdout}{got.stderr}")


def make_dump(args, server, path):
    """Makes the volume on a server, and a dump of it."""
    volume = VOLUMES[server.name]
    vos("restore", server.address, "a", "large", "-id", volume, "-file", args.open)
    for count, size in ((args.files, args.size), (1, args.big << 20)):
        got = bench.on_host(1, args.load_client, server.address, volume, "fill", 4, count, size)
        counts = bench.COUNTS.search(got.stdout)
        if not counts or int(counts[2]) != count or int(counts[7]) not in (0, bench.VBUSY):
            raise SystemExit(f"fill failed: {got.stdout}{got.stderr}")
    vos("dump", "-id", volume, "-file", path)
    vos("remove", "-id", volume)


def round_of(args, server, path):
    """Each verb once."""
    volume, found = VOLUMES[server.name], {}
    for verb, words in (("restore", ["restore", server.address, "a", "large", "-id", volume, "-file", path]),
                        ("dump", ["dump", "-id", volume, "-file", path + ".out"])):
        before = server.cpu(MORE.get(server.name, ()))
        vos(*words)
        found[verb] = server.cpu(MORE.get(server.name, ())) - before
    # Dates and numbers differ.
    if os.path.getsize(path) != os.path.getsize(path + ".out"):
        raise SystemExit(f"{server.name}: the dump has {os.path.getsize(path + '.out')} bytes")
    os.remove(path + ".out")
    found |= verbs.run(args, server.address, "backups", volume, 1)
    found |= verbs.run(args, server.address, "clear", volume, 1)
    vos("delentry", "-id", volume)
    return found


def main():
    parser = bench.arguments("--program", "--keys", "--load-client", "--open", "--folder")
    parser.add_argument("--files", type=int, required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--big", type=int, required=True, help="MiB of one more file")
    args = parser.parse_args()
    path = os.path.join(args.folder, "large.dump")
    make_dump(args, args.server[0], path)
    found = {}
    for _ in range(args.rounds):
        for server in args.server:
            for verb, took in round_of(args, server, path).items():
                found.setdefault(verb, {}).setdefault(server.name, []).append(took)
    rows = []
    for verb, (title, goal, sizes) in VERBS.items():
        most = goal if args.files in sizes else None
        rows.append([title, *bench.beside(found[verb]["ours"], found[verb]["peer"], most=most)])
        if "base" in found[verb]:
            ours, base = (statistics.median(found[verb][name]) for name in ("ours", "base"))
            print(f"{title}: {ours:.3g}, and {base:.3g} of the other build")
    about = bench.about(args.command, "dafileserver and davolserver", f"medians of {args.rounds}, in turns")
    about["Volume"] = f"{args.files} files of {args.size} bytes and one of {args.big} MiB; " \
                      f"the dump has {os.path.getsize(path) >> 20} MiB"
    bench.publish([args.out, args.record], "afs-large.md", "A volume of many files beside OpenAFS's volume server",
                  about, {"verbs": (["Verb", *bench.BESIDE], rows)}, bench.verdict(rows, args.command))


if __name__ == "__main__":
    main()
