# shellcheck shell=bash
# A machine for the metal suite: Debian's stock kernel and a small Debian with systemd, made once and kept in the cache.
#
# Nothing of this project is in it. What makes a machine a node (programs, units, certificates, addresses) is on a second disk, which
# the suite makes for each machine of each run; the two are laid over each other at boot.

# Raised when the image is to be made anew.
METAL_RECIPE=1
METAL_PACKAGES=systemd,systemd-sysv,dbus,udev,kmod,iproute2,procps,qemu-guest-agent
# What the kernel needs before it can mount its disks.
METAL_BOOT_MODULES=(virtio_pci virtio_blk ext4 crc32c_generic overlay)

# The programs are built on this machine, so the image's C library must not be older than its own.
metal_suite() {
  local id="" codename=""
  id=$(. /etc/os-release && printf '%s' "${ID:-}")
  codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
  if [ -n "${HACTL_METAL_SUITE:-}" ]; then
    printf '%s\n' "$HACTL_METAL_SUITE"
  elif [ "$id" = debian ] && [ -n "$codename" ]; then
    printf '%s\n' "$codename"
  else
    printf 'sid\n'
  fi
}

# setup_metal: QEMU and the image. Sets HACTL_METAL_IMAGE, the folder with `kernel`, `initrd` and `root.ext4`.
setup_metal() {
  is_root || die "the metal suite needs root: bridges, taps, /dev/kvm" "run it with sudo"
  local packages=() suite
  have qemu-system-x86_64 || packages+=(qemu-system-x86)
  have debootstrap || packages+=(debootstrap)
  have mkfs.ext4 || packages+=(e2fsprogs)
  have cpio || packages+=(cpio)
  have strip || packages+=(binutils)
  [ ${#packages[@]} -eq 0 ] || apt_install "${packages[@]}"
  # Not on every user's PATH, though installed.
  [ -x /usr/sbin/diod ] || install_diod
  suite=$(metal_suite)
  HACTL_METAL_IMAGE=$CACHE/metal/$suite-$METAL_RECIPE
  [ -e "$HACTL_METAL_IMAGE/done" ] || make_metal_image "$suite" "$HACTL_METAL_IMAGE"
  export HACTL_METAL_IMAGE
}

# run_metal ARGUMENT…: the suite itself. Machines that wait for a processor prove nothing, so it goes before everything else where
# the host lets it.
run_metal() {
  local first=()
  if chrt --rr 1 true 2>/dev/null; then first=(chrt --rr 1); fi
  "${first[@]}" "$(target_dir)/debug/ha-metal" "$@"
}

# The file server behind the fabric. The suite runs it, so the package's own service must not start, now or at boot.
install_diod() {
  apt_install diod
  if [ -d /run/systemd/system ]; then systemctl disable --quiet diod >&2 || true; fi
}

# make_metal_image SUITE FOLDER
make_metal_image() {
  local suite=$1 folder=$2 work=$2.making root version
  root=$work/root
  say "making the machines' image ($suite, once, a minute or two) in $folder"
  rm -rf "$folder" "$work"
  mkdir -p "$work"
  debootstrap --variant=minbase --include="$METAL_PACKAGES" "$suite" "$root" http://deb.debian.org/debian >"$work/debootstrap.log" 2>&1 ||
    die "debootstrap failed" "see $work/debootstrap.log"
  metal_kernel "$root" "$work" || die "Debian's kernel could not be fetched" "its own message is above"
  version=$(cat "$work/version")
  metal_initrd "$root" "$work" "$version"
  metal_settings "$root"
  rm -rf "$root/var/cache/apt" "$root/var/lib/apt/lists" "$root/usr/share/doc" "$root/usr/share/locale" "$root/usr/share/man" "$root/boot"
  mkdir -p "$root/var/cache/apt/archives/partial" "$root/boot"
  mkfs.ext4 -q -F -O ^has_journal -m 0 -d "$root" "$work/root.ext4" 1400M >&2
  rm -rf "$root"
  touch "$work/done"
  mv "$work" "$folder"
}

# Unpacks the stock kernel instead of installing it: its own initial file system is not needed.
metal_kernel() {
  local root=$1 work=$2 package
  [ ! -e /etc/resolv.conf ] || cp -L /etc/resolv.conf "$root/etc/resolv.conf"
  package=$(chroot "$root" apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: \(linux-image-[0-9][^ ]*\)$/\1/p' | head -n 1)
  [ -n "$package" ] || return 1
  (cd "$work" && chroot "$root" sh -c "cd /tmp && apt-get -qq -o APT::Sandbox::User=root download $package" >&2) || return 1
  # Beside the root, not into it: /lib there is a link, which unpacking would replace by a folder.
  dpkg -x "$root"/tmp/"$package"_*.deb "$work/kernel.tree"
  rm -f "$root"/tmp/*.deb
  find "$work/kernel.tree" -type d -path '*/lib/modules' -exec cp -a {} "$root/usr/lib/" \;
  printf '%s\n' "${package#linux-image-}" >"$work/version"
  cp "$work/kernel.tree/boot/vmlinuz-${package#linux-image-}" "$work/kernel"
  rm -rf "$work/kernel.tree"
  chroot "$root" depmod -a "${package#linux-image-}"
}

# A few modules and a script that mounts the two disks. With `hactl.probe` on the kernel's command line it switches off
# instead: that is how the suite finds out whether a way of running machines works.
metal_initrd() {
  local root=$1 work=$2 version=$3 tree=$2/initrd.tree module file
  mkdir -p "$tree/bin" "$tree/modules" "$tree/proc" "$tree/sys" "$tree/dev" "$tree/base" "$tree/own" "$tree/root"
  (cd "$work" && chroot "$root" sh -c 'cd /tmp && apt-get -qq -o APT::Sandbox::User=root download busybox-static' >&2) || die "busybox-static could not be fetched"
  dpkg -x "$root"/tmp/busybox-static_*.deb "$work/busybox"
  rm -f "$root"/tmp/*.deb
  find "$work/busybox" -type f -name busybox -exec install -m 755 {} "$tree/bin/busybox" \;
  for module in "${METAL_BOOT_MODULES[@]}"; do
    chroot "$root" modprobe --set-version "$version" --show-depends "$module"
  done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r file; do
    cp "$root$file" "$tree/modules/"
    basename "$file"
  done >"$tree/modules/list"
  cat >"$tree/init" <<'INIT'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs dev /dev
while read -r module; do $b insmod "/modules/$module"; done </modules/list
if $b grep -q hactl.probe /proc/cmdline; then $b poweroff -f; fi
until [ -b /dev/vda ] && [ -b /dev/vdb ]; do $b usleep 10000; done
$b mount -t ext4 -o ro /dev/vda /base
$b mount -t ext4 /dev/vdb /own
$b mount -t overlay -o lowerdir=/base,upperdir=/own/upper,workdir=/own/work overlay /root
exec $b switch_root /root /sbin/init
INIT
  chmod 755 "$tree/init"
  (cd "$tree" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initrd"
  rm -rf "$tree" "$work/busybox"
}

# What every machine has in common and no node is about. Software emulation makes every process dear, so the machines boot only what
# the nodes need: no udev (the kernel names the devices, the modules are listed), no login, no housekeeping.
metal_settings() {
  local root=$1 unit
  rm -f "$root/etc/machine-id" "$root/etc/resolv.conf"
  : >"$root/etc/machine-id"
  for unit in apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer dpkg-db-backup.timer \
    systemd-udevd.service systemd-udev-trigger.service systemd-udevd-control.socket systemd-udevd-kernel.socket \
    systemd-journal-flush.service systemd-update-utmp.service systemd-update-utmp-runlevel.service systemd-random-seed.service \
    systemd-timesyncd.service systemd-networkd.service systemd-networkd.socket systemd-networkd-wait-online.service \
    systemd-tmpfiles-clean.timer sys-kernel-debug.mount sys-kernel-tracing.mount dev-hugepages.mount dev-mqueue.mount \
    modprobe@.service kmod-static-nodes.service serial-getty@.service getty.target; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
  done
  # No unit that waits for "the file systems are newer than the last boot".
  touch "$root/etc/.updated" "$root/var/.updated"
  printf '%s\n' virtio_net virtio_console virtio_rng 9pnet_virtio 9p >"$root/etc/modules-load.d/metal.conf"
  cat >"$root/etc/systemd/system/metal-guest.service" <<'UNIT'
[Unit]
Description=Commands from outside
[Service]
ExecStart=/bin/sh -c 'exec /usr/sbin/qemu-ga --method=virtio-serial --path=$(echo /dev/vport*p1)'
Restart=always
RestartSec=1
# It speaks also when the node's own daemons are starved.
OOMScoreAdjust=-1000
[Install]
WantedBy=multi-user.target
UNIT
  mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
  ln -sf ../metal-guest.service "$root/etc/systemd/system/multi-user.target.wants/"
}
