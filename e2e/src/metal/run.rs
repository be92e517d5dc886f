//! A run of one case: preparation, fault, observation, restoration and verdict.

use std::time::Duration;

use anyhow::{Context, Result};
use ha_api_types::timing::{StoreTimes, failover_bound_ms};

use super::case::{Case, OtherMachines, Outcome, Reset, Service, Step};
use super::hardware::Watchdog;
use super::holders::Holder;
use super::qmp::EventKind;
use super::rig::{Rig, STEP_TIMEOUT};
use crate::plan::SHARED;
use crate::wait::{check_holds_for, monotonic_ns, wait_for, wait_until};

/// Time for which a service must stay on its node after the restoration.
const STABLE_DURATION: Duration = Duration::from_secs(3);

/// Runs a case once. `service` must be a name that no earlier run has used.
///
/// # Errors
/// Fails if the rig itself fails: the case could not be prepared, executed, restored or cleaned up.
pub fn run(rig: &mut Rig, case: &Case, service: &str) -> Result<Outcome> {
    let node = rig.node_with(case.watchdog)?;
    rig.configure(&node, case)?;
    (case.set_up)(rig, &node).with_context(|| format!("cannot prepare {node}"))?;
    rig.create_service(service, &node, case.storage)?;
    let other_services = OtherServices::create(rig, case.others, service, &node)?;
    // The limits are read now, because etcd may be unreachable later.
    let limits = Limits::of(rig, case, &node)?;
    let first = rig.holder(service)?;
    (case.prepare)(rig, &node).with_context(|| format!("cannot prepare {node}"))?;
    let mut run = Run::begin(rig, case, service, &node, &limits, &first)?;
    (case.inject)(rig, &node).with_context(|| format!("cannot execute the fault {} on {node}", case.name))?;
    run.injected_ns = monotonic_ns();
    run.observe(rig)?;
    run.restoring_ns = monotonic_ns();
    (case.restore)(rig, &node).with_context(|| format!("cannot restore {node}"))?;
    run.restored_ns = monotonic_ns();
    run.check_return(rig);
    run.evaluate(rig)?;
    run.outcome.failures.extend(other_services.failures(rig)?);
    rig.delete_service(service)?;
    other_services.delete(rig)?;
    Ok(run.outcome)
}

/// Limits for a machine from its timing settings.
struct Limits {
    /// Latest time that the timing settings allow for the expected event, in milliseconds; `None` if there is no limit.
    bound_ms: Option<u64>,
    /// W of the machine.
    wait: Duration,
    /// Longest lateness of a watchdog, in milliseconds.
    lateness_ms: u64,
}

impl Limits {
    fn of(rig: &Rig, case: &Case, node: &str) -> Result<Self> {
        let report = rig.cluster.node_report(node)?;
        let (commit_ms, start_ms) = rig.slowness_ms();
        let store = StoreTimes { commit_ms, ..StoreTimes::default() };
        let silence_ms = failover_bound_ms(&report.timings, &report.watchdog.bounds(), &store, false);
        // Steps of the leader, which checks every half second: closing the epoch, switching off, and confirming.
        let device_ms = report.timings.heartbeat_valid_ms + 5 * commit_ms + 1_000;
        // The limits assume an armed node. An idle node first commits that it is armed.
        let arming_ms = report.timings.heartbeat_interval_ms + commit_ms;
        let bound_ms = match case.service {
            Service::Elsewhere | Service::Recovers => Some(silence_ms + arming_ms + start_ms),
            Service::Fenced => Some(device_ms + arming_ms + start_ms),
            Service::Withdraws => Some(report.timings.heartbeat_valid_ms),
            Service::Moves | Service::Visits | Service::Undisturbed | Service::Returns => None,
        };
        Ok(Self {
            bound_ms: bound_ms.filter(|_| rig.are_times_checked),
            wait: Duration::from_millis(report.fencing_delay_ms()),
            lateness_ms: report.timings.watchdog_lateness_ms,
        })
    }
}

