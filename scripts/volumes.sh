#!/usr/bin/env bash
# Usage: scripts/volumes.sh [nbdinfo|nbdcopy|nbdsh|qemu-img|qemu-io|fio|tls|attach|guest ...]
# Runs foreign NBD clients on volumes that the daemon exports, each on a pool of its own. Then the
# pool is exported, checked by OpenZFS's zdb (ZDB, or the one that `make oracle` unpacked),
# imported, and the volume is compared with its earlier contents.
#
# POOLHOUSE names the program; without it, the script builds it. Logs stay in target/suites/report.
# A client that is not installed is reported as missing, and the exit status is then 1, as for a
# failure. Debian has the clients in libnbd-bin, python3-libnbd, qemu-utils, qemu-system-x86 and
# fio.
set -uo pipefail
cd "$(dirname "$0")/.."
home=$PWD
report=$home/target/suites/report
mkdir -p "$report"
tools=$home/target/oracle/root
if [ -z "${ZDB:-}" ] && [ -x "$tools/sbin/zdb" ]; then
  ZDB=$tools/sbin/zdb
  libs=$(echo "$tools"/lib/*-linux-gnu)
fi
theirs() { LD_LIBRARY_PATH=${libs:-${LD_LIBRARY_PATH:-}} "$ZDB" "$@"; }
if [ -z "${POOLHOUSE:-}" ]; then
  cargo build -q --release -p poolhouse-program || exit 1
  POOLHOUSE=${CARGO_TARGET_DIR:-$home/target}/release/poolhouse
fi
poolhouse=$(realpath "$POOLHOUSE")

room=$(mktemp -d "${TMPDIR:-/tmp}/poolhouse-volumes.XXXXXX")
mkdir -m 700 "$room/run"
mkdir "$room/dev" "$room/volumes"
export POOLHOUSE_RUN_DIR=$room/run
zpool() { "$poolhouse" zpool "$@"; }
zfs() { "$poolhouse" zfs "$@"; }
cleanup() {
  mountpoint -q "$room/volumes/mnt" && umount -l "$room/volumes/mnt"
  zpool export -af >/dev/null 2>&1
  rm -rf --one-file-system "$room"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

work=$room/volumes
size=$((512 << 20))
# The daemon's own socket, and a TCP port that it chooses.
at="nbd+unix:///volumes/v?socket=$room/run/nbd.sock"
tcp() { "$poolhouse" export -l 127.0.0.1:0 "${1:-volumes/v}"; }

missing() { # WHAT
  echo "missing: $*"
  exit 77
}
need() { # PROGRAM ...
  local one
  for one in "$@"; do command -v "$one" >/dev/null || missing "$one"; done
}
fail() { # WHAT
  echo "$*"
  exit 1
}
alloc() { zpool sync volumes && zpool sync volumes && zpool get -Hpo value allocated volumes; }

# Makes an image with runs of data, written zeroes and holes, of many sizes.
image() { # FILE
  truncate -s $size "$1"
  local i
  for i in $(seq 0 40); do
    dd if=/dev/urandom of="$1" bs=4k seek=$((i * i * 75)) count=$((i * 13 + 1)) conv=notrunc status=none
    dd if=/dev/zero of="$1" bs=4k seek=$((i * i * 75 + i * 13 + 1)) count=9 conv=notrunc status=none
  done
}

# Prints a hash of the volume's contents.
sum() { "$poolhouse" export -r -l "$work/sum" volumes/v >/dev/null && python3 - "$work/sum" <<'PY'
import hashlib, socket, struct, sys
# A client in a few lines, so that the hash does not depend on a complex one.
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); f = s.makefile("rwb")
assert f.read(18) == b"NBDMAGICIHAVEOPT\0\3"
f.write(struct.pack(">I8sII", 3, b"IHAVEOPT", 1, 0)); f.flush()
size, flags = struct.unpack(">QH", f.read(10)); sha = hashlib.sha256()
for at in range(0, size, 1 << 20):
    n = min(1 << 20, size - at)
    f.write(struct.pack(">IHHQQI", 0x25609513, 0, 0, at, at, n)); f.flush()
    assert struct.unpack(">IIQ", f.read(16)) == (0x67446698, 0, at)
    sha.update(f.read(n))
f.write(struct.pack(">IHHQQI", 0x25609513, 0, 2, 0, 0, 0)); f.flush()
print(sha.hexdigest())
PY
}

# Exports the pool, checks it, imports it, and compares the volume.
compare() { # SUITE
  local before
  before=$(sum) && [ -n "$before" ] || fail 'it can not be read'
  zpool export volumes || exit
  if [ -n "${ZDB:-}" ]; then
    theirs -e -p "$room/dev" -bcc volumes >"$report/$1.zdb" 2>&1 || fail "zdb finds fault: $report/$1.zdb"
    grep -q 'No leaks' "$report/$1.zdb" || fail "zdb finds leaks: $report/$1.zdb"
  fi
  zpool import -d "$room/dev" volumes || exit
  [ "$before" = "$(sum)" ] || fail 'it holds something else after an export and an import'
}

nbdinfo_() {
  need nbdinfo
  zfs snapshot volumes/v@s
  [ "$(nbdinfo --size "$at")" = $size ] || fail size
  [ "$(nbdinfo --size "$(tcp)")" = $size ] || fail 'size over TCP'
  local can
  for can in 'can connect' 'can cache' 'can df' 'can fast-zero' 'can flush' 'can fua' 'can multi-conn' 'can read' 'can trim' 'can write' 'can zero' 'can structured-reply'; do
    # shellcheck disable=SC2086 # two words
    nbdinfo --${can% *} ${can#* } "$at" || fail "no: $can"
  done
  nbdinfo --is read-only "${at/volumes\/v/volumes/v@s}" || fail 'a snapshot can be written'
  nbdinfo --is read-only "$at" && fail 'a volume can not be written'
  nbdinfo --is tls "$at" && fail 'there is TLS'
  nbdinfo --json --list "$at" >"$work/list" || fail list
  python3 -c 'import json, sys; all = json.load(open(sys.argv[1]))["exports"]; assert [e["export-name"] for e in all] == ["volumes/v"] and all[0]["export-size"] == int(sys.argv[2]), all' "$work/list" $size || fail 'the list'
  nbdinfo --map --totals "$at" | grep -q "$size *100.0% *3 *hole,zero" || fail 'a new volume is no hole'
  nbdinfo "${at/volumes\/v/volumes/none}" 2>/dev/null && fail 'what is not there is told of'
  echo 'told all that it asks for'
}

nbdcopy_() {
  need nbdcopy nbdinfo
  image "$work/in"
  nbdcopy --flush --connections=4 --requests=64 "$work/in" "$at" || fail in
  nbdcopy "$at" "$work/out" || fail out
  cmp "$work/in" "$work/out" || fail differs
  # Through TCP, over existing data, with a large request size.
  nbdcopy --request-size=33554432 --flush "$work/out" "$(tcp)" || fail 'in over TCP'
  nbdcopy --connections=2 "$(tcp)" "$work/again" || fail 'out over TCP'
  cmp "$work/in" "$work/again" || fail 'differs over TCP'
  nbdinfo --map "$at" | awk '$3 == 0 { sum += $2 } END { print sum }' >"$work/data"
  # In blocks of 16 KiB: the data of the file, and a little more.
  [ "$(cat "$work/data")" -lt $((size / 4)) ] || fail 'holes are not kept'
  nbdcopy "$at" null: || fail null
  echo "$(cat "$work/data") bytes of data of $size went in and out, by a socket and TCP"
}

nbdsh_() {
  need nbdsh
  # nbdsh uses the first python3, and its module belongs to Debian's.
  local PATH=/usr/bin:$PATH
  python3 -c 'import nbd' 2>/dev/null || missing python3-libnbd
  cat >"$work/script" <<'PY'
import nbd, os, errno
h.set_strict_mode(0)
h.add_meta_context("base:allocation")
h.connect_uri(os.environ["AT"])
size = h.get_size()
assert h.can_multi_conn() and h.can_meta_context("base:allocation") and h.get_structured_replies_negotiated()
assert (h.get_block_size(0), h.get_block_size(1), h.get_block_size(2)) == (1, 16384, 33554432)
data = os.urandom(1 << 20)
h.pwrite(data, 12345, nbd.CMD_FLAG_FUA)
assert h.pread(len(data), 12345) == data
chunks = []
h.pread_structured(1 << 20, 0, lambda buf, at, kind, err: chunks.append((at, len(buf), kind)))
assert sum(n for _, n, _ in chunks) == 1 << 20 and chunks[0][2] == nbd.READ_DATA
h.pread_structured(4096, size - 4096, lambda buf, at, kind, err: chunks.append(kind))
assert chunks[-1] == nbd.READ_HOLE
h.zero(500000, 20000)
h.zero(70000, 700000, nbd.CMD_FLAG_NO_HOLE)
want = bytearray(data); want[20000-12345:520000-12345] = bytes(500000); want[700000-12345:770000-12345] = bytes(70000)
assert h.pread(len(data), 12345) == bytes(want)
def fails(what, code):
    try: what()
    except nbd.Error as e: assert e.errnum == code, e
    else: raise AssertionError(code)
fails(lambda: h.zero(4096, 0, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FAST_ZERO), errno.EOPNOTSUPP)
fails(lambda: h.pwrite(b"x" * 4096, size - 1), errno.ENOSPC)
fails(lambda: h.pread(4096, size), errno.EINVAL)
fails(lambda: h.trim(4096, size), errno.ENOSPC)
h.zero(16384, 0, nbd.CMD_FLAG_FAST_ZERO)
h.cache(1 << 20, 0)
extents = []
h.block_status(size, 0, lambda c, at, e, err: extents.extend(e))
assert extents[1] == 3 and sum(extents[::2]) == size, extents
one = []
h.block_status(size, 0, lambda c, at, e, err: one.extend(e), nbd.CMD_FLAG_REQ_ONE)
assert len(one) == 2
h.trim(size & ~65535, 0)
h.flush()
extents.clear(); h.block_status(size, 0, lambda c, at, e, err: extents.extend(e))
assert extents == [size, 3], extents
# Hundreds of requests in flight, answered in any order. Another connection sees flushed data.
bufs = [os.urandom(8192) for _ in range(500)]
cookies = [h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(b)), i * 8192) for i, b in enumerate(bufs)]
while not all(h.aio_command_completed(c) for c in list(cookies) if cookies.remove(c) is None): h.poll(-1)
while h.aio_in_flight() > 0: h.poll(-1)
o = nbd.NBD(); o.connect_uri(os.environ["AT"]); o.flush()
assert o.pread(500 * 8192, 0) == b"".join(bufs)
o.shutdown(); h.shutdown()
print("all commands and flags as the protocol has them")
PY
  AT=$at nbdsh -c "exec(open('$work/script').read())"
}

qemu-img_() {
  need qemu-img
  image "$work/in"
  qemu-img info "$at" | grep -q 'virtual size: 512 MiB' || fail info
  qemu-img convert -n -f raw -O raw -W -m 8 "$work/in" "$at" || fail 'convert in'
  qemu-img compare -f raw -F raw "$work/in" "$at" || fail compare
  qemu-img convert -f raw -O qcow2 -c "$(tcp)" "$work/out.qcow2" || fail 'convert out'
  qemu-img compare -f raw -F qcow2 "$at" "$work/out.qcow2" || fail 'compare qcow2'
  qemu-img map --output=json -f raw "$at" >"$work/map" || fail map
  python3 -c 'import json, sys; all = json.load(open(sys.argv[1])); assert any(e["zero"] for e in all) and any(e["data"] for e in all) and sum(e["length"] for e in all) == int(sys.argv[2])' "$work/map" $size || fail 'the map'
  # A qcow2 image in the volume, and one with the volume as its base.
  qemu-img create -q -f qcow2 "$at" 300M || fail create
  qemu-img check -q -f qcow2 "$at" || fail check
  qemu-img create -q -f qcow2 -F qcow2 -b "$at" "$work/over.qcow2" || fail 'create over it'
  qemu-img bench -q -f raw -c 20000 -d 64 -s 4096 -S 36864 -t none "$at" >"$work/reads" || fail 'bench read'
  qemu-img bench -w -f raw -c 10000 -d 32 -s 8192 -S 24576 --flush-interval=200 --pattern=90 -t none "$at" >"$work/writes" || fail 'bench write'
  qemu-img convert -n -f raw -O raw "$work/in" "$at" || fail 'convert again'
  qemu-img compare -q -f raw -F raw "$work/in" "$at" || fail 'compare again'
  echo "converts, compares, maps, creates; bench: $(grep -ho '[0-9.]* seconds' "$work/writes") for 10000 writes of 8 KiB with 50 flushes"
}

qemu-io_() {
  need qemu-io
  local before after
  qemu-io -f raw -t none -d unmap "$at" -c 'write -P 1 0 64M' -c 'write -P 2 1M 4M' -c 'write -P 3 5000 777' -c 'read -P 1 0 5000' -c 'read -P 3 5000 777' \
    -c 'read -P 2 1M 4M' -c 'flush' -c 'write -z 2M 1M' -c 'read -P 0 2M 1M' -c 'write -z -u 3M 1M' -c 'read -P 0 3M 1M' -c 'aio_write -P 7 100M 32M' -c 'aio_write -P 8 132M 32M' \
    -c 'aio_flush' -c 'read -P 7 100M 32M' -c 'read -P 8 132M 32M' -c 'write -f -P 9 200M 1M' -c 'writev -P 4 300M 4k 8k 16k' -c 'readv -P 4 300M 4k 8k 16k' >"$work/log" 2>&1
  grep -iE 'fail|error|verif' "$work/log" && fail 'qemu-io complains'
  before=$(alloc)
  qemu-io -f raw -t none -d unmap "$at" -c 'discard 0 64M' -c 'discard 100M 64M' -c 'read -P 0 0 64M' >"$work/log" 2>&1
  grep -iE 'fail|error|verif' "$work/log" && fail 'qemu-io complains of discards'
  after=$(alloc)
  # The written patterns must free space when they are discarded, however well they compress.
  [ "$after" -lt "$before" ] || fail "what was discarded is not free: $before, $after"
  qemu-io -r -f raw "${at/volumes\/v/volumes/v@none}" -c 'read 0 1' >/dev/null 2>&1 && fail 'a snapshot that is not there is read'
  echo "patterns, zeroes and discards; $before bytes before, $after after"
}

fio_() {
  need fio
  fio --enghelp 2>/dev/null | grep -q nbd || missing "fio's nbd engine"
  zfs snapshot volumes/v@empty
  local uri
  uri=$(tcp)
  cat >"$work/jobs" <<FIO
[global]
ioengine=nbd
rw=randwrite
bsrange=512-128k
bs_unaligned=0
blockalign=512
iodepth=32
verify=crc32c
verify_fatal=1
verify_backlog=1024
fsync=64
size=96m
io_size=192m
randseed=7
[one]
uri=$at
offset=0
[two]
uri=$at
offset=128m
[trims]
uri=$uri
offset=256m
rw=randtrimwrite
bs=16k
bsrange=16k-16k
verify=0
FIO
  fio --output="$report/fio.log" "$work/jobs" || fail "fio: $report/fio.log"
  # After an import the volume has the written data, as fio verifies.
  zpool export volumes && zpool import -d "$room/dev" volumes || exit
  fio --output="$report/fio-again.log" --name=again --ioengine=nbd --uri="$at" --rw=randwrite --bs=8k --iodepth=16 --verify=md5 --size=64m --offset=400m --randseed=9 --do_verify=0 || fail 'fio writes'
  zpool export volumes && zpool import -d "$room/dev" volumes || exit
  fio --output="$report/fio-verify.log" --name=again --ioengine=nbd --uri="$at" --rw=randwrite --bs=8k --iodepth=16 --verify=md5 --size=64m --offset=400m --randseed=9 --verify_only=1 || fail 'fio finds other data after an import'
  echo 'random writes verified, also after an import'
}

# Makes certificates of one authority, in directories with the file names of libnbd, qemu and us.
papers() { # FOLDER
  mkdir -p "$1/server" "$1/client" "$1/stranger"
  local who
  for who in ca other; do
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=$who" -keyout "$1/$who.key" -out "$1/$who.pem" 2>/dev/null || return 1
  done
  for who in server:ca client:ca stranger:other; do
    local folder=$1/${who%:*} by=$1/${who#*:} name=${who%:*}
    [ "$name" = stranger ] && name=client
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost -keyout "$folder/$name-key.pem" -out "$folder/request" 2>/dev/null &&
      openssl x509 -req -in "$folder/request" -CA "$by.pem" -CAkey "$by.key" -CAcreateserial -days 3650 -out "$folder/$name-cert.pem" \
        -extfile <(echo 'subjectAltName=DNS:localhost,IP:127.0.0.1') 2>/dev/null || return 1
    cp "$1/ca.pem" "$folder/ca-cert.pem"
  done
}

# Volumes under TLS, with GnuTLS's clients.
tls_() {
  need nbdinfo nbdcopy qemu-img openssl
  papers "$work/tls" || fail 'no certificates'
  image "$work/in"
  local uri plain with port opened
  uri=$("$poolhouse" export -T "$work/tls/server" -l 127.0.0.1:0 volumes/v) || fail "export: $uri"
  case $uri in nbds://127.0.0.1:*/volumes/v) ;; *) fail "a URI of its own: $uri" ;; esac
  plain=${uri/nbds/nbd} with="$uri?tls-certificates=$work/tls/client"
  nbdinfo --is tls "$with" || fail 'no TLS'
  [ "$(nbdinfo --size "$with")" = $size ] || fail size
  nbdinfo "$plain" >/dev/null 2>&1 && fail 'told without TLS'
  nbdinfo "$uri?tls-certificates=$work/tls/stranger" >/dev/null 2>&1 && fail 'told to a stranger'
  nbdcopy --flush --connections=4 "$work/in" "$with" || fail in
  nbdcopy "$with" "$work/out" || fail out
  cmp "$work/in" "$work/out" || fail differs
  port=${uri%/volumes/v} port=${port##*:}
  qemu-img compare --object "tls-creds-x509,id=t,dir=$work/tls/client,endpoint=client" --image-opts "driver=raw,file.filename=$work/in" \
    "driver=raw,file.driver=nbd,file.host=127.0.0.1,file.port=$port,file.export=volumes/v,file.tls-creds=t" || fail 'qemu-img compare'
  # Without a certificate authority, every client is accepted.
  rm "$work/tls/server/ca-cert.pem" "$work/tls/client/client-"*.pem
  opened=$("$poolhouse" export -r -T "$work/tls/server" -l "$work/open" volumes/v) || fail "export: $opened"
  nbdinfo --is read-only "$opened&tls-certificates=$work/tls/client&tls-hostname=localhost" || fail 'nobody is let in'
  "$poolhouse" exports | grep -q "nbds+unix:///volumes/v" || fail 'the list'
  "$poolhouse" unexport -a
  echo 'in and out, compared, and strangers turned away'
}

