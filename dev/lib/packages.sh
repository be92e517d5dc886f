# shellcheck shell=bash
# Debian packages: the tools to build them, and the build.

PACKAGES=(hactl ha-controller ha-node-agent)

# setup_packages: installs the tools to build and check packages. Sets CARGO_DEB.
setup_packages() {
  local packages=()
  have dpkg-shlibdeps || packages+=(dpkg-dev)
  have strip || packages+=(binutils)
  have lintian || packages+=(lintian)
  [ ${#packages[@]} -eq 0 ] || apt_install "${packages[@]}"
  find_cargo_deb
}

# find_cargo_deb: sets CARGO_DEB. Builds the tool once into the cache if PATH lacks it, unoptimized because it runs only for
# seconds.
find_cargo_deb() {
  if have cargo-deb; then
    CARGO_DEB=$(command -v cargo-deb)
  else
    CARGO_DEB=$CACHE/tools/bin/cargo-deb
    [ -x "$CARGO_DEB" ] || build_tool cargo-deb
  fi
  export CARGO_DEB
}

workspace_version() { sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml"; }

# build_for_packages release|debug: builds the programs and the examples that write their manual pages.
build_for_packages() {
  local flags=()
  [ "$1" = debug ] || flags+=(--release)
  (cd "$ROOT" && cargo build --quiet "${flags[@]}" --workspace --bins --examples)
}

# make_packages release|debug VERSION DIRECTORY: creates the packages from the existing build. Removes all other files from DIRECTORY.
make_packages() {
  local profile=$1 version=$2 directory=$3 built stage package flags=(--profile release)
  built=$(target_dir)/$profile
  stage=$built/packaging
  rm -rf "$stage" "$directory"
  mkdir -p "$stage/man8" "$directory"
  "$built/hactl" generate "$stage" &&
    "$built/examples/ha-controller-manual" "$stage/man8/ha-controller.8" &&
    "$built/examples/ha-node-agent-manual" "$stage/man8" || return 1
  for package in "${PACKAGES[@]}"; do debian_changelog "$package" "$version" >"$stage/$package.changelog.Debian"; done
  gzip -9n "$stage"/man?/* "$stage"/*.changelog.Debian || return 1
  # Packages of tests are temporary, so they are compressed quickly.
  [ "$profile" = release ] || flags=(--profile dev --fast)
  for package in "${PACKAGES[@]}"; do
    (cd "$ROOT" && "$CARGO_DEB" --quiet --no-build --no-dbgsym --strip "${flags[@]}" --package "$package" --deb-version "$version" --output "$directory") >/dev/null ||
      return 1
  done
}

# debian_changelog PACKAGE VERSION: prints a changelog in Debian's format that refers to CHANGELOG.md.
debian_changelog() {
  local at=${SOURCE_DATE_EPOCH:-$(git -C "$ROOT" log -1 --format=%ct 2>/dev/null || date +%s)}
  printf '%s (%s) unstable; urgency=medium\n\n  * See https://github.com/hactl/hactl/blob/main/CHANGELOG.md\n\n' "$1" "$2"
  printf ' -- The hactl maintainers <maintainers@hactl.io>  %s\n' "$(date -u -R -d "@$at")"
}

# check_packages DIRECTORY: fails if lintian reports an error or a warning.
check_packages() { lintian --fail-on error,warning --display-level '>=warning' --allow-root "$1"/*.deb >&2; }
