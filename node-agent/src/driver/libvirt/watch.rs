//! Watches of domains: two processes of `virsh` for each libvirt report changes immediately, and the list of domains
//! is polled as a backup.

use super::answers;
use super::events::{self, Change};
use super::virsh::Virsh;
use crate::core::DriverEvent;
use ha_api_types::id::{ObjectUid, ResourceName};
use ha_api_types::resource::ServiceDefinition;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior};

/// Interval between polls of the list of running domains.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Delay before `virsh event` is started again.
const RETRY_DELAY: Duration = Duration::from_secs(2);
/// Delay before `virsh qemu-monitor-event` is started again. The command fails immediately if the hypervisor is not
/// QEMU.
const POWER_BUTTON_WATCH_RETRY_DELAY: Duration = Duration::from_secs(30);
/// Longest time between a shutdown request and the end of the guest for which the request counts as the cause.
const SHUTDOWN_WINDOW: Duration = Duration::from_secs(10 * 60);
/// Time limit for a poll of the list.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// Watched services of a driver. Dropping this value ends all watches.
#[derive(Debug)]
pub(super) struct Watches {
    shared: Arc<Shared>,
    /// One task for each libvirt.
    tasks: Mutex<BTreeMap<Virsh, AbortHandle>>,
}

#[derive(Debug)]
struct Shared {
    events: UnboundedSender<DriverEvent>,
    watched: Mutex<Watched>,
}

/// Watched services by libvirt connection and domain.
type Watched = BTreeMap<(Virsh, String), WatchedService>;

#[derive(Debug)]
struct WatchedService {
    name: ResourceName,
    uid: ObjectUid,
    /// Last seen state: `true` if the domain runs.
    is_running: bool,
    /// Time at which the state was last confirmed by a command.
    confirmed_at: Instant,
    /// `true` if an event announced that the host switches off the domain.
    host_shutdown_announced: bool,
    /// Time of the last shutdown request to the domain; `None` if there was none.
    power_button_pressed_at: Option<Instant>,
}

impl Watches {
    pub(super) fn new(events: UnboundedSender<DriverEvent>) -> Watches {
        let shared = Shared { events, watched: Mutex::default() };
        Watches { shared: Arc::new(shared), tasks: Mutex::default() }
    }

    /// Records the current state, and reports changes from now on.
    pub(super) fn record_state(
        &self,
        virsh: &Virsh,
        domain: &str,
        service: &ServiceDefinition,
        is_running: bool,
    ) {
        {
            let mut watched = self.shared.lock_watched();
            let new = WatchedService {
                name: service.name.clone(),
                uid: service.uid.clone(),
                is_running,
                confirmed_at: Instant::now(),
                host_shutdown_announced: false,
                power_button_pressed_at: None,
            };
            match watched.entry((virsh.clone(), domain.to_owned())) {
                Entry::Occupied(mut occupied)
                    if occupied.get().is_running == is_running && occupied.get().uid == new.uid =>
                {
                    // Keep `host_shutdown_announced`: the event for the end may still follow.
                    occupied.get_mut().confirmed_at = new.confirmed_at;
                }
                Entry::Occupied(mut occupied) => {
                    occupied.insert(new);
                }
                Entry::Vacant(vacant) => {
                    vacant.insert(new);
                }
            }
        }
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.entry(virsh.clone()).or_insert_with(|| {
            // A strong reference in the task would keep the driver alive.
            let (shared, virsh) = (Arc::downgrade(&self.shared), virsh.clone());
            let power_buttons = watch_power_buttons(shared.clone(), virsh.clone());
            tokio::spawn(async { tokio::join!(watch(shared, virsh), power_buttons) }).abort_handle()
        });
    }

    /// Ends the watch of a domain, before a command may start or end it without an event.
    pub(super) fn end(&self, virsh: &Virsh, domain: &str) {
        self.shared.lock_watched().remove(&(virsh.clone(), domain.to_owned()));
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        for task in self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner).values() {
            task.abort();
        }
    }
}