# A block device with a file system, for programs of the kernel's side.
attach_() {
  need losetup mkfs.ext4 fstrim blockdev
  [ "$(id -u)" = 0 ] || missing 'root, who may make block devices'
  [ -e /dev/loop-control ] || missing 'loop devices'
  local dev full trimmed sum
  dev=$("$poolhouse" attach volumes/v) || fail "attach: $dev"
  [ "$dev" = /dev/zvol/volumes/v ] || fail "a name of its own: $dev"
  "$poolhouse" attach volumes/v 2>/dev/null && fail 'attached twice'
  [ "$(blockdev --getsize64 "$dev")" = $size ] || fail size
  mkfs.ext4 -q -F "$dev" && mkdir "$work/mnt" && mount "$dev" "$work/mnt" || fail 'no file system'
  dd if=/dev/urandom of="$work/mnt/gone" bs=1M count=200 conv=fsync status=none
  cp -r "$home/crates" "$work/mnt/" && sync -f "$work/mnt" && sum=$(cd "$work/mnt" && find crates -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum)
  full=$(alloc)
  rm "$work/mnt/gone" && sync -f "$work/mnt" && fstrim "$work/mnt" || fail fstrim
  trimmed=$(alloc)
  [ "$trimmed" -lt $((full - (150 << 20))) ] || fail "what was trimmed is not free: $full, $trimmed"
  "$poolhouse" detach volumes/v 2>/dev/null && fail 'detached while it is mounted'
  zpool export volumes 2>/dev/null && fail 'exported while it is mounted'
  umount "$work/mnt"
  zfs set volsize=1G volumes/v && [ "$(blockdev --getsize64 "$dev")" = $((1 << 30)) ] || fail 'it keeps its size'
  e2fsck -fp "$dev" >/dev/null 2>&1
  resize2fs "$dev" >/dev/null 2>&1 || fail resize2fs
  zpool export volumes && [ ! -e "$dev" ] && zpool import -d "$room/dev" volumes || fail 'export and import'
  dev=$("$poolhouse" attach -r volumes/v) || fail 'attach again'
  e2fsck -fn "$dev" >/dev/null 2>&1 || fail e2fsck
  mount -o ro "$dev" "$work/mnt" || fail 'mount again'
  [ "$sum" = "$(cd "$work/mnt" && find crates -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum)" ] || fail 'files are others'
  umount "$work/mnt"
  "$poolhouse" detach volumes/v && [ ! -e "$dev" ] || fail detach
  echo "ext4 on $dev; $full bytes before trimming, $trimmed after"
}

