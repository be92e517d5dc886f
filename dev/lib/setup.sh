# shellcheck shell=bash
# Requirements of the scripts, in steps: for the simulator, for the sandbox, and for the tests.

LIB=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
for part in common apt charts console dashboards etcd ganeti images kubectl libvirt metal packages prometheus rust sinks; do
  # shellcheck source=/dev/null
  . "$LIB/$part.sh"
done
unset part

# setup_simulator [PROGRAM PACKAGE]…: installs the requirements of the simulator and these programs. Needs no etcd and no network
# namespaces.
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

# setup: installs the requirements of the build and the sandbox. Sets ETCD and ETCDCTL.
setup() {
  local packages=()
  have cc || packages+=(gcc libc6-dev)
  have protoc || packages+=(protobuf-compiler)
  [ -e /usr/include/google/protobuf/timestamp.proto ] || packages+=(libprotobuf-dev)
  have ip || packages+=(iproute2)
  # An ordinary user's PATH may lack /usr/sbin.
  [ -x /usr/sbin/nft ] || have nft || packages+=(nftables)
  have unshare && have nsenter || packages+=(util-linux)
  have redis-server || install_redis
  have curl || packages+=(curl ca-certificates)
  [ ${#packages[@]} -eq 0 ] || apt_install "${packages[@]}"
  check_rust
  check_protoc
  find_etcd
}

# install_redis: installs the example's service. hactl runs it, so the package's service must not start, now or at boot.
install_redis() {
  apt_install redis-server
  if [ -d /run/systemd/system ]; then systemctl disable --quiet redis-server >&2 || true; fi
}

# install_postgresql: installs a database that hactl runs by its resource agent. The package's service must not start, now or at
# boot.
install_postgresql() {
  apt_install postgresql
  if [ -d /run/systemd/system ]; then systemctl disable --quiet postgresql >&2 || true; fi
}

# has_postgresql: succeeds if a version is installed. Its programs are not on PATH: each version has its own directory.
has_postgresql() { compgen -G '/usr/lib/postgresql/*/bin/pg_ctl' >/dev/null; }

# busybox_is_static: succeeds if a container can consist of busybox alone.
busybox_is_static() { [ -x /usr/bin/busybox ] && ! ldd /usr/bin/busybox >/dev/null 2>&1; }

# setup_tests: installs the additional requirements of the tests. Sets KUBECTL, CARGO_DENY, CARGO_DEB, SINKS_PYTHON and CHROMIUM.
setup_tests() {
  setup
  local packages=()
  have openssl || packages+=(openssl)
  # Repositories of `hactl sync` with signed commits, and the health check for Argo CD.
  have git || packages+=(git)
  have ssh-keygen || packages+=(openssh-client)
  have lua5.4 || packages+=(lua5.4)
  # Encryption of backups.
  have age || packages+=(age)
  # A management controller for IPMI, and its fence agent.
  [ -x /usr/sbin/fence_ipmilan ] || packages+=(fence-agents)
  have ipmitool || packages+=(ipmitool)
  have ipmi_sim || packages+=(openipmi)
  # OCF resource agents, without the cluster stack that the package recommends.
  [ -x /usr/lib/ocf/resource.d/heartbeat/IPaddr2 ] || packages+=(resource-agents)
  # Programs that the agent Filesystem requires, and a database.
  have fuser || packages+=(psmisc)
  [ -x /usr/sbin/modprobe ] || packages+=(kmod)
  has_postgresql || install_postgresql
  # Driver systemd: system containers, which boot this machine's systemd.
  [ -x /lib/systemd/systemd ] || packages+=(systemd)
  have dbus-daemon || packages+=(dbus)
  # Driver podman: podman itself, a runtime for both versions of control groups, and busybox for its image.
  have podman || packages+=(podman)
  [ -x /usr/sbin/runc ] || have runc || packages+=(runc)
  busybox_is_static || packages+=(busybox-static)
  # Driver lxc, with containers of the same busybox.
  have lxc-start || packages+=(lxc)
  [ ${#packages[@]} -eq 0 ] || apt_install "${packages[@]}"
  install_libvirt
  setup_packages
  install_prometheus
  setup_sinks
  setup_charts
  setup_dashboards
  setup_console
  find_chromium
  check_rust_lints
  find_kubectl
  find_cargo_deny
}
