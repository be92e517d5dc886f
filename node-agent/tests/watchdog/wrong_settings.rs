//! Wrong settings: at its start, the daemon logs the reason for which it will refuse to arm, and refuses to arm with
//! the same text.

use super::arm;
use super::node::{connect_until_accepted, wait_until};
use ha_node_agent::watchdog::client::ClientError;
use ha_node_agent::watchdog::protocol::{Name, Refusal};
use nix::unistd::geteuid;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A daemon for a kernel device, with its log.
struct Daemon {
    directory: tempfile::TempDir,
    process: Child,
}

impl Daemon {
    /// Runs the daemon for this device, optionally after a shell command in a separate mount namespace.
    fn start(device: &str, before: Option<&str>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let log = std::fs::File::create(directory.path().join("log")).unwrap();
        let program = env!("CARGO_BIN_EXE_ha-watchdogd");
        let mut command = match before {
            None => Command::new(program),
            Some(before) => {
                let mut command = Command::new("unshare");
                if !geteuid().is_root() {
                    command.args(["--user", "--map-root-user"]);
                }
                command.args(["--mount", "sh", "-c", &format!("{before} && exec \"$@\""), "sh", program]);
                command
            }
        };
        let process = command
            .args(["--module", "", "--device", device, "--socket"])
            .arg(directory.path().join("watchdogd.sock"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { directory, process }
    }

    /// Waits until the daemon serves, and checks its log and the refusal to arm.
    async fn refuses(&self, at_start: &[&str], refusal: Refusal) {
        let socket = self.directory.path().join("watchdogd.sock");
        wait_until("the daemon listens", || Path::new(&socket).exists());
        let client = connect_until_accepted(&socket).await.0;
        let log = std::fs::read_to_string(self.directory.path().join("log")).unwrap();
        for part in at_start {
            assert!(log.contains(part), "{part}: {log}");
        }
        assert_eq!(client.arm(arm(None)).await, Err(ClientError::Refused(refusal)));
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn missing_watchdog_device_is_named() {
    let refusal = Refusal::NoDevice { errno: 2, location: Name::new(b"/dev/no-such-watchdog") };
    let expected = [
        "cannot arm the watchdog refusal=no watchdog device /dev/no-such-watchdog",
        "set WATCHDOG_MODULE, or another WATCHDOG_DEVICE, in /etc/hactl/watchdog.env",
    ];
    Daemon::start("/dev/no-such-watchdog", None).refuses(&expected, refusal).await;
}

#[tokio::test]
async fn busy_watchdog_device_is_named_with_owner() {
    // No watchdog may be opened here. The daemon detects only after opening /dev/null that it is not a watchdog.
    let open_device = std::fs::File::open("/dev/null").unwrap();
    let expected = ["cannot arm the watchdog refusal=the watchdog device is held by process"];
    Daemon::start("/dev/null", None).refuses(&expected, Refusal::DeviceFailed { errno: 25 }).await;
    drop(open_device);
}

#[tokio::test]
async fn service_manager_using_the_watchdog_is_named() {
    let manager = |settings: &str| {
        format!(
            "mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system /run/systemd/system.conf.d && \
             printf '[Manager]\\n{settings}' > /run/systemd/system.conf.d/99-test.conf"
        )
    };
    let both_settings = "RuntimeWatchdogSec=30\\nRebootWatchdogSec=10min\\n";
    let expected = ["RuntimeWatchdogSec=30", "set RebootWatchdogSec=0", "/etc/systemd/system.conf.d/"];
    Daemon::start("/dev/null", Some(&manager(both_settings)))
        .refuses(&expected, Refusal::SharedWithManager { runtime: true, reboot: true })
        .await;
    let reboot = "RuntimeWatchdogSec=0\\nRebootWatchdogSec=10min\\n";
    Daemon::start("/dev/null", Some(&manager(reboot)))
        .refuses(&["10min at reboot"], Refusal::SharedWithManager { runtime: false, reboot: true })
        .await;
    // Both settings are off, so the daemon tries the device, which is not a watchdog.
    let disabled_settings = "RuntimeWatchdogSec=off\\nRebootWatchdogSec=0\\n";
    Daemon::start("/dev/null", Some(&manager(disabled_settings)))
        .refuses(&[], Refusal::DeviceFailed { errno: 25 })
        .await;
}