# A guest that boots from a volume. The code in its first sector reads 16 KiB with the BIOS, adds
# one to each byte, writes the result elsewhere, and ends the machine.
guest_() {
  need qemu-system-x86_64 qemu-img
  image "$work/in"
  # 16-bit code:
  #   int 0x13, AH=0x42: read 32 sectors from sector 64 to address 0x8000
  #   inc each byte
  #   int 0x13, AH=0x43: write them to sector 2112
  #   out 0x10 to port 0xf4, or 0x11 after an error
  local code=fa31c08ed88ed0bc007cfbbe397cb442cd13721ebe0080b90040fe0446e2fbc606427c08be397cb80043cd137204b010e6f4b011e6f4f4ebfd10002000008000004000000000000000
  # shellcheck disable=SC2059 # it is a format of bytes
  printf "$(echo $code | sed 's/../\\x&/g')" | dd of="$work/in" conv=notrunc status=none
  printf '\x55\xaa' | dd of="$work/in" bs=1 seek=510 conv=notrunc status=none
  dd if=/dev/urandom of="$work/in" bs=512 seek=64 count=32 conv=notrunc status=none
  qemu-img convert -n -f raw -O raw "$work/in" "$at" || fail 'nothing to boot from'
  timeout 300 qemu-system-x86_64 -accel kvm -accel tcg -m 32 -nodefaults -display none -no-reboot -device isa-debug-exit,iobase=0xf4,iosize=1 \
    -drive "file=$at,format=raw,if=ide"
  # The exit status is twice the value written to the port, plus one.
  local ended=$?
  [ $ended = 33 ] || fail "the guest ends with $ended"
  dd if="$work/in" bs=512 skip=64 count=32 status=none | LC_ALL=C tr '\000-\377' '\001-\377\000' | dd of="$work/in" bs=512 seek=2112 conv=notrunc status=none
  qemu-img compare -f raw -F raw "$work/in" "$at" || fail 'the guest wrote something else'
  echo 'booted, read and wrote'
}

