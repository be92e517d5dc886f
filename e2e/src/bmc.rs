//! A machine's baseboard management controller: OpenIPMI's simulator serves IPMI 2.0, and its chassis commands use the power
//! supply.

use std::fs::{self, File, Permissions};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::binaries::workspace_program;
use crate::command::{output, tool};
use crate::power::PowerSupply;
use crate::scenario::STEP_TIMEOUT;
use crate::wait::wait_until;

const USER: &str = "admin";
const PASSWORD: &str = "secret";
/// Cipher suite, given explicitly: the simulator does not answer a query for its suites, and ipmitool would wait ten seconds each
/// time.
const CIPHER: &str = "3";

/// A simulated management controller. It runs until this value is dropped or the program ends.
pub struct Bmc {
    child: Child,
    address: SocketAddr,
    secret: PathBuf,
}

impl Bmc {
    /// Starts the controller of `machine` at `address`. Its configuration and log are written to `directory`.
    ///
    /// # Errors
    /// Fails if the simulator (package openipmi) cannot be started or does not respond.
    pub fn start(directory: &Path, address: Ipv4Addr, supply: &PowerSupply, machine: &str) -> Result<Self> {
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        // The simulator binds this address later. No other process takes the address in the meantime, because the
        // address belongs to this run.
        let address = UdpSocket::bind((address, 0))?.local_addr()?;
        let chassis = write(directory, "chassis", &chassis_script(supply, machine)?)?;
        fs::set_permissions(&chassis, Permissions::from_mode(0o755))?;
        let lan_file = write(directory, "lan.conf", &lan_config(address, &chassis))?;
        let commands = write(directory, "commands", COMMANDS)?;
        let secret = write(directory, "secret", &format!("password={PASSWORD}\n"))?;
        let log = File::create(directory.join("log"))?;
        let child = Command::new(tool("setpriv"))
            .args(["--pdeathsig", "KILL", &tool("ipmi_sim"), "-n"])
            .args([
                Path::new("-c"),
                &lan_file,
                Path::new("-f"),
                &commands,
                Path::new("-s"),
                &directory.join("state"),
            ])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start ipmi_sim")?;
        let bmc = Self { child, address, secret };
        wait_until(&format!("the management controller of {machine}"), STEP_TIMEOUT, || bmc.is_on())?;
        Ok(bmc)
    }

    /// Returns `true` if ipmitool reports the machine's power as on.
    fn is_on(&self) -> bool {
        let (ip, port) = (self.address.ip().to_string(), self.address.port().to_string());
        let arguments = ["-I", "lanplus", "-H", &ip, "-p", &port, "-U", USER, "-P", PASSWORD, "-C", CIPHER];
        output(tool("ipmitool"), &[&arguments[..], &["power", "status"]].concat())
            .is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim() == "Chassis Power is on")
    }

    /// Returns the entry of `Node.spec.fencing.devices` for this controller. It uses ClusterLabs' agent for IPMI.
    pub fn device(&self) -> Value {
        json!({"name": "bmc", "kind": "Power", "action": "Off", "timeoutSeconds": 60,
            "parts": [{"agent": "fence_ipmilan", "attributesFile": self.secret,
                "attributes": {"ip": self.address.ip(), "ipport": self.address.port().to_string(),
                    "username": USER, "lanplus": "1", "cipher": CIPHER}}]})
    }
}

impl Drop for Bmc {
    fn drop(&mut self) {
        // The simulator may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Commands that create one controller at the usual address of the bus, without sensors.
const COMMANDS: &str = "mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02
mc_enable 0x20
";

fn lan_config(address: SocketAddr, chassis: &Path) -> String {
    format!(
        "name \"bmc\"
set_working_mc 0x20
  startlan 1
    addr {} {}
    priv_limit admin
    allowed_auths_admin md5
    guid a123456789abcdefa123456789abcdef
  endlan
  chassis_control \"{} 0x20\"
  user 2 true \"{USER}\" \"{PASSWORD}\" admin 10 md5
",
        address.ip(),
        address.port(),
        chassis.display()
    )
}

/// Returns the script that the simulator runs as `chassis 0x20 get power` and `chassis 0x20 set power 0`.
fn chassis_script(supply: &PowerSupply, machine: &str) -> Result<String> {
    Ok(format!(
        r#"#!/bin/sh
ask() {{ printf 'socket=%s\nplug=%s\naction=%s\n' '{}' '{machine}' "$1" | '{}'; }}
case "$2 $3 $4" in
"get power "*)
  ask status >&2
  case $? in 0) echo power:1 ;; 2) echo power:0 ;; *) exit 1 ;; esac
  ;;
"set power 0") ask off >&2 ;;
"set power 1") ask on >&2 ;;
*) exit 1 ;;
esac
"#,
        supply.socket().display(),
        workspace_program("fence_sandbox")?.display()
    ))
}

fn write(directory: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = directory.join(name);
    fs::write(&path, text).with_context(|| path.display().to_string())?;
    Ok(path)
}
