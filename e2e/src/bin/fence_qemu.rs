//! A fence agent for machines that QEMU runs, in the form that ClusterLabs' fence agents have: attributes as lines on standard
//! input, the answer as exit status. Off ends the machine's process through its monitor and keeps it from being started.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ha_e2e::metal::qmp;
use ha_e2e::wait::wait_until;

/// What `status` and `monitor` exit with when the machine is off.
const OFF: u8 = 2;
/// How long a machine's process may take to end or to answer; the device's own timeout is shorter.
const CEILING: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    match run() {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "fence_qemu: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<u8> {
    let mut attributes = BTreeMap::new();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        if let Some((name, value)) = line.trim().split_once('=') {
            attributes.insert(name.trim().to_owned(), value.trim().to_owned());
        }
    }
    let attribute = |name: &str| attributes.get(name).map(String::as_str);
    let action = attribute("action").unwrap_or("reboot");
    if action == "metadata" {
        return describe();
    }
    let monitor = Path::new(attribute("monitor").context("attribute monitor is missing")?);
    let hold = Path::new(attribute("hold").context("attribute hold is missing")?);
    match action {
        "status" | "monitor" => Ok(if is_on(monitor) { 0 } else { OFF }),
        "off" => off(monitor, hold),
        "on" => on(monitor, hold),
        "reboot" => {
            off(monitor, hold)?;
            on(monitor, hold)
        }
        other => bail!("{other} is no action; there are on, off, reboot, status, monitor and metadata"),
    }
}

/// The socket stays when its process is killed, but then nobody accepts.
fn is_on(monitor: &Path) -> bool {
    UnixStream::connect(monitor).is_ok()
}

fn off(monitor: &Path, hold: &Path) -> Result<u8> {
    File::create(hold).with_context(|| hold.display().to_string())?;
    if is_on(monitor) {
        qmp::execute(monitor, "quit")?;
    }
    wait_until("the end of the machine's process", CEILING, || !is_on(monitor))?;
    Ok(0)
}

fn on(monitor: &Path, hold: &Path) -> Result<u8> {
    if hold.exists() {
        fs::remove_file(hold).with_context(|| hold.display().to_string())?;
    }
    wait_until("the machine's process", CEILING, || is_on(monitor))?;
    Ok(0)
}

fn describe() -> Result<u8> {
    let text = r#"<?xml version="1.0" ?>
<resource-agent name="fence_qemu" shortdesc="Fence agent for machines of the metal suite">
<parameters>
  <parameter name="action" required="1"><content type="string" default="reboot"/></parameter>
  <parameter name="monitor" required="1"><content type="string"/></parameter>
  <parameter name="hold" required="1"><content type="string"/></parameter>
</parameters>
<actions><action name="on"/><action name="off"/><action name="reboot"/><action name="status"/><action name="monitor"/><action name="metadata"/></actions>
</resource-agent>
"#;
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(0)
}
