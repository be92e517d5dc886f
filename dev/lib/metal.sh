# shellcheck shell=bash
# Machine image of the metal suite: Debian's stock kernel and a small Debian with systemd, built once and kept in the cache.
#
# The image contains no part of this project. Programs, units, certificates and addresses of a node are on a second disk. The
# suite creates that disk for each machine of each run. At boot it is overlaid on the image.

# Version of the image. Increase it to rebuild the image.
METAL_RECIPE=1
METAL_PACKAGES=systemd,systemd-sysv,dbus,udev,kmod,iproute2,procps,qemu-guest-agent
# Modules that the kernel needs before it can mount its disks.
METAL_BOOT_MODULES=(virtio_pci virtio_blk ext4 crc32c_generic overlay)

# metal_suite: prints the Debian suite. The programs are built on this machine, so the image's C library must not be older than
# this machine's.
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

# setup_metal: installs QEMU and builds the image. Sets HACTL_METAL_IMAGE, the directory with `kernel`, `initrd` and `root.ext4`.
setup_metal() {
  is_root || die "the metal suite needs root: bridges, taps, /dev/kvm" "run it with sudo"
  local packages=() suite
  have qemu-system-x86_64 || packages+=(qemu-system-x86)
  have debootstrap || packages+=(debootstrap)
  have mkfs.ext4 || packages+=(e2fsprogs)
  have cpio || packages+=(cpio)
  have strip || packages+=(binutils)
  [ ${#packages[@]} -eq 0 ] || apt_install "${packages[@]}"
  # An ordinary user's PATH may lack /usr/sbin.
  [ -x /usr/sbin/diod ] || install_diod
  suite=$(metal_suite)
  HACTL_METAL_IMAGE=$CACHE/metal/$suite-$METAL_RECIPE
  [ -e "$HACTL_METAL_IMAGE/done" ] || make_metal_image "$suite" "$HACTL_METAL_IMAGE"
  export HACTL_METAL_IMAGE
}

# run_metal ARGUMENT…: runs the suite. Times are not valid if machines wait for a processor, so the suite gets real-time priority
# if the host allows it.
run_metal() {
  local first=()
  if chrt --rr 1 true 2>/dev/null; then first=(chrt --rr 1); fi
  "${first[@]}" "$(target_dir)/debug/ha-metal" "$@"
}

# install_diod: installs the file server of the fabric. The suite runs it, so the package's service must not start, now or at
# boot.
install_diod() {
  apt_install diod
  if [ -d /run/systemd/system ]; then systemctl disable --quiet diod >&2 || true; fi
}

# make_metal_image SUITE DIRECTORY: builds the image.
make_metal_image() {
  local suite=$1 directory=$2 work=$2.making root version
  root=$work/root
  say "building the image of the machines ($suite, once, a minute or two) in $directory"
  rm -rf "$directory" "$work"
  mkdir -p "$work"
  debootstrap --variant=minbase --include="$METAL_PACKAGES" "$suite" "$root" http://deb.debian.org/debian >"$work/debootstrap.log" 2>&1 ||
    die "debootstrap failed" "see $work/debootstrap.log"
  metal_kernel "$root" "$work" || die "cannot fetch Debian's kernel" "see the message above"
  version=$(cat "$work/version")
  metal_initrd "$root" "$work" "$version"
  metal_settings "$root"
  rm -rf "$root/var/cache/apt" "$root/var/lib/apt/lists" "$root/usr/share/doc" "$root/usr/share/locale" "$root/usr/share/man" "$root/boot"
  mkdir -p "$root/var/cache/apt/archives/partial" "$root/boot"
  mkfs.ext4 -q -F -O ^has_journal -m 0 -d "$root" "$work/root.ext4" 1400M >&2
  rm -rf "$root"
  touch "$work/done"
  mv "$work" "$directory"
}

# metal_kernel ROOT WORK: unpacks the stock kernel instead of installing it, because its initial file system is not needed.
metal_kernel() {
  local root=$1 work=$2 package
  [ ! -e /etc/resolv.conf ] || cp -L /etc/resolv.conf "$root/etc/resolv.conf"
  package=$(chroot "$root" apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: \(linux-image-[0-9][^ ]*\)$/\1/p' | head -n 1)
  [ -n "$package" ] || return 1
  (cd "$work" && chroot "$root" sh -c "cd /tmp && apt-get -qq -o APT::Sandbox::User=root download $package" >&2) || return 1
  # Unpacked next to the root, not into it: /lib of the root is a link, which unpacking would replace with a directory.
  dpkg -x "$root"/tmp/"$package"_*.deb "$work/kernel.tree"
  rm -f "$root"/tmp/*.deb
  find "$work/kernel.tree" -type d -path '*/lib/modules' -exec cp -a {} "$root/usr/lib/" \;
  printf '%s\n' "${package#linux-image-}" >"$work/version"
  cp "$work/kernel.tree/boot/vmlinuz-${package#linux-image-}" "$work/kernel"
  rm -rf "$work/kernel.tree"
  chroot "$root" depmod -a "${package#linux-image-}"
}

# metal_initrd ROOT WORK VERSION: builds an initial file system with a few modules and a script that mounts the two disks. With
# `hactl.probe` on the kernel's command line, the script powers off instead. The suite uses that to test whether an accelerator
# works.
metal_initrd() {
  local root=$1 work=$2 version=$3 tree=$2/initrd.tree module file
  mkdir -p "$tree/bin" "$tree/modules" "$tree/proc" "$tree/sys" "$tree/dev" "$tree/base" "$tree/own" "$tree/root"
  (cd "$work" && chroot "$root" sh -c 'cd /tmp && apt-get -qq -o APT::Sandbox::User=root download busybox-static' >&2) || die "cannot fetch busybox-static"
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

# metal_settings ROOT: writes the settings that all machines share. Emulation makes every process slow, so machines start only
# what the nodes need: no udev (the kernel names the devices, the modules are listed), no logins and no maintenance jobs.
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
  # Prevents units that run if the file systems are newer than the last boot.
  touch "$root/etc/.updated" "$root/var/.updated"
  printf '%s\n' virtio_net virtio_console virtio_rng 9pnet_virtio 9p >"$root/etc/modules-load.d/metal.conf"
  cat >"$root/etc/systemd/system/metal-guest.service" <<'UNIT'
[Unit]
Description=Commands from outside
[Service]
ExecStart=/bin/sh -c 'exec /usr/sbin/qemu-ga --method=virtio-serial --path=$(echo /dev/vport*p1)'
Restart=always
RestartSec=1
# The guest agent must answer even when the node's own daemons are starved.
OOMScoreAdjust=-1000
[Install]
WantedBy=multi-user.target
UNIT
  mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
  ln -sf ../metal-guest.service "$root/etc/systemd/system/multi-user.target.wants/"
}
