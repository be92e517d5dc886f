# shellcheck shell=bash
# kubectl: a client for tests of the API. The product does not need it.

kubectl_version_of() { "$1" version --client 2>/dev/null | sed -n 's/^Client Version:.*v\([0-9][0-9.]*\).*/\1/p'; }

# find_kubectl: sets KUBECTL to an absolute path. Search order: $KUBECTL, PATH, the cache, Debian sid; otherwise an error.
find_kubectl() {
  local version
  if [ -n "${KUBECTL:-}" ]; then
    version=$(kubectl_version_of "$KUBECTL" || true)
    [ -n "$version" ] && at_least "$version" 1.27 || die "KUBECTL=$KUBECTL is not kubectl 1.27 or newer (${version:-no version})" \
      "unset KUBECTL to let dev/setup find one"
  elif have kubectl && version=$(kubectl_version_of "$(command -v kubectl)") && [ -n "$version" ] && at_least "$version" 1.27; then
    KUBECTL=$(command -v kubectl)
  else
    KUBECTL=$CACHE/kubectl/usr/bin/kubectl
    if [ ! -x "$KUBECTL" ]; then
      say "fetching kubectl from Debian sid into $CACHE/kubectl (nothing is installed)"
      # Debian renamed the package that contains the program.
      apt_unpack sid "$CACHE/kubectl" kubectl || apt_unpack sid "$CACHE/kubectl" kubernetes-client || true
    fi
    version=$(kubectl_version_of "$KUBECTL" || true)
    [ -n "$version" ] || die "no kubectl 1.27 or newer found, also not in Debian sid" \
      "get one: https://kubernetes.io/docs/tasks/tools/" "then set KUBECTL=/path/to/kubectl and run this again"
  fi
  export KUBECTL
}
