//! The `Driver` trait: how the agent starts, stops, monitors and moves services on this node.

pub mod exec;
pub mod external;
mod health;
pub mod libvirt;
pub mod log;
pub mod lxc;
pub mod ocf;
pub mod podman;
pub mod program;
pub mod simulated;
pub mod systemd;
mod watches;

use futures::future::BoxFuture;
use ha_api_types::id::NodeName;
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, LogFailure, Observed};
use ha_api_types::resource::{ServiceDefinition, TimeoutsSpec};
use ha_api_types::time::{Millis, MonotonicTime};

pub use crate::core::{DriverEvent, DriverFailure, Sample};
pub use log::{LogQuery, LogTail};

/// A driver for one kind of service.
///
/// Every command is idempotent and safe to cancel: a probe after the cancellation shows the actual state.
///
/// Guarantees: after `stop` or `kill` returns `Ok`, no process of the service runs on this node. After `start` returns
/// an error, the caller stops and probes the service before it reports Failed. Assumptions: commands for one service do
/// not overlap. There are two exceptions: `kill` may run while another command is being canceled, and the replacement
/// of a secondary may overlap other commands.
pub trait Driver: Send + Sync {
    /// Returns the driver's name, such as `systemd`.
    fn name(&self) -> &'static str;

    /// Checks whether this node can run services of this driver. The error contains the reason if not.
    fn check_usable(&self) -> BoxFuture<'_, Result<(), String>>;

    /// Returns the capabilities that the node publishes for this driver
    /// ([`ha_api_types::driver::DriverSpec::capability`]). The error is the reason why the node has none.
    fn published_capabilities(&self) -> BoxFuture<'_, Result<Vec<String>, String>> {
        Box::pin(async { self.check_usable().await.map(|()| vec![self.name().to_owned()]) })
    }

    /// Returns the time limits of the service's commands: those of the resource, unless the driver has better defaults
    /// for values that the resource omits.
    fn timeouts<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, TimeoutsSpec> {
        Box::pin(async { service.timeouts })
    }

    /// Reports whether the service runs on this node now.
    fn probe<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Observed>;

    /// Starts the service, or adopts it if it already runs. Returns `Ok` once the service is confirmed running.
    fn start<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Result<(), DriverFailure>>;

    /// Stops the service: gracefully for at most `graceful_ms`, then by force. Returns `Ok` once no process of the
    /// service remains.
    fn stop<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        graceful_ms: Millis,
    ) -> BoxFuture<'a, Result<(), DriverFailure>>;

    /// Kills the service immediately (self-fencing). Returns `Ok` once no process of the service remains.
    fn kill<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Result<(), DriverFailure>>;

    /// Returns the noun for a service of this driver in messages, with its article.
    fn noun(&self) -> &'static str {
        "a service"
    }

    /// Prepares to receive the service. Called on the target of a live migration. Most drivers cannot live-migrate.
    fn receive<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Result<(), DriverFailure>> {
        let _ = service;
        Box::pin(async { Err(migration_unsupported(self.noun())) })
    }

    /// Takes over the copy from the source. Called on the target of a live migration, once the copy on the source has
    /// ended.
    ///
    /// Called only if the service's driver takes over ([`ha_api_types::driver::DriverSpec::has_arrival`]). The caller
    /// then probes whether the service runs here.
    fn arrive<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        source: &'a NodeName,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        let _ = (service, source);
        Box::pin(async { Ok(()) })
    }

    /// Moves the service to `target`. Called on the source of a live migration. After `Ok`, the service runs on the
    /// target and not here; after an error, the caller probes both nodes.
    fn migrate<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        target: &'a NodeName,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        let _ = (service, target);
        Box::pin(async { Err(migration_unsupported(self.noun())) })
    }

    /// Ends a live migration that may be in progress, including one that an earlier agent started. Called on the
    /// source.
    ///
    /// Returns `Ok` once no program and no job of the migration remains. The service itself is left unchanged.
    fn end_migration<'a>(
        &'a self,
        service: &'a ServiceDefinition,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        let _ = service;
        Box::pin(async { Ok(()) })
    }

    /// Confirms that an incoming migration can no longer run on this node without [`Driver::start`] or
    /// [`Driver::arrive`].
    ///
    /// Called on the target of a live migration, after a kill has removed every part of the service. If the driver
    /// cannot confirm this, the node is reset by its watchdog when it is isolated (FENCING, R4.41).
    fn confirm_no_incoming_copy<'a>(
        &'a self,
        service: &'a ServiceDefinition,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async {
            if service.driver.waits_for_resume_permit() {
                return Ok(());
            }
            Err(DriverFailure {
                class: FailureClass::NeverHere,
                reason: Reason::MoveFailed,
                message: format!("driver {} cannot reject an incoming migration", self.name()),
            })
        })
    }

    /// Replaces the secondary `present` of a service that runs here by `node`; `present` is `None` if the service
    /// has no secondary.
    ///
    /// After `Ok`, the new secondary is in use and the old one is released; after an error, the old one is still in
    /// use. Runs in parallel with every other command except one that ends the service: before such a command, the
    /// replacement is canceled and cleaned up.
    fn replace_secondary<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        current_secondary: Option<&'a NodeName>,
        node: &'a NodeName,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        let _ = (service, current_secondary, node);
        Box::pin(async {
            Err(DriverFailure {
                class: FailureClass::RetryHere,
                reason: Reason::ReplaceFailed,
                message: format!("driver {} does not support the replacement of secondaries", self.name()),
            })
        })
    }

    /// Ends a replacement of the secondary, including one that an earlier agent started. Returns `Ok` once no process
    /// of the replacement remains. The service keeps running.
    fn end_replacement<'a>(
        &'a self,
        service: &'a ServiceDefinition,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        let _ = service;
        Box::pin(async { Ok(()) })
    }

    /// Returns the resource usage of the service on this node at the current time `at`. `None` if the usage cannot be
    /// measured; the service's requests count instead.
    fn measure<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        at: MonotonicTime,
    ) -> BoxFuture<'a, Option<Sample>>;

    /// Returns the last lines of the service's log on this node, even after the service has ended.
    ///
    /// Runs in parallel with every other command, and has no effect on the service. Dropping the future kills the
    /// programs that it started.
    fn read_log<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        query: LogQuery,
    ) -> BoxFuture<'a, Result<LogTail, LogFailure>> {
        let _ = (service, query);
        Box::pin(async { Err(LogFailure::NotKept(format!("driver {} does not provide logs", self.name()))) })
    }
}

fn migration_unsupported(noun: &str) -> DriverFailure {
    DriverFailure {
        class: FailureClass::RetryHere,
        reason: Reason::MoveFailed,
        message: format!("{noun} cannot be live-migrated"),
    }
}
