# shellcheck shell=bash
# What every script in dev/ shares: where things are, how they speak, how they fail.

set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# Downloaded parts live here; git ignores it. HACTL_CACHE lets several clones share one.
CACHE=${HACTL_CACHE:-$ROOT/.cache}
export ROOT CACHE
# What one build leaves for the next takes more room than everything else together, and these scripts build everything once. One
# setting for all of them: cargo builds anew when it changes.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}

say() { printf '== %s\n' "$*" >&2; }

# die WHAT [WHAT-TO-DO]: one clear error, and nothing after it.
die() {
  printf 'error: %s\n' "$1" >&2
  [ $# -lt 2 ] || printf '  %s\n' "${@:2}" >&2
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

is_root() { [ "$(id -u)" = 0 ]; }

# at_least HAVE WANT: whether version HAVE is WANT or newer (sort -V order).
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# The folder that cargo builds into, wherever the user keeps it.
target_dir() { printf '%s\n' "${CARGO_TARGET_DIR:-$ROOT/target}"; }
