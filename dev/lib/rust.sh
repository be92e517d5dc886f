# shellcheck shell=bash
# Rust: the toolchain, and tools that only the tests need.

RUST_MINIMUM=1.90

check_rust() {
  have cargo && have rustc || die "Rust is not installed" "install Rust $RUST_MINIMUM or newer: https://rustup.rs"
  local version
  version=$(rustc --version | awk '{ print $2 }')
  at_least "$version" "$RUST_MINIMUM" || die "rustc $version is too old; $RUST_MINIMUM or newer is required" "run rustup update stable"
}

# check_protoc: fails if protoc is missing. Only etcd's client needs it.
check_protoc() { have protoc || die "protoc is not installed" "install protobuf-compiler and libprotobuf-dev"; }

check_rust_lints() {
  cargo fmt --version >/dev/null 2>&1 || die "cargo fmt is not installed" "run rustup component add rustfmt"
  cargo clippy --version >/dev/null 2>&1 || die "cargo clippy is not installed" "run rustup component add clippy"
}

# find_cargo_deny: sets CARGO_DENY. Builds the tool once into the cache if PATH lacks it, unoptimized because it runs only for
# seconds.
find_cargo_deny() {
  if have cargo-deny; then
    CARGO_DENY=$(command -v cargo-deny)
  else
    CARGO_DENY=$CACHE/tools/bin/cargo-deny
    [ -x "$CARGO_DENY" ] || build_tool cargo-deny
  fi
  export CARGO_DENY
}

# find_cargo_mutants: sets CARGO_MUTANTS. Builds the tool once into the cache if PATH lacks it.
find_cargo_mutants() {
  if have cargo-mutants; then
    CARGO_MUTANTS=$(command -v cargo-mutants)
  else
    CARGO_MUTANTS=$CACHE/tools/bin/cargo-mutants
    [ -x "$CARGO_MUTANTS" ] || build_tool cargo-mutants
  fi
  export CARGO_MUTANTS
}

# build_tool NAME: builds a tool into the cache.
build_tool() {
  say "building $1 into $CACHE/tools (once, some minutes)"
  CARGO_TARGET_DIR=$CACHE/tools/target cargo install --locked --debug --quiet --root "$CACHE/tools" "$1" >&2 ||
    die "cannot build $1" "install $1, so that PATH contains it: cargo install --locked $1"
  rm -rf "$CACHE/tools/target"
}
