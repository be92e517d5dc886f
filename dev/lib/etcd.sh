# shellcheck shell=bash
# Finds or downloads a real etcd. Older versions have defects of leases, stale reads and authorization.

etcd_version_of() { "$1" --version 2>/dev/null | sed -n 's/^etcd Version: *//p'; }

# etcd_new_enough VERSION: succeeds for 3.5.30 or newer in the 3.5 series, and for 3.6.11 or newer after it.
etcd_new_enough() {
  case $1 in
    "") return 1 ;;
    3.5.*) at_least "$1" 3.5.30 ;;
    *) at_least "$1" 3.6.11 ;;
  esac
}

# find_etcd: sets ETCD and ETCDCTL to absolute paths. Search order: $ETCD, PATH, the cache, Debian sid; otherwise an error.
find_etcd() {
  local version
  if [ -n "${ETCD:-}" ]; then
    [ -x "$ETCD" ] || die "ETCD=$ETCD is not a program" "unset ETCD, or set it to the path of an etcd binary"
    version=$(etcd_version_of "$ETCD")
    etcd_new_enough "$version" || die "ETCD=$ETCD is version ${version:-unknown}" \
      "3.5.30 or later in the 3.5 series, or 3.6.11 or later, is needed; unset ETCD to let dev/setup find one"
  elif have etcd && etcd_new_enough "$(etcd_version_of "$(command -v etcd)")"; then
    ETCD=$(command -v etcd)
  else
    ETCD=$CACHE/etcd/usr/bin/etcd
    if [ ! -x "$ETCD" ] || ! etcd_new_enough "$(etcd_version_of "$ETCD")"; then
      say "fetching etcd from Debian sid into $CACHE/etcd (nothing is installed)"
      rm -rf "$CACHE/etcd"
      apt_unpack sid "$CACHE/etcd" etcd-server etcd-client || true
    fi
    version=$(etcd_version_of "$ETCD" || true)
    etcd_new_enough "$version" || die "no etcd 3.5.30 (or 3.6.11) or newer found; Debian sid has ${version:-none}" \
      "get an official release: https://github.com/etcd-io/etcd/releases" \
      "then set ETCD=/path/to/etcd (with etcdctl in the same directory) and run this again"
  fi
  ETCDCTL=${ETCDCTL:-$(dirname "$ETCD")/etcdctl}
  [ -x "$ETCDCTL" ] || ETCDCTL=$(command -v etcdctl || true)
  [ -n "$ETCDCTL" ] || die "no etcdctl next to $ETCD" "copy etcdctl there, or set ETCDCTL to its path"
  export ETCD ETCDCTL
}
