# shellcheck shell=bash
# Ganeti's own tests of the command lines of hail, hbal, hcheck and hspace, and these programs, for comparison.

# setup_ganeti: installs hbal and the runner of the tests, and unpacks the tests. Sets GANETI_TESTS and GANETI_PROGRAMS.
setup_ganeti() {
  local packages=()
  have shelltest || packages+=(shelltestrunner)
  have python3 || packages+=(python3)
  compgen -G '/usr/lib/ganeti/*/usr/bin/hbal' >/dev/null || packages+=(ganeti-htools-3.0)
  [ ${#packages[@]} -eq 0 ] || apt_install "${packages[@]}"
  GANETI_PROGRAMS=$(compgen -G '/usr/lib/ganeti/*/usr/bin' | sort | tail -n 1)
  # The package depends on the whole of Ganeti, so it is unpacked instead of installed.
  GANETI_TESTS=$CACHE/ganeti/usr/share/ganeti/testsuite/test
  if [ ! -d "$GANETI_TESTS" ]; then
    mkdir -p "$CACHE/ganeti"
    (cd "$CACHE/ganeti" && apt-get download --quiet ganeti-testsuite >/dev/null 2>&1 && dpkg -x ganeti-testsuite_*.deb .) ||
      die "cannot download the tests of Ganeti" "run apt-get update, and check that ganeti-testsuite is available"
  fi
}

# Ganeti's programs whose options and output hactl has under their names.
GANETI_NAMES=(hail hbal hcheck hspace)

# run_ganeti HACTL: runs Ganeti's tests that call one of these programs, with hactl under their names, except those that need
# RAPI. Then compares both programs on Ganeti's files and on generated clusters, and the scores at the ends of their plans.
run_ganeti() {
  local hactl=$1 work file name status=0 data
  work=$(mktemp -d)
  mkdir -p "$work/test/hs" "$work/T"
  cp -r "$GANETI_TESTS/data" "$work/test/"
  ln -s "$GANETI_PROGRAMS"/* "$work/test/hs/"
  # The package has hail in another directory; htools acts under any of these names.
  mkdir -p "$work/programs"
  ln -s "$GANETI_PROGRAMS"/* "$work/programs/"
  ln -s "$GANETI_PROGRAMS/htools" "$work/programs/hail"
  for name in "${GANETI_NAMES[@]}"; do ln -sf "$hactl" "$work/test/hs/$name"; done
  data=test/data/htools
  (
    cd "$work" || exit 1
    export LC_ALL=C T=$work/T TESTDATA_DIR=$data PYTESTDATA_DIR=test/data
    # The clusters that Ganeti's test/hs/offline-test.sh makes.
    simulated() { "$GANETI_PROGRAMS/hspace" "$@" --disk-template drbd -l 8 >/dev/null 2>&1; }
    simulated --simulate p,4,8T,64g,16 -S "$T/simu-onegroup" &&
      simulated --simulate p,4,8T,64g,16 --simulate p,4,8T,64g,16 -S "$T/simu-twogroups" &&
      simulated --simulate u,4,8T,64g,16 --simulate p,4,8T,64g,16 -S "$T/simu-rebal-orig" || exit 1
    for file in standard tiered; do
      sed -re 's/^(node-.*|fake-uuid-)-02(|.*)/\1-01\2/' <"$T/simu-rebal-orig.$file" >"$T/simu-rebal-merged.$file"
    done
    # The requests that this script makes.
    for name in primary-only secondary-only all; do
      sed -e "s/\"evac_mode\": \"all\"/\"evac_mode\": \"$name\"/" -e 's/"spindles": [0-9]\+,//' \
        "$data/hail-node-evac.json" >"$T/hail-node-evac.json.$name"
    done
    for name in alloc-drbd alloc-invalid-twodisks alloc-twodisks change-group node-evac reloc-drbd alloc-spindles; do
      sed 's/"exclusive_storage": false/"exclusive_storage": true/' "$data/hail-$name.json" >"$T/hail-$name.json.excl-stor"
      sed 's/"spindles": [0-9]\+,//' "$T/hail-$name.json.excl-stor" >"$T/hail-$name.json.fail-excl-stor"
    done
    export BACKEND_BAL_STD=-t$T/simu-rebal-merged.standard BACKEND_BAL_TIER=-t$T/simu-rebal-merged.tiered
    export BACKEND_DYNU="-t $T/simu-onegroup.standard" BACKEND_EXCL="-t $T/simu-onegroup.standard"
    mapfile -t files < <(grep -lE "hs/($(IFS='|' && echo "${GANETI_NAMES[*]}"))" "$GANETI_TESTS"/hs/shelltests/*.test | grep -v rapi)
    # The simulated rebalance of hactl repairs the N+1 failures of this cluster, so its hcheck does not exit with status 1.
    mkdir shelltests
    for file in "${files[@]}"; do
      sed '/^# and hcheck should report this as needs rebalancing/,/^>>>= 1/d' "$file" >"shelltests/${file##*/}"
    done
    shelltest -c shelltests/*.test >"$work/log" 2>&1
    grep -A 30 '\[Failed\]$' "$work/log"
    awk '/^ Passed/ { p = $2 } /^ Failed/ { f = $2 }
      END { good = p > 0 && f == 0; printf("test result: %s. %d passed; %d failed\n", good ? "ok" : "FAILED", p, f); exit !good }' "$work/log"
  ) || status=1
  python3 "$LIB/hbal.py" "$GANETI_PROGRAMS/hbal" "$work/test/hs/hbal" "$GANETI_TESTS/data/htools" || status=1
  python3 "$LIB/htools.py" "$work/programs" "$work/test/hs" "$GANETI_TESTS/data/htools" || status=1
  # Fewer clusters, nodes and evaluations than in dev/hbal.
  python3 "$LIB/hbal_clusters.py" "$GANETI_PROGRAMS/hbal" "$work/test/hs/hbal" \
    --count 24 --nodes 12 --evaluations 25000 --distance 0.75 || status=1
  rm -rf "$work"
  return "$status"
}
