# shellcheck shell=bash
# Requirements of the libvirt suite: libvirt, QEMU, and a guest. The guest is Debian's kernel for virtual machines and a shell
# that counts.

# Version of the guest. Increase it to rebuild the guest.
LIBVIRT_RECIPE=1

# install_libvirt: installs the packages. The suite runs its own daemons, so those of the packages must not start, now or at boot.
install_libvirt() {
  local packages=() service
  [ -x /usr/sbin/libvirtd ] || packages+=(libvirt-daemon-system libvirt-daemon)
  have virsh || packages+=(libvirt-clients)
  have qemu-system-x86_64 || packages+=(qemu-system-x86)
  have cpio || packages+=(cpio)
  [ ${#packages[@]} -gt 0 ] || return 0
  apt_install "${packages[@]}"
  if [ -d /run/systemd/system ]; then
    for service in libvirtd.service libvirtd.socket libvirtd-ro.socket libvirtd-admin.socket libvirt-guests.service \
      virtlogd.socket virtlockd.socket; do
      systemctl disable --quiet "$service" >&2 || true
    done
  fi
}

# setup_libvirt: sets HACTL_LIBVIRT_GUEST, the directory with `kernel` and `initrd`.
setup_libvirt() {
  is_root || die "the libvirt suite needs root: network namespaces, mounts" "run it with sudo"
  install_libvirt
  local suite
  suite=$(metal_suite)
  HACTL_LIBVIRT_GUEST=$CACHE/libvirt/$suite-$LIBVIRT_RECIPE
  [ -e "$HACTL_LIBVIRT_GUEST/done" ] || make_libvirt_guest "$suite" "$HACTL_LIBVIRT_GUEST"
  export HACTL_LIBVIRT_GUEST
}

# make_libvirt_guest SUITE DIRECTORY: builds the guest.
make_libvirt_guest() {
  local suite=$1 directory=$2 work=$2.making tree=$2.making/tree
  say "building the guest ($suite, once) in $directory"
  rm -rf "$directory" "$work"
  mkdir -p "$work"
  apt_unpack "$suite" "$work/packages" @linux-image-cloud-amd64 busybox-static ||
    die "cannot fetch the guest's kernel and busybox" "see the messages above"
  cp "$work"/packages/boot/vmlinuz-* "$work/kernel"
  mkdir -p "$tree"/{bin,proc,sys,dev,modules}
  find "$work/packages" -type f -name busybox -exec install -m 755 {} "$tree/bin/busybox" \;
  # Drivers of the power button and of its events.
  find "$work/packages" \( -name button.ko -o -name evdev.ko \) -exec cp {} "$tree/modules/" \;
  cat >"$tree/init" <<'INIT'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs dev /dev
$b insmod /modules/button.ko
$b insmod /modules/evdev.ko
for event in /dev/input/event*; do
  (
    $b head -c 1 "$event" >/dev/null
    echo "switching off"
    $b poweroff -f
  ) &
done
read -r boot </proc/sys/kernel/random/boot_id
boot=${boot%%-*}
count=0
while :; do
  count=$((count + 1))
  echo "boot $boot count $count"
  $b usleep 200000
done
INIT
  chmod 755 "$tree/init"
  (cd "$tree" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initrd"
  rm -rf "$tree" "$work/packages"
  touch "$work/done"
  mv "$work" "$directory"
}

# run_libvirt ARGUMENT…: runs the suite.
run_libvirt() { "$(target_dir)/debug/ha-libvirt" "$@"; }
