//! Calls of the service manager.

use super::bus::{BusError, DESTINATION, MANAGER, MANAGER_PATH, PROPERTIES, Session, Signal};
use super::state::{Properties, UnitState};
use super::verdict::JobResult;
use serde::Serialize;
use std::num::NonZeroU32;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use zbus::Message;
use zbus::zvariant::{DynamicType, ObjectPath, OwnedObjectPath, OwnedValue, Value};

const UNIT_INTERFACE: &str = "org.freedesktop.systemd1.Unit";
const JOB_INTERFACE: &str = "org.freedesktop.systemd1.Job";

/// Mode of a job, which affects conflicting jobs and the order between units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Replaces conflicting jobs, as systemctl does.
    Replace,
    /// Runs immediately, without regard to other jobs.
    IgnoreDependencies,
}

impl Mode {
    fn job_mode(self) -> &'static str {
        match self {
            Mode::Replace => "replace",
            Mode::IgnoreDependencies => "ignore-dependencies",
        }
    }
}

/// A job in progress.
pub(super) struct Job {
    id: u32,
    signals: Receiver<Signal>,
}

impl Job {
    pub(super) async fn wait_for_end(mut self) -> JobResult {
        loop {
            match self.signals.recv().await {
                Ok(Signal::JobRemoved { id, result, .. }) if id == self.id => return JobResult::of(&result),
                Ok(
                    Signal::JobRemoved { .. }
                    | Signal::JobNew { .. }
                    | Signal::Changed { .. }
                    | Signal::Answered { .. },
                ) => {}
                Err(RecvError::Lagged(_) | RecvError::Closed) => return JobResult::NotObserved,
            }
        }
    }
}

impl Session {
    async fn call<B: Serialize + DynamicType>(
        &self,
        path: &ObjectPath<'_>,
        interface: &str,
        method: &str,
        body: &B,
    ) -> Result<Message, BusError> {
        Ok(self.connection.call_method(Some(DESTINATION), path, Some(interface), method, body).await?)
    }

    async fn call_manager<B: Serialize + DynamicType>(
        &self,
        method: &str,
        body: &B,
    ) -> Result<Message, BusError> {
        self.call(&ObjectPath::from_static_str_unchecked(MANAGER_PATH), MANAGER, method, body).await
    }

    /// Returns the object of a unit, even if the node does not have the unit.
    pub(super) async fn load(&self, unit: &str) -> Result<OwnedObjectPath, BusError> {
        Ok(self.call_manager("LoadUnit", &(unit,)).await?.body().deserialize()?)
    }

    /// Makes a call without effect, and returns its serial number. Once the answer is distributed, all earlier signals
    /// have also been distributed.
    pub(super) async fn ping(&self) -> Result<u32, BusError> {
        let path = ObjectPath::from_static_str_unchecked(MANAGER_PATH);
        let answer = self.call(&path, "org.freedesktop.DBus.Peer", "Ping", &()).await?;
        Ok(answer.header().reply_serial().map_or(0, NonZeroU32::get))
    }

    /// Returns the state of a unit by its name or an alias.
    pub(super) async fn unit(&self, unit: &str) -> Result<UnitState, BusError> {
        let path = self.load(unit).await?;
        self.state(&path, unit).await
    }

    pub(super) async fn state(&self, path: &ObjectPath<'_>, unit: &str) -> Result<UnitState, BusError> {
        let common = self.properties(path, UNIT_INTERFACE).await?;
        let interface_properties = match own_interface(unit) {
            Some(interface) => self.properties(path, &interface).await?,
            None => Properties::new(),
        };
        Ok(UnitState::of(&common, &interface_properties))
    }

    async fn properties(&self, path: &ObjectPath<'_>, interface: &str) -> Result<Properties, BusError> {
        Ok(self.call(path, PROPERTIES, "GetAll", &(interface,)).await?.body().deserialize()?)
    }

    /// Returns the current control group of a unit; empty if it has none.
    pub(super) async fn control_group(&self, unit: &str) -> Result<String, BusError> {
        let path = self.load(unit).await?;
        let Some(interface) = own_interface(unit) else { return Ok(String::new()) };
        let answer = self.call(&path, PROPERTIES, "Get", &(interface, "ControlGroup")).await?;
        let value: OwnedValue = answer.body().deserialize()?;
        Ok(String::try_from(value).unwrap_or_default())
    }

