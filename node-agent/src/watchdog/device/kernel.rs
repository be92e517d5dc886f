//! A watchdog device of the kernel.

use super::super::protocol::{DeviceFacts, DeviceKind, Name, Refusal};
use super::super::system_calls::{
    self, OPTION_KEEP_ALIVE, OPTION_MAGIC_CLOSE, OPTION_PRETIMEOUT, OPTION_SET_TIMEOUT, WatchdogInfo,
};
use super::{owner, sysfs};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, fstat, stat};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The largest timeout that the kernel's watchdog core accepts if a driver declares no limit, in seconds.
const LARGEST_TIMEOUT_SECONDS: u32 = u32::MAX / 1000;

/// Number of timeouts that are tried when a device is opened.
const MAX_TRIED_TIMEOUTS: u32 = 64;

/// An open watchdog device. If it is dropped without [`KernelDevice::close`], the machine will be reset.
#[derive(Debug)]
pub(crate) struct KernelDevice {
    descriptor: OwnedFd,
    location: Name,
    timeout_seconds: u32,
}

impl KernelDevice {
    /// Opens the device with this path or identity, which starts it, and determines its abilities.
    ///
    /// # Errors
    /// Refuses a device that an accidental close would stop, and stops it again. Also refuses a missing device, and a
    /// device that another process holds; the refusal names that process.
    pub(super) fn open(
        location: &Path,
        timeout_seconds: u32,
        descriptor_retained: bool,
    ) -> Result<(Self, DeviceFacts), Refusal> {
        let path = sysfs::resolve(location);
        let descriptor = open(&path, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())
            .map_err(|errno| refusal_of(errno, &path))?;
        let mut device = Self { descriptor, location: name_of(&path), timeout_seconds };
        let sysfs_facts = device.sysfs_facts();
        // A device that rejects this query is not a watchdog, so the daemon does not write to it.
        let info = system_calls::get_support(&device.descriptor)
            .map_err(|errno| Refusal::DeviceFailed { errno: to_protocol_errno(errno) })?;
        // If the kernel does not report `nowayout`, assume that the device cannot be stopped. The device is then petted
        // while idle.
        let nowayout = sysfs_facts.as_ref().is_none_or(|sysfs_facts| sysfs_facts.nowayout.unwrap_or(true));
        if stops_when_closed(info.options, nowayout && sysfs_facts.is_some()) {
            let _ = device.close();
            return Err(Refusal::StopsWhenClosed);
        }
        let facts =
            device.configure(&info, sysfs_facts.as_ref(), timeout_seconds, descriptor_retained, nowayout);
        Ok((device, facts))
    }

    /// Takes over an open device without changing it. Its abilities come from the earlier daemon's record; without a
    /// record it counts as fixed.
    ///
    /// # Errors
    /// Returns the error number and the descriptor if the descriptor does not answer as a watchdog device.
    pub(crate) fn inherit(
        descriptor: OwnedFd,
        location: &Path,
    ) -> Result<(Self, DeviceFacts), (u32, OwnedFd)> {
        let support = system_calls::get_support(&descriptor);
        let info_and_timeout = support.and_then(|info| Ok((info, system_calls::get_timeout(&descriptor)?)));
        let (info, timeout_seconds) = match info_and_timeout {
            Ok(info_and_timeout) => info_and_timeout,
            Err(errno) => return Err((to_protocol_errno(errno), descriptor)),
        };
        let device = Self { descriptor, location: name_of(location), timeout_seconds };
        let sysfs_facts = device.sysfs_facts();
        let nowayout = sysfs_facts.as_ref().is_none_or(|sysfs_facts| sysfs_facts.nowayout.unwrap_or(true));
        let facts = DeviceFacts {
            kind: DeviceKind::Kernel,
            identity: Name::new(&info.identity),
            location: device.location,
            timeout_seconds,
            smallest_timeout_seconds: smallest_timeout_seconds_of(sysfs_facts.as_ref()),
            largest_timeout_seconds: largest_timeout_seconds_of(sysfs_facts.as_ref(), timeout_seconds),
            sliding: false,
            descriptor_retained: true,
            nowayout,
        };
        Ok((device, facts))
    }

