# Turns a machine into a system container: systemd as process 1 of a separate pid namespace, on an overlay of the host's files.
#   container.sh outside DIRECTORY VOLATILE GROUP [SOURCE TARGET]…
# Overlays the host's files with DIRECTORY/root, and shows each SOURCE at TARGET. Each run is a boot with a new boot id.
set -eu
stage=$1 directory=$2 volatile=$3 group=$4

if [ "$stage" = outside ]; then
  shift
  # The machine's control groups are below its own group, because all containers without a control-group namespace share the root.
  groups=$volatile/groups
  mkdir -p "$groups"
  mount --make-rprivate /
  mount -t cgroup2 groups "$groups"
  mkdir -p "$groups/$group"
  echo $$ >"$groups/$group/cgroup.procs"
  find "$groups/$group" -mindepth 1 -depth -type d -exec rmdir {} +
  cat /proc/sys/kernel/random/uuid >"$directory/boot-id"
  exec unshare --cgroup --pid --mount --fork --kill-child sh "$0" inside "$@"
fi

shift 4
disk=$volatile/disk root=$volatile/root
mkdir -p "$disk" "$root"
mount -t tmpfs -o mode=755 disk "$disk"
mkdir "$disk/upper" "$disk/work"
mount -t overlay -o "lowerdir=/,upperdir=$disk/upper,workdir=$disk/work" root "$root"
# Removes the host's units and settings, so that none of them is active in the container.
rm -rf "$root/etc/systemd/system" "$root/etc/init.d" "$root/etc/fstab" "$root/etc/machine-id"
cp -a "$directory/root/." "$root/"
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sys "$root/sys"
mount -t cgroup2 groups "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 dev "$root/dev"
for device in null zero full random urandom tty; do
  : >"$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 pts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
mount -t tmpfs -o mode=755 run "$root/run"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
while [ $# -ge 2 ]; do
  mkdir -p "$root$2"
  mount --bind "$1" "$root$2"
  shift 2
done
mkdir "$root/outside"
cd "$root"
# Not chroot: inside a chroot, the kernel refuses user namespaces, which units may require.
pivot_root . outside
umount -l /outside
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=lxc /lib/systemd/systemd --system
