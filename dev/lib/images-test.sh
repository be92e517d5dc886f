#!/usr/bin/env bash
# Tests the image IMAGE of the archive ARCHIVE: etcd, a controller, a watchdog daemon and an agent run in containers like those of
# the Helm chart and guard a service. Then the agent is upgraded and the daemon removed. The simulated watchdog must never expire.
#   images-test.sh ARCHIVE IMAGE STAND-IN-PROGRAM
. "$(dirname "$0")/setup.sh"
find_etcd
archive=$1 image=$2 stand_in=$3
scratch=$(mktemp -d)
network=hactl-images-$$
pids=()

cleanup() {
  local pid
  podman_in "$scratch/podman" rm --all --force --time 1 >/dev/null 2>&1 || true
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  ip netns del "$network" 2>/dev/null || true
  rm -rf "$scratch"
}
trap cleanup EXIT

# A sandbox may not be allowed to raise limits as far as podman's defaults.
run() {
  podman_in "$scratch/podman" run --pull=never --network "ns:/run/netns/$network" --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 \
    --read-only --volume "$scratch/tls:/hactl/tls:ro" "$@"
}
hactl() {
  run --rm --interactive --cap-drop=ALL --user 65532:65532 --env HACTL_SERVER=https://127.0.0.1:7443 \
    --env HACTL_CERTIFICATE_AUTHORITY=/hactl/tls/ca.crt --env HACTL_CLIENT_CERTIFICATE=/hactl/tls/tls.crt \
    --env HACTL_CLIENT_KEY=/hactl/tls/tls.key "$image" /hactl/bin/hactl "$@"
}
logs_and_die() {
  local name
  for name in controller watchdog agent; do
    printf -- '---- %s\n' "$name" >&2
    podman_in "$scratch/podman" logs --tail 25 "$name" >&2 2>&1 || true
  done
  tail -n 5 "$scratch/etcd.log" >&2
  die "$@"
}
not_expired() { ! grep -qi expire "$scratch/stand-in.log" || logs_and_die "the watchdog expired: $1"; }

start_agent() {
  local directories=() directory
  for directory in /usr /bin /sbin /lib /lib64 /etc; do directories+=(--volume "$directory:$directory:ro"); done
  run --detach --name agent --privileged --pid=host "${directories[@]}" --volume "$scratch/run:/run" --volume "$scratch/state:/var/lib/hactl/agent" \
    --volume /dev:/dev --tmpfs /tmp --volume "$scratch/machine-id:/hactl/machine-id:ro" \
    --env HACTL_AGENT_NODE=node1 --env HACTL_AGENT_VIRTUAL=no --env HACTL_AGENT_MACHINE_ID_FILE=/hactl/machine-id \
    --env HACTL_AGENT_ETCD_ENDPOINTS=https://127.0.0.1:2379 --env HACTL_AGENT_ETCD_CA=/hactl/tls/ca.crt \
    --env HACTL_AGENT_ETCD_CERT=/hactl/tls/tls.crt --env HACTL_AGENT_ETCD_KEY=/hactl/tls/tls.key "$image" /hactl/bin/ha-node-agent >/dev/null
}

say "certificates, a network and etcd"
mkdir -p "$scratch"/{podman,tls,run/hactl,state,etcd}
chmod 755 "$scratch" "$scratch/tls"
tr -d - </proc/sys/kernel/random/uuid >"$scratch/machine-id"
(
  cd "$scratch/tls"
  key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)
  openssl req -x509 "${key[@]}" -days 2 -subj /CN=hactl -keyout ca.key -out ca.crt
  openssl req "${key[@]}" -subj /CN=node1 -keyout tls.key -out node.csr
  openssl x509 -req -in node.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -out tls.crt -extfile <(printf '%s\n' \
    subjectAltName=DNS:localhost,IP:127.0.0.1 keyUsage=digitalSignature extendedKeyUsage=serverAuth,clientAuth)
  chmod 644 tls.key
) 2>"$scratch/openssl.log" || die "openssl failed" "$(tail -n 3 "$scratch/openssl.log")"
ip netns add "$network"
ip -n "$network" link set lo up
ip netns exec "$network" "$ETCD" --data-dir "$scratch/etcd" --listen-client-urls https://127.0.0.1:2379 --advertise-client-urls https://127.0.0.1:2379 \
  --listen-peer-urls http://127.0.0.1:2380 --cert-file "$scratch/tls/tls.crt" --key-file "$scratch/tls/tls.key" \
  --trusted-ca-file "$scratch/tls/ca.crt" --client-cert-auth >"$scratch/etcd.log" 2>&1 &