    /// Takes over a device of an earlier daemon that no longer answers: it takes no pets.
    pub(crate) fn inherit_failed(descriptor: OwnedFd, location: &Path) -> Self {
        Self { descriptor, location: name_of(location), timeout_seconds: 0 }
    }

    /// Returns the descriptor, which the service manager stores while no daemon runs.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    fn sysfs_facts(&self) -> Option<sysfs::SysfsFacts> {
        fstat(&self.descriptor).ok().and_then(|status| sysfs::sysfs_facts(status.st_rdev))
    }

    /// Sets the timeout, and returns the facts of the device. `sliding` requires that the device accepts the tried
    /// smaller timeouts unchanged, and that setting a timeout also pets.
    fn configure(
        &mut self,
        info: &WatchdogInfo,
        sysfs_facts: Option<&sysfs::SysfsFacts>,
        timeout_seconds: u32,
        descriptor_retained: bool,
        nowayout: bool,
    ) -> DeviceFacts {
        if info.options & OPTION_PRETIMEOUT != 0 {
            // The action before the reset may be a panic. A software watchdog does not survive a panic, and the panic
            // could occur before the last deadline. The device must therefore reset without an earlier action.
            let _ = system_calls::set_pretimeout(&self.descriptor, 0);
        }
        let has_settable_timeout = info.options & OPTION_SET_TIMEOUT != 0;
        let smallest_timeout_seconds = smallest_timeout_seconds_of(sysfs_facts);
        // Only drivers on the kernel's watchdog core, whose devices are listed, are known to pet when a timeout is set.
        let mut sliding =
            has_settable_timeout && info.options & OPTION_KEEP_ALIVE != 0 && sysfs_facts.is_some();
        if has_settable_timeout {
            sliding = sliding && self.try_all_timeouts(smallest_timeout_seconds, timeout_seconds);
            let _ = self.pet(Some(timeout_seconds));
            sliding = sliding && self.pets_on_set_timeout();
        }
        let read_back = system_calls::get_timeout(&self.descriptor).unwrap_or(u32::MAX);
        self.timeout_seconds = read_back;
        DeviceFacts {
            kind: DeviceKind::Kernel,
            identity: Name::new(&info.identity),
            location: self.location,
            timeout_seconds: read_back,
            smallest_timeout_seconds,
            largest_timeout_seconds: if has_settable_timeout {
                largest_timeout_seconds_of(sysfs_facts, read_back)
            } else {
                read_back
            },
            sliding,
            descriptor_retained,
            nowayout,
        }
    }

    fn try_all_timeouts(&mut self, smallest_seconds: u32, timeout_seconds: u32) -> bool {
        (smallest_seconds..=timeout_seconds.min(smallest_seconds + MAX_TRIED_TIMEOUTS))
            .rev()
            .all(|seconds| self.pet(Some(seconds)) == Ok(seconds))
    }

    /// Returns `true` if setting a timeout pets: directly after the timeout was raised, a driver that reports the
    /// remaining time must report the new timeout.
    fn pets_on_set_timeout(&self) -> bool {
        system_calls::get_time_left(&self.descriptor)
            .map_or(true, |left_seconds| left_seconds.saturating_add(1) >= self.timeout_seconds)
    }

    /// Pets, by setting a timeout or with the current one.
    pub(super) fn pet(&mut self, timeout_seconds: Option<u32>) -> Result<u32, u32> {
        match timeout_seconds {
            Some(seconds) => {
                self.timeout_seconds =
                    system_calls::set_timeout(&self.descriptor, seconds).map_err(to_protocol_errno)?;
            }
            None => system_calls::keep_alive(&self.descriptor).map_err(to_protocol_errno)?,
        }
        Ok(self.timeout_seconds)
    }

    /// Returns the seconds until the reset and the pretimeout, if the driver reports them.
    pub(super) fn reported_times(&self) -> (Option<u32>, Option<u32>) {
        (
            system_calls::get_time_left(&self.descriptor).ok(),
            system_calls::get_pretimeout(&self.descriptor).ok(),
        )
    }

    /// Configures the driver to stop when the last descriptor is closed (magic close), and closes this descriptor.
    pub(super) fn close(self) -> Result<(), u32> {
        match nix::unistd::write(&self.descriptor, b"V") {
            Ok(1) => Ok(()),
            Ok(_) => Err(to_protocol_errno(Errno::EIO)),
            Err(errno) => Err(to_protocol_errno(errno)),
        }
    }
}

