# shellcheck shell=bash
# Debian packages: installing them on this machine, or unpacking them from another suite into the cache.

KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

# apt_install PACKAGE…: installs the missing packages without starting their services.
apt_install() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  have apt-get || die "missing packages, and not Debian or Ubuntu: ${missing[*]}" \
    "install them with your package manager, then run this again"
  is_root || die "missing packages: ${missing[*]}" \
    "run as root: apt-get install --no-install-recommends ${missing[*]}"
  say "installing ${missing[*]}"
  apt-get -qq update || say "cannot update the package lists, using the existing ones"
  without_service_start env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq -y --no-install-recommends install "${missing[@]}" >&2 ||
    die "apt-get cannot install: ${missing[*]}" "see the message above"
}

# without_service_start COMMAND…: runs COMMAND while packages may not start services.
without_service_start() {
  local policy=/usr/sbin/policy-rc.d ours="" status=0
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\n# dev/setup: no service starts by being installed\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    ours=yes
  fi
  RUNLEVEL=1 "$@" || status=$?
  [ -z "$ours" ] || rm -f "$policy"
  return "$status"
}

# apt_unpack SUITE DIRECTORY PACKAGE…: unpacks packages of another Debian suite into DIRECTORY. @PACKAGE means the first dependency of
# PACKAGE, such as the newest kernel for a metapackage. This machine's package lists and packages do not change. Does not need
# root.
apt_unpack() {
  local suite=$1 directory=$2 base options work package packages=()
  shift 2
  have apt-get && have dpkg || return 1
  [ -r "$KEYRING" ] || apt_install debian-archive-keyring
  base=$CACHE/apt/$suite
  mkdir -p "$base/lists/partial" "$base/cache/archives/partial"
  printf 'deb [signed-by=%s] http://deb.debian.org/debian %s main\n' "$KEYRING" "$suite" >"$base/sources.list"
  options=(-o "Dir::Etc::sourcelist=$base/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o "Dir::State::lists=$base/lists" -o "Dir::Cache=$base/cache" -o APT::Sandbox::User=root
    -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false)
  apt-get -qq "${options[@]}" update >&2 || return 1
  for package in "$@"; do
    case $package in
      @*) package=$(apt-cache "${options[@]}" depends "${package#@}" | sed -n 's/^ *Depends: \([^ <]*\)$/\1/p' | head -n 1) ;;
    esac
    packages+=("$package")
  done
  work=$(mktemp -d)
  (cd "$work" && apt-get -qq "${options[@]}" download "${packages[@]}" >&2) || { rm -rf "$work"; return 1; }
  local deb
  mkdir -p "$directory"
  for deb in "$work"/*.deb; do dpkg -x "$deb" "$directory"; done
  rm -rf "$work" "$base"
}
