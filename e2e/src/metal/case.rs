//! One case: what is done to a machine, and what must hold, said beforehand.

use anyhow::Result;
use ha_api_types::cluster::{OnStoreLoss, ShutdownPolicy};
use ha_api_types::node::FenceAction;

use super::deeds;
use super::hardware::Watchdog;
use super::rig::Rig;
use crate::plan::SHARED;

/// What is done, and what must come of it.
pub struct Case {
    /// Its name, as on the command line.
    pub name: &'static str,
    /// The watchdog of the machine that it is done to.
    pub watchdog: Watchdog,
    /// Whether the machine must be reset.
    pub reset: Reset,
    /// What must become of the service there.
    pub service: Service,
    /// How the machine may be fenced.
    pub fencing: Fencing,
    /// Directory of the machines under which the service has its storage.
    pub storage: &'static str,
    /// `Cluster.spec.shutdownPolicy`.
    pub policy: ShutdownPolicy,
    /// `Cluster.spec.fencing.onStoreLoss`.
    pub on_store_loss: OnStoreLoss,
    /// What the other machines have to do meanwhile.
    pub others: Others,
    /// What is changed on the machine before it takes the service.
    pub equip: fn(&mut Rig, &str) -> Result<()>,
    /// What has to be prepared while it has the service, which may leave the machine for it but never starts anew there; its time
    /// counts for nothing.
    pub prepare: fn(&mut Rig, &str) -> Result<()>,
    /// Does it.
    pub act: fn(&mut Rig, &str) -> Result<()>,
    /// Brings the machine back, as its operator would.
    pub mend: fn(&mut Rig, &str) -> Result<()>,
}

/// How a machine may be fenced. All of them are virtual, so their hypervisor could pause them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fencing {
    /// By waiting, as if they could not be paused.
    Wait,
    /// Not at all: nobody says that waiting is enough, and there is no device.
    Impossible,
    /// By its hypervisor.
    Device,
    /// By the switch between it and the storage, behind which the service's folder then is. Nothing else proves it dead; with
    /// Reboot another boot is let in again, with Off only an operator does that.
    Fabric(FenceAction),
}

/// What most cases have in common.
pub const USUAL: Case = Case {
    name: "",
    watchdog: Watchdog::Softdog,
    reset: Reset::MustNot,
    service: Service::Undisturbed,
    fencing: Fencing::Wait,
    storage: SHARED,
    policy: ShutdownPolicy::Conditional,
    on_store_loss: OnStoreLoss::Stop,
    others: Others::Idle,
    equip: deeds::nothing,
    prepare: deeds::nothing,
    act: deeds::nothing,
    mend: deeds::nothing,
};

/// What the other machines have to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// Nothing, until the service comes.
    Idle,
    /// Each has a service of its own, whose process goes on whatever happens.
    Busy,
}

/// Whether a machine must be reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reset {
    /// By its watchdog, before the service starts elsewhere.
    Must,
    /// By its watchdog, which nobody pets any more; by then its agent has stopped what ran there.
    MustEmpty,
    /// By its watchdog daemon, before the service starts elsewhere: the device does not fire.
    MustByDaemon,
    /// By nobody.
    MustNot,
    /// It asked for it itself.
    Own,
    /// Somebody else asked for it, in this step and at no other time.
    Asked(Step),
}

/// A step of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The deed: [`Case::act`].
    Deed,
    /// What brings the machine back: [`Case::mend`].
    Mending,
}

/// What must become of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// It starts elsewhere within the computed bound, after it stopped here.
    Elsewhere,
    /// It starts again within the computed bound, after it stopped here: elsewhere, or here if the machine has booted anew and
    /// registered before its silence counts.
    Recovers,
    /// It starts elsewhere as soon as the fence device has confirmed.
    Fenced,
    /// It starts elsewhere in order: stopped here first, however long that takes.
    Moves,
    /// As [`Service::Moves`], and back once its machine takes services again.
    Visits,
    /// The very same process goes on.
    Undisturbed,
    /// It stops, and starts here again.
    Returns,
    /// It stops before the machine's heartbeat ceases to be good, runs nowhere until the machine is brought back, and then
    /// starts here again.
    Withdraws,
}

/// What was seen. Times are milliseconds after the deed.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// When the machine was reset.
    pub reset_ms: Option<u64>,
    /// When the service's last write there was.
    pub stopped_ms: Option<u64>,
    /// When its first write elsewhere, or of the next process here, was.
    pub elsewhere_ms: Option<u64>,
    /// The latest that the timing settings allow for the start, or for the end if that is what is expected.
    pub bound_ms: Option<u64>,
    /// Moments with two, in words.
    pub two: Vec<String>,
    /// Whether the machine returned as an empty node and the service stayed where it was.
    pub returned: bool,
    /// Why the times say nothing: the host did not run a machine for too long.
    pub void: Option<String>,
    /// What did not hold.
    pub failures: Vec<String>,
}

impl Outcome {
    /// Whether everything held that must hold.
    pub fn passed(&self) -> bool {
        self.void.is_none() && self.held()
    }

    /// Whether everything held that can be judged: of a void run its times cannot.
    pub fn held(&self) -> bool {
        self.failures.is_empty() && self.two.is_empty()
    }
}
