//! Search for and killing of leftover processes of a service.

use super::leftovers::{LeftoverProcesses, MIGRATION_MARK_VARIABLE, ProcessSearch};
use super::{Programs, failed};
use crate::core::DriverFailure;
use ha_api_types::reason::Reason;
use ha_api_types::resource::ServiceDefinition;
use rustix::process::Signal;
use std::io;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Time limit of a kill; a process that takes longer is stuck in the kernel.
pub(in crate::driver) const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between searches while processes are ending.
pub(in crate::driver) const POLL_INTERVAL: Duration = Duration::from_millis(10);

impl Programs {
    /// Returns the leftover processes of a service.
    pub(in crate::driver) async fn leftover_processes(
        &self,
        service: &ServiceDefinition,
    ) -> Result<LeftoverProcesses, DriverFailure> {
        search_in_thread(self.search(service)).await.map_err(|error| {
            failed(Reason::StopFailed, &format!("cannot search for processes of the service: {error}"))
        })
    }

    /// Returns the environment variable that marks the program of a live migration.
    pub(in crate::driver) fn migration_mark(&self, service: &ServiceDefinition) -> (String, String) {
        let mark = self.directory_of(&service.name).path().join("migration").display().to_string();
        (MIGRATION_MARK_VARIABLE.to_owned(), mark)
    }

    /// Kills the program of a live migration and the processes that it has started, including those of an earlier
    /// agent. The service is left unchanged.
    pub(in crate::driver) async fn end_migration(
        &self,
        service: &ServiceDefinition,
    ) -> Result<(), DriverFailure> {
        let (variable, mark) = (MIGRATION_MARK_VARIABLE, self.migration_mark(service).1);
        clear(|| ProcessSearch { variable, mark: mark.clone(), cgroups: Vec::new(), record: None }).await
    }

    /// Kills the processes of a service until no process remains. A supervisor first gets time to record the exit
    /// status.
    pub(in crate::driver) async fn kill_leftovers(
        &self,
        service: &ServiceDefinition,
    ) -> Result<(), DriverFailure> {
        clear(|| self.search(service)).await
    }
}

/// Repeats the search, and kills all processes found, until no process remains.
pub(in crate::driver) async fn clear(search: impl Fn() -> ProcessSearch) -> Result<(), DriverFailure> {
    let deadline = Instant::now() + KILL_TIMEOUT;
    let spare_supervisors_until = Instant::now() + KILL_TIMEOUT / 5;
    loop {
        let search = search();
        let leftovers = search_in_thread(search.clone()).await.map_err(|error| {
            failed(Reason::StopFailed, &format!("cannot search for processes of the service: {error}"))
        })?;
        if leftovers.has_no_service_processes() && leftovers.supervisors.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            let remaining_processes = if leftovers.has_no_service_processes() {
                "the supervisor of the service".to_owned()
            } else {
                leftovers.describe()
            };
            return Err(failed(
                Reason::StopFailed,
                &format!("{remaining_processes} did not exit after SIGKILL"),
            ));
        }
        // The kill does not run in another thread: once this future is dropped, no further process may be killed.
        search.kill(&leftovers).map_err(|error| {
            failed(Reason::StopFailed, &format!("cannot kill the processes of the service: {error}"))
        })?;
        if Instant::now() > spare_supervisors_until {
            for supervisor in &leftovers.supervisors {
                let _ = supervisor.identity.signal(Signal::KILL);
            }
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Runs a search in another thread, because the search can take a long time on a large machine, and the agent must
/// continue to send heartbeats.
pub(in crate::driver) async fn search_in_thread(search: ProcessSearch) -> io::Result<LeftoverProcesses> {
    tokio::task::spawn_blocking(move || search.run()).await.map_err(io::Error::other)?
}
