# shellcheck shell=bash
# Tools that check metrics, alert rules and the example configuration of Alertmanager: promtool, amtool and Alertmanager.

# install_prometheus: installs the tools. They run only in tests, so the packages' services must not start, now or at boot.
install_prometheus() {
  local packages=() service
  have promtool || packages+=(prometheus)
  { have amtool && have prometheus-alertmanager; } || packages+=(prometheus-alertmanager)
  [ ${#packages[@]} -gt 0 ] || return 0
  apt_install "${packages[@]}"
  if [ -d /run/systemd/system ]; then
    for service in prometheus prometheus-alertmanager; do
      systemctl disable --quiet "$service" >&2 || true
    done
  fi
}
