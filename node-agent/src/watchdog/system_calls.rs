//! System calls without a safe wrapper: the watchdog's ioctls, real-time priority, pidfds.
//!
//! This is the only file of the project with unsafe code; its functions are safe.
#![allow(unsafe_code, reason = "ioctls and system calls without a safe wrapper, each with its reason")]

use nix::errno::Errno;
use nix::libc;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The driver can set a timeout (`WDIOF_SETTIMEOUT`).
pub(super) const OPTION_SET_TIMEOUT: u32 = 0x0080;
/// The driver stops on close after the character V (`WDIOF_MAGICCLOSE`).
pub(super) const OPTION_MAGIC_CLOSE: u32 = 0x0100;
/// The driver has a pretimeout (`WDIOF_PRETIMEOUT`).
pub(super) const OPTION_PRETIMEOUT: u32 = 0x0200;
/// The driver accepts pets (`WDIOF_KEEPALIVEPING`).
pub(super) const OPTION_KEEP_ALIVE: u32 = 0x8000;

/// `struct watchdog_info` of `linux/watchdog.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WatchdogInfo {
    /// The options, as bits.
    pub(super) options: u32,
    /// The version of the firmware, if there is one.
    pub(super) firmware_version: u32,
    /// The name of the driver, padded with zeros.
    pub(super) identity: [u8; 32],
}

mod ioctl {
    use super::WatchdogInfo;
    use nix::libc::c_int;

    nix::ioctl_read!(get_support, b'W', 0, WatchdogInfo);
    nix::ioctl_read!(keep_alive, b'W', 5, c_int);
    nix::ioctl_readwrite!(set_timeout, b'W', 6, c_int);
    nix::ioctl_read!(get_timeout, b'W', 7, c_int);
    nix::ioctl_readwrite!(set_pretimeout, b'W', 8, c_int);
    nix::ioctl_read!(get_pretimeout, b'W', 9, c_int);
    nix::ioctl_read!(get_time_left, b'W', 10, c_int);
}

/// Returns options and identity (`WDIOC_GETSUPPORT`).
pub(super) fn get_support(device: &impl AsFd) -> Result<WatchdogInfo, Errno> {
    let mut info = WatchdogInfo::default();
    // SAFETY: the descriptor is open for the length of the call and `info` has the kernel's layout.
    unsafe { ioctl::get_support(device.as_fd().as_raw_fd(), &raw mut info) }?;
    Ok(info)
}

/// Pets without changing the timeout (`WDIOC_KEEPALIVE`).
pub(super) fn keep_alive(device: &impl AsFd) -> Result<(), Errno> {
    let mut unused = 0;
    // SAFETY: the descriptor is open for the length of the call; the kernel writes an int at most.
    unsafe { ioctl::keep_alive(device.as_fd().as_raw_fd(), &raw mut unused) }?;
    Ok(())
}

/// Sets the timeout, seconds, and pets (with drivers on the kernel's watchdog core). Returns the timeout that the
/// driver has chosen (`WDIOC_SETTIMEOUT`).
pub(super) fn set_timeout(device: &impl AsFd, seconds: u32) -> Result<u32, Errno> {
    let mut timeout = libc::c_int::try_from(seconds).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the descriptor is open for the length of the call; the kernel reads and writes one int.
    unsafe { ioctl::set_timeout(device.as_fd().as_raw_fd(), &raw mut timeout) }?;
    u32::try_from(timeout).map_err(|_| Errno::ERANGE)
}

/// Returns the active timeout, seconds (`WDIOC_GETTIMEOUT`).
pub(super) fn get_timeout(device: &impl AsFd) -> Result<u32, Errno> {
    let mut timeout = 0;
    // SAFETY: the descriptor is open for the length of the call; the kernel writes one int.
    unsafe { ioctl::get_timeout(device.as_fd().as_raw_fd(), &raw mut timeout) }?;
    u32::try_from(timeout).map_err(|_| Errno::ERANGE)
}

/// Returns the seconds until the reset, if the driver reports them (`WDIOC_GETTIMELEFT`).
pub(super) fn get_time_left(device: &impl AsFd) -> Result<u32, Errno> {
    let mut left_seconds = 0;
    // SAFETY: the descriptor is open for the length of the call; the kernel writes one int.
    unsafe { ioctl::get_time_left(device.as_fd().as_raw_fd(), &raw mut left_seconds) }?;
    u32::try_from(left_seconds).map_err(|_| Errno::ERANGE)
}