async fn watch(shared: Weak<Shared>, virsh: Virsh) {
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let running = virsh.begin(&["event", "--event", "lifecycle", "--loop"]);
        let mut running = running.inspect_err(|error| tracing::debug!(%error, "cannot watch libvirt")).ok();
        let mut lines = running.as_mut().and_then(super::virsh::Running::lines);
        let retry = tokio::time::sleep(RETRY_DELAY);
        tokio::pin!(retry);
        loop {
            let line = async {
                match &mut lines {
                    Some(lines) => lines.next_line().await.ok().flatten(),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                line = line => match (line, shared.upgrade()) {
                    (_, None) => return,
                    (Some(line), Some(shared)) => shared.handle_event_line(&virsh, &line),
                    // `virsh event` ends when libvirt ends. Until it runs again, the polled list shows changes.
                    (None, Some(_)) => {
                        lines = None;
                        running = None;
                    }
                },
                _ = ticks.tick() => {
                    if !poll_domains(&shared, &virsh).await {
                        return;
                    }
                }
                () = &mut retry, if running.is_none() => break,
            }
        }
    }
}

/// Reads shutdown requests, which `virsh event` does not report. Without them, a guest that follows such a request
/// looks like a guest that shuts itself down.
async fn watch_power_buttons(shared: Weak<Shared>, virsh: Virsh) {
    loop {
        let running = virsh.begin(&["qemu-monitor-event", "--event", "POWERDOWN", "--loop"]);
        let running = running.inspect_err(|error| tracing::debug!(%error, "cannot watch power buttons"));
        if let Ok(mut running) = running
            && let Some(mut lines) = running.lines()
        {
            while let Ok(Some(line)) = lines.next_line().await {
                let Some(shared) = shared.upgrade() else { return };
                shared.handle_event_line(&virsh, &line);
            }
        }
        if shared.strong_count() == 0 {
            return;
        }
        tokio::time::sleep(POWER_BUTTON_WATCH_RETRY_DELAY).await;
    }
}

/// Compares the list of domains with the known states. Returns `false` if the driver was dropped.
async fn poll_domains(shared: &Weak<Shared>, virsh: &Virsh) -> bool {
    let begin = Instant::now();
    let listed = virsh.run(LIST_TIMEOUT, &["list", "--uuid", "--name"]).await;
    let Some(shared) = shared.upgrade() else { return false };
    if let Ok(printed) = listed {
        let listed = answers::parse_domains(&printed);
        shared.compare_with_list(virsh, begin, |domain| listed.iter().any(|other| other.name == domain));
    }
    true
}

impl Shared {
    fn lock_watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle_event_line(&self, virsh: &Virsh, line: &str) {
        let Some(event) = events::parse(line) else { return };
        let mut watched = self.lock_watched();
        let Some(service) = watched.get_mut(&(virsh.clone(), event.domain)) else { return };
        match event.change {
            Change::Started => self.on_appeared(service),
            Change::SwitchesOff { by_host } => service.host_shutdown_announced = by_host,
            Change::PowerButton => service.power_button_pressed_at = Some(Instant::now()),
            Change::Ended { stopped_externally: false, .. } if service.host_shutdown_announced => {
                self.on_exited(service, "QEMU was terminated on this node", true);
            }
            Change::Ended { message: events::GUEST_SHUTDOWN, .. }
                if service
                    .power_button_pressed_at
                    .is_some_and(|pressed_at| pressed_at.elapsed() < SHUTDOWN_WINDOW) =>
            {
                self.on_exited(
                    service,
                    "virtual machine was asked to shut down, as with \"virsh shutdown\"",
                    true,
                );
            }
            Change::Ended { message, stopped_externally } => {
                self.on_exited(service, message, stopped_externally);
            }
            Change::Other => {}
        }
    }

    fn compare_with_list(&self, virsh: &Virsh, listed_at: Instant, is_listed: impl Fn(&str) -> bool) {
        for ((watched_virsh, domain), service) in &mut *self.lock_watched() {
            // A state recorded after the list was requested is newer than the list.
            if watched_virsh != virsh || service.confirmed_at >= listed_at {
                continue;
            }
            if is_listed(domain) {
                self.on_appeared(service);
            } else {
                self.on_exited(service, "domain is no longer in libvirt's list of running domains", false);
            }
        }
    }

