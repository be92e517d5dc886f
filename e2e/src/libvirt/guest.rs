//! The guest: Debian's kernel and a shell that counts on the serial console and powers off when the power button is pressed.

use anyhow::Result;
use serde_json::{Value, json};

use super::host::CONSOLE;
use crate::binaries;

/// Name of the resource and of the domain. The name is a number, to test that libvirt does not take the name for a
/// domain id.
pub const NAME: &str = "100";
/// Memory of the guest, in mebibytes.
pub const MEBIBYTES: u32 = 128;

/// Returns the spec of the resource. `bandwidth_mebibytes_per_second` limits its migration, in mebibytes per second.
///
/// # Errors
/// Fails if the guest has not been built.
pub fn spec(bandwidth_mebibytes_per_second: Option<u32>) -> Result<Value> {
    let mut migration = json!({"uri": "qemu+tcp://{node}/system", "dataUri": "tcp://{node}"});
    if let Some(mebibytes) = bandwidth_mebibytes_per_second {
        migration["bandwidthMebibytesPerSecond"] = json!(mebibytes);
    }
    Ok(json!({
        "driver": {"libvirt": {"xml": definition()?, "migration": migration}},
        "timeouts": {"stopSeconds": 60, "migrateSeconds": 240},
        "failback": false,
    }))
}

/// Returns the domain XML. The guest is emulated on every host, because the processor is not under test.
///
/// # Errors
/// Fails if the guest has not been built.
pub fn definition() -> Result<String> {
    let directory = binaries::libvirt_guest()?;
    Ok(format!(
        "<domain type='qemu'>
  <name>{NAME}</name>
  <memory unit='MiB'>{MEBIBYTES}</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch='x86_64' machine='pc'>hvm</type>
    <kernel>{directory}/kernel</kernel>
    <initrd>{directory}/initrd</initrd>
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
        directory = directory.display()
    ))
}
