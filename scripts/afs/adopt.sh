# The check of `poolhouse afs adopt`, for scripts/afs.sh.
# shellcheck shell=bash

# Runs `poolhouse afs adopt` on the host of our server.
adopt() { # ARGUMENT...
  on 2 env "POOLHOUSE_RUN_DIR=$work/h2.img.run" "$POOLHOUSE" afs adopt "$@"
}

# What vos says about a volume, without what differs between servers.
examined() { # NAME SERVER
  on 1 vos examine "$1" -localauth >"$work/examined" || expected "status 0 of: vos examine $1"
  sed -E "s/$2/SERVER/; / accesses in the past day|number of sites|^ +server /d" "$work/examined"
}

# Volumes of OpenAFS's server with what a partition can have: files with holes, empty and large
# ones, links of both kinds, mount points, access lists with negative entries, clones.
make_adoptable() {
  make_full
  vos restore $theirs a ad.lists -file "$PWD/crates/afs/tests/data/openafs-full.dump"
  vos restore $theirs a ad.made -file "$PWD/crates/afs/tests/data/made.dump"
  vos restore $theirs a ad.full -file "$work/full.dump"
  vos setfields ad.full -maxquota 12345678
  make_volume ad.work $theirs
  # shellcheck disable=SC2016
  client 1 sh -c 'cd "$AFS:ad.work" && mkdir -p a/b/c/d/e/f && : >empty && echo one >a/one && ln a/one a/two &&
    ln -s one a/link && ln -s no/where dangling && truncate -s 5000000 hole && echo end >>hole &&
    for i in $(seq 300); do echo $i >a/b/name-$i; done && rm a/b/name-1?? && chmod 700 a/b/name-2; [ -e hole ]' ||
    expected "a client that fills a volume"
  vos backup ad.work
  vos addsite $theirs a ad.work
  vos release ad.work
  # shellcheck disable=SC2016
  client 1 sh -c 'cd "$AFS:ad.work" && rm a/b/name-3 && echo more >a/one' || expected "a client that changes a volume"
  vos create $theirs a ad.empty
  vos offline $theirs a ad.empty
}

# Goal: volumes of the partition of a real server that is stopped are adopted with all that they
# have. Afterwards they are volumes like others: for clients, backups and releases.
check_adopt() {
  local one text names='ad.lists ad.made ad.full ad.work ad.work.backup ad.work.readonly' from=$ZAFS_STATE/h1/vicepa
  [ -n "${daemon:-}" ] || skip "the daemon's command: use --daemon"
  make_adoptable
  for one in $names; do
    vos dump "$one" -file "$work/$one.before"
  done
  # After a dump, the file server has closed the volume.
  # shellcheck disable=SC2016
  client 4 sh -c 'cat "$AFS:ad.work/a/one"' || expected "a client that reads"
  text=$(adopt -n "$from" afs/vicepa 2>&1) && expected "a refusal while the file server runs"
  grep -q 'stop' <<<"$text" || expected "what to do while the file server runs: $text"
  for one in $names; do examined "$one" $theirs >"$work/$one.examined"; done
  for one in dafileserver davolserver salvageserver; do "$cell" stop 1 $one; done
  adopt -n "$from" afs/vicepa || expected "a list"
  adopt "$from" afs/vicepa ad.lists || expected "one volume to be adopted"
  text=$(adopt "$from" afs/vicepa) || expected "all volumes to be adopted: $text"
  echo "$text"
  grep -q ' 6 volumes adopted.* 1 were there; 0 not adopted' <<<"$text" || expected "6 volumes, and 1 that was there: $text"
  # The old server goes on with an empty partition.
  mkdir "$work/adopted" && mv "$from"/V*.vol "$from/AFSIDat" "$work/adopted/" || expected "to empty the old partition"
  "$cell" servers 1 || expected "the old server to start"
  vos syncvldb $ours a
  vos syncserv $theirs a
  for one in $names; do
    has "$one" $ours "$work/$one.before"
    examined "$one" $ours >"$work/$one.now"
    same "what vos says of $one" "$work/$one.examined" "$work/$one.now"
  done
  on 1 vos listvol $ours a -localauth | grep -Eq '^ad.empty .*Off-line' || expected "ad.empty to be off-line"
  vos online $ours a ad.empty
  vos backup ad.work
  vos release ad.work
  # shellcheck disable=SC2016
  client 4 sh -c 'cd "$AFS:ad.work" && [ "$(cat a/two)" = more ] && echo again >a/two && rm -r a/b && mkdir g' ||
    expected "a client that changes an adopted volume"
  vos move ad.work $ours a $theirs a
  vos dump ad.work -file "$work/ad.moved"
  clear_cell
}