status=0 content=0 all=0
say() { printf '%-10s %s\n' "$1" "$2"; }
for suite in "${@:-nbdinfo nbdcopy nbdsh qemu-img qemu-io fio tls attach guest}"; do
  for suite in $suite; do
    case $suite in nbdinfo | nbdcopy | nbdsh | qemu-img | qemu-io | fio | tls | attach | guest) ;; *) echo "there is no client $suite" >&2; exit 2 ;; esac
    log=$report/nbd-$suite.log
    all=$((all + 1))
    rm -rf "$room/dev/d0" "$work"
    mkdir "$work"
    truncate -s 4G "$room/dev/d0"
    zpool create -m none -o ashift=12 volumes "$room/dev/d0" && zfs create -s -V $size volumes/v || exit 1
    (cd "$work" && "${suite}_") >"$log" 2>&1
    result=$?
    if [ $result = 0 ]; then
      (compare "nbd-$suite") >"$report/nbd-$suite.compare" 2>&1 || { result=1; echo "after export: $(tail -1 "$report/nbd-$suite.compare")" >>"$log"; }
    fi
    case $result in
      0) content=$((content + 1)); say "$suite" "$(tail -1 "$log")" ;;
      77) status=1; say "$suite" "$(tail -1 "$log")" ;;
      *) status=1; say "$suite" "FAILED, see $log: $(tail -1 "$log")" ;;
    esac
    zpool destroy -f volumes || exit 1
  done
done
echo "$content of $all clients content"
exit $status
