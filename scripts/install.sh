#!/usr/bin/env bash
# Usage: scripts/install.sh PROGRAM
# Installs the program, its other names, shell completions, systemd units, scripts of bpftrace, and
# dashboards and alerts for Grafana and Prometheus.
#   PREFIX (/usr/local)     where to install
#   DESTDIR                 directory before PREFIX, for packages
#   UNITDIR, USERUNITDIR    other directories for the units
set -euo pipefail
cd "$(dirname "$0")/.."
program=$1
prefix=${PREFIX:-/usr/local}
dest=${DESTDIR:-}
unit_dir=${UNITDIR:-$prefix/lib/systemd/system}
user_unit_dir=${USERUNITDIR:-$prefix/lib/systemd/user}
share=$prefix/share

install -D -m 755 "$program" "$dest$prefix/bin/poolhouse"
mkdir -p "$dest$prefix/sbin"
for name in zpool zfs zdb zstream mount.zfs; do ln -sfn ../bin/poolhouse "$dest$prefix/sbin/$name"; done
# mount(8) looks for its helpers only in /sbin.
if [ "$prefix" != /usr ] && [ ! -e "$dest/sbin/mount.zfs" ]; then
  mkdir -p "$dest/sbin"
  ln -s "$prefix/sbin/mount.zfs" "$dest/sbin/mount.zfs"
fi
unit() { # FILE FOLDER
  mkdir -p "$dest$2"
  sed "s|@bindir@|$prefix/bin|g; s|@sbindir@|$prefix/sbin|g" "$1" >"$dest$2/${1##*/}"
  chmod 644 "$dest$2/${1##*/}"
}
for file in systemd/*.service; do unit "$file" "$unit_dir"; done
for file in systemd/user/*.service; do unit "$file" "$user_unit_dir"; done
for file in bpf/*.bt; do install -D -m 755 "$file" "$dest$share/poolhouse/$file"; done
for file in grafana/*.json grafana/alerts.yml; do
  install -D -m 644 "$file" "$dest$share/poolhouse/$file"
done
complete() { # SHELL FILE
  mkdir -p "$(dirname "$dest$share/$2")"
  "$program" completion "$1" >"$dest$share/$2"
  chmod 644 "$dest$share/$2"
}
complete bash bash-completion/completions/poolhouse
for name in zpool zfs; do ln -sfn poolhouse "$dest$share/bash-completion/completions/$name"; done
complete zsh zsh/site-functions/_poolhouse
complete fish fish/vendor_completions.d/poolhouse.fish
for name in zpool zfs; do ln -sfn poolhouse.fish "$dest$share/fish/vendor_completions.d/$name.fish"; done
