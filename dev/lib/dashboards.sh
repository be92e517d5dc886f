# shellcheck shell=bash
# Tools for Grafana's dashboards: grafana-foundation-sdk generates them, and tsc checks them against @grafana/schema.

# setup_dashboards: sets DASHBOARDS_PYTHON and DASHBOARDS_SCHEMA. All tools are in the cache and pinned by hash.
setup_dashboards() {
  local packages=() directory
  have npm || packages+=(npm)
  # Debian's python3 package alone cannot create virtual environments.
  python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || packages+=(python3-venv)
  [ ${#packages[@]} -eq 0 ] || apt_install "${packages[@]}"
  directory=$CACHE/tools/dashboards-python
  DASHBOARDS_PYTHON=$directory/bin/python
  if ! cmp -s "$LIB/dashboards-requirements.txt" "$directory/requirements.txt"; then
    say "fetching Grafana's library for dashboards into $directory"
    rm -rf "$directory"
    python3 -m venv "$directory"
    "$DASHBOARDS_PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
      die "Grafana's library for dashboards needs Python 3.11 or newer" "python3 is $("$DASHBOARDS_PYTHON" --version)"
    "$DASHBOARDS_PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
      --requirement "$LIB/dashboards-requirements.txt" >&2 ||
      die "the Python packages of dev/lib/dashboards-requirements.txt cannot be installed" "see the messages of pip above"
    # Copied last, so that an interrupted installation is repeated.
    cp "$LIB/dashboards-requirements.txt" "$directory/requirements.txt"
  fi
  directory=$CACHE/tools/dashboards-schema
  DASHBOARDS_SCHEMA=$directory
  if ! cmp -s "$LIB/dashboards/schema/package-lock.json" "$directory/fetched.json"; then
    say "fetching Grafana's schema into $directory"
    rm -rf "$directory"
    mkdir -p "$directory"
    cp "$LIB"/dashboards/schema/package*.json "$directory"
    # package-lock.json contains the hash of each package.
    (cd "$directory" && npm ci --silent --ignore-scripts --no-audit --no-fund >&2) ||
      die "npm cannot fetch the packages of dev/lib/dashboards/schema/package-lock.json" "run npm ci in $directory for the cause"
    cp "$LIB/dashboards/schema/package-lock.json" "$directory/fetched.json"
  fi
  export DASHBOARDS_PYTHON DASHBOARDS_SCHEMA
}

# dashboards MODULE [ARGUMENT…]: runs a module of dev/lib/dashboards in the project's root.
dashboards() {
  (cd "$ROOT" && PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$LIB "$DASHBOARDS_PYTHON" -m "$@")
}

# check_dashboards: checks that the files match the generator and Grafana's schema, and that the schema refuses broken ones.
check_dashboards() {
  dashboards dashboards --check && dashboards dashboards.check
}
