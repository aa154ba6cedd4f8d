#!/usr/bin/env bash
# Usage: scripts/needs.sh rust|cc|cxx|mount|tar|zstd|bzip2...
# Installs those of these that are missing, through the system's package manager. Prints nothing if
# none is missing.
set -euo pipefail

have() { command -v "$1" >/dev/null 2>&1; }
missing=()
for need in "$@"; do
  case $need in
    rust) have cargo || { echo 'No cargo: install Rust 1.95 or later, https://rustup.rs' >&2; exit 1; } ;;
    cc) have cc || missing+=(cc) ;;
    cxx) have c++ || missing+=(cxx) ;;
    mount) have fusermount3 || missing+=(mount) ;;
    *) have "$need" || missing+=("$need") ;;
  esac
done
[ ${#missing[@]} -gt 0 ] || exit 0

# Prints the package that has a need, by package manager. The default is a package of the same name.
package() { # MANAGER NEED
  case $1/$2 in
    apt-get/cc | apt-get/cxx) echo build-essential ;;
    apk/cc | apk/cxx) echo build-base ;;
    pacman/cc | pacman/cxx) echo gcc ;;
    */cc) echo gcc ;;
    dnf/cxx | zypper/cxx) echo gcc-c++ ;;
    */mount) echo fuse3 ;;
    *) echo "$2" ;;
  esac
}
for manager in apt-get dnf zypper pacman apk ''; do [ -z "$manager" ] || ! have "$manager" || break; done
if [ -z "$manager" ]; then
  echo "Missing: ${missing[*]}; no package manager that I know of, please install them." >&2
  exit 1
fi
packages=()
for need in "${missing[@]}"; do packages+=("$(package "$manager" "$need")"); done

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  have sudo || { echo "Missing: ${packages[*]}; please install them as root." >&2; exit 1; }
  as_root=(sudo)
  [ -t 0 ] || as_root=(sudo -n)
fi
echo "Installing ${packages[*]} with $manager." >&2
case $manager in
  apt-get)
    export DEBIAN_FRONTEND=noninteractive
    "${as_root[@]}" apt-get -qq update >&2
    "${as_root[@]}" apt-get -qq install -y --no-install-recommends "${packages[@]}" >&2
    ;;
  dnf) "${as_root[@]}" dnf -q -y install "${packages[@]}" >&2 ;;
  zypper) "${as_root[@]}" zypper -q -n install "${packages[@]}" >&2 ;;
  pacman) "${as_root[@]}" pacman -Sy --noconfirm --needed "${packages[@]}" >&2 ;;
  apk) "${as_root[@]}" apk add -q "${packages[@]}" >&2 ;;
esac
