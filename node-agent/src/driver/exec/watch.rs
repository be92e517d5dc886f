//! Watching running services: the kernel tells at once when a process ends; a monitor command is asked now and then.

use super::{Context, script};
use crate::core::DriverEvent;
use crate::driver::program::order::Record;
use ha_api_types::resource::ServiceDefinition;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::AbortHandle;

/// How long to wait, after the main process, for its supervisor to clear up and end.
const CLEARING: Duration = Duration::from_secs(2);

/// The watches of a driver, by resource; dropping them ends them.
#[derive(Debug, Default)]
pub(super) struct Watches {
    tasks: Mutex<BTreeMap<String, Watch>>,
}

#[derive(Debug)]
struct Watch {
    uid: String,
    record: Option<Record>,
    task: AbortHandle,
}

impl Watches {
    /// Watches a service unless exactly this one is watched already.
    ///
    /// `record`: its supervised process; without one only the monitor command can tell.
    pub(super) fn ensure(
        &self,
        context: &Arc<Context>,
        service: &ServiceDefinition,
        record: Option<&Record>,
    ) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |watch: &Watch| {
            watch.uid == service.uid && watch.record.as_ref() == record && !watch.task.is_finished()
        };
        if tasks.get(&service.name).is_some_and(same) {
            return;
        }
        // The task must not keep the driver alive: it ends with it.
        let task =
            tokio::spawn(watch(Arc::downgrade(context), service.clone(), record.cloned())).abort_handle();
        let new = Watch { uid: service.uid.clone(), record: record.cloned(), task };
        if let Some(old) = tasks.insert(service.name.clone(), new) {
            old.task.abort();
        }
    }

    /// From here on the service may end without an event: it is told to.
    pub(super) fn end(&self, resource: &str) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watch) = tasks.remove(resource) {
            watch.task.abort();
        }
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        let tasks = self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner);
        for watch in tasks.values() {
            watch.task.abort();
        }
    }
}

type Driver = std::sync::Weak<Context>;

async fn watch(driver: Driver, service: ServiceDefinition, record: Option<Record>) {
    let ended = async {
        match &record {
            Some(record) => main_ended(&driver, &service, record).await,
            None => std::future::pending().await,
        }
    };
    let message = tokio::select! {
        message = ended => message,
        message = monitored(&driver, &service, record.is_some()) => message,
    };
    let Some(context) = driver.upgrade() else { return };
    // The receiver is gone only when the agent is ending.
    let _ = context.events.send(DriverEvent::Exited {
        name: service.name,
        uid: service.uid,
        message,
        by_hand: false,
    });
}

/// Returns how the main process ended, once its supervisor has cleared up after it.
async fn main_ended(driver: &Driver, service: &ServiceDefinition, record: &Record) -> String {
    let waited = async {
        if let Some(main) = record.main.open()? {
            main.ended().await?;
        }
        if let Some(supervisor) = record.supervisor.open()? {
            // If it takes longer, whoever starts the service again waits for it.
            let _ = tokio::time::timeout(CLEARING, supervisor.ended()).await;
        }
        io::Result::Ok(())
    };
    if let Err(error) = waited.await {
        return format!("it can no longer be watched: {error}");
    }
    let ending = driver.upgrade().and_then(|context| {
        let folder = context.programs.folder_of(&service.name);
        folder.ending(record).ok()?
    });
    ending.map_or_else(|| "its supervisor was killed".to_owned(), |ending| ending.message)
}

/// Returns when the monitor command says, twice in a row, that the service does not run. An answer that tells nothing
/// changes nothing.
async fn monitored(driver: &Driver, service: &ServiceDefinition, supervised: bool) -> String {
    let Some(exec) = service.driver.exec.as_ref().filter(|exec| !exec.monitor.is_empty()) else {
        return std::future::pending().await;
    };
    loop {
        let Some(interval) = driver.upgrade().map(|context| context.monitor_interval) else {
            return std::future::pending().await;
        };
        tokio::time::sleep(interval).await;
        let mut silent = 0;
        while silent < 2 {
            let Some(context) = driver.upgrade() else { return std::future::pending().await };
            if !script::says_not_running(&context, service, exec).await {
                break;
            }
            silent += 1;
        }
        if silent == 2 {
            let what = if supervised { ", though its process lives" } else { "" };
            return format!("its monitor command says that it does not run{what}");
        }
    }
}
