# shellcheck shell=bash
# The sandbox's folder and program.

SANDBOX=${HACTL_SANDBOX:-$CACHE/sandbox}

# sandbox COMMAND…: runs ha-sandbox on that folder.
sandbox() {
  local program command=$1
  shift
  program=$(target_dir)/debug/ha-sandbox
  [ -x "$program" ] || die "the sandbox has not been built" "./dev/up builds and starts it"
  "$program" "$command" --folder "$SANDBOX" "$@"
}
