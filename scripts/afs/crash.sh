# Checks of crashes and of the pool, for scripts/afs.sh.
# shellcheck shell=bash

# Writes files until `stop` exists, and notes each with the time at which the server had it. After an
# error it goes on with the next file: the server is away for a while.
load='
import os, sys, time
folder, notes, stop = sys.argv[1:]
os.makedirs(folder, exist_ok=True)
noted = open(notes, "a", buffering=1)
number = 0
while not os.path.exists(stop):
    path = os.path.join(folder, f"f{number}")
    try:
        with open(path, "wb") as file:
            file.write(f"f{number}".encode() * 3000)
        if number % 7 == 6:
            os.rename(path, path + "r")
        noted.write(f"{number} {time.time()}\n")
    except OSError as error:
        print(number, error, flush=True)
        time.sleep(0.5)
    number += 1
    time.sleep(0.01)
'
# Reads what was noted, but for the times in DOUBT. In this client fsync does nothing, so the last 10 s
# before a kill may be lost. It stores a file after `close` has returned: a store waits for 15 s if it
# meets `vos backup`, and the last seconds before this check may not be there yet.
verify='
import os, sys, time
folder, notes, doubt = sys.argv[1:]
doubt = [tuple(map(float, line.split())) for line in open(doubt)] + [(time.time() - 3, time.time() + 9999)]
lost, checked = 0, 0
for line in open(notes):
    number, at = line.split()
    if any(begin < float(at) < end for begin, end in doubt):
        continue
    path = os.path.join(folder, f"f{number}" + ("r" if int(number) % 7 == 6 else ""))
    checked += 1
    try:
        found = open(path, "rb").read()
    except OSError as error:
        found = str(error).encode()
    if found != f"f{number}".encode() * 3000:
        lost += 1
        print("lost:", number, "noted", at, "doubt", doubt, "found", len(found), found[:80])
print(checked, "checked,", lost, "lost")
sys.exit(lost > 0 or checked < 100)
'

# Notes a time, from now, at which what the client has done may not be there later.
doubt() { # FROM TO
  local now
  now=$(date +%s)
  echo "$((now + $1)) $((now + $2 + 1))" >>"$work/doubt"
}

# Kills our server under the load of a client, and starts it again: nothing noted is lost, and the
# same client, new clients and vos go on.
crash_rounds() { # COUNT SECONDS
  local round before loader
  make_volume w.ours $ours
  make_volume old $ours
  client 4 sh -c 'cd "$AFS:old" && for i in $(seq 200); do echo $i >o$i; done' || expected "files"
  printf '%s' "$load" >"$work/load.py"
  printf '%s' "$verify" >"$work/verify.py"
  rm -f "$work/stop" "$work/notes" "$work/doubt"
  # The client that was there all the time reads too.
  # shellcheck disable=SC2016
  client 1 sh -c 'python3 "$WORK/load.py" "$AFS:w.ours/load" "$WORK/notes" "$WORK/stop" &&
    python3 "$WORK/verify.py" "$AFS:w.ours/load" "$WORK/notes" "$WORK/doubt"' &
  loader=$!
  # After a failure too.
  trap 'touch "$work/stop"; wait $loader' EXIT
  for round in $(seq "$1"); do
    sleep "$2"
    doubt -10 1
    kill_ours 2
    before=$(wc -l <"$work/notes")
    echo "round $round: $before files were noted"
    start_ours 2 || expected "our server to start after a crash"
    for _ in $(seq 90); do [ "$(wc -l <"$work/notes")" -gt $((before + 3)) ] && break; sleep 1; done
    [ "$(wc -l <"$work/notes")" -gt $((before + 3)) ] || expected "the client to write on, round $round"
    # shellcheck disable=SC2016
    client 4 sh -c 'python3 "$WORK/verify.py" "$AFS:w.ours/load" "$WORK/notes" "$WORK/doubt"' ||
      expected "what was noted before the kill of round $round"
    # shellcheck disable=SC2016
    [ "$(client 4 sh -c 'cat "$AFS:old"/o* | sort -n | sha256sum')" = "$(seq 200 | sha256sum)" ] ||
      expected "files of another volume"
    vos examine w.ours
    doubt -1 1
    vos backup w.ours
    vos dump w.ours.backup -file "$work/crash.dump"
    list_dump "$work/crash.dump" >/dev/null || expected "a dump that can be read"
  done
  touch "$work/stop"
  wait $loader || expected "the client to end well"
  vos move w.ours $ours a $theirs a
  # shellcheck disable=SC2016
  client 4 sh -c 'python3 "$WORK/verify.py" "$AFS:w.ours/load" "$WORK/notes" "$WORK/doubt"' ||
    expected "all files after the move"
  vos move w.ours $theirs a $ours a
  vos create $ours a after
  on 1 vos listvol $ours a -localauth | grep -q 'Total volumes onLine [0-9]* ; Total volumes offLine 0 ; Total busy 0' ||
    expected "all volumes on line"
}

