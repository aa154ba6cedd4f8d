# A soak of the cell, for scripts/afs.sh and scripts/soak-afs.sh.
# shellcheck shell=bash

# Runs the driver on host 1, and starts servers anew when it asks for that: ours, which it has
# killed, or one of OpenAFS's.
soak() { # ARGUMENT OF soak.py...
  local verb h pid
  build_load "$work/soak-client" scripts/afs/soak.c || return 77
  coproc DRIVER { limit=86400 on 1 python3 scripts/afs/soak.py --client "$work/soak-client" \
    --dump "$work/open.dump" --state "$ZAFS_STATE" --work "$work" "$@"; }
  # After its end, bash forgets its numbers.
  pid=$DRIVER_PID
  exec 8<&"${DRIVER[0]}" 9>&"${DRIVER[1]}"
  while read -r verb h <&8; do
    if [ "$verb" = files ]; then
      "$cell" stop "$h" dafileserver && "$cell" start "$h" dafileserver >&2
    elif [ "$verb" != restart ]; then
      echo "the driver asks for $verb" >&2
      break
    elif [ "$h" = 1 ]; then
      # As bosserver would.
      "$cell" stop 1 davolserver && "$cell" start 1 davolserver >&2
    else
      kill_ours "$h"
      start_ours "$h" >&2
    fi
    if [ $? = 0 ]; then echo ok >&9; else echo failed >&9; fi
  done
  exec 8<&- 9>&-
  wait "$pid"
}

# Goal: under seeded steps and kills of ours, a cell of three servers stays what the model says.
check_soak() {
  soak --seed 1 --steps 120 || expected "the cell as in the model: seed 1"
  check_pools
}
