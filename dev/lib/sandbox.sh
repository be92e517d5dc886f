# shellcheck shell=bash
# Directory and program of the sandbox.

SANDBOX=${HACTL_SANDBOX:-$CACHE/sandbox}

# sandbox COMMAND…: runs ha-sandbox with that directory.
sandbox() {
  local program command=$1
  shift
  program=$(target_dir)/debug/ha-sandbox
  [ -x "$program" ] || die "the sandbox has not been built" "run ./dev/up"
  "$program" "$command" --folder "$SANDBOX" "$@"
}
