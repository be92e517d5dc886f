//! Watches of running services: the kernel reports the end of a process immediately; the monitor command runs at an
//! interval.

use super::{Context, script};
use crate::core::DriverEvent;
use crate::driver::program::order::ProcessRecord;
use crate::driver::watches;
use ha_api_types::id::ObjectUid;
use ha_api_types::resource::ServiceDefinition;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Time after the end of the main process for its supervisor to clean up and end.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(2);

/// Identity of a watch: uid of the service, supervised process, and monitor command.
type Watched = (ObjectUid, Option<ProcessRecord>, Vec<String>);

pub(super) type Watches = watches::Watches<Watched>;

/// Starts to watch a service, unless it is already watched. Without a `record` of a supervised process, only the
/// monitor command can detect the end of the service.
pub(super) fn ensure_watched(
    context: &Arc<Context>,
    service: &ServiceDefinition,
    record: Option<&ProcessRecord>,
) {
    let monitor = service.driver.exec.as_ref().map(|exec| exec.monitor.clone()).unwrap_or_default();
    let watched = (service.uid.clone(), record.cloned(), monitor);
    // A strong reference in the task would keep the driver alive.
    let watch = || watch(Arc::downgrade(context), service.clone(), record.cloned());
    context.watches.ensure(&service.name, watched, watch);
}

type WeakContext = std::sync::Weak<Context>;

async fn watch(driver: WeakContext, service: ServiceDefinition, record: Option<ProcessRecord>) {
    let ended = async {
        match &record {
            Some(record) => wait_for_main_end(&driver, &service, record).await,
            None => std::future::pending().await,
        }
    };
    let message = tokio::select! {
        message = ended => message,
        message = wait_for_stop_report(&driver, &service, record.is_some()) => message,
    };
    let Some(context) = driver.upgrade() else { return };
    // Sending fails only when the agent is ending.
    let _ = context.events.send(DriverEvent::Exited {
        name: service.name,
        uid: service.uid,
        message,
        stopped_externally: false,
    });
}

/// Returns how the main process ended, once its supervisor has cleaned up after it.
async fn wait_for_main_end(
    driver: &WeakContext,
    service: &ServiceDefinition,
    record: &ProcessRecord,
) -> String {
    let waited = async {
        if let Some(main) = record.main.open()? {
            main.wait_for_end().await?;
        }
        if let Some(supervisor) = record.supervisor.open()? {
            // If cleaning up takes longer, the next start of the service waits for it.
            let _ = tokio::time::timeout(CLEANUP_TIMEOUT, supervisor.wait_for_end()).await;
        }
        io::Result::Ok(())
    };
    if let Err(error) = waited.await {
        return format!("cannot watch the service: {error}");
    }
    let recorded_exit = driver.upgrade().and_then(|context| {
        let directory = context.programs.directory_of(&service.name);
        directory.recorded_exit(record).ok()?
    });
    recorded_exit.map_or_else(|| "supervisor of the service was killed".to_owned(), |exit| exit.message)
}

/// Returns when the monitor command reports twice in a row that the service does not run. Unknown results are ignored.
async fn wait_for_stop_report(
    driver: &WeakContext,
    service: &ServiceDefinition,
    is_supervised: bool,
) -> String {
    let Some(exec) = service.driver.exec.as_ref().filter(|exec| !exec.monitor.is_empty()) else {
        return std::future::pending().await;
    };
    loop {
        let Some(interval) = driver.upgrade().map(|context| context.monitor_interval) else {
            return std::future::pending().await;
        };
        tokio::time::sleep(interval).await;
        let mut stopped_reports = 0;
        while stopped_reports < 2 {
            let Some(context) = driver.upgrade() else { return std::future::pending().await };
            if !script::is_confirmed_stopped(&context, service, exec).await {
                break;
            }
            stopped_reports += 1;
        }
        if stopped_reports == 2 {
            let process_clause = if is_supervised { " although its process is alive" } else { "" };
            return format!("monitor command reports that the service does not run{process_clause}");
        }
    }
}
