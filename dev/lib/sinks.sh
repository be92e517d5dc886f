# shellcheck shell=bash
# A mail server and a web server that keep what they get: what notifications and alerts are tested with.

# setup_sinks: sets SINKS_PYTHON, a Python with aiosmtpd, kept in the cache and pinned by hash.
setup_sinks() {
  local folder=$CACHE/tools/sinks-python wanted=$LIB/sinks-requirements.txt
  # Debian's python3 alone makes no environments.
  python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || apt_install python3-venv
  SINKS_PYTHON=$folder/bin/python
  if ! cmp -s "$wanted" "$folder/requirements.txt"; then
    say "fetching aiosmtpd into $folder"
    rm -rf "$folder"
    python3 -m venv "$folder"
    "$SINKS_PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement "$wanted" >&2 ||
      die "the Python packages of dev/lib/sinks-requirements.txt could not be installed" "pip's messages are above"
    # Last, so that what was broken off is begun anew.
    cp "$wanted" "$folder/requirements.txt"
  fi
  export SINKS_PYTHON
}