pids+=($!)
"$stand_in" --socket "$scratch/run/hactl/stand-in.sock" --exec-on-expiry true --log "$scratch/stand-in.log" >"$scratch/stand-in.out" 2>&1 &
pids+=($!)
podman_in "$scratch/podman" load --quiet --input "$archive" >/dev/null

say "a controller, a watchdog daemon, an agent"
run --detach --name controller --cap-drop=ALL --user 65532:65532 --env HACTL_CONTROLLER_ID=controller-0 --env HACTL_CONTROLLER_LISTEN=0.0.0.0:7443 \
  --env HACTL_CONTROLLER_ADVERTISE_URL=https://127.0.0.1:7443 --env HACTL_CONTROLLER_TLS_CERT=/hactl/tls/tls.crt \
  --env HACTL_CONTROLLER_TLS_KEY=/hactl/tls/tls.key --env HACTL_CONTROLLER_CLIENT_CA=/hactl/tls/ca.crt \
  --env HACTL_CONTROLLER_ETCD_ENDPOINTS=https://127.0.0.1:2379 --env HACTL_CONTROLLER_ETCD_CA=/hactl/tls/ca.crt \
  --env HACTL_CONTROLLER_ETCD_CERT=/hactl/tls/tls.crt --env HACTL_CONTROLLER_ETCD_KEY=/hactl/tls/tls.key "$image" /hactl/bin/ha-controller >/dev/null
run --detach --name watchdog --privileged --pid=host --volume "$scratch/run/hactl:/run/hactl" "$image" \
  /hactl/bin/ha-watchdogd --simulated /run/hactl/stand-in.sock >/dev/null
start_agent
hactl_until() {
  local until=$((SECONDS + 60))
  until hactl "$@" >"$scratch/out" 2>&1 </dev/null; do
    [ $SECONDS -lt $until ] || logs_and_die "hactl $* does not succeed: $(cat "$scratch/out")"
    sleep 1
  done
}
hactl_until get clusters
hactl apply -f - >/dev/null <<'YAML' || logs_and_die "the settings are refused"
apiVersion: hactl.io/v1
kind: Cluster
metadata: {name: default}
spec: {fencing: {allowSimulatedWatchdog: true}}
---
apiVersion: hactl.io/v1
kind: Resource
metadata: {name: sleeper}
spec:
  driver: {exec: {command: [sleep, "100000"]}}
YAML
hactl_until wait node/node1 --for=condition=Ready --timeout 60s

say "a service that must not run twice, under the armed watchdog"
hactl_until wait resource/sleeper --for=condition=Ready --timeout 60s
hactl get nodes -o yaml </dev/null | grep -q 'armed: true' || logs_and_die "the watchdog is not armed"

# The kernel may refuse the priority (control groups of version 1), but the daemon must have requested it.
! podman_in "$scratch/podman" logs watchdog 2>&1 | grep 'no real-time priority.*ENOSYS' || logs_and_die "musl has no real-time priority"

say "an upgrade: another agent's container"
podman_in "$scratch/podman" stop --time 60 agent >/dev/null 2>"$scratch/podman.log" || logs_and_die "the agent does not end: $(cat "$scratch/podman.log")"
podman_in "$scratch/podman" logs agent 2>&1 | grep -q 'services keep running' || logs_and_die "the agent did not freeze its services at its end"
podman_in "$scratch/podman" rm agent >/dev/null
# The wait is longer than the watchdog's timeout: a released watchdog does not expire.
sleep 8
not_expired "at the upgrade"
start_agent
hactl_until wait resource/sleeper --for=condition=Ready --timeout 60s
hactl_until wait node/node1 --for=condition=Ready --timeout 60s
hactl status </dev/null || [ $? -eq 1 ] || logs_and_die "the cluster is not well"

say "an uninstall: disarmed as by the chart's hook, then the daemon's end"
hactl_until disarm freeze --wait --timeout 60s
podman_in "$scratch/podman" stop --time 5 watchdog >/dev/null 2>&1
sleep 8
not_expired "at the uninstall"
printf 'test result: ok. 1 passed; 0 failed\n'
