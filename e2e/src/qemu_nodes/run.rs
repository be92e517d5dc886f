//! A run of one case: preparation, fault, observation, restoration and verdict.

use std::time::Duration;

use anyhow::{Context, Result};
use ha_api_types::timing::{StoreTimes, failover_bound_ms};

use super::case::{Case, OtherMachines, Outcome, Reset, ServiceOutcome, Step};
use super::hardware::Watchdog;
use super::holders::StorageHolder;
use super::qmp::EventKind;
use super::rig::{Rig, STEP_TIMEOUT};
use crate::plan::SHARED_DIRECTORY;
use crate::wait::{check_holds_for, monotonic_ns, wait_for, wait_until};

/// Time for which a service must stay on its node after the restoration.
const STABLE_DURATION: Duration = Duration::from_secs(3);

/// Runs a case once. `service` must be a name that no earlier run has used.
///
/// # Errors
/// Fails if the rig itself fails: the case could not be prepared, executed, restored or cleaned up.
pub fn run(rig: &mut Rig, case: &Case, service: &str) -> Result<Outcome> {
    let node = rig.node_with_watchdog(case.watchdog)?;
    rig.configure(&node, case)?;
    (case.set_up)(rig, &node).with_context(|| format!("cannot prepare {node}"))?;
    rig.create_service(service, &node, case.storage)?;
    let other_services = OtherServices::create(rig, case.others, service, &node)?;
    // The limits are read now, because etcd may be unreachable later.
    let limits = TimeLimits::of(rig, case, &node)?;
    let first_holder = rig.holder(service)?;
    (case.prepare)(rig, &node).with_context(|| format!("cannot prepare {node}"))?;
    let mut run = CaseRun::begin(rig, case, service, &node, &limits, &first_holder)?;
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
struct TimeLimits {
    /// Latest time that the timing settings allow for the expected event, in milliseconds; `None` if there is no limit.
    limit_ms: Option<u64>,
    /// W of the machine.
    fencing_delay: Duration,
    /// Longest lateness of a watchdog, in milliseconds.
    lateness_ms: u64,
}

impl TimeLimits {
    fn of(rig: &Rig, case: &Case, node: &str) -> Result<Self> {
        let report = rig.cluster.node_report(node)?;
        let (commit_ms, start_ms) = rig.slowness_ms();
        let store = StoreTimes { commit_ms, ..StoreTimes::default() };
        let silence_ms = failover_bound_ms(&report.timings, &report.watchdog.bounds(), &store, false);
        // Steps of the leader, which checks every half second: closing the epoch, switching off, and confirming.
        let device_ms = report.timings.heartbeat_valid_ms + 5 * commit_ms + 1_000;
        // The limits assume an armed node. An idle node first commits that it is armed.
        let arming_ms = report.timings.heartbeat_interval_ms + commit_ms;
        let limit_ms = match case.service {
            ServiceOutcome::StartsElsewhere | ServiceOutcome::Recovers => {
                Some(silence_ms + arming_ms + start_ms)
            }
            ServiceOutcome::StartsAfterFencing => Some(device_ms + arming_ms + start_ms),
            ServiceOutcome::StopsUntilRestored => Some(report.timings.heartbeat_valid_ms),
            ServiceOutcome::Moves
            | ServiceOutcome::MovesAndReturns
            | ServiceOutcome::KeepsRunning
            | ServiceOutcome::RestartsOnSameNode => None,
        };
        Ok(Self {
            limit_ms: limit_ms.filter(|_| rig.are_times_checked),
            fencing_delay: Duration::from_millis(report.fencing_delay_ms()),
            lateness_ms: report.timings.watchdog_lateness_ms,
        })
    }
}

struct CaseRun<'a> {
    case: &'a Case,
    service: &'a str,
    node: &'a str,
    limits: &'a TimeLimits,
    /// Process that holds the service before the fault.
    process: String,
    /// Start and end of the fault and of the restoration, on `CLOCK_MONOTONIC`, in nanoseconds.
    begin_ns: u64,
    injected_ns: u64,
    restoring_ns: u64,
    restored_ns: u64,
    outcome: Outcome,
}

