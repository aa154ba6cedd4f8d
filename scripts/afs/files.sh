# Checks of the file server, for scripts/afs.sh.
# shellcheck shell=bash

# What workloads read: a tree, its archive, and a git repository with two branches.
make_sources() {
  [ ! -e "$work/tree.tar" ] || return 0
  mkdir "$work/tree" && git archive HEAD README.md LICENSE-MIT docs scripts crates/afs | tar xf - -C "$work/tree" &&
    tar cf "$work/tree.tar" -C "$work" tree || return
  (
    export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
    export GIT_AUTHOR_DATE=2026-01-01T00:00:00Z GIT_COMMITTER_DATE=2026-01-01T00:00:00Z
    cp -r "$work/tree" "$work/origin" && cd "$work/origin" && git init -q -b main &&
      git config user.name t && git config user.email t@example.org &&
      echo first >README && git add -A && git commit -qm one &&
      git checkout -qb side && git rm -rq crates && echo side >side && git add -A && git commit -qm side &&
      git checkout -q main && echo second >more && git add -A && git commit -qm two
  )
}

# Runs a command with a client's mount on a host.
client() { # HOST COMMAND...
  local h=$1
  shift
  limit=${limit:-300} on "$h" env "WORK=$work" "$PWD/scripts/afs/client.sh" "$work/mount$h" "$@"
}

# Runs a workload in a new volume of one server, or in a local folder. Keeps what it prints, what
# another client then sees, and what the server dumps.
work_in() { # WORKLOAD theirs|ours|local QUOTA
  local name=$1 where=$2 out=$work/$1.$2
  if [ "$where" = local ]; then
    rm -rf "$work/local:w.local" && mkdir "$work/local:w.local"
    WORK=$work AFS=$work/local scripts/afs/work.sh "$name" w.local >"$out" 2>&1
    WORK=$work AFS=$work/local scripts/afs/work.sh sums w.local >"$out.sums" 2>&1
    rm -rf "$work/local:w.local"
  else
    make_volume "w.$where" "${!where}"
    [ "$3" = 0 ] || vos setfields "w.$where" -maxquota "$3"
    client 1 scripts/afs/work.sh "$name" "w.$where" >"$out" 2>&1
    echo "status $?"
    client 4 scripts/afs/work.sh sums "w.$where" >"$out.sums" 2>&1
    vos dump "w.$where" -file "$work/w.$where"
    list_dump "$work/w.$where" | grep -av '/\.git/' >"$out.list"
    rm "$work/w.$where"
    vos remove -id "w.$where"
  fi
  sed -i "s/w\.$where/VOLUME/g; s/mount1\/\.:mount\/zafs.test/AFS/g; s/local:/AFS:/g" "$out"
  cp "$out" "$report/"
}

# Runs a workload on our server and on OpenAFS's, or in a local folder, and compares.
compare() { # WORKLOAD [theirs|local] [QUOTA]
  local name=$1 other=${2:-theirs}
  make_sources || expected "sources for the workload"
  work_in "$name" "$other" "${3:-0}"
  work_in "$name" ours "${3:-0}"
  same "output of $name" "$work/$name.$other" "$work/$name.ours"
  same "files of $name, as another client sees them" "$work/$name.$other.sums" "$work/$name.ours.sums"
  [ "$other" = local ] || same "files of $name, as dumped" "$work/$name.$other.list" "$work/$name.ours.list"
}

check_tree() { compare tree; }
check_git() { compare git_; }
check_archives() { compare archives; }
check_model() { compare model; }
check_model_long() { limit=3000 compare model_long; }
check_many() { compare many; }
check_names() { compare names; }
check_quota() { compare quota theirs 3000; }
# OpenAFS's client often dies of these on OpenAFS's server.
check_big() { compare big local; }
check_sparse() { compare sparse local; }

# Goal: afsio reads, overwrites, appends to and locks files of our server as it does on OpenAFS's.
check_afsio() {
  local server
  vos create $theirs a root.afs
  head -c 20971520 /dev/urandom >"$work/random"
  make_sources
  for server in theirs ours; do
    make_volume "w.$server" "${!server}"
    client 1 sh -c 'mkdir "$AFS:$1/d"; for i in 1 2 3; do echo "$i" >"$AFS:$1/d/f$i"; done' sh "w.$server" ||
      expected "a client that writes"
    vos dump "w.$server" -file "$work/w.$server"
    (
      id=$(on 1 vos examine "w.$server" -localauth | awk 'NR == 1 {print $2}')
      fid=$("$afsdump" vnodes <"$work/w.$server" | awk '/^[0-9]+\/f1 / {print $2 "." $3}')
      # Sizes at the edges of packets and of the server's records, and 20 MiB.
      for size in 0 1 1411 1412 1413 65535 65536 131073 20971520; do
        head -c "$size" "$work/random" >"$work/in"
        for level in "" -clear -crypt; do
          # shellcheck disable=SC2086
          on 1 afsio fidwrite -vnode "$id.$fid" -cell zafs.test -force $level <"$work/in" >/dev/null 2>&1
          echo "write $size $level: status $?"
          # shellcheck disable=SC2086
          on 1 afsio fidread -fid "$id.$fid" -cell zafs.test 2>&1 >"$work/out" | sed 's/[0-9]*\.[0-9]* *[a-z]*//g' >/dev/null
          sha256sum <"$work/out"
          cmp "$work/in" "$work/out" && echo "read $size: the same"
        done
      done
      on 1 afsio fidappend -vnode "$id.$fid" -cell zafs.test <"$work/2/ours" >/dev/null 2>&1
      echo "append: status $?"
      on 1 afsio fidread -fid "$id.$fid" -cell zafs.test 2>/dev/null | wc -c
    ) >"$work/afsio.$server"
    cp "$work/afsio.$server" "$report/"
    [ "$(grep -c 'the same' "$work/afsio.$server")" -ge 8 ] || expected "files read as written: $report/afsio.$server"
    vos remove -id "w.$server"
  done
  vos remove -id root.afs
  same "output of afsio" "$work/afsio.theirs" "$work/afsio.ours"
}

