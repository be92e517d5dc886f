//! The guest: Debian's kernel and a shell that counts on the serial console, and switches off when the power button is pressed.

use anyhow::Result;
use serde_json::{Value, json};

use super::host::CONSOLE;
use crate::binaries;

/// The resource's name, and the domain's: what looks like a number must not be taken for one of libvirt's own.
pub const NAME: &str = "100";
/// Its memory.
pub const MEBIBYTES: u32 = 128;

/// The spec of the resource. `bandwidth_mebibytes`: how fast it moves.
///
/// # Errors
/// When the guest has not been made.
pub fn spec(bandwidth_mebibytes: Option<u32>) -> Result<Value> {
    let mut migration = json!({"uri": "qemu+tcp://{node}/system", "dataUri": "tcp://{node}"});
    if let Some(mebibytes) = bandwidth_mebibytes {
        migration["bandwidthMebibytes"] = json!(mebibytes);
    }
    Ok(json!({
        "driver": {"libvirt": {"xml": definition()?, "migration": migration}},
        "timeouts": {"stopSeconds": 60, "migrateSeconds": 240},
        "failback": false,
    }))
}

/// The domain XML. Emulated everywhere: what is tested is not the processor.
///
/// # Errors
/// When the guest has not been made.
pub fn definition() -> Result<String> {
    let folder = binaries::libvirt_guest()?;
    Ok(format!(
        "<domain type='qemu'>
  <name>{NAME}</name>
  <memory unit='MiB'>{MEBIBYTES}</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch='x86_64' machine='pc'>hvm</type>
    <kernel>{folder}/kernel</kernel>
    <initrd>{folder}/initrd</initrd>
    <cmdline>console=ttyS0 panic=1 quiet</cmdline>
  </os>
  <features><acpi/></features>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <serial type='file'><source path='{CONSOLE}' append='on'/><target port='0'/></serial>
    <memballoon model='none'/>
  </devices>
</domain>
",
        folder = folder.display()
    ))
}
