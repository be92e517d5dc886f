//! Running one case: prepare, do, watch, mend, judge.

use std::time::Duration;

use anyhow::{Context, Result};
use ha_api_types::timing::{StoreTimes, failover_bound_ms};

use super::case::{Case, Outcome, Reset, Service, Silence};
use super::qmp::What;
use super::rig::{CEILING, Rig};
use crate::wait::{holds_for, monotonic_ns, wait_for, wait_until};

/// For how long a service must stay where it is once everything is back.
const CALM: Duration = Duration::from_secs(3);

/// Runs a case once; `service` is a name that no earlier run had.
///
/// # Errors
/// When the rig itself fails: the case could not be prepared, done, mended or cleaned up.
pub fn run(rig: &mut Rig, case: &Case, service: &str) -> Result<Outcome> {
    let node = rig.node_with(case.watchdog)?;
    rig.configure(&node, case.fencing, case.policy)?;
    rig.create_service(service, &node)?;
    (case.prepare)(rig, &node).with_context(|| format!("{node} could not be prepared"))?;
    let mut run = Run::prepare(rig, case, service, &node)?;
    (case.act)(rig, &node).with_context(|| format!("{} could not be done to {node}", case.name))?;
    run.watch(rig)?;
    (case.mend)(rig, &node).with_context(|| format!("{node} could not be mended"))?;
    run.returned(rig);
    run.judge(rig)?;
    rig.delete_service(service)?;
    Ok(run.outcome)
}

struct Run<'a> {
    case: &'a Case,
    service: &'a str,
    node: &'a str,
    /// The holder before the deed.
    process: String,
    /// W of the node, from its report.
    wait_ms: u64,
    lateness_ms: u64,
    begin_ns: u64,
    outcome: Outcome,
}

impl<'a> Run<'a> {
    fn prepare(rig: &Rig, case: &'a Case, service: &'a str, node: &'a str) -> Result<Self> {
        let holding = rig.holding(service);
        let holder = holding.first().context("the service has a holder")?;
        let report = rig.cluster.node_report(node)?;
        let (commit_ms, start_ms) = rig.slowness_ms();
        let store = StoreTimes { commit_ms, ..StoreTimes::default() };
        let silence_ms = failover_bound_ms(&report.timings, &report.watchdog.bounds(), &store, false);
        // Declared, off, confirmed off, each seen by a leader that looks every half second.
        let device_ms = report.timings.heartbeat_valid_ms + 5 * commit_ms + 1_000;
        // The bounds are for a node that is armed already; an idle one commits that first.
        let arming_ms = report.timings.heartbeat_interval_ms + commit_ms;
        let bound_ms = match case.service {
            Service::Elsewhere | Service::Recovers => Some(silence_ms + arming_ms + start_ms),
            Service::Fenced => Some(device_ms + arming_ms + start_ms),
            Service::Moves | Service::Visits | Service::Undisturbed | Service::Returns => None,
        };
        let outcome = Outcome { bound_ms: bound_ms.filter(|_| rig.times_count), ..Outcome::default() };
        Ok(Self {
            case,
            service,
            node,
            process: holder.process.clone(),
            wait_ms: report.wait_ms(),
            lateness_ms: report.timings.watchdog_lateness_ms,
            begin_ns: monotonic_ns(),
            outcome,
        })
    }

    /// Waits for what must happen, or for as long as nothing must.
    fn watch(&mut self, rig: &Rig) -> Result<()> {
        let wait = Duration::from_millis(self.wait_ms);
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
            Service::Returns => wait_until(&format!("{} to run here again", self.service), CEILING, || {
                self.is_another(rig) && rig.runs_on(self.service).as_deref() == Some(self.node)
            }),
            Service::Undisturbed => holds_for("the same process holds the service", wait + CALM, || {
                let holders = rig.holders(self.service).all().unwrap_or_default();
                holders.iter().all(|holder| holder.process == self.process)
            }),
        };
        self.note(seen);
        if self.case.reset != Reset::MustNot {
            let monitor = rig.monitor(self.node)?;
            let seen = wait_until(&format!("the reset of {}", self.node), CEILING, || {
                monitor.first(What::Reset, self.begin_ns).is_some()
            });
            self.note(seen);
        }
        Ok(())
    }

    /// The machine is a node again, and the service stays where it is.
    fn returned(&mut self, rig: &Rig) {
        let outcome = rig.ready(self.node).and_then(|()| {
            let home = (self.case.service == Service::Visits).then_some(self.node);
            let place = wait_for(&format!("{} to run where it belongs", self.service), CEILING, || {
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
        let here = all.iter().find(|holder| holder.process == self.process).context("the first holder")?;
        let next = all.iter().find(|holder| holder.first_ns > here.first_ns);
        let reset_ns = rig.monitor(self.node)?.first(What::Reset, self.begin_ns);
        self.outcome.reset_ms = reset_ns.map(|at_ns| self.after_ms(at_ns));
        if self.case.silence == Silence::FromReset {
            let begins_ms = self.outcome.reset_ms.unwrap_or_default();
            self.outcome.bound_ms = self.outcome.bound_ms.map(|bound| bound + begins_ms);
        }
        self.outcome.elsewhere_ms = next.map(|holder| self.after_ms(holder.first_ns));
        if next.is_some() || self.case.service != Service::Undisturbed {
            self.outcome.stopped_ms = Some(self.after_ms(here.last_ns));
        }
        self.outcome.two = record.violations()?;
        match (self.case.reset, reset_ns, next) {
            (Reset::MustNot, Some(_), _) => self.fail(format!("{} was reset", self.node)),
            (Reset::Must, Some(reset), Some(next)) if reset > next.first_ns => {
                self.fail("the reset came after the start elsewhere".to_owned());
            }
            (Reset::MustNot | Reset::Must | Reset::Own, _, _) => {}
        }
        self.outcome.void = rig.stalled(self.begin_ns, self.lateness_ms);
        if let (Some(bound), Some(elsewhere), Some(next)) =
            (self.outcome.bound_ms, self.outcome.elsewhere_ms, next)
            && elsewhere > bound
        {
            let waited = rig.stalls.waited_ms(&next.node, self.begin_ns, next.first_ns);
            let late = format!("it ran on {} {elsewhere} ms after the deed; {bound} are allowed", next.node);
            if waited > elsewhere - bound {
                // Slow, as everything on a machine that gets no processor: that says nothing about the product.
                self.outcome.void = Some(format!("{late}; that machine waited {waited} ms for a processor"));
            } else {
                self.fail(late);
            }
        }
        for other in rig.other_resets(self.node, self.begin_ns) {
            self.fail(format!("{other} was reset, to which nothing was done"));
        }
        Ok(())
    }

    /// The process that held the service at first holds it no longer.
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