struct Run<'a> {
    case: &'a Case,
    service: &'a str,
    node: &'a str,
    limits: &'a Limits,
    /// Process that holds the service before the fault.
    process: String,
    /// Start and end of the fault and of the restoration, on `CLOCK_MONOTONIC`, in nanoseconds.
    begin_ns: u64,
    injected_ns: u64,
    restoring_ns: u64,
    restored_ns: u64,
    outcome: Outcome,
}

impl<'a> Run<'a> {
    /// Starts a run after the preparation. `first` is the process that held the service before the preparation.
    fn begin(
        rig: &Rig,
        case: &'a Case,
        service: &'a str,
        node: &'a str,
        limits: &'a Limits,
        first: &Holder,
    ) -> Result<Self> {
        let holder = rig.holder(service)?;
        let begin_ns = monotonic_ns();
        let mut run = Self {
            case,
            service,
            node,
            limits,
            process: holder.process,
            begin_ns,
            injected_ns: begin_ns,
            restoring_ns: begin_ns,
            restored_ns: begin_ns,
            outcome: Outcome { bound_ms: limits.bound_ms, ..Outcome::default() },
        };
        if holder.node == first.node && run.process != first.process {
            run.fail(format!("{service} restarted on {node} before the fault"));
        }
        Ok(run)
    }

    /// Waits for the expected events, or checks for a while that none occurs.
    fn observe(&mut self, rig: &Rig) -> Result<()> {
        let observation = match self.case.service {
            Service::Elsewhere | Service::Fenced | Service::Moves | Service::Visits => {
                wait_for(&format!("{} to run elsewhere", self.service), STEP_TIMEOUT, || {
                    rig.runs_on(self.service).filter(|node| node != self.node)
                })
                .map(|_| ())
            }
            Service::Recovers => wait_until(&format!("{} to run again", self.service), STEP_TIMEOUT, || {
                self.has_released(rig) && rig.runs_on(self.service).is_some()
            }),
            Service::Returns => {
                wait_until(&format!("{} to run on the same node again", self.service), STEP_TIMEOUT, || {
                    self.has_released(rig) && rig.runs_on(self.service).as_deref() == Some(self.node)
                })
            }
            Service::Undisturbed => check_holds_for(
                "the same process holds the service",
                self.limits.wait + STABLE_DURATION,
                || {
                    let holders = rig.holders(self.service).all().unwrap_or_default();
                    holders.last().is_some_and(|holder| holder.process == self.process)
                },
            ),
            Service::Withdraws => {
                wait_until(&format!("the end of {}", self.service), STEP_TIMEOUT, || self.has_released(rig))
                    .and_then(|()| {
                        check_holds_for("no process holds the service", self.limits.wait, || {
                            rig.current_holders(self.service).is_empty()
                        })
                    })
            }
        };
        self.record(observation);
        match self.case.reset {
            Reset::Must | Reset::MustEmpty | Reset::MustByDaemon | Reset::Own | Reset::Asked(Step::Fault) => {
                let monitor = rig.monitor(self.node)?;
                let observation = wait_until(&format!("the reset of {}", self.node), STEP_TIMEOUT, || {
                    monitor.first(EventKind::Reset, self.begin_ns).is_some()
                });
                self.record(observation);
            }
            Reset::MustNot | Reset::Asked(Step::Restoration) => {}
        }
        Ok(())
    }

    /// Checks that the machine becomes a node again, and that the service then stays on its node.
    fn check_return(&mut self, rig: &Rig) {
        let outcome = rig.wait_until_ready(self.node).and_then(|()| {
            let preferred = match self.case.service {
                Service::Visits | Service::Withdraws => Some(self.node),
                Service::Elsewhere
                | Service::Recovers
                | Service::Fenced
                | Service::Moves
                | Service::Undisturbed
                | Service::Returns => None,
            };
            let node =
                wait_for(&format!("{} to run on its preferred node", self.service), STEP_TIMEOUT, || {
                    rig.runs_on(self.service)
                        .filter(|node| preferred.is_none_or(|preferred| node == preferred))
                })?;
            let holders = rig.holders(self.service).all()?.len();
            check_holds_for(&format!("{} stays on {node}", self.service), STABLE_DURATION, || {
                rig.holders(self.service).all().is_ok_and(|all_holders| all_holders.len() == holders)
            })
        });
        self.outcome.returned = outcome.is_ok();
        self.record(outcome);
    }

