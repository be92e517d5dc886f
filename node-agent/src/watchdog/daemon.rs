//! ha-watchdogd: owns the watchdog device and pets it only until the deadline that the agent last proved.
//!
//! This is the thin shell around `core`. Operations that allocate, log or may block run only before the loop starts, or
//! while the device is not armed.

mod driver_module;
mod event_loop;
mod record;
mod service_manager;

use super::core::Core;
use super::device::{Device, DeviceLocation, KernelDevice, SimulatedDevice};
use super::protocol::{DEFAULT_SOCKET, Privileges, SavedState, State};
use super::{clock, seqpacket, system_calls, system_conf};
use anyhow::{Context, Result, anyhow, ensure};
use clap::Parser;
use driver_module::Modules;
use event_loop::EventLoop;
use ha_runtime::logging::{self, LogOptions};
use ha_runtime::notify;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat};
use record::StateRecord;
use service_manager::ServiceManager;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use tracing::{error, info, warn};

/// The FIFO scheduling priority: below the kernel's highest threads, and above all other threads.
const REAL_TIME_PRIORITY: i32 = 98;

/// The device's name among stored descriptors.
const DEVICE_DESCRIPTOR_NAME: &str = "watchdog";

/// The record's name among stored descriptors.
const RECORD_DESCRIPTOR_NAME: &str = "record";

/// Renew this node's watchdog until the deadline set by the agent
#[derive(Debug, Parser)]
#[command(name = "ha-watchdogd", version)]
pub struct Options {
    /// Path of the watchdog device, or its identity in /sys/class/watchdog
    #[arg(long, env = "WATCHDOG_DEVICE", value_name = "DEVICE", default_value = "/dev/watchdog")]
    pub device: PathBuf,
    /// Kernel module to load if the device does not exist; empty: none
    ///
    /// If the module does not provide the device, softdog is loaded instead.
    #[arg(long, env = "WATCHDOG_MODULE", value_name = "MODULE", default_value = "softdog")]
    pub module: String,
    /// Socket for the agent
    #[arg(long, env = "WATCHDOG_SOCKET", value_name = "SOCKET", default_value = DEFAULT_SOCKET)]
    pub socket: PathBuf,
    /// Socket of a simulated watchdog; for the sandbox and tests only
    #[arg(long, alias = "stand-in", env = "WATCHDOG_SIMULATED", value_name = "SOCKET")]
    pub simulated: Option<PathBuf>,
    /// User id that may use the daemon in addition to root
    #[arg(long, env = "WATCHDOG_ALLOWED_UID", value_name = "UID")]
    pub allowed_uid: Option<u32>,
    /// FileDescriptorStoreMax of the unit, if systemd does not report it
    ///
    /// Maximum number of open descriptors that systemd stores for the daemon.
    #[arg(long, env = "WATCHDOG_DESCRIPTOR_STORE_MAX", value_name = "NUMBER", default_value_t = 0)]
    pub descriptor_store_max: u32,
    /// Logging
    #[command(flatten)]
    pub logging: LogOptions,
}

/// Runs until a request to exit (SIGTERM, SIGINT).
///
/// # Guarantees
/// - While a device is armed, the daemon exits only on request, or if the wait of its loop fails.
/// - A daemon that exits under an active deadline leaves the device running. The next daemon takes the device over from
///   the service manager's store, or the machine is reset after the deadline.
pub fn run(options: &Options) -> Result<()> {
    logging::init(&options.logging)?;
    let _lock = lock(&options.socket)?;
    // The variable's name until version 0.1, in drop-ins of the unit.
    let earlier =
        || std::env::var_os("WATCHDOG_STAND_IN").filter(|socket| !socket.is_empty()).map(PathBuf::from);
    let mut location = match options.simulated.clone().or_else(earlier) {
        Some(socket) => DeviceLocation::Simulated(socket),
        None => DeviceLocation::Kernel(options.device.clone()),
    };
    driver_module::load_module_if_needed(&mut location, &options.module, &mut KernelModules).log();
    let mut inherited = system_calls::inherited_descriptors()
        .context("cannot receive descriptors from the service manager")?;
    let mut take = |name: &str| {
        let index = inherited.iter().position(|(stored_name, _)| stored_name == name)?;
        Some(inherited.swap_remove(index).1)
    };
    let (device, record) = (take(DEVICE_DESCRIPTOR_NAME), take(RECORD_DESCRIPTOR_NAME));
    let manager = ServiceManager::from_environment(options.descriptor_store_max);
    let fresh_record = record.is_none();
    let record = StateRecord::new(record).context("cannot create the record for the next daemon")?;
    if fresh_record {
        manager.store(RECORD_DESCRIPTOR_NAME, record.descriptor());
    }

    let listener = seqpacket::listen_at(&options.socket)
        .with_context(|| format!("cannot listen on {}", options.socket.display()))?;
    restrict_socket_access(&options.socket, options.allowed_uid)?;
    let signals = ending_signals()?;
    let privileges = gain_privileges();
    let mut core = Core::new(privileges);
    let device = take_over(&mut core, &location, device, &record);
    announce(&location, &manager, &core);
    notify::ready("waiting for the agent");
    let ended =
        EventLoop::new(core, device, location, listener, signals, options.allowed_uid, record, manager).run();
    match ended {
        Ok(State::Armed { .. } | State::Expired { .. }) => {
            warn!("exited while armed: the watchdog resets the machine unless a new ha-watchdogd takes over");
        }
        Ok(State::Released | State::Staying) => info!("exited while no service required the watchdog"),
        Err(errno) => error!(%errno, "event loop failed"),
    }
    ended.map(drop).map_err(|errno| anyhow!("cannot wait for events: {errno}"))
}

