//! The QEMU command line of one machine.

use std::path::Path;

use super::hardware::{Accelerator, Hardware, Watchdog};
use crate::command::tool;
use crate::machine::Machine;

/// Name of the only program in a node's tree.
pub const PROGRAM: &str = "qemu";
/// Network devices of a node's namespace that connect its machine: to the cluster's network and to the fabric.
pub const TAPS: [&str; 2] = ["tap0", "tap1"];

/// Socket of the monitor that the suite watches.
pub const MONITOR: &str = "qmp.sock";
/// Socket of a second monitor, for single commands. A monitor accepts one client.
pub const CONTROL: &str = "control.sock";
/// Socket of a third monitor, for the fence agent.
pub const FENCE_MONITOR: &str = "fence.sock";
/// Socket of the agent that runs commands inside the machine.
pub const GUEST: &str = "guest.sock";

/// Returns the command that runs a node. A reset boots the machine again, like real hardware. After a shutdown from inside, the
/// machine stays off until its process is ended.
pub fn command(hardware: &Hardware, watchdog: Watchdog, machine: &Machine, shared: &Path) -> Vec<String> {
    let file = |name: &str| hardware.image.join(name).display().to_string();
    let socket = |name: &str| machine.volatile.join(name).display().to_string();
    let cpu = match hardware.accelerator {
        // This register of known defects cannot be set under every hypervisor that may run the host.
        Accelerator::Kvm => "host,-arch-capabilities",
        Accelerator::Emulation => "max",
    };
    let mut parts = vec![
        format!("-name {},process=hactl-{},debug-threads=on", machine.name, machine.name),
        "-nodefaults -no-user-config -display none -action shutdown=pause,watchdog=reset".to_owned(),
        format!("-machine q35,accel={} -cpu {cpu} -smp 1 -m 384", hardware.accelerator.name()),
        format!("-kernel {} -initrd {}", file("kernel"), file("initrd")),
        format!("-drive file={},format=raw,if=virtio,readonly=on", file("root.ext4")),
        // Writes of the machine are immediately in the host's memory, which a power cut of the machine does not affect.
        format!("-drive file={},format=raw,if=virtio,cache=unsafe", disk(machine).display()),
        format!("-fsdev local,id=shared,path={},security_model=none", shared.display()),
        "-device virtio-9p-pci,fsdev=shared,mount_tag=shared".to_owned(),
        "-device virtio-rng-pci -device virtio-serial-pci".to_owned(),
        format!("-chardev socket,id=guest,path={},server=on,wait=off", socket(GUEST)),
        "-device virtserialport,nr=1,chardev=guest,name=org.qemu.guest_agent.0".to_owned(),
        format!("-qmp unix:{},server=on,wait=off", socket(MONITOR)),
        format!("-qmp unix:{},server=on,wait=off", socket(CONTROL)),
        format!("-qmp unix:{},server=on,wait=off", socket(FENCE_MONITOR)),
        format!("-chardev file,id=console,append=on,path={}", machine.log("console").display()),
        "-serial chardev:console".to_owned(),
    ];
    for (index, tap) in TAPS.iter().enumerate() {
        let address = hardware_address(index, machine.number);
        parts.push(format!("-netdev tap,id=net{index},ifname={tap},script=no,downscript=no"));
        parts.push(format!("-device virtio-net-pci,netdev=net{index},mac={address}"));
    }
    if watchdog == Watchdog::I6300esb {
        parts.push("-device i6300esb".to_owned());
    }
    let mut command = vec![tool("qemu-system-x86_64")];
    command.extend(parts.iter().flat_map(|part| part.split(' ')).map(str::to_owned));
    // After a panic, only the hardware watchdog can reset the machine. With softdog the kernel reboots, because its timer no
    // longer works.
    let panic = match watchdog {
        Watchdog::Softdog => 5,
        Watchdog::I6300esb => 0,
    };
    command.extend(["-append".to_owned(), format!("console=ttyS0 quiet panic={panic} net.ifnames=0 mitigations=off tsc=reliable no_timer_check systemd.condition-needs-update=0")]);
    command
}

/// Returns the path of the node's own disk.
pub fn disk(machine: &Machine) -> std::path::PathBuf {
    machine.directory.join("disk.ext4")
}

fn hardware_address(network: usize, number: u8) -> String {
    format!("52:54:00:12:{network:02x}:{number:02x}")
}
