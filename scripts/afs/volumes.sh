# Checks of the volume server, for scripts/afs.sh.
# shellcheck shell=bash

# Goal: OpenAFS's tools that query servers get answers.
check_probes() {
  local text
  text=$(on 1 rxdebug $ours 7000 -version) || expected "an answer to rxdebug -version"
  grep -q 'AFS version: Poolhouse' <<<"$text" || expected "our version, not: $text"
  for port in 7000 7005; do
    text=$(on 1 rxdebug $ours $port -allconnections -peers -rxstats -long) || expected "rxdebug of port $port"
    grep -q 'Free packets' <<<"$text" || expected "'Free packets' of port $port"
    # Without load, no call waits for a thread.
    grep -Eq '^0 calls waiting for a thread' <<<"$text" || expected "no waiting calls at port $port"
  done
  on 1 xstat_fs_test $ours -collID 0 1 2 3 -onceonly >"$work/xstat" 2>&1 || expected "an answer to xstat_fs_test: $(tail -1 "$work/xstat")"
  cat "$work/xstat"
  grep -q 'AFS_XSTATSCOLL_CALL_INFO\|AFS_XSTATSCOLL_PERF_INFO' "$work/xstat" || expected "collections of xstat_fs_test"
  # A file server has no database: udebug of its port must end, with an error.
  on 1 udebug $ours 7000 >"$work/udebug" 2>&1
  [ $? != 124 ] || expected "udebug to end"
  cat "$work/udebug"
  on 1 udebug $theirs 7003 | grep -q 'I am sync site' || expected "a sync site of the volume database"
}

# Every verb of vos that speaks to a volume server, on the partition of one server. What it prints
# about volumes is kept in OUT, without what differs between servers and runs.
all_verbs() { # SERVER OUT
  local s=$1 out=$2 minute
  : >"$out"
  show() {
    echo "+ vos ${*//$s/SERVER}" >>"$out"
    on 1 vos "$@" -localauth >"$work/shown" 2>&1 || expected "status 0 of: vos $*: $(cat "$work/shown")"
    cat "$work/shown"
    sed -E -e "s/$s|p?10\.92\.0\.[0-9]/SERVER/g" -e 's/[A-Z][a-z]{2} [A-Z][a-z]{2} +[0-9]+ [0-9:]+ [0-9]{4}/DATE/g' \
      -e 's/\b5[0-9]{8}\b/ID/g' -e 's/^.* K (in use|partition)/SIZE \1/' \
      -e 's/[0-9]+ K (blocks|of|out)/SIZE \1/g' -e 's/[0-9]+ (bytes)/N \1/g' "$work/shown" >>"$out"
  }
  vos create $s a v.one -maxquota 9000
  make_volume v.two $s
  show examine v.one
  vos listpart $s
  on 1 vos partinfo $s -localauth | grep -q '^Free space on partition /vicepa: [0-9]* K blocks out of total [0-9]*$' ||
    expected "free space of /vicepa"
  show backup v.one
  show backup v.one
  show examine v.one -extended
  vos addsite $s a v.one
  vos release v.one
  vos release v.one
  vos release v.one -force
  show listvol $s a
  show listvol $s a -long
  vos listvol $s a -extended
  vos listvol $s a -fast
  vos size v.one -dump
  vos dump v.two -file "$work/two.full"
  minute=$(date '+%m/%d/%Y %H:%M')
  vos dump v.two -clone -file "$work/two.clone"
  vos dump v.two -omitdirs -time "$minute" -file "$work/two.incr"
  vos restore $s a v.three -file "$work/two.full"
  vos restore $s a v.three -file "$work/two.clone" -overwrite full
  vos restore $s a v.three -file "$work/two.incr" -overwrite incremental
  refused restore $s a v.three -file "$work/two.full" -overwrite abort
  vos rename v.three v.four
  vos clone v.four $s a v.clone
  vos copy v.four $s a v.copy $s a
  vos setfields v.four -maxquota 777 -clearuse
  on 1 vos examine v.four -localauth | grep -q 'MaxQuota *777 K' || expected "a quota of 777 K"
  vos offline $s a v.four
  on 1 vos examine v.four -localauth | grep -q 'Off-line' || expected "v.four off-line"
  vos online $s a v.four
  on 1 vos examine v.four -localauth | grep -q 'On-line' || expected "v.four on-line"
  vos status $s
  vos lock v.four
  vos unlock v.four
  vos unlockvldb $s
  vos changeloc -server $s -partition a -id v.four
  vos backupsys -server $s
  vos syncvldb $s
  vos syncserv $s
  refused endtrans $s 12345678
  vos remsite $s a v.one
  vos addsite $s a v.two
  vos release v.two
  vos zap $s a -id v.copy -backup
  vos delentry v.copy
  vos remove -server $s -partition a -id v.one
  refused examine v.one
  show listvol $s a -fast
}

