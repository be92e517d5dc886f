//! A case of the metal suite: a fault of one machine, and the expected results.

use anyhow::Result;
use ha_api_types::cluster::{OnEtcdLoss, ShutdownPolicy};
use ha_api_types::node::FenceAction;

use super::actions;
use super::hardware::Watchdog;
use super::rig::Rig;
use crate::plan::SHARED_DIRECTORY;

/// A fault of one machine, and its expected results.
pub struct Case {
    /// Name of the case on the command line.
    pub name: &'static str,
    /// Watchdog of the affected machine.
    pub watchdog: Watchdog,
    /// Expected reset of the machine.
    pub reset: Reset,
    /// Required outcome for the machine's service.
    pub service: ServiceOutcome,
    /// Way in which the machine may be fenced.
    pub fencing: Fencing,
    /// Directory on the machines in which the service has its storage.
    pub storage: &'static str,
    /// `Cluster.spec.shutdownPolicy`.
    pub shutdown_policy: ShutdownPolicy,
    /// `Cluster.spec.fencing.onEtcdLoss`.
    pub on_etcd_loss: OnEtcdLoss,
    /// Load of the other machines during the case.
    pub others: OtherMachines,
    /// Changes the machine before it gets the service.
    pub set_up: fn(&mut Rig, &str) -> Result<()>,
    /// Prepares the machine while it has the service. The service may move away during this step, but must not start there again.
    /// The time of this step is not measured.
    pub prepare: fn(&mut Rig, &str) -> Result<()>,
    /// Causes the fault.
    pub inject: fn(&mut Rig, &str) -> Result<()>,
    /// Restores the machine, as its operator would.
    pub restore: fn(&mut Rig, &str) -> Result<()>,
}

/// A way to fence a machine. All machines are virtual, so their hypervisor could pause them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fencing {
    /// The leader waits for W, as if the machine could not be paused.
    FencingDelay,
    /// Fencing is not possible: waiting for W is not accepted as proof, and the machine has no device.
    Impossible,
    /// A fence device switches the machine off through the hypervisor.
    Device,
    /// The switch disconnects the machine from the storage that contains the service's directory. No other proof is
    /// possible. With Reboot, the next boot is reconnected automatically. With Off, only an operator can reconnect
    /// the machine.
    Fabric(FenceAction),
}

/// Default values of a case.
pub const DEFAULT: Case = Case {
    name: "",
    watchdog: Watchdog::Softdog,
    reset: Reset::MustNot,
    service: ServiceOutcome::KeepsRunning,
    fencing: Fencing::FencingDelay,
    storage: SHARED_DIRECTORY,
    shutdown_policy: ShutdownPolicy::Conditional,
    on_etcd_loss: OnEtcdLoss::Stop,
    others: OtherMachines::Idle,
    set_up: actions::do_nothing,
    prepare: actions::do_nothing,
    inject: actions::do_nothing,
    restore: actions::do_nothing,
};

/// The load of the other machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherMachines {
    /// No service, until the case's service moves there.
    Idle,
    /// Each other machine has its own service, whose process must keep running.
    Busy,
}

/// Expected reset of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reset {
    /// The watchdog resets the machine, before the service starts elsewhere.
    Must,
    /// The watchdog resets the machine, because no process still pets it. The agent must have stopped the services
    /// before.
    MustAfterStop,
    /// The watchdog daemon resets the machine, before the service starts elsewhere. The device does not fire.
    MustByDaemon,
    /// No reset.
    MustNot,
    /// The machine is rebooted from inside.
    RebootFromInside,
    /// The machine is reset by a request from outside, in this step and at no other time.
    Requested(Step),
    /// The machine is reset by a request from outside in its restoration. The watchdog daemon may reset it earlier, but
    /// only after its wake-up: the deadline passed during the sleep, and the daemon may notice that before the agent has
    /// stopped the services.
    AfterWakeUp,
}

/// A step of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The fault: [`Case::inject`].
    Fault,
    /// The restoration of the machine: [`Case::restore`].
    Restoration,
}

/// The required outcome for the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceOutcome {
    /// Starts on another machine within the computed limit, after it stopped on the first.
    StartsElsewhere,
    /// Starts again within the computed limit, after it stopped on the first machine. It may start on the same machine,
    /// if that machine has booted and registered before the leader declares it dead.
    Recovers,
    /// Starts on another machine as soon as the fence device has confirmed.
    StartsAfterFencing,
    /// Moves to another machine cleanly. The service first stops on the old machine; the time of this stop is not
    /// limited.
    Moves,
    /// Behaves like [`ServiceOutcome::Moves`], and returns once its machine accepts services again.
    MovesAndReturns,
    /// Keeps running as the same process.
    KeepsRunning,
    /// Stops, and starts on the same machine again.
    RestartsOnSameNode,
    /// Stops before the machine's heartbeat expires, and runs nowhere until the machine is restored. Then it starts on the same
    /// machine again.
    StopsUntilRestored,
}

/// The observations of one run. Times are in milliseconds after the fault.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Time of the machine's reset; `None` without a reset.
    pub reset_ms: Option<u64>,
    /// Time of the service's last write on the first machine.
    pub stopped_ms: Option<u64>,
    /// Time of the first write on another machine, or of the next process on the same machine.
    pub elsewhere_ms: Option<u64>,
    /// Latest time that the timing settings allow for the start, or for the end if the case expects an end.
    pub limit_ms: Option<u64>,
    /// Descriptions of the periods in which the service ran twice.
    pub double_runs: Vec<String>,
    /// `true` if the machine returned as an empty node and the service stayed on its new node.
    pub has_returned: bool,
    /// Reason why the times are not valid: the host did not run a machine for too long.
    pub invalid_reason: Option<String>,
    /// Descriptions of violated requirements.
    pub failures: Vec<String>,
}

impl Outcome {
    /// Returns `true` if all requirements are met and the times are valid.
    pub fn has_passed(&self) -> bool {
        self.invalid_reason.is_none() && self.meets_requirements()
    }

    /// Returns `true` if all requirements that can be checked are met. The times of an invalid run cannot be checked.
    pub fn meets_requirements(&self) -> bool {
        self.failures.is_empty() && self.double_runs.is_empty()
    }
}
