# shellcheck shell=bash
# The container image: static programs, the image of them, and a cluster of containers that tries it.

IMAGE_PROGRAMS=(ha-controller ha-node-agent ha-exec-shim ha-watchdogd hactl)
STATIC_TARGET=$(uname -m)-unknown-linux-musl

# setup_images: what building and trying an image needs.
setup_images() {
  local packages=()
  have podman || packages+=(podman)
  [ -x /usr/sbin/runc ] || have runc || packages+=(runc)
  have openssl || packages+=(openssl)
  [ ${#packages[@]} -eq 0 ] || apt_install "${packages[@]}"
  [ -d "$(rustc --print sysroot)/lib/rustlib/$STATIC_TARGET" ] || rustup target add "$STATIC_TARGET" >&2 ||
    die "Rust has no target $STATIC_TARGET" "rustup target add $STATIC_TARGET"
}

# build_static release|debug: the programs without any library of a machine.
build_static() {
  local flags=()
  [ "$1" = debug ] || flags+=(--release)
  # The one library in C (ring's) calls nothing of a C library that musl's headers would have otherwise.
  (cd "$ROOT" && env "CC_${STATIC_TARGET//-/_}=${CC:-gcc}" cargo build --quiet "${flags[@]}" --target "$STATIC_TARGET" \
    --package ha-controller --package ha-node-agent --package hactl --bins)
}

# podman_in FOLDER …: podman with its storage in a folder. Without systemd it needs the plainest ways of everything.
podman_in() {
  local folder=$1
  shift
  podman --root "$folder/storage" --runroot "$folder/run" --tmpdir "$folder/tmp" --runtime=runc --cgroup-manager=cgroupfs \
    --events-backend=file --storage-driver=vfs "$@"
}

# make_image release|debug TAG ARCHIVE: the image of what is built, as an archive for `podman load` and registries.
make_image() {
  local profile=$1 tag=$2 archive=$3 built=$(target_dir)/$STATIC_TARGET/$1 stage program
  stage=$(target_dir)/image
  rm -rf "$stage" "$archive"
  mkdir -p "$stage/context" "$(dirname "$archive")"
  for program in "${IMAGE_PROGRAMS[@]}"; do
    # A static program has no interpreter; one that had would not start in an image without libraries.
    ! readelf --program-headers "$built/$program" | grep -q INTERP || die "$program is not static" "look at how $STATIC_TARGET links"
    strip -o "$stage/context/$program" "$built/$program" || return 1
  done
  cp "$ROOT/manifests/container/Containerfile" "$stage/context/"
  podman_in "$stage" build --quiet --isolation=chroot --tag "$tag" "$stage/context" >/dev/null &&
    podman_in "$stage" save --quiet --output "$archive" "$tag"
}
