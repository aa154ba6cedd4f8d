# Checks by other projects' programs, for scripts/afs.sh. What passes on OpenAFS's server must pass on
# ours. Much fails on both, since OpenAFS's client in user space has no users, owners or times.
# shellcheck shell=bash

# Installs a program that is a crate, as scripts/suites.sh does, unless it is installed.
crate() { # NAME
  local programs=$PWD/target/suites
  program=$programs/bin/$1
  [ -x "$program" ] || cargo install -q --root "$programs" --target-dir "$programs/build" "$1" ||
    skip "$1 can't be installed"
}

# Runs a test on both servers, and notes the outcomes. This client fails at times by itself, so a
# test has three tries.
on_both() { # FUNCTION TEST
  local server try line=$2
  for server in theirs ours; do
    for try in 1 2 3; do
      if "$1" "$server" "$2"; then
        line+=" $server: passed at try $try;"
        continue 2
      fi
    done
    line+=" $server: failed;"
  done
  echo "$line" | tee -a "$report/$1.results"
}

# Runs tests on both servers, and ends the check if one passes on OpenAFS's alone.
compare_tests() { # FUNCTION TEST...
  local one results=$report/$1.results
  rm -f "$results"
  make_volume w.theirs $theirs
  make_volume w.ours $ours
  for one in "${@:2}"; do on_both "$1" "$one"; done
  # Not every file can be dumped or listed in time, so the volumes are left to the next check.
  ! grep 'theirs: passed.* ours: failed' "$results" ||
    expected "all tests to pass on our server that pass on OpenAFS's"
  grep -q 'theirs: passed' "$results" || expected "a test to pass on OpenAFS's server"
  echo "passed on both: $(grep -c 'theirs: passed' "$results"), failed on both: $(grep -c 'theirs: failed.* ours: failed' "$results")"
}

# Runs pjdfstest in a new volume, and prints the names of the tests that pass.
pjdfstest_passes() { # SERVER
  local server=$1 out=$report/pjdfstest.$1
  make_volume "w.$server" "${!server}" >&2
  # shellcheck disable=SC2016
  limit=600 client 1 sh -c 'cd "$AFS:$1" && "$2" -c "$WORK/pjdfstest.toml" -p "$PWD" -s "$WORK/other"' \
    sh "w.$server" "$program" >"$out" 2>&1
  vos remove -id "w.$server" >&2
  sed -i 's/\x1b\[[0-9;]*m//g' "$out"
  grep -q '^Summary' "$out" || echo "pjdfstest breaks off: $out" >&2
  sed -nE 's/ +ok$//p' "$out" | sort
}

# Goal: what pjdfstest finds right on OpenAFS's server, it finds right on ours.
check_pjdfstest() {
  local try
  crate pjdfstest
  mkdir -p "$work/other"
  cat >"$work/pjdfstest.toml" <<TOML
[features]
[settings]
naptime = 1.1
allow_remount = false
[dummy_auth]
entries = [["nobody", "$(id -gn nobody)"], ["daemon", "$(id -gn daemon)"]]
TOML
  pjdfstest_passes theirs >"$work/passed.theirs"
  [ "$(wc -l <"$work/passed.theirs")" -gt 80 ] || expected "pjdfstest to run on OpenAFS's server"
  : >"$work/passed.ours"
  for try in 1 2 3; do
    pjdfstest_passes ours | sort -mu - "$work/passed.ours" -o "$work/passed.ours"
    comm -23 "$work/passed.theirs" "$work/passed.ours" >"$work/lost"
    [ -s "$work/lost" ] || break
    echo "try $try: $(tr '\n' ' ' <"$work/lost")"
  done
  [ ! -s "$work/lost" ] || expected "these to pass: $(tr '\n' ' ' <"$work/lost")"
  echo "on OpenAFS's server: $(grep '^Summary' "$report/pjdfstest.theirs")"
  echo "on ours: $(grep '^Summary' "$report/pjdfstest.ours")"
}

# Runs one seed of fsx: with odd ones within a few blocks, with even ones over many.
fsx_seed() { # SERVER SEED
  local most=$(($2 % 2 ? 65536 : 1048576)) maps=$(($2 % 3 ? 10 : 0))
  cat >"$work/fsx.toml" <<TOML
flen = $((most * 4))
[opsize]
max = $most
[weights]
close_open = 1
invalidate = 1
mapread = $maps
mapwrite = $maps
read = 10
write = 10
truncate = 5
fsync = 0.2
fdatasync = 0.2
posix_fallocate = 0
punch_hole = 0
sendfile = 5
posix_fadvise = 1
copy_file_range = 5
TOML
  # shellcheck disable=SC2016
  limit=120 client 1 sh -c '"$1" -S "$2" -N 1000 -f "$WORK/fsx.toml" -P "$WORK" "$AFS:$3/fsx"' \
    sh "$program" "$2" "w.$1" >"$work/fsx" 2>&1 && return
  tail -n 12 "$work/fsx"
  return 1
}

# Goal: random operations on a file read back what they wrote.
check_fsx() {
  crate fsx
  # shellcheck disable=SC2046
  compare_tests fsx_seed $(seq 12)
}

# Runs one stressor.
stressor() { # SERVER NAME
  local more=()
  case $2 in
    copy-file) more=(--copy-file-bytes 16M) ;;
    hdd) more=(--hdd-bytes 4M) ;;
    iomix | readahead) more=("--$2-bytes" 8M) ;;
    seek) more=(--seek-size 4M) ;;
  esac
  # shellcheck disable=SC2016
  limit=60 client 1 sh -c 'at=$AFS:$1/$2.$$ one=--$2; shift 2; mkdir "$at" || exit 1
    exec timeout -k 5 40 stress-ng "$one" 2 --temp-path "$at" --timeout 3 --verify "$@"' \
    sh "w.$1" "$2" "${more[@]}" >"$work/stress" 2>&1 && return
  grep -m 3 'fail:\|error:' "$work/stress"
  return 1
}

# Goal: stressors are content with files and folders of our server. `fsize` is absent: this client
# loops over files of 2^48 bytes, which our server takes, and OpenAFS's on ext4 does not.
check_stress() {
  command -v stress-ng >/dev/null || skip "this machine lacks stress-ng"
  compare_tests stressor access chdir chmod copy-file dentry dir dirdeep dirmany filename flock fstat \
    getdent hdd io iomix link lockf metamix open readahead rename seek symlink touch unlink utime
}