/// Prevents a second daemon on the same socket.
fn lock(socket: &Path) -> Result<Flock<File>> {
    if let Some(directory) = socket.parent() {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot create directory {}", directory.display()))?;
    }
    let path = socket.with_extension("lock");
    let file = File::create(&path).with_context(|| format!("cannot open {}", path.display()))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| {
        anyhow!("cannot lock {}: {errno}: another ha-watchdogd uses this socket", path.display())
    })
}

/// This machine's modules, loaded by modprobe.
struct KernelModules;

impl Modules for KernelModules {
    fn exists(&self, location: &DeviceLocation) -> bool {
        location.exists()
    }

    fn load(&mut self, module: &str) -> Result<(), String> {
        match Command::new("modprobe").arg("--").arg(module).status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("modprobe {module}: {status}")),
            Err(error) => Err(format!("cannot run modprobe: {error}")),
        }
    }
}

/// Restricts the socket to root and the allowed user. Credentials are checked again on each connection.
fn restrict_socket_access(socket: &Path, allowed_uid: Option<u32>) -> Result<()> {
    fchmodat(nix::fcntl::AT_FDCWD, socket, Mode::from_bits_truncate(0o600), FchmodatFlags::FollowSymlink)
        .with_context(|| format!("cannot set the permissions of {}", socket.display()))?;
    if let Some(uid) = allowed_uid {
        std::os::unix::fs::chown(socket, Some(uid), None)
            .with_context(|| format!("cannot change the owner of {} to user {uid}", socket.display()))?;
    }
    Ok(())
}

/// Returns a descriptor that receives SIGTERM and SIGINT; SIGHUP and SIGPIPE are ignored.
fn ending_signals() -> Result<SignalFd> {
    let signal_set = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
    let mut blocked = signal_set;
    blocked.add(Signal::SIGHUP);
    blocked.add(Signal::SIGPIPE);
    blocked.thread_block().context("cannot block signals")?;
    let signals = SignalFd::with_flags(&signal_set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK);
    let signals = signals.context("cannot receive signals")?;
    ensure!(
        signals.read_signal().context("cannot read a signal")?.is_none(),
        "received a signal to exit during startup"
    );
    Ok(signals)
}

/// Locks memory and takes real-time priority, as far as permitted.
fn gain_privileges() -> Privileges {
    let memory_locked = match mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE) {
        Ok(()) => true,
        Err(errno) => {
            warn!(%errno, "cannot lock memory: grant CAP_IPC_LOCK or increase LimitMEMLOCK");
            false
        }
    };
    let real_time = match system_calls::become_real_time(REAL_TIME_PRIORITY) {
        Ok(()) => true,
        Err(errno) => {
            warn!(%errno, "cannot set real-time priority: grant CAP_SYS_NICE or increase LimitRTPRIO");
            false
        }
    };
    Privileges { real_time, memory_locked }
}

/// Continues with the device that an earlier daemon left running, if there is one.
fn take_over(
    core: &mut Core,
    location: &DeviceLocation,
    stored: Option<OwnedFd>,
    record: &StateRecord,
) -> Option<Device> {
    let (device, facts) = match (location, stored) {
        (DeviceLocation::Kernel(path), Some(descriptor)) => match KernelDevice::inherit(descriptor, path) {
            Ok((device, facts)) => (Device::Kernel(device), facts),
            Err((errno, descriptor)) => {
                error!(errno, "cannot use the stored descriptor as a watchdog device");
                let saved = record.read()?;
                // The deadline stays active without the device, because the services that the device covered must still
                // end.
                let (State::Armed { .. } | State::Expired { .. }, Some(facts)) = (saved.state, saved.device)
                else {
                    return None;
                };
                core.resume(clock::now(), facts, Some(SavedState { refuses_pets: true, ..saved }));
                return Some(Device::Kernel(KernelDevice::inherit_failed(descriptor, path)));
            }
        },
        (DeviceLocation::Simulated(socket), _) => {
            SimulatedDevice::inherit(socket).map(|(device, facts)| (Device::Simulated(device), facts))?
        }
        (DeviceLocation::Kernel(_), None) => return None,
    };
    core.resume(clock::now(), facts, record.read());
    Some(device)
}

fn announce(location: &DeviceLocation, manager: &ServiceManager, core: &Core) {
    let status = core.status();
    match location {
        DeviceLocation::Kernel(device) => {
            for problem in system_conf::problems(Path::new("/")) {
                warn!(%problem, "systemd uses the watchdog itself");
            }
            // A device that was taken over is this daemon's own. For another device, the log shows why arming would be
            // refused.
            if status.device.is_none()
                && let Some(refusal) = location.refusal()
            {
                error!(%refusal, "cannot arm the watchdog");
            }
            info!(device = %device.display(), descriptor_retained = manager.stores_descriptors(), state = ?status.state, "ready");
        }
        DeviceLocation::Simulated(socket) => {
            warn!(socket = %socket.display(), state = ?status.state, "ready with a simulated watchdog: this machine is NOT protected");
        }
    }
}