fn smallest_timeout_seconds_of(sysfs_facts: Option<&sysfs::SysfsFacts>) -> u32 {
    sysfs_facts.and_then(|sysfs_facts| sysfs_facts.smallest_timeout_seconds).unwrap_or(1).max(1)
}

fn largest_timeout_seconds_of(sysfs_facts: Option<&sysfs::SysfsFacts>, default_seconds: u32) -> u32 {
    match sysfs_facts.and_then(|sysfs_facts| sysfs_facts.largest_timeout_seconds) {
        Some(0) => LARGEST_TIMEOUT_SECONDS,
        Some(seconds) => seconds,
        None => default_seconds,
    }
}

fn name_of(path: &Path) -> Name {
    Name::tail(path.as_os_str().as_encoded_bytes())
}

/// Converts an error number to its representation in the protocol.
fn to_protocol_errno(errno: Errno) -> u32 {
    (errno as i32).unsigned_abs()
}

#[allow(clippy::wildcard_enum_match_arm, reason = "the kernel has more errors than this list")]
fn refusal_of(errno: Errno, path: &Path) -> Refusal {
    match errno {
        Errno::EBUSY => {
            let (pid, name) =
                stat(path).map_or((0, Name::default()), |status| owner::owner_of(status.st_rdev));
            Refusal::DeviceBusy { pid, name }
        }
        Errno::ENOENT | Errno::ENODEV | Errno::ENXIO => {
            Refusal::NoDevice { errno: to_protocol_errno(errno), location: name_of(path) }
        }
        _ => Refusal::DeviceFailed { errno: to_protocol_errno(errno) },
    }
}

/// Returns `true` if an accidental close may stop the device: a close without the magic character stops it, and it is not
/// known to have `nowayout` (R4.29).
fn stops_when_closed(options: u32, is_known_nowayout: bool) -> bool {
    options & OPTION_MAGIC_CLOSE == 0 && !is_known_nowayout
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R4.29: a device without magic close must be known to keep counting after a close.
    #[test]
    fn device_that_stops_when_closed_is_recognized() {
        let all_options = OPTION_MAGIC_CLOSE | OPTION_KEEP_ALIVE | OPTION_SET_TIMEOUT | OPTION_PRETIMEOUT;
        for (options, is_known_nowayout, expected) in [
            (OPTION_MAGIC_CLOSE, false, false),
            (OPTION_MAGIC_CLOSE, true, false),
            (all_options, false, false),
            (all_options & !OPTION_MAGIC_CLOSE, false, true),
            (all_options & !OPTION_MAGIC_CLOSE, true, false),
            (0, false, true),
        ] {
            assert_eq!(stops_when_closed(options, is_known_nowayout), expected, "{options:x}");
        }
    }

    #[test]
    fn files_other_than_watchdogs_are_refused() {
        let check = |path: &str, expected: Refusal| {
            assert_eq!(KernelDevice::open(Path::new(path), 5, false).map(|(_, facts)| facts), Err(expected));
        };
        for missing in ["/dev/no-such-watchdog", "No such identity"] {
            check(missing, Refusal::NoDevice { errno: 2, location: Name::new(missing.as_bytes()) });
        }
        check("/dev/null", Refusal::DeviceFailed { errno: 25 });
        assert!(
            KernelDevice::inherit(
                OwnedFd::from(std::fs::File::open("/dev/null").unwrap()),
                Path::new("/dev/null")
            )
            .is_err()
        );
    }
}