/// Sets how many seconds before the reset the kernel runs its pretimeout governor; 0 disables it
/// (`WDIOC_SETPRETIMEOUT`).
pub(super) fn set_pretimeout(device: &impl AsFd, seconds: u32) -> Result<(), Errno> {
    let mut pretimeout = libc::c_int::try_from(seconds).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the descriptor is open for the length of the call; the kernel reads and writes one int.
    unsafe { ioctl::set_pretimeout(device.as_fd().as_raw_fd(), &raw mut pretimeout) }?;
    Ok(())
}

/// Returns the active pretimeout, seconds (`WDIOC_GETPRETIMEOUT`).
pub(super) fn get_pretimeout(device: &impl AsFd) -> Result<u32, Errno> {
    let mut pretimeout = 0;
    // SAFETY: the descriptor is open for the length of the call; the kernel writes one int.
    unsafe { ioctl::get_pretimeout(device.as_fd().as_raw_fd(), &raw mut pretimeout) }?;
    u32::try_from(pretimeout).map_err(|_| Errno::ERANGE)
}

/// Resets the machine now, as its watchdog would. Returns only if the kernel refuses.
///
/// The kernel's emergency restart (`b` of its system request) involves no driver. `reboot(2)` is used only if that
/// fails, because it first shuts devices down. This takes time while services still run, and may hang on the device
/// that has failed.
pub(super) fn reset_machine() {
    let flags = nix::fcntl::OFlag::O_WRONLY | nix::fcntl::OFlag::O_CLOEXEC;
    if let Ok(request) = nix::fcntl::open(c"/proc/sysrq-trigger", flags, nix::sys::stat::Mode::empty()) {
        let _ = nix::unistd::write(&request, b"b");
    }
    // SAFETY: the call takes an integer.
    unsafe { libc::reboot(libc::RB_AUTOBOOT) };
}

/// Gives this thread FIFO real-time priority, which children do not inherit.
///
/// This calls the kernel directly: musl's function of that name always fails, because Linux does not have the POSIX
/// semantics.
pub(super) fn become_real_time(priority: i32) -> Result<(), Errno> {
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: process 0 is this thread; the kernel's `sched_param` is one int, which remains valid during the call.
    let result = unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) };
    Errno::result(result).map(drop)
}

/// Returns a pidfd of this process, which never refers to a later process with the same pid (`pidfd_open`).
pub(super) fn open_process(pid: u32) -> Result<OwnedFd, Errno> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| Errno::ESRCH)?;
    // SAFETY: the call takes two integers; a descriptor that it returns has no other owner.
    unsafe {
        let descriptor = Errno::result(libc::syscall(libc::SYS_pidfd_open, pid, 0))?;
        Ok(OwnedFd::from_raw_fd(i32::try_from(descriptor).map_err(|_| Errno::EBADF)?))
    }
}

/// Kills the process of this pidfd (`pidfd_send_signal`).
pub(super) fn kill_process(process: &impl AsFd) -> Result<(), Errno> {
    let no_info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: the descriptor is open for the length of the call; no information is passed.
    let result = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, process.as_fd().as_raw_fd(), libc::SIGKILL, no_info, 0)
    };
    Errno::result(result).map(drop)
}

/// Returns the descriptors that the service manager passes (`LISTEN_FDS`), with their names. Only the first call
/// returns them.
pub(super) fn inherited_descriptors() -> std::io::Result<Vec<(String, OwnedFd)>> {
    static ARE_DESCRIPTORS_TAKEN: AtomicBool = AtomicBool::new(false);
    if ARE_DESCRIPTORS_TAKEN.swap(true, Ordering::SeqCst) {
        return Ok(Vec::new());
    }
    let listed = sd_notify::listen_fds_with_names()?;
    // SAFETY: the service manager opened these for this process alone, `listen_fds_with_names` checked that they are
    // open, and `ARE_DESCRIPTORS_TAKEN` ensures that each is taken once.
    Ok(listed.map(|(raw, name)| (name, unsafe { OwnedFd::from_raw_fd(raw) })).collect())
}
