//! A run of one case: preparation, fault, observation, restoration and verdict.

use std::time::Duration;

use anyhow::{Context, Result};
use ha_api_types::timing::{StoreTimes, failover_bound_ms};

use super::case::{Case, Others, Outcome, Reset, Service, Step};
use super::hardware::Watchdog;
use super::holders::Holder;
use super::qmp::What;
use super::rig::{CEILING, Rig};
use crate::plan::SHARED;
use crate::wait::{holds_for, monotonic_ns, wait_for, wait_until};

/// Time for which a service must stay on its node after the restoration.
const CALM: Duration = Duration::from_secs(3);

/// Runs a case once. `service` must be a name that no earlier run has used.
///
/// # Errors
/// Fails if the rig itself fails: the case could not be prepared, executed, restored or cleaned up.
pub fn run(rig: &mut Rig, case: &Case, service: &str) -> Result<Outcome> {
    let node = rig.node_with(case.watchdog)?;
    rig.configure(&node, case)?;
    (case.equip)(rig, &node).with_context(|| format!("cannot equip {node}"))?;
    rig.create_service(service, &node, case.storage)?;
    let bystanders = Bystanders::create(rig, case.others, service, &node)?;
    // Read now, because etcd may be unreachable later.
    let limits = Limits::of(rig, case, &node)?;
    let first = rig.holder(service)?;
    (case.prepare)(rig, &node).with_context(|| format!("cannot prepare {node}"))?;
    let mut run = Run::begin(rig, case, service, &node, &limits, &first)?;
    (case.act)(rig, &node).with_context(|| format!("cannot execute the fault {} on {node}", case.name))?;
    run.acted_ns = monotonic_ns();
    run.watch(rig)?;
    run.mending_ns = monotonic_ns();
    (case.mend)(rig, &node).with_context(|| format!("cannot restore {node}"))?;
    run.mended_ns = monotonic_ns();
    run.returned(rig);
    run.judge(rig)?;
    run.outcome.failures.extend(bystanders.failures(rig)?);
    rig.delete_service(service)?;
    bystanders.delete(rig)?;
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
            bound_ms: bound_ms.filter(|_| rig.times_count),
            wait: Duration::from_millis(report.wait_ms()),
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
    acted_ns: u64,
    mending_ns: u64,
    mended_ns: u64,
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
            acted_ns: begin_ns,
            mending_ns: begin_ns,
            mended_ns: begin_ns,
            outcome: Outcome { bound_ms: limits.bound_ms, ..Outcome::default() },
        };
        if holder.node == first.node && run.process != first.process {
            run.fail(format!("{service} restarted on {node} before the fault"));
        }
        Ok(run)
    }

    /// Waits for the expected events, or checks for a while that none occurs.
    fn watch(&mut self, rig: &Rig) -> Result<()> {
        let seen = match self.case.service {
            Service::Elsewhere | Service::Fenced | Service::Moves | Service::Visits => {
                wait_for(&format!("{} to run elsewhere", self.service), CEILING, || {
                    rig.runs_on(self.service).filter(|place| place != self.node)
                })
                .map(|_| ())
            }
            Service::Recovers => wait_until(&format!("{} to run again", self.service), CEILING, || {
                self.is_another(rig) && rig.runs_on(self.service).is_some()
            }),
            Service::Returns => {
                wait_until(&format!("{} to run on the same node again", self.service), CEILING, || {
                    self.is_another(rig) && rig.runs_on(self.service).as_deref() == Some(self.node)
                })
            }
            Service::Undisturbed => {
                holds_for("the same process holds the service", self.limits.wait + CALM, || {
                    let holders = rig.holders(self.service).all().unwrap_or_default();
                    holders.last().is_some_and(|holder| holder.process == self.process)
                })
            }
            Service::Withdraws => {
                wait_until(&format!("the end of {}", self.service), CEILING, || self.is_another(rig))
                    .and_then(|()| {
                        holds_for("no process holds the service", self.limits.wait, || {
                            rig.holding(self.service).is_empty()
                        })
                    })
            }
        };
        self.note(seen);
        match self.case.reset {
            Reset::Must | Reset::MustEmpty | Reset::MustByDaemon | Reset::Own | Reset::Asked(Step::Deed) => {
                let monitor = rig.monitor(self.node)?;
                let seen = wait_until(&format!("the reset of {}", self.node), CEILING, || {
                    monitor.first(What::Reset, self.begin_ns).is_some()
                });
                self.note(seen);
            }
            Reset::MustNot | Reset::Asked(Step::Mending) => {}
        }
        Ok(())
    }

    /// Checks that the machine becomes a node again, and that the service then stays on its node.
    fn returned(&mut self, rig: &Rig) {
        let outcome = rig.ready(self.node).and_then(|()| {
            let home = match self.case.service {
                Service::Visits | Service::Withdraws => Some(self.node),
                Service::Elsewhere
                | Service::Recovers
                | Service::Fenced
                | Service::Moves
                | Service::Undisturbed
                | Service::Returns => None,
            };
            let place = wait_for(&format!("{} to run on its preferred node", self.service), CEILING, || {
                rig.runs_on(self.service).filter(|place| home.is_none_or(|home| place == home))
            })?;
            let holders = rig.holders(self.service).all()?.len();
            holds_for(&format!("{} stays on {place}", self.service), CALM, || {
                rig.holders(self.service).all().is_ok_and(|all| all.len() == holders)
            })
        });
        self.outcome.returned = outcome.is_ok();
        self.note(outcome);
    }

    fn judge(&mut self, rig: &Rig) -> Result<()> {
        let record = rig.holders(self.service);
        let all = record.all()?;
        let here =
            all.iter().find(|holder| holder.process == self.process).context("first holder not found")?;
        let next = all.iter().find(|holder| holder.first_ns > here.first_ns);
        // The restoration may move a service that the fault does not affect.
        let next =
            next.filter(|next| self.case.service != Service::Undisturbed || next.first_ns < self.mending_ns);
        let reset_ns = self.judge_resets(rig, here, next)?;
        self.outcome.reset_ms = reset_ns.map(|at_ns| self.after_ms(at_ns));
        self.outcome.elsewhere_ms = next.map(|holder| self.after_ms(holder.first_ns));
        if next.is_some() || self.case.service != Service::Undisturbed {
            self.outcome.stopped_ms = Some(self.after_ms(here.last_ns));
        }
        self.outcome.two = record.violations()?;
        self.outcome.void = rig.stalled(self.begin_ns, self.limits.lateness_ms);
        match self.case.service {
            Service::Withdraws => {
                self.judge_time(rig, "service stopped", Some(here), |holder| holder.last_ns);
            }
            Service::Elsewhere
            | Service::Recovers
            | Service::Fenced
            | Service::Moves
            | Service::Visits
            | Service::Undisturbed
            | Service::Returns => self.judge_time(rig, "service ran", next, |holder| holder.first_ns),
        }
        for other in rig.other_resets(self.node, self.begin_ns) {
            self.fail(format!("{other} was reset without a fault"));
        }
        Ok(())
    }

    /// Checks the resets, and returns the time of the first.
    fn judge_resets(&mut self, rig: &Rig, here: &Holder, next: Option<&Holder>) -> Result<Option<u64>> {
        let monitor = rig.monitor(self.node)?;
        let all = monitor.all(What::Reset, self.begin_ns);
        let first_ns = all.first().copied();
        match (self.case.reset, first_ns, next) {
            (Reset::MustNot, Some(_), _) => self.fail(format!("{} was reset", self.node)),
            (Reset::Must | Reset::MustByDaemon, Some(reset), Some(next)) if reset > next.first_ns => {
                self.fail("machine was reset after the service started elsewhere".to_owned());
            }
            (Reset::MustByDaemon, Some(_), _) if monitor.first(What::Watchdog, self.begin_ns).is_some() => {
                self.fail("unbound watchdog device reset the machine".to_owned());
            }
            (Reset::Asked(step), _, _) => {
                let (from_ns, to_ns) = match step {
                    Step::Deed => (self.begin_ns, self.acted_ns),
                    Step::Mending => (self.mending_ns, self.mended_ns),
                };
                if all.is_empty() || !all.iter().all(|at_ns| (from_ns..=to_ns).contains(at_ns)) {
                    let resets: Vec<_> = all.iter().map(|at_ns| self.after_ms(*at_ns)).collect();
                    self.fail(format!(
                        "reset expected between {} and {} ms after the start of the fault, found at {resets:?}",
                        self.after_ms(from_ns),
                        self.after_ms(to_ns)
                    ));
                }
                let fired_ns = monitor.first(What::Watchdog, from_ns);
                let by_watchdog =
                    fired_ns.is_some_and(|fired_ns| first_ns.is_some_and(|at_ns| fired_ns <= at_ns));
                if self.case.watchdog == Watchdog::I6300esb && !by_watchdog {
                    self.fail("machine was not reset by its watchdog".to_owned());
                }
            }
            (Reset::MustEmpty, Some(reset), _) if reset < here.last_ns => {
                self.fail("service was not stopped before the reset".to_owned());
            }
            (Reset::MustNot | Reset::Must | Reset::MustEmpty | Reset::MustByDaemon | Reset::Own, _, _) => {}
        }
        Ok(first_ns)
    }

    /// Checks that an action of a holder came in time, if a limit exists.
    fn judge_time(&mut self, rig: &Rig, what: &str, holder: Option<&Holder>, at: fn(&Holder) -> u64) {
        let (Some(bound), Some(holder)) = (self.outcome.bound_ms, holder) else { return };
        let at_ns = at(holder);
        let after = self.after_ms(at_ns);
        if after <= bound {
            return;
        }
        let late = format!("{what} on {} {after} ms after the fault, limit is {bound} ms", holder.node);
        let waited = rig.stalls.waited_ms(&holder.node, self.begin_ns, at_ns);
        if waited > after - bound {
            // The machine got no processor, so this delay is not a defect of the product.
            self.outcome.void = Some(format!("{late}; that machine waited {waited} ms for a processor"));
        } else {
            self.fail(late);
        }
    }

    /// Returns `true` if the process that held the service before the fault no longer holds it.
    fn is_another(&self, rig: &Rig) -> bool {
        !rig.holding(self.service).iter().any(|holder| holder.process == self.process)
    }

    fn note(&mut self, outcome: Result<()>) {
        if let Err(error) = outcome {
            self.fail(format!("{error:#}"));
        }
    }

    fn fail(&mut self, what: String) {
        self.outcome.failures.push(what);
    }

    fn after_ms(&self, at_ns: u64) -> u64 {
        at_ns.saturating_sub(self.begin_ns) / 1_000_000
    }
}

