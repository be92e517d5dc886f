//! A fence agent for the sandbox's power supply, in the form that ClusterLabs' fence agents have: attributes as lines on
//! standard input, the answer as exit status.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use ha_e2e::power::ask;

/// What `status` and `monitor` exit with when the machine is off.
const OFF: u8 = 2;

fn main() -> ExitCode {
    match run() {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "fence_sandbox: {error:#}");
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
    let socket = Path::new(attribute("socket").context("attribute socket is missing")?);
    let machine = attribute("plug").or(attribute("port")).context("attribute plug is missing")?;
    match action {
        "status" | "monitor" => Ok(if ask(socket, "status", machine)? == "off" { OFF } else { 0 }),
        "off" => expect(socket, "off", machine),
        "on" => expect(socket, "on", machine),
        "reboot" => {
            expect(socket, "off", machine)?;
            expect(socket, "on", machine)
        }
        other => bail!("{other} is no action; there are on, off, reboot, status, monitor and metadata"),
    }
}

/// Switches, and asks again: a fence agent confirms.
fn expect(socket: &Path, state: &str, machine: &str) -> Result<u8> {
    ask(socket, state, machine)?;
    match ask(socket, "status", machine)? {
        now if now == state => Ok(0),
        now => bail!("{machine} is {now} after it was switched {state}"),
    }
}

fn describe() -> Result<u8> {
    let text = r#"<?xml version="1.0" ?>
<resource-agent name="fence_sandbox" shortdesc="Fence agent for the sandbox">
<parameters>
  <parameter name="action" required="1"><content type="string" default="reboot"/></parameter>
  <parameter name="socket" required="1"><content type="string"/></parameter>
  <parameter name="plug" required="1"><content type="string"/></parameter>
</parameters>
<actions><action name="on"/><action name="off"/><action name="reboot"/><action name="status"/><action name="monitor"/><action name="metadata"/></actions>
</resource-agent>
"#;
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(0)
}