# Goal: every verb of vos works on our server.
check_verbs() {
  clear_cell
  all_verbs $ours "$work/verbs.ours"
  # Without its read-write volume, the read-only one becomes it. OpenAFS's server refuses that while
  # the database names the other.
  vos zap $ours a -id v.two
  vos convertROtoRW $ours a v.two -force
  on 1 vos examine v.two -localauth | grep -Eq 'v.two +[0-9]+ RW ' || expected "v.two to be read-write again"
  on 1 vos listaddrs -localauth -noresolve | grep -qx $ours || expected "the address of our server in the database"
}

# Goal: vos prints about our server what it prints about OpenAFS's.
check_verbs_same() {
  clear_cell
  all_verbs $theirs "$work/verbs.theirs"
  clear_cell
  all_verbs $ours "$work/verbs.ours"
  clear_cell
  same "what vos prints" "$work/verbs.theirs" "$work/verbs.ours"
}

# A dump of a volume with a tree, links and a file above the size of a record; made once.
make_full() {
  [ ! -e "$work/full.dump" ] || return 0
  make_sources && make_volume full $theirs || return
  # shellcheck disable=SC2016
  client 1 sh -c 'cd "$AFS:full" && tar xf "$WORK/tree.tar" 2>/dev/null; ln -s tree/docs link; ln README name
    cp -r tree/docs again; ln tree/README.md tree/hard; chmod 700 again; : >empty
    head -c 3000000 /dev/urandom >large; mkdir -p deep/er; [ -e tree/README.md ]' || expected "a client that fills a volume"
  vos dump full -file "$work/full.dump"
  vos remove -id full
}

# Whether a volume of a server has the files of a dump, with all attributes.
has() { # VOLUME SERVER DUMP
  vos dump "$1" -server "$2" -partition a -file "$work/has.dump"
  "$afsdump" vnodes <"$3" >"$work/has.one"
  "$afsdump" vnodes <"$work/has.dump" >"$work/has.other"
  rm "$work/has.dump"
  same "$1 on $2" "$work/has.one" "$work/has.other"
}

# Changes files of a volume through a client.
# shellcheck disable=SC2016
change() { # VOLUME
  client 1 sh -c 'cd "$AFS:$1" && date +%N >changed && rm -rf again/results && { mv tree/docs tree/moved || mv tree/moved tree/docs; } &&
    echo more >>large && mkdir -p deep/new && ln -sf nowhere deep/new/link && truncate -s 1000 tree/README.md' sh "$1" ||
    expected "a client that changes $1"
}

# Goal: OpenAFS restores what we dump and dumps it alike, and the reverse, full and incremental.
check_dumps() {
  local from to date
  make_full
  for from in theirs ours; do
    to=ours && [ $from = theirs ] || to=theirs
    vos restore "${!from}" a source -file "$work/full.dump"
    has source "${!from}" "$work/full.dump"
    vos dump source -file "$work/source.full"
    # Times are whole minutes here. What was written in it is in the increment too.
    date=$(date '+%m/%d/%Y %H:%M')
    change source
    vos dump source -file "$work/source.after"
    vos dump source -time "$date" -file "$work/source.incr"
    vos restore "${!to}" a copy -file "$work/source.full"
    has copy "${!to}" "$work/source.full"
    vos restore "${!to}" a copy -overwrite incremental -file "$work/source.incr"
    has copy "${!to}" "$work/source.after"
    vos remove -id source
    vos remove -id copy
  done
}