    fn on_appeared(&self, service: &mut WatchedService) {
        if !std::mem::replace(&mut service.is_running, true) {
            self.send(DriverEvent::Appeared { name: service.name.clone(), uid: service.uid.clone() });
        }
    }

    fn on_exited(&self, service: &mut WatchedService, message: &str, stopped_externally: bool) {
        service.host_shutdown_announced = false;
        service.power_button_pressed_at = None;
        if std::mem::replace(&mut service.is_running, false) {
            self.send(DriverEvent::Exited {
                name: service.name.clone(),
                uid: service.uid.clone(),
                message: message.to_owned(),
                stopped_externally,
            });
        }
    }

    fn send(&self, event: DriverEvent) {
        // Sending fails only when the agent is ending.
        let _ = self.events.send(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use tokio::sync::mpsc::unbounded_channel;

    /// Lines of `virsh event` about a running domain, and the expected reports. `-` is a list without the domain, `+`
    /// one with it.
    #[tokio::test]
    async fn virsh_events_yield_expected_driver_events() {
        let check = async |is_running: bool, lines: &[&str], expected: &[&str]| {
            let (events, mut reported) = unbounded_channel();
            let watches = Watches::new(events);
            let virsh = Virsh::new("qemu:///of-this-test", Path::new("/nonexistent"));
            let service = ServiceDefinition { name: "web".into(), uid: "u".into(), ..Default::default() };
            watches.record_state(&virsh, "g1", &service, is_running);
            for line in lines {
                match *line {
                    "-" | "+" => {
                        watches
                            .shared
                            .compare_with_list(&virsh, Instant::now() + POLL_INTERVAL, |_| *line == "+");
                    }
                    "old" => {
                        watches.shared.compare_with_list(&virsh, Instant::now() - POLL_INTERVAL, |_| false);
                    }
                    "button" => {
                        watches.shared.handle_event_line(
                            &virsh,
                            "event POWERDOWN at 1700000000.123456 for domain g1: <null>",
                        );
                    }
                    line => {
                        watches
                            .shared
                            .handle_event_line(&virsh, &format!("event 'lifecycle' for domain 'g1': {line}"));
                    }
                }
            }
            drop(watches);
            let mut event_texts = Vec::new();
            while let Ok(event) = reported.try_recv() {
                event_texts.push(match &event {
                    DriverEvent::Exited { message, stopped_externally, .. } => {
                        format!("{message}, {stopped_externally}")
                    }
                    DriverEvent::Appeared { .. } => "appeared".to_owned(),
                    DriverEvent::Progress { .. } | DriverEvent::RequestedAmounts { .. } => {
                        panic!("{event:?}")
                    }
                });
            }
            assert_eq!(event_texts, expected, "{lines:?}");
        };
        check(
            true,
            &["Shutdown Finished after guest request", "Stopped Shutdown"],
            &["virtual machine shut itself down, false"],
        )
        .await;
        check(
            true,
            &["Shutdown Finished after host request", "Stopped Shutdown"],
            &["QEMU was terminated on this node, true"],
        )
        .await;
        let shutdown_message = "virtual machine was asked to shut down, as with \"virsh shutdown\", true";
        check(
            true,
            &["button", "Shutdown Finished after guest request", "Stopped Shutdown"],
            &[shutdown_message],
        )
        .await;
        check(true, &["button", "Stopped Crashed"], &["guest crashed, false"]).await;
        check(
            true,
            &["button", "Stopped Crashed", "Started Booted", "Stopped Shutdown"],
            &["guest crashed, false", "appeared", "virtual machine shut itself down, false"],
        )
        .await;
        check(true, &["Stopped Destroyed", "-"], &["domain was destroyed with libvirt tools, true"]).await;
        check(
            true,
            &["Crashed Panicked", "Stopped Crashed"],
            &["kernel panic in the virtual machine, false"],
        )
        .await;
        check(true, &["-", "-"], &["domain is no longer in libvirt's list of running domains, false"]).await;
        check(true, &["old", "+", "Suspended Paused"], &[]).await;
        check(false, &["Started Booted", "+"], &["appeared"]).await;
        check(false, &["-", "Stopped Failed"], &[]).await;
        check(true, &["Stopped Failed", "Started Booted"], &["QEMU exited unexpectedly, false", "appeared"])
            .await;
    }
}
