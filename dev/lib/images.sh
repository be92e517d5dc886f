# shellcheck shell=bash
# The container image: static programs, the image, and a podman that can build and test it.

IMAGE_PROGRAMS=(ha-controller ha-node-agent ha-exec-shim ha-watchdogd hactl)
STATIC_TARGET=$(uname -m)-unknown-linux-musl

# setup_images: installs the tools to build and test an image.
setup_images() {
  local packages=()
  have podman || packages+=(podman)
  [ -x /usr/sbin/runc ] || have runc || packages+=(runc)
  have openssl || packages+=(openssl)
  [ ${#packages[@]} -eq 0 ] || apt_install "${packages[@]}"
  [ -d "$(rustc --print sysroot)/lib/rustlib/$STATIC_TARGET" ] || rustup target add "$STATIC_TARGET" >&2 ||
    die "Rust has no target $STATIC_TARGET" "run rustup target add $STATIC_TARGET"
}

# build_static release|debug: builds the programs without shared libraries.
build_static() {
  local flags=()
  [ "$1" = debug ] || flags+=(--release)
  # The only library in C (part of ring) uses no functions for which musl's headers differ.
  (cd "$ROOT" && env "CC_${STATIC_TARGET//-/_}=${CC:-gcc}" cargo build --quiet "${flags[@]}" --target "$STATIC_TARGET" \
    --package ha-controller --package ha-node-agent --package hactl --bins)
}

# podman_in DIRECTORY …: runs podman with its storage in DIRECTORY, with options that work without systemd.
podman_in() {
  local directory=$1
  shift
  podman --root "$directory/storage" --runroot "$directory/run" --tmpdir "$directory/tmp" --runtime=runc --cgroup-manager=cgroupfs \
    --events-backend=file --storage-driver=vfs "$@"
}

# make_image release|debug TAG ARCHIVE: builds the image from the static programs, as an archive for `podman load` and registries.
make_image() {
  local profile=$1 tag=$2 archive=$3 built=$(target_dir)/$STATIC_TARGET/$1 stage program
  stage=$(target_dir)/image
  rm -rf "$stage" "$archive"
  mkdir -p "$stage/context" "$(dirname "$archive")"
  for program in "${IMAGE_PROGRAMS[@]}"; do
    # A static program has no interpreter. A program with one would not start in an image without libraries.
    ! readelf --program-headers "$built/$program" | grep -q INTERP || die "$program is not static" "check the linker settings of $STATIC_TARGET"
    strip -o "$stage/context/$program" "$built/$program" || return 1
  done
  cp "$ROOT/manifests/container/Containerfile" "$stage/context/"
  podman_in "$stage" build --quiet --isolation=chroot --tag "$tag" "$stage/context" >/dev/null &&
    podman_in "$stage" save --quiet --output "$archive" "$tag"
}