# Goal: a server that was killed under load has what clients were promised, and all go on.
check_crash() { crash_rounds 2 13; }
check_crash_long() { limit=1200 crash_rounds 20 17; }

# Kills our server on host 2 amid a command of vos, and starts it again. The command must fail within
# MOST seconds.
killed_amid() { # MOST DELAY VOS-ARGUMENT...
  local most=$1 delay=$2 begun pid took
  shift 2
  limit=700 on 1 vos "$@" -localauth >"$work/amid" 2>&1 &
  pid=$!
  sleep "$delay"
  kill -0 $pid 2>/dev/null || expected "vos $1 to go on for $delay s"
  kill_ours 2
  begun=$SECONDS
  start_ours 2 || expected "our server to start after a crash"
  ! wait $pid || expected "an error of vos $1"
  took=$((SECONDS - begun))
  echo "vos $*: failed after $took s"
  tail -n 3 "$work/amid"
  [ $took -le "$most" ] || expected "vos $1 to fail within $most s, not $took"
}

# Waits until OpenAFS's volume server has no transaction.
idle_theirs() { # MOST
  local begun=$SECONDS
  until on 1 vos status $theirs -localauth | grep -q 'No active transactions'; do
    [ $((SECONDS - begun)) -le "$1" ] || expected "no transactions of OpenAFS's server after $1 s"
    sleep 1
  done
  echo "OpenAFS's volume server has no transactions after $((SECONDS - begun)) s"
}

# Goal: a peer of a server that was killed amid a transfer, and started again, learns that. It would
# wait for its dead time: 600 s for vos, 420 s for OpenAFS's volume server. A peer that sends learns
# it at once, if only by the closed port. One that receives learns it by its next ping, after a third
# of that time at most.
check_transfers() {
  make_volume w.ours $ours
  # shellcheck disable=SC2016
  client 1 sh -c 'for i in 1 2 3 4; do head -c 100000000 /dev/zero >"$AFS:w.ours/big$i"; done' || expected "files"
  vos dump w.ours -file "$work/transfers.dump"
  killed_amid 20 0.5 restore $ours a r.ours -file "$work/transfers.dump"
  vos restore $theirs a w.theirs -file "$work/transfers.dump"
  killed_amid 20 1 copy w.theirs $theirs a c.ours $ours a
  idle_theirs 20
  # Ours sends. vos, which waits for the end of that, can't know whether it happened.
  killed_amid 120 1 copy w.ours $ours a c.theirs $theirs a
  idle_theirs 145
  killed_amid 205 0.5 dump w.ours -file "$work/amid.dump"
}

# Ends the check unless the pools of our servers are whole. They are exported, and imported again. The
# judge is ZDB, OpenZFS's zdb if scripts/oracle-tools.sh has unpacked it, or else our own zdb.
check_pools() {
  local h zdb=${ZDB:-} oracle=$PWD/target/oracle/root
  if [ -z "$zdb" ] && [ -x "$oracle/sbin/zdb" ]; then
    export LD_LIBRARY_PATH=$oracle/usr/lib/$(uname -m)-linux-gnu:$oracle/lib/$(uname -m)-linux-gnu
    zdb=$oracle/sbin/zdb
  fi
  if [ -z "$zdb" ]; then
    local program=${POOLHOUSE:-${report%/afs}/debug/poolhouse}
    [ -x "$program" ] || cargo build -q -p poolhouse-program || skip "no zdb, and poolhouse does not build"
    zdb="$program zdb"
  fi
  for h in 2 3; do
    stop_ours $h || expected "our server to export its pool"
    mkdir -p "$work/pool$h" && ln -f "$work/h$h.img" "$work/pool$h/d0"
    $zdb -bcc -e -p "$work/pool$h" afs >"$work/zdb$h" 2>&1 || expected "status 0 of $zdb: $(tail -3 "$work/zdb$h")"
    tail -n 30 "$work/zdb$h"
    if grep -E 'leaked space|error' "$work/zdb$h"; then expected "no errors of zdb"; fi
    start_ours $h || expected "our server to start again"
  done
}

# Goal: the pools are whole after work of all kinds.
check_pool() {
  make_sources
  make_volume left $ours
  client 1 scripts/afs/work.sh archives left >"$work/left" 2>&1
  vos backup left
  check_pools
  vos examine left.backup
}
