# The client of Linux's kernel (kAFS) in a virtual machine, for scripts/afs.sh.
#
# KAFS_KERNEL  The folder of an unpacked package of Debian's kernel (`dpkg -x`). Default: the package
#              that linux-image-amd64 depends on, which is fetched into target/afs/kernel.
# shellcheck shell=bash

# The address of the virtual machine, whose host is no part of the cell.
linux=10.92.0.9

# Finds or fetches the kernel.
kafs_kernel() {
  kernel=${KAFS_KERNEL:-$report/kernel}
  [ ! -e "$kernel/lib/modules" ] || return 0
  [ -z "${KAFS_KERNEL:-}" ] || return
  local package new=$kernel.new
  package=$(apt-cache depends linux-image-amd64 2>/dev/null | awk '$1 == "Depends:" {print $2}')
  [ -n "$package" ] && rm -rf "$kernel" "$new" && mkdir -p "$new" || return
  (cd "$new" && apt-get download "$package" && dpkg -x ./*.deb . && rm ./*.deb) && mv "$new" "$kernel"
}

# Makes an initial file system with the modules of kAFS, and a script as its first process.
kafs_image() { # VERSION IMAGE
  local root=$work/linux modules=$kernel/lib/modules/$1 one
  mkdir -p "$root"/{bin,modules,proc,sys,dev,tmp} && cp "$(command -v busybox)" "$root/bin/" || return
  [ -e "$modules/modules.dep" ] || depmod -b "$kernel" "$1" || return
  for one in virtio_pci virtio_net pcbc fcrypt kafs; do
    modprobe -d "$kernel" -S "$1" --show-depends $one || return
  done | awk '/^insmod/ && !seen[$2]++ {print $2}' | while read -r one; do
    case $one in
      *.xz) xz -dc "$one" >"$root/modules/$(basename "${one%.xz}")" ;;
      *) cp "$one" "$root/modules/" ;;
    esac
    basename "${one%.xz}" >>"$root/modules/order"
  done || return
  printf '%s\n' "$ball" >"$root/ball"
  cat >"$root/init" <<INIT
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin AFS=/tmp/afs
mount -t proc proc /proc && mount -t sysfs sys /sys && mount -t devtmpfs dev /dev
while read -r one; do insmod "/modules/\$one" || echo "no \$one"; done </modules/order
ip link set lo up && ip link set eth0 up && ip addr add $linux/32 dev eth0
ip route add 10.92.0.254 dev eth0 && ip route add default via 10.92.0.254
echo "add zafs.test $theirs" >/proc/fs/afs/cells
mkdir "\$AFS:w.ours" && mount -t afs "%zafs.test:w.ours" "\$AFS:w.ours" && echo 'it is mounted'
# Linux 6.1 ignores a break that arrives while it asks for the status after another one.
while sleep 3; do echo 2 >/proc/sys/vm/drop_caches; done &
sh /ball second && echo 'the ball was returned'
cd "\$AFS:w.ours" && mkdir own own/below && dd if=/dev/urandom of=own/below/large bs=65536 count=80 &&
  echo 1 >own/hole && dd if=/dev/zero of=own/hole bs=1 count=1 seek=3000000 conv=notrunc &&
  cp own/below/large own/longer && echo more >>own/longer && mv own/below/large own/moved && rmdir own/below &&
  ln own/moved own/linked && ln -s moved own/symbolic && md5sum own/* >sums && sync && echo 'it has written'
reboot -f
INIT
  chmod +x "$root/init" && (cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$2"
}

# Ends what a failed check has left.
end_kafs() {
  [ -z "${machine:-}" ] || kill "$machine" 2>/dev/null
  ip -n "$ZAFS_NS-router" link del linux 2>/dev/null
  vos remove -id w.ours >/dev/null 2>&1
  true
}

# Goal: Linux's client and OpenAFS's see each other's changes at once, and the same files. If only
# dropped caches showed the changes, 40 rounds would take minutes.
check_kafs() {
  local one version router=$ZAFS_NS-router console=$report/kafs.console begun
  for one in qemu-system-x86_64 busybox cpio modprobe; do
    command -v $one >/dev/null || skip "needs $one (Debian: qemu-system-x86, busybox-static, cpio, kmod)"
  done
  kafs_kernel || skip "there is no kernel: set KAFS_KERNEL"
  version=$(ls "$kernel/lib/modules")
  [ -d "$kernel/lib/modules/$version" ] || skip "$kernel has more than one kernel: $version"
  kafs_image "$version" "$work/initrd" || expected "an image with the modules of kAFS"
  machine=''
  trap end_kafs EXIT
  ip netns exec "$router" ip tuntap add linux mode tap && ip -n "$router" link set linux up &&
    ip -n "$router" addr add 10.92.0.254/32 dev linux &&
    ip -n "$router" route add $linux/32 dev linux || expected "a network for the machine"
  make_volume w.ours $ours
  : >"$console"
  ip netns exec "$router" timeout 600 qemu-system-x86_64 -accel tcg -cpu max -m 600 -nographic -monitor none \
    -no-reboot -kernel "$kernel/boot/vmlinuz-$version" -initrd "$work/initrd" -append 'console=ttyS0 panic=-1' \
    -netdev tap,id=net,ifname=linux,script=no,downscript=no -device virtio-net-pci,netdev=net \
    -serial "file:$console" </dev/null &
  machine=$!
  for _ in $(seq 1200); do
    grep -q 'it is mounted' "$console" && break
    kill -0 $machine || break
    sleep 0.1
  done 2>/dev/null
  grep -q 'it is mounted' "$console" || expected "a mount: $console"
  begun=$SECONDS
  client 1 sh -c "$ball" sh first || expected "each number from Linux's client: $console"
  [ $((SECONDS - begun)) -lt 40 ] || expected "40 rounds in less than 40 s, not $((SECONDS - begun)) s"
  wait $machine || expected "the end of the machine: $console"
  for one in 'the ball was returned' 'it has written'; do
    grep -q "$one" "$console" || expected "'$one' in $console"
  done
  client 4 sh -c 'cd "$AFS:w.ours" && md5sum -c sums && [ "$(readlink own/symbolic)" = moved ]' ||
    expected "the files that Linux's client wrote"
}
