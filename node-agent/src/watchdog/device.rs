//! The device that resets the machine: a kernel watchdog, or the simulated watchdog of the sandbox and tests.

mod kernel;
mod owner;
mod simulated;
mod sysfs;

pub(super) use kernel::KernelDevice;
pub(super) use simulated::SimulatedDevice;

use super::protocol::{DeviceFacts, Name, Refusal};
use super::system_calls;
use nix::errno::Errno;
use nix::sys::stat::stat;
use std::path::PathBuf;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DeviceLocation {
    /// A watchdog device of the kernel: its path, or the identity that its driver reports.
    Kernel(PathBuf),
    /// The socket of a simulated watchdog.
    Simulated(PathBuf),
}

impl DeviceLocation {
    /// Returns the reason why the device could not be armed now, as far as it can be determined without opening the
    /// device, which would start it.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        let (path, shown_location) = match self {
            DeviceLocation::Kernel(location) => (sysfs::resolve(location), location),
            DeviceLocation::Simulated(socket) => (socket.clone(), socket),
        };
        if !self.exists() {
            let location = Name::tail(shown_location.as_os_str().as_encoded_bytes());
            return Some(Refusal::NoDevice { errno: Errno::ENOENT as u32, location });
        }
        match self {
            DeviceLocation::Kernel(_) => {
                let (pid, name) =
                    stat(&path).map_or((0, Name::default()), |metadata| owner::owner_of(metadata.st_rdev));
                (pid != 0).then_some(Refusal::DeviceBusy { pid, name })
            }
            DeviceLocation::Simulated(_) => None,
        }
    }

    /// Returns `true` if there is a device that could be opened.
    pub(super) fn exists(&self) -> bool {
        match self {
            DeviceLocation::Kernel(location) => {
                let path = sysfs::resolve(location);
                path.is_absolute() && path.exists()
            }
            DeviceLocation::Simulated(socket) => socket.exists(),
        }
    }
}

/// An open device.
#[derive(Debug)]
pub(super) enum Device {
    Kernel(KernelDevice),
    Simulated(SimulatedDevice),
}

impl Device {
    /// Opens the device (which starts it), sets the timeout, and determines the driver's abilities.
    pub(super) fn open(
        location: &DeviceLocation,
        timeout_seconds: u32,
        descriptor_retained: bool,
    ) -> Result<(Self, DeviceFacts), Refusal> {
        match location {
            DeviceLocation::Kernel(path) => KernelDevice::open(path, timeout_seconds, descriptor_retained)
                .map(|(device, facts)| (Self::Kernel(device), facts)),
            DeviceLocation::Simulated(socket) => SimulatedDevice::open(socket, timeout_seconds)
                .map(|(device, facts)| (Self::Simulated(device), facts)),
        }
    }

    /// Pets: sets this timeout, or leaves it unchanged. Returns the timeout read back, or the error number.
    pub(super) fn pet(&mut self, timeout_seconds: Option<u32>) -> Result<u32, u32> {
        match self {
            Self::Kernel(device) => device.pet(timeout_seconds),
            Self::Simulated(device) => device.pet(timeout_seconds),
        }
    }

    /// Returns the seconds until the reset and the pretimeout as the device reports them; `None` for a value that the
    /// device does not report.
    pub(super) fn reported_times(&self) -> (Option<u32>, Option<u32>) {
        match self {
            Self::Kernel(device) => device.reported_times(),
            Self::Simulated(_) => (None, None),
        }
    }

    /// Resets the machine, or the simulated node, in place of the device. Returns only if that failed.
    pub(super) fn reset_machine(&mut self) {
        match self {
            Self::Kernel(_) => system_calls::reset_machine(),
            Self::Simulated(device) => device.expire(),
        }
    }

    /// Stops the device and closes it.
    pub(super) fn close(self) -> Result<(), u32> {
        match self {
            Self::Kernel(device) => device.close(),
            Self::Simulated(mut device) => device.close(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_device_is_detected_before_opening() {
        let missing = |location: DeviceLocation, shown_location: &str| {
            let expected = Refusal::NoDevice { errno: 2, location: Name::new(shown_location.as_bytes()) };
            assert_eq!(location.refusal(), Some(expected));
        };
        missing(DeviceLocation::Kernel("/dev/no-such-watchdog".into()), "/dev/no-such-watchdog");
        missing(DeviceLocation::Kernel("No such identity".into()), "No such identity");
        missing(DeviceLocation::Simulated("/no/socket".into()), "/no/socket");
        // A device that this process holds open represents a busy watchdog.
        let open_device = std::fs::File::open("/dev/null").unwrap();
        let busy = DeviceLocation::Kernel("/dev/null".into()).refusal();
        assert!(matches!(busy, Some(Refusal::DeviceBusy { pid: 1.., .. })), "{busy:?}");
        drop(open_device);
    }
}
