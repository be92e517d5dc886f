# shellcheck shell=bash
# A mail server and a web server that record all requests, for tests of notifications and alerts.

# setup_sinks: sets SINKS_PYTHON, a Python with aiosmtpd in the cache, pinned by hash.
setup_sinks() {
  local directory=$CACHE/tools/sinks-python wanted=$LIB/sinks-requirements.txt
  # Debian's python3 package alone cannot create virtual environments.
  python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || apt_install python3-venv
  SINKS_PYTHON=$directory/bin/python
  if ! cmp -s "$wanted" "$directory/requirements.txt"; then
    say "fetching aiosmtpd into $directory"
    rm -rf "$directory"
    python3 -m venv "$directory"
    "$SINKS_PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement "$wanted" >&2 ||
      die "the Python packages of dev/lib/sinks-requirements.txt cannot be installed" "see the messages of pip above"
    # Copied last, so that an interrupted installation is repeated.
    cp "$wanted" "$directory/requirements.txt"
  fi
  export SINKS_PYTHON
}