    /// Returns the unit to which a process belongs.
    pub(super) async fn unit_of(&self, pid: u32) -> Result<UnitState, BusError> {
        let path: OwnedObjectPath = self.call_manager("GetUnitByPID", &(pid,)).await?.body().deserialize()?;
        Ok(UnitState::of(&self.properties(&path, UNIT_INTERFACE).await?, &Properties::new()))
    }

    /// Returns the type of a job; `None` if it has ended.
    pub(super) async fn job_type(&self, job: u32) -> Option<String> {
        let path = ObjectPath::try_from(format!("{MANAGER_PATH}/job/{job}")).ok()?;
        let answer = self.call(&path, PROPERTIES, "Get", &(JOB_INTERFACE, "JobType")).await.ok()?;
        let value: OwnedValue = answer.body().deserialize().ok()?;
        String::try_from(value).ok()
    }

    /// Requests a start.
    pub(super) async fn start(&self, unit: &str) -> Result<Job, BusError> {
        self.request_job("StartUnit", &(unit, Mode::Replace.job_mode())).await
    }

    /// Creates a transient unit, and requests its start.
    pub(super) async fn start_transient(
        &self,
        unit: &str,
        properties: &[(&str, Value<'_>)],
    ) -> Result<Job, BusError> {
        let auxiliary_units: Vec<(&str, Vec<(&str, Value<'_>)>)> = Vec::new();
        self.request_job("StartTransientUnit", &(unit, Mode::Replace.job_mode(), properties, auxiliary_units))
            .await
    }

    /// Requests a stop.
    pub(super) async fn stop(&self, unit: &str, mode: Mode) -> Result<Job, BusError> {
        self.request_job("StopUnit", &(unit, mode.job_mode())).await
    }

    async fn request_job<B: Serialize + DynamicType>(&self, method: &str, body: &B) -> Result<Job, BusError> {
        // Subscribe before the job exists, so that its end is not missed.
        let signals = self.signals();
        let path: OwnedObjectPath = self.call_manager(method, body).await?.body().deserialize()?;
        let id = path.rsplit('/').next().and_then(|id| id.parse().ok()).unwrap_or_default();
        Ok(Job { id, signals })
    }

    /// Sends SIGKILL to all processes of the unit.
    pub(super) async fn kill(&self, unit: &str) -> Result<(), BusError> {
        self.call_manager("KillUnit", &(unit, "all", nix::libc::SIGKILL)).await.map(|_| ())
    }

    /// Resets the unit's failed state and its start counter.
    pub(super) async fn reset_failed(&self, unit: &str) -> Result<(), BusError> {
        self.call_manager("ResetFailedUnit", &(unit,)).await.map(|_| ())
    }

    /// Keeps a unit's state readable after its end until [`Session::unref`]; otherwise systemd unloads unreferenced
    /// units.
    pub(super) async fn add_ref(&self, unit: &str) -> Result<(), BusError> {
        let path = self.load(unit).await?;
        self.call(&path, UNIT_INTERFACE, "Ref", &()).await.map(|_| ())
    }

    /// Reverts one [`Session::add_ref`].
    pub(super) async fn unref(&self, unit: &str) -> Result<(), BusError> {
        let path = self.load(unit).await?;
        self.call(&path, UNIT_INTERFACE, "Unref", &()).await.map(|_| ())
    }

    /// Disables units, and reloads all units.
    pub(super) async fn disable(&self, units: &[&str]) -> Result<(), BusError> {
        for until_boot in [false, true] {
            self.call_manager("DisableUnitFiles", &(units, until_boot)).await?;
        }
        self.reload().await
    }

    /// Reloads all units.
    pub(super) async fn reload(&self) -> Result<(), BusError> {
        self.call_manager("Reload", &()).await.map(|_| ())
    }
}

/// Returns the interface of a unit's own type; `None` if no property of that type is used here.
fn own_interface(unit: &str) -> Option<String> {
    let name = match unit.rsplit('.').next()? {
        "service" => "Service",
        "socket" => "Socket",
        "mount" => "Mount",
        "swap" => "Swap",
        "timer" => "Timer",
        "path" => "Path",
        _ => return None,
    };
    Some(format!("org.freedesktop.systemd1.{name}"))
}