# Every verb that speaks to two servers.
between() { # FROM TO
  local from=$1 to=$2
  vos restore "$from" a m -file "$work/full.dump"
  vos backup m
  vos move m "$from" a "$to" a
  has m "$to" "$work/full.dump"
  refused examine m.backup
  vos move m "$to" a "$from" a
  has m "$from" "$work/full.dump"
  vos copy m "$from" a m.copy "$to" a
  has m.copy "$to" "$work/full.dump"
  vos addsite "$from" a m
  vos addsite "$to" a m
  vos release m
  has m.readonly "$to" "$work/full.dump"
  change m
  vos dump m -file "$work/m.after"
  has m.readonly "$to" "$work/full.dump"
  vos release m
  has m.readonly "$to" "$work/m.after"
  has m.readonly "$from" "$work/m.after"
  vos release m
  vos release m -force
  has m.readonly "$to" "$work/m.after"
  # The read-write volume goes where the other read-only one is.
  vos move m "$from" a "$to" a
  has m "$to" "$work/m.after"
  vos release m
  vos shadow m "$to" a "$from" a
  change m
  vos dump m -file "$work/m.later"
  vos shadow m "$to" a "$from" a -incremental
  vos release m
  has m.readonly "$from" "$work/m.later"
  vos syncvldb "$from"
  vos syncvldb "$to"
  vos syncserv "$from"
  vos syncserv "$to"
}

# Goal: volumes go between our server and OpenAFS's, and between two of ours, both ways.
check_mixed() {
  make_full
  local pair
  for pair in "$theirs $ours" "$ours $theirs" "$ours $second"; do
    echo "== $pair"
    # shellcheck disable=SC2086
    between $pair
    clear_cell
  done
}

# A number of the status of the daemon on a host: since its start.
transfers() { # HOST NAME
  POOLHOUSE_RUN_DIR=$work/h$1.img.run "$POOLHOUSE" afs status -j | grep -o "\"$2\":[0-9]*" | head -1 | cut -d: -f2
}

# Goal: between two of our servers, vos release, move and copy send blocks, and only those that
# changed. The other site and OpenAFS's then have the same files.
check_blocks() {
  [ -n "${daemon:-}" ] || skip "the daemon's counters (--daemon)"
  local sent bytes dumps
  make_full
  sent=$(transfers 2 sent) dumps=$(transfers 2 dumps)
  vos restore $ours a b -file "$work/full.dump"
  vos addsite $ours a b
  vos addsite $second a b
  vos addsite $theirs a b
  vos release b
  [ "$(transfers 2 sent)" = $((sent + 1)) ] || expected "one site to get blocks"
  [ "$(transfers 2 dumps)" = $((dumps + 1)) ] || expected "one site to get a dump"
  for _ in 1 2 3; do
    bytes=$(transfers 2 sent_bytes)
    change b
    vos release b
    echo "an increment of $(($(transfers 2 sent_bytes) - bytes)) bytes"
  done
  [ "$(transfers 2 sent)" = $((sent + 4)) ] || expected "increments of blocks"
  [ $(($(transfers 2 sent_bytes) - bytes)) -lt 1000000 ] || expected "an increment of less than 1 MB"
  [ "$(transfers 3 received)" -ge 4 ] || expected "four volumes received"
  vos release b
  [ "$(transfers 2 unchanged)" = 1 ] || expected "a header alone, since nothing changed"
  [ "$(transfers 2 sent)" = $((sent + 4)) ] || expected "no blocks, since nothing changed"
  vos dump b -file "$work/b.after"
  for server in $ours $second $theirs; do has b.readonly "$server" "$work/b.after"; done
  on 1 vos examine b.readonly -localauth || expected "vos examine b.readonly"
  # A client reads from the site that got blocks alone.
  vos remove -server $ours -partition a -id b.readonly
  vos remove -server $theirs -partition a -id b.readonly
  # shellcheck disable=SC2016
  client 1 sh -c 'cd "$AFS:b.readonly" && cat changed && tail -1 large | tail -c 5' || expected "a client that reads b.readonly"
  sent=$(transfers 2 sent)
  vos move b $ours a $second a
  has b $second "$work/b.after"
  [ "$(transfers 2 sent)" = $((sent + 1)) ] || expected "a move to send blocks"
  sent=$(transfers 3 sent)
  vos copy b $second a b.copy $ours a
  has b.copy $ours "$work/b.after"
  [ "$(transfers 3 sent)" = $((sent + 1)) ] || expected "a copy to send blocks"
  change b
  change b.copy
  vos syncvldb $second
  vos syncserv $second
}