impl<'a> CaseRun<'a> {
    /// Starts a run after the preparation. `first` is the process that held the service before the preparation.
    fn begin(
        rig: &Rig,
        case: &'a Case,
        service: &'a str,
        node: &'a str,
        limits: &'a TimeLimits,
        first_holder: &StorageHolder,
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
            outcome: Outcome { limit_ms: limits.limit_ms, ..Outcome::default() },
        };
        if holder.node == first_holder.node && run.process != first_holder.process {
            run.add_failure(format!("{service} restarted on {node} before the fault"));
        }
        Ok(run)
    }

    /// Waits for the expected events, or checks for a while that none occurs.
    fn observe(&mut self, rig: &Rig) -> Result<()> {
        let observation = match self.case.service {
            ServiceOutcome::StartsElsewhere
            | ServiceOutcome::StartsAfterFencing
            | ServiceOutcome::Moves
            | ServiceOutcome::MovesAndReturns => {
                wait_for(&format!("{} to run elsewhere", self.service), STEP_TIMEOUT, || {
                    rig.runs_on(self.service).filter(|node| node != self.node)
                })
                .map(|_| ())
            }
            ServiceOutcome::Recovers => {
                wait_until(&format!("{} to run again", self.service), STEP_TIMEOUT, || {
                    self.has_released(rig) && rig.runs_on(self.service).is_some()
                })
            }
            ServiceOutcome::RestartsOnSameNode => {
                wait_until(&format!("{} to run on the same node again", self.service), STEP_TIMEOUT, || {
                    self.has_released(rig) && rig.runs_on(self.service).as_deref() == Some(self.node)
                })
            }
            ServiceOutcome::KeepsRunning => check_holds_for(
                "the same process holds the service",
                self.limits.fencing_delay + STABLE_DURATION,
                || {
                    let holders = rig.holders(self.service).all().unwrap_or_default();
                    holders.last().is_some_and(|holder| holder.process == self.process)
                },
            ),
            ServiceOutcome::StopsUntilRestored => {
                wait_until(&format!("the end of {}", self.service), STEP_TIMEOUT, || self.has_released(rig))
                    .and_then(|()| {
                        check_holds_for("no process holds the service", self.limits.fencing_delay, || {
                            rig.current_holders(self.service).is_empty()
                        })
                    })
            }
        };
        self.record(observation);
        match self.case.reset {
            Reset::Must
            | Reset::MustAfterStop
            | Reset::MustByDaemon
            | Reset::RebootFromInside
            | Reset::Requested(Step::Fault) => {
                let monitor = rig.monitor(self.node)?;
                let observation = wait_until(&format!("the reset of {}", self.node), STEP_TIMEOUT, || {
                    monitor.first(EventKind::Reset, self.begin_ns).is_some()
                });
                self.record(observation);
            }
            Reset::MustNot | Reset::Requested(Step::Restoration) | Reset::AfterWakeUp => {}
        }
        Ok(())
    }

    /// Checks that the machine becomes a node again, and that the service then stays on its node.
    fn check_return(&mut self, rig: &Rig) {
        let outcome = rig.wait_until_ready(self.node).and_then(|()| {
            let preferred = match self.case.service {
                ServiceOutcome::MovesAndReturns | ServiceOutcome::StopsUntilRestored => Some(self.node),
                ServiceOutcome::StartsElsewhere
                | ServiceOutcome::Recovers
                | ServiceOutcome::StartsAfterFencing
                | ServiceOutcome::Moves
                | ServiceOutcome::KeepsRunning
                | ServiceOutcome::RestartsOnSameNode => None,
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
        self.outcome.has_returned = outcome.is_ok();
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
            self.case.service != ServiceOutcome::KeepsRunning || next_holder.first_ns < self.restoring_ns
        });
        let reset_ns = self.evaluate_resets(rig, first_holder, next_holder)?;
        self.outcome.reset_ms = reset_ns.map(|at_ns| self.ms_after_fault(at_ns));
        self.outcome.elsewhere_ms = next_holder.map(|holder| self.ms_after_fault(holder.first_ns));
        if next_holder.is_some() || self.case.service != ServiceOutcome::KeepsRunning {
            self.outcome.stopped_ms = Some(self.ms_after_fault(first_holder.last_ns));
        }
        self.outcome.double_runs = record.violations()?;
        self.outcome.invalid_reason = rig.stall_reason(self.begin_ns, self.limits.lateness_ms);
        match self.case.service {
            ServiceOutcome::StopsUntilRestored => {
                self.evaluate_time(rig, "service stopped", Some(first_holder), |holder| holder.last_ns);
            }
            ServiceOutcome::StartsElsewhere
            | ServiceOutcome::Recovers
            | ServiceOutcome::StartsAfterFencing
            | ServiceOutcome::Moves
            | ServiceOutcome::MovesAndReturns
            | ServiceOutcome::KeepsRunning
            | ServiceOutcome::RestartsOnSameNode => {
                self.evaluate_time(rig, "service ran", next_holder, |holder| holder.first_ns);
            }
        }
        for other in rig.other_resets(self.node, self.begin_ns) {
            self.add_failure(format!("{other} was reset without a fault"));
        }
        Ok(())
    }

    /// Checks the resets, and returns the time of the first.
    fn evaluate_resets(
        &mut self,
        rig: &Rig,
        first_holder: &StorageHolder,
        next: Option<&StorageHolder>,
    ) -> Result<Option<u64>> {
        let monitor = rig.monitor(self.node)?;
        let reset_times_ns = monitor.all(EventKind::Reset, self.begin_ns);
        let first_ns = reset_times_ns.first().copied();
        match (self.case.reset, first_ns, next) {
            (Reset::MustNot, Some(_), _) => self.add_failure(format!("{} was reset", self.node)),
            (Reset::Must | Reset::MustByDaemon, Some(reset), Some(next)) if reset > next.first_ns => {
                self.add_failure("machine was reset after the service started elsewhere".to_owned());
            }
            (Reset::MustByDaemon, Some(_), _)
                if monitor.first(EventKind::Watchdog, self.begin_ns).is_some() =>
            {
                self.add_failure("unbound watchdog device reset the machine".to_owned());
            }
            (Reset::AfterWakeUp, _, _) => {
                let woke_up = monitor.first(EventKind::WokeUp, self.begin_ns);
                self.check_reset_times(
                    &reset_times_ns,
                    woke_up.unwrap_or(self.restoring_ns),
                    self.restored_ns,
                );
            }
            (Reset::Requested(step), _, _) => {
                let (from_ns, to_ns) = match step {
                    Step::Fault => (self.begin_ns, self.injected_ns),
                    Step::Restoration => (self.restoring_ns, self.restored_ns),
                };
                self.check_reset_times(&reset_times_ns, from_ns, to_ns);
                let fired_ns = monitor.first(EventKind::Watchdog, from_ns);
                let by_watchdog =
                    fired_ns.is_some_and(|fired_ns| first_ns.is_some_and(|at_ns| fired_ns <= at_ns));
                if self.case.watchdog == Watchdog::I6300esb && !by_watchdog {
                    self.add_failure("machine was not reset by its watchdog".to_owned());
                }
            }
            (Reset::MustAfterStop, Some(reset), _) if reset < first_holder.last_ns => {
                self.add_failure("service was not stopped before the reset".to_owned());
            }
            (
                Reset::MustNot
                | Reset::Must
                | Reset::MustAfterStop
                | Reset::MustByDaemon
                | Reset::RebootFromInside,
                _,
                _,
            ) => {}
        }
        Ok(first_ns)
    }

    /// Checks that the machine was reset, and only within a period.
    fn check_reset_times(&mut self, reset_times_ns: &[u64], from_ns: u64, to_ns: u64) {
        if reset_times_ns.is_empty() || !reset_times_ns.iter().all(|at_ns| (from_ns..=to_ns).contains(at_ns))
        {
            let resets: Vec<_> = reset_times_ns.iter().map(|at_ns| self.ms_after_fault(*at_ns)).collect();
            self.add_failure(format!(
                "reset expected between {} and {} ms after the start of the fault, found at {resets:?}",
                self.ms_after_fault(from_ns),
                self.ms_after_fault(to_ns)
            ));
        }
    }

    /// Checks that an action of a holder came in time, if a limit exists.
    fn evaluate_time(
        &mut self,
        rig: &Rig,
        event_name: &str,
        holder: Option<&StorageHolder>,
        event_time_ns: fn(&StorageHolder) -> u64,
    ) {
        let (Some(limit_ms), Some(holder)) = (self.outcome.limit_ms, holder) else { return };
        let at_ns = event_time_ns(holder);
        let elapsed_ms = self.ms_after_fault(at_ns);
        if elapsed_ms <= limit_ms {
            return;
        }
        let lateness_message = format!(
            "{event_name} on {} {elapsed_ms} ms after the fault, limit is {limit_ms} ms",
            holder.node
        );
        let waited = rig.stalls.waited_ms(&holder.node, self.begin_ns, at_ns);
        if waited > elapsed_ms - limit_ms {
            // The machine got no processor, so this delay is not a defect of the product.
            self.outcome.invalid_reason =
                Some(format!("{lateness_message}; that machine waited {waited} ms for a processor"));
        } else {
            self.add_failure(lateness_message);
        }
    }

    /// Returns `true` if the process that held the service before the fault no longer holds it.
    fn has_released(&self, rig: &Rig) -> bool {
        !rig.current_holders(self.service).iter().any(|holder| holder.process == self.process)
    }

    fn record(&mut self, outcome: Result<()>) {
        if let Err(error) = outcome {
            self.add_failure(format!("{error:#}"));
        }
    }

    fn add_failure(&mut self, message: String) {
        self.outcome.failures.push(message);
    }

    fn ms_after_fault(&self, at_ns: u64) -> u64 {
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
        let busy_nodes = match others {
            OtherMachines::Idle => Vec::new(),
            OtherMachines::Busy => rig.nodes().into_iter().filter(|other| other != node).collect(),
        };
        let all = busy_nodes.iter().map(|other| {
            let service = format!("{service}-on-{other}");
            rig.create_service(&service, other, SHARED_DIRECTORY)?;
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

    fn delete(&self, rig: &Rig) -> Result<()> {
        self.0.iter().try_for_each(|other_service| rig.delete_service(&other_service.service))
    }
}
