# shellcheck shell=bash
# The web console: Node.js, its packages, and the build that the controller embeds.

# Version of Debian 12.
NODE_MINIMUM=18.19

# setup_console: installs Node.js, and the packages of console/package-lock.json.
setup_console() {
  local version directory=$ROOT/console
  have node && have npm || apt_install nodejs npm
  version=$(node --version) version=${version#v}
  at_least "$version" "$NODE_MINIMUM" ||
    die "Node.js $version is too old; $NODE_MINIMUM or newer is required" "install a newer version: https://nodejs.org/en/download"
  if ! cmp -s "$directory/package-lock.json" "$directory/node_modules/.installed-lock.json"; then
    say "fetching the packages of the console"
    (cd "$directory" && npm ci --no-audit --no-fund --loglevel=error >&2) ||
      die "the packages of console/package-lock.json cannot be installed" "see the messages of npm above"
    # Copied last, so that an interrupted installation is repeated.
    cp "$directory/package-lock.json" "$directory/node_modules/.installed-lock.json"
  fi
}

# build_console: builds console/dist, unless it is newer than its sources. The build fails if the console is too large.
build_console() {
  local directory=$ROOT/console built=$ROOT/console/dist/index.html
  if [ -e "$built" ] && [ -z "$(find "$directory" -path "$directory/node_modules" -prune -o -path "$directory/dist" -prune -o \
    -path "$directory/tests" -prune -o -type f -newer "$built" -print -quit)" ]; then
    return 0
  fi
  (cd "$directory" && npm run --silent build >&2) || die "the build of the console failed" "see the messages above"
}

# find_chromium: sets CHROMIUM, the browser of the tests. $CHROMIUM has priority.
find_chromium() {
  local name
  for name in "${CHROMIUM:-}" chromium google-chrome; do
    if [ -n "$name" ] && have "$name"; then
      CHROMIUM=$(command -v "$name")
      export CHROMIUM
      return 0
    fi
  done
  # Without a font, no text has a width.
  apt_install chromium fonts-dejavu-core
  CHROMIUM=$(command -v chromium) || die "chromium is not installed" "set CHROMIUM to the path of Chromium or Chrome"
  export CHROMIUM
}

# run_console_checks: checks the types, and runs the unit tests.
run_console_checks() { (cd "$ROOT/console" && npm run --silent check && npm run --silent unit); }

# run_console_in_browser [FILTER]: runs the tests in Chromium, or those whose file matches, on a cluster of their own.
run_console_in_browser() { (cd "$ROOT/console" && FORCE_COLOR=0 npm run --silent browser -- "$@"); }