# Each of two clients waits for a number of the other, and writes the next one.
# shellcheck disable=SC2016
ball='
cd "$AFS:w.ours" || exit 1
for i in $(seq 40); do
  if [ "$1" = first ]; then echo "$i" >ball.first; other=ball.second; else other=ball.first; fi
  for _ in $(seq 500); do [ "$(cat $other 2>/dev/null)" = "$i" ] && break; sleep 0.01; done
  [ "$(cat $other)" = "$i" ] || { echo "round $i: $other has $(cat $other)"; exit 1; }
  if [ "$1" = second ]; then echo "$i" >ball.second; fi
  for j in 1 2 3; do echo "$i" >"$1.$i.$j"; done
  ls | wc -l >/dev/null
done
# Both see the files of both.
for _ in $(seq 100); do [ "$(ls | wc -l)" = 242 ] && exit; sleep 0.05; done
echo "$(ls | wc -l) files, not 242"
exit 1'

# Goal: two clients see the changes of each other at once, in files and in a common folder.
check_writers() {
  make_volume w.ours $ours
  client 4 bash -c "$ball" sh second &
  local other=$! begun=$SECONDS
  client 1 bash -c "$ball" sh first || expected "each number from the other client"
  wait $other || expected "each number at the second client"
  [ $((SECONDS - begun)) -lt 60 ] || expected "40 rounds in less than a minute, not $((SECONDS - begun)) s"
  vos remove -id w.ours
}

# Goal: a client that was killed while it had promises delays another for a short time, once.
check_dead_client() {
  local begun took
  make_volume w.ours $ours
  client 1 sh -c 'cd "$AFS:w.ours" && mkdir d && for i in 1 2 3 4 5 6 7 8 9; do echo 1 >d/$i; done' || expected "files"
  rm -f "$work/has"
  client 4 sh -c 'cat "$AFS:w.ours"/d/*; touch "$0"; sleep 12' "$work/has" >/dev/null 2>&1 &
  for _ in $(seq 200); do [ ! -e "$work/has" ] || break; sleep 0.1; done
  [ -e "$work/has" ] || expected "a second client that reads"
  kill -9 "$(cat "$work/mount4.pid")"
  begun=$SECONDS
  client 1 sh -c 'cd "$AFS:w.ours/d" && for i in 1 2 3 4 5 6 7 8 9; do echo 2 >$i && mv $i n$i; done' ||
    expected "changes of what a dead client has promises for"
  took=$((SECONDS - begun))
  [ $took -lt 30 ] || expected "the changes within 30 s, not $took"
  wait
  client 1 sh -c 'cat "$AFS:w.ours"/d/n[1-9]' | sort | uniq -c | grep -q '^ *9 2$' || expected "nine files of 2"
  vos remove -id w.ours
}

# Goal: a client that has a promise when our server restarts hears of a change after the restart. It
# is not reset, and asks for nothing before it hears of it.
check_restart() {
  make_volume w.ours $ours
  client 1 sh -c 'echo 1 >"$AFS:w.ours/f"' || expected "a file"
  rm -f "$work/has"
  # shellcheck disable=SC2016
  client 4 bash -c 'cd "$AFS:w.ours" && grep -q 1 f && touch "$WORK/has" || exit 1
    for _ in $(seq 600); do grep -q 2 f && exit; sleep 0.1; done; exit 1' &
  local other=$!
  for _ in $(seq 200); do [ ! -e "$work/has" ] || break; sleep 0.1; done
  [ -e "$work/has" ] || expected "a second client that reads"
  stop_ours 2 && start_ours 2 || expected "a restart"
  client 1 sh -c 'echo 2 >"$AFS:w.ours/f"' || expected "a change after the restart"
  wait $other || expected "the change at the client with a promise"
  if [ -n "$daemon" ]; then
    grep -q 'clients of before are known' "$ZAFS_STATE/h2/log/ours.out" || expected "clients that are known again"
  fi
  vos remove -id w.ours
}
