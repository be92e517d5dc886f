//! The tasks that watch a driver's running services, one for each service.

use ha_api_types::id::ResourceName;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::{Mutex, PoisonError};
use tokio::task::AbortHandle;

/// Watches by resource; dropping this ends all of them. `K` identifies a watch among those of the same service.
pub(super) struct Watches<K> {
    tasks: Mutex<BTreeMap<ResourceName, (K, AbortHandle)>>,
}

impl<K> Default for Watches<K> {
    fn default() -> Watches<K> {
        Watches { tasks: Mutex::default() }
    }
}

impl<K> fmt::Debug for Watches<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_set().entries(tasks.keys()).finish()
    }
}

impl<K: PartialEq> Watches<K> {
    /// Starts to watch a service, unless a watch with the same `watched` is running. A different watch of the service
    /// ends.
    pub(super) fn ensure<F>(&self, resource: &ResourceName, watched: K, watch: impl FnOnce() -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if tasks.get(resource).is_some_and(|(current, task)| *current == watched && !task.is_finished()) {
            return;
        }
        let task = tokio::spawn(watch()).abort_handle();
        if let Some((_, old)) = tasks.insert(resource.clone(), (watched, task)) {
            old.abort();
        }
    }
}

impl<K> Watches<K> {
    /// Ends the watch of a service, before a command may end the service.
    pub(super) fn end(&self, resource: &ResourceName) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, task)) = tasks.remove(resource) {
            task.abort();
        }
    }
}

impl<K> Drop for Watches<K> {
    fn drop(&mut self) {
        let tasks = self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (_, task) in tasks.values() {
            task.abort();
        }
    }
}
