//! The `Driver` seam: how a service is started, stopped, watched and moved on this node.

pub mod exec;
pub mod external;
pub mod libvirt;
pub mod ocf;
pub mod podman;
pub mod program;
pub mod simulated;
pub mod systemd;
mod watches;

use futures::future::BoxFuture;
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, Observed};
use ha_api_types::resource::{ServiceDefinition, TimeoutsSpec};
use ha_api_types::time::{Millis, Mono};

pub use crate::core::{DriverEvent, DriverFailure, Sample};

/// One driver. Every command is idempotent and safe to cancel: afterwards a probe tells what is.
///
/// Guarantees: when `stop` or `kill` answers `Ok`, nothing of the service is left running on this node; when `start`
/// answers an error, the caller stops and probes before it reports Failed. Assumptions: commands for one service do not
/// overlap, except that `kill` may come while another is being cancelled, and for the replacement of a secondary.
pub trait Driver: Send + Sync {
    /// The driver's name.
    fn name(&self) -> &'static str;

    /// Whether this node can serve it; otherwise why not.
    fn able(&self) -> BoxFuture<'_, Result<(), String>>;

    /// What this node can serve by it, as nodes list it ([`ha_api_types::driver::DriverSpec::capability`]); otherwise why not.
    fn serves(&self) -> BoxFuture<'_, Result<Vec<String>, String>> {
        Box::pin(async { self.able().await.map(|()| vec![self.name().to_owned()]) })
    }

    /// How long its commands may take: what the resource says, unless the driver knows better where it says nothing.
    fn timeouts<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, TimeoutsSpec> {
        Box::pin(async { service.timeouts })
    }

    /// Whether the service runs here now.
    fn probe<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Observed>;

    /// Starts it, or adopts it when it runs; `Ok` once it is confirmed running.
    fn start<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Result<(), DriverFailure>>;

    /// Stops it: gracefully for so long, then hard; `Ok` once nothing is left.
    fn stop<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        graceful_ms: Millis,
    ) -> BoxFuture<'a, Result<(), DriverFailure>>;

    /// Kills it at once (self-fencing); `Ok` once nothing is left.
    fn kill<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Result<(), DriverFailure>>;

    /// Target of a live migration: prepares to receive it.
    fn receive<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Result<(), DriverFailure>>;

    /// Target of a live migration, once the source's copy is gone: takes over what the source handed over. Asked only of
    /// services whose driver takes over ([`ha_api_types::driver::DriverSpec::takes_over`]). Whether it runs here is probed
    /// afterwards.
    fn arrive<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        source: &'a str,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        let _ = (service, source);
        Box::pin(async { Ok(()) })
    }

    /// Source of a live migration: moves it to the target. `Ok`: it runs there and not here; otherwise both are probed.
    fn migrate<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        target: &'a str,
    ) -> BoxFuture<'a, Result<(), DriverFailure>>;

    /// Source of a live migration: ends what may be under way of it, also of an earlier agent's; `Ok` once nothing is: no program,
    /// no job. The service itself is left as it is.
    fn end_migration<'a>(
        &'a self,
        service: &'a ServiceDefinition,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        let _ = service;
        Box::pin(async { Ok(()) })
    }

    /// Target of a live migration, after a kill has left nothing: `Ok` once nothing that still arrives can run on this node
    /// without [`Driver::start`] or [`Driver::arrive`]. A node whose driver cannot confirm that is reset by its watchdog when it is
    /// isolated (FENCING, R4.41).
    fn close_reception<'a>(
        &'a self,
        service: &'a ServiceDefinition,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async {
            if service.driver.is_gated() {
                return Ok(());
            }
            Err(DriverFailure {
                class: FailureClass::NeverHere,
                reason: Reason::MoveFailed,
                message: format!("driver {} cannot refuse a migration that still arrives", self.name()),
            })
        })
    }

    /// Replaces the secondary of a service that runs here, `present` (empty: it has none), by another node. `Ok`: that one is
    /// in use and the old one let go; otherwise the old one is still in use. Goes on beside every other command but one that
    /// ends the service, before which it is cancelled and cleared away.
    fn replace_secondary<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        present: &'a str,
        node: &'a str,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        let _ = (service, present, node);
        Box::pin(async {
            Err(DriverFailure {
                class: FailureClass::RetryHere,
                reason: Reason::ReplaceFailed,
                message: format!("driver {} replaces no secondaries", self.name()),
            })
        })
    }

    /// Ends what is left of a replacement, also of an earlier agent's; `Ok` once nothing is. The service goes on.
    fn end_replacement<'a>(
        &'a self,
        service: &'a ServiceDefinition,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        let _ = service;
        Box::pin(async { Ok(()) })
    }

    /// What the service uses on this node at `at`, the present; `None`: it cannot be measured, and counts by its requests.
    fn measure<'a>(&'a self, service: &'a ServiceDefinition, at: Mono) -> BoxFuture<'a, Option<Sample>>;
}