    fn evaluate(&mut self, rig: &Rig) -> Result<()> {
        let record = rig.holders(self.service);
        let all_holders = record.all()?;
        let first_holder = all_holders
            .iter()
            .find(|holder| holder.process == self.process)
            .context("first holder not found")?;
        let next_holder = all_holders.iter().find(|holder| holder.first_ns > first_holder.first_ns);
        // The restoration may move a service that the fault does not affect.
        let next_holder = next_holder.filter(|next_holder| {
            self.case.service != Service::Undisturbed || next_holder.first_ns < self.restoring_ns
        });
        let reset_ns = self.evaluate_resets(rig, first_holder, next_holder)?;
        self.outcome.reset_ms = reset_ns.map(|at_ns| self.after_ms(at_ns));
        self.outcome.elsewhere_ms = next_holder.map(|holder| self.after_ms(holder.first_ns));
        if next_holder.is_some() || self.case.service != Service::Undisturbed {
            self.outcome.stopped_ms = Some(self.after_ms(first_holder.last_ns));
        }
        self.outcome.double_runs = record.violations()?;
        self.outcome.invalid_reason = rig.stalled(self.begin_ns, self.limits.lateness_ms);
        match self.case.service {
            Service::Withdraws => {
                self.evaluate_time(rig, "service stopped", Some(first_holder), |holder| holder.last_ns);
            }
            Service::Elsewhere
            | Service::Recovers
            | Service::Fenced
            | Service::Moves
            | Service::Visits
            | Service::Undisturbed
            | Service::Returns => {
                self.evaluate_time(rig, "service ran", next_holder, |holder| holder.first_ns);
            }
        }
        for other in rig.other_resets(self.node, self.begin_ns) {
            self.fail(format!("{other} was reset without a fault"));
        }
        Ok(())
    }

    /// Checks the resets, and returns the time of the first.
    fn evaluate_resets(
        &mut self,
        rig: &Rig,
        first_holder: &Holder,
        next: Option<&Holder>,
    ) -> Result<Option<u64>> {
        let monitor = rig.monitor(self.node)?;
        let reset_times_ns = monitor.all(EventKind::Reset, self.begin_ns);
        let first_ns = reset_times_ns.first().copied();
        match (self.case.reset, first_ns, next) {
            (Reset::MustNot, Some(_), _) => self.fail(format!("{} was reset", self.node)),
            (Reset::Must | Reset::MustByDaemon, Some(reset), Some(next)) if reset > next.first_ns => {
                self.fail("machine was reset after the service started elsewhere".to_owned());
            }
            (Reset::MustByDaemon, Some(_), _)
                if monitor.first(EventKind::Watchdog, self.begin_ns).is_some() =>
            {
                self.fail("unbound watchdog device reset the machine".to_owned());
            }
            (Reset::Asked(step), _, _) => {
                let (from_ns, to_ns) = match step {
                    Step::Fault => (self.begin_ns, self.injected_ns),
                    Step::Restoration => (self.restoring_ns, self.restored_ns),
                };
                if reset_times_ns.is_empty()
                    || !reset_times_ns.iter().all(|at_ns| (from_ns..=to_ns).contains(at_ns))
                {
                    let resets: Vec<_> = reset_times_ns.iter().map(|at_ns| self.after_ms(*at_ns)).collect();
                    self.fail(format!(
                        "reset expected between {} and {} ms after the start of the fault, found at {resets:?}",
                        self.after_ms(from_ns),
                        self.after_ms(to_ns)
                    ));
                }
                let fired_ns = monitor.first(EventKind::Watchdog, from_ns);
                let by_watchdog =
                    fired_ns.is_some_and(|fired_ns| first_ns.is_some_and(|at_ns| fired_ns <= at_ns));
                if self.case.watchdog == Watchdog::I6300esb && !by_watchdog {
                    self.fail("machine was not reset by its watchdog".to_owned());
                }
            }
            (Reset::MustEmpty, Some(reset), _) if reset < first_holder.last_ns => {
                self.fail("service was not stopped before the reset".to_owned());
            }
            (Reset::MustNot | Reset::Must | Reset::MustEmpty | Reset::MustByDaemon | Reset::Own, _, _) => {}
        }
        Ok(first_ns)
    }