/// Services on the machines without a fault, each with its first process. The processes must keep running during the
/// whole case.
struct Bystanders(Vec<Bystander>);

struct Bystander {
    service: String,
    process: String,
}

impl Bystanders {
    /// Creates a service on each machine except `node`, if the case requires it. The names start with `service`.
    fn create(rig: &Rig, others: Others, service: &str, node: &str) -> Result<Self> {
        let busy = match others {
            Others::Idle => Vec::new(),
            Others::Busy => rig.nodes().into_iter().filter(|other| other != node).collect(),
        };
        let all = busy.iter().map(|other| {
            let service = format!("{service}-on-{other}");
            rig.create_service(&service, other, SHARED)?;
            let process = rig.holder(&service)?.process;
            Ok(Bystander { service, process })
        });
        all.collect::<Result<_>>().map(Self)
    }

    /// Returns a message for each service whose process did not keep running.
    fn failures(&self, rig: &Rig) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for Bystander { service, process } in &self.0 {
            let all = rig.holders(service).all()?;
            let went_on = all.iter().all(|holder| holder.process == *process);
            if !went_on || rig.holding(service).is_empty() {
                found.push(format!("{service} did not keep running: {all:?}"));
            }
        }
        Ok(found)
    }

    /// Deletes the services.
    fn delete(&self, rig: &Rig) -> Result<()> {
        self.0.iter().try_for_each(|bystander| rig.delete_service(&bystander.service))
    }
}
