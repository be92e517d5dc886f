# shellcheck shell=bash
# Common parts of all scripts in dev/: paths, messages and errors.

set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# Directory for downloads, which git ignores. HACTL_CACHE lets several clones share one.
CACHE=${HACTL_CACHE:-$ROOT/.cache}
export ROOT CACHE
# Incremental builds use more disk space than everything else together, and these scripts build everything once. All
# scripts use one setting, because cargo rebuilds when it changes.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}

say() { printf '== %s\n' "$*" >&2; }

# die WHAT [WHAT-TO-DO]: prints an error and a hint, then exits.
die() {
  printf 'error: %s\n' "$1" >&2
  [ $# -lt 2 ] || printf '  %s\n' "${@:2}" >&2
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

is_root() { [ "$(id -u)" = 0 ]; }

# at_least HAVE WANT: succeeds if version HAVE is WANT or newer (sort -V order).
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# target_dir: prints cargo's target directory.
target_dir() { printf '%s\n' "${CARGO_TARGET_DIR:-$ROOT/target}"; }