    /// Checks that an action of a holder came in time, if a limit exists.
    fn evaluate_time(
        &mut self,
        rig: &Rig,
        event_name: &str,
        holder: Option<&Holder>,
        at: fn(&Holder) -> u64,
    ) {
        let (Some(bound), Some(holder)) = (self.outcome.bound_ms, holder) else { return };
        let at_ns = at(holder);
        let after = self.after_ms(at_ns);
        if after <= bound {
            return;
        }
        let lateness_message =
            format!("{event_name} on {} {after} ms after the fault, limit is {bound} ms", holder.node);
        let waited = rig.stalls.waited_ms(&holder.node, self.begin_ns, at_ns);
        if waited > after - bound {
            // The machine got no processor, so this delay is not a defect of the product.
            self.outcome.invalid_reason =
                Some(format!("{lateness_message}; that machine waited {waited} ms for a processor"));
        } else {
            self.fail(lateness_message);
        }
    }

    /// Returns `true` if the process that held the service before the fault no longer holds it.
    fn has_released(&self, rig: &Rig) -> bool {
        !rig.current_holders(self.service).iter().any(|holder| holder.process == self.process)
    }

    fn record(&mut self, outcome: Result<()>) {
        if let Err(error) = outcome {
            self.fail(format!("{error:#}"));
        }
    }

    fn fail(&mut self, message: String) {
        self.outcome.failures.push(message);
    }

    fn after_ms(&self, at_ns: u64) -> u64 {
        at_ns.saturating_sub(self.begin_ns) / 1_000_000
    }
}

/// Services on the machines without a fault, each with its first process. The processes must keep running during the
/// whole case.
struct OtherServices(Vec<OtherService>);

struct OtherService {
    service: String,
    process: String,
}

impl OtherServices {
    /// Creates a service on each machine except `node`, if the case requires it. The names start with `service`.
    fn create(rig: &Rig, others: OtherMachines, service: &str, node: &str) -> Result<Self> {
        let busy = match others {
            OtherMachines::Idle => Vec::new(),
            OtherMachines::Busy => rig.nodes().into_iter().filter(|other| other != node).collect(),
        };
        let all = busy.iter().map(|other| {
            let service = format!("{service}-on-{other}");
            rig.create_service(&service, other, SHARED)?;
            let process = rig.holder(&service)?.process;
            Ok(OtherService { service, process })
        });
        all.collect::<Result<_>>().map(Self)
    }

    /// Returns a message for each service whose process did not keep running.
    fn failures(&self, rig: &Rig) -> Result<Vec<String>> {
        let mut failures_found = Vec::new();
        for OtherService { service, process } in &self.0 {
            let service_holders = rig.holders(service).all()?;
            let kept_running = service_holders.iter().all(|holder| holder.process == *process);
            if !kept_running || rig.current_holders(service).is_empty() {
                failures_found.push(format!("{service} did not keep running: {service_holders:?}"));
            }
        }
        Ok(failures_found)
    }

    /// Deletes the services.
    fn delete(&self, rig: &Rig) -> Result<()> {
        self.0.iter().try_for_each(|other_service| rig.delete_service(&other_service.service))
    }
}
