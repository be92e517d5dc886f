# shellcheck shell=bash
# What the scripts need from the machine, in steps: for the simulator, for the sandbox, and for the tests on top.

LIB=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
for part in common apt charts dashboards etcd images kubectl libvirt metal packages prometheus rust sinks; do
  # shellcheck source=/dev/null
  . "$LIB/$part.sh"
done
unset part

# setup_simulator [PROGRAM PACKAGE]…: what building the simulator needs, and these programs besides. No store, no network.
setup_simulator() {
  local packages=()
  have cc || packages+=(gcc libc6-dev)
  while [ $# -gt 1 ]; do
    have "$1" || packages+=("$2")
    shift 2
  done
  [ ${#packages[@]} -eq 0 ] || apt_install "${packages[@]}"
  check_rust
}

# setup: everything that building and the sandbox need. Sets ETCD and ETCDCTL.
setup() {
  local packages=()
  have cc || packages+=(gcc libc6-dev)
  have protoc || packages+=(protobuf-compiler)
  [ -e /usr/include/google/protobuf/timestamp.proto ] || packages+=(libprotobuf-dev)
  have ip || packages+=(iproute2)
  # Not on every user's PATH, though installed.
  [ -x /usr/sbin/nft ] || have nft || packages+=(nftables)
  have unshare && have nsenter || packages+=(util-linux)
  have redis-server || install_redis
  have curl || packages+=(curl ca-certificates)
  [ ${#packages[@]} -eq 0 ] || apt_install "${packages[@]}"
  check_rust
  check_protoc
  find_etcd
}

# The example's service is Redis. It is run by hactl, so the package's own service must not start, now or at boot.
install_redis() {
  apt_install redis-server
  if [ -d /run/systemd/system ]; then systemctl disable --quiet redis-server >&2 || true; fi
}

# A database that hactl runs by its resource agent, for which the package's own service must not start, now or at boot.
install_postgresql() {
  apt_install postgresql
  if [ -d /run/systemd/system ]; then systemctl disable --quiet postgresql >&2 || true; fi
}

# Its programs are not on PATH: each version has a folder.
has_postgresql() { compgen -G '/usr/lib/postgresql/*/bin/pg_ctl' >/dev/null; }

# An image of a container can be made of it alone.
busybox_is_static() { [ -x /usr/bin/busybox ] && ! ldd /usr/bin/busybox >/dev/null 2>&1; }

# setup_tests: what the tests need besides. Sets KUBECTL, CARGO_DENY, CARGO_DEB and SINKS_PYTHON.
setup_tests() {
  setup
  local packages=()
  have openssl || packages+=(openssl)
  # A management controller that speaks IPMI, and the fence agent for it.
  [ -x /usr/sbin/fence_ipmilan ] || packages+=(fence-agents)
  have ipmitool || packages+=(ipmitool)
  have ipmi_sim || packages+=(openipmi)
  # OCF resource agents: without the cluster stack that they recommend.
  [ -x /usr/lib/ocf/resource.d/heartbeat/IPaddr2 ] || packages+=(resource-agents)
  # What Filesystem asks for, and a database.
  have fuser || packages+=(psmisc)
  [ -x /usr/sbin/modprobe ] || packages+=(kmod)
  has_postgresql || install_postgresql
  # Driver systemd: system containers, which boot what this machine has.
  [ -x /lib/systemd/systemd ] || packages+=(systemd)
  have dbus-daemon || packages+=(dbus)
  # Driver podman: a real one, with a runtime for either layout of control groups, and what its image is made of.
  have podman || packages+=(podman)
  [ -x /usr/sbin/runc ] || have runc || packages+=(runc)
  busybox_is_static || packages+=(busybox-static)
  [ ${#packages[@]} -eq 0 ] || apt_install "${packages[@]}"
  install_libvirt
  setup_packages
  install_prometheus
  setup_sinks
  setup_charts
  setup_dashboards
  check_rust_lints
  find_kubectl
  find_cargo_deny
}
