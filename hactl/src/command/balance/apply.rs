//! Execution of a plan on the live cluster: one job set at a time, with its jobs in parallel. No further set begins
//! after a failure.

use super::actions::{Action, actions};
use super::arrival::arrival;
use super::planned::{Planned, Source};
use super::signals::{Signals, Terminated};
use super::still::Expected;
use crate::command::operate::{explain, follow, record, word};
use crate::command::wait::bounded;
use crate::failure::{Exit, Failure};
use crate::session::Session;
use crate::terminal::Terminal;
use ha_api_types::names::count;
use ha_api_types::operation::OperationPhase;
use ha_scheduler::balance::plan::Step;
use ha_scheduler::balance::problem::Guest;
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::time::Duration;

/// Settings for the execution of a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions<'a> {
    /// Timeout of one job set.
    pub(crate) timeout: Duration,
    /// Nodes that options treat as offline; their state is not checked.
    pub(crate) offline: &'a [String],
    /// Command that makes a new plan.
    pub(crate) command: &'static str,
}

/// The outcome of a plan.
pub(crate) struct Applied {
    /// All jobs that were started, as JSON.
    pub(crate) jobs: Vec<Value>,
    /// Reason why the execution stopped; `None`: everything is done.
    pub(crate) failure: Option<Failure>,
}

/// A step that is being executed.
struct Job<'a> {
    planned: &'a Planned,
    step: &'a Step,
    /// Label in messages: `web node1 => node2`.
    label: String,
    actions: Vec<Action>,
    /// Services that a rule moves along without an operation of their own.
    along: Vec<String>,
    target: String,
}

/// A plan that is being executed.
struct Run<'a> {
    session: &'a Session,
    conditions: Conditions<'a>,
    source: &'a Source,
    signals: Signals,
    expected: Expected,
    applied: Vec<Value>,
    /// Number of completed moves.
    done: usize,
}

/// Asks whether to execute this many moves, unless `--yes` was given or there is no terminal.
///
/// # Errors
/// Fails if the user does not confirm.
pub(crate) fn confirm(yes: bool, moves: usize) -> Result<(), Failure> {
    let question = format!("Apply {}?", count(moves, "move"));
    if !yes && std::io::stdin().is_terminal() && !Terminal::confirm(&question)? {
        return Err(Failure::refused("not confirmed: nothing was changed"));
    }
    Ok(())
}

/// Executes the plans one at a time.
pub(crate) async fn apply(
    session: &Session,
    conditions: Conditions<'_>,
    source: &Source,
    plans: &[Planned],
) -> Result<Applied, Failure> {
    let sets: Vec<(&Planned, Vec<Step>)> = plans
        .iter()
        .flat_map(|planned| planned.job_sets().into_iter().map(move |set| (planned, set)))
        .collect();
    let all: usize = sets.iter().map(|(_, set)| set.len()).sum();
    let mut run = Run {
        session,
        conditions,
        source,
        signals: Signals::catch()?,
        expected: Expected::new(source, conditions, plans),
        applied: Vec::new(),
        done: 0,
    };
    let mut failure = None;
    for ((planned, set), number) in sets.iter().zip(1..) {
        let jobs: Vec<Job<'_>> = set.iter().map(|step| job(source, planned, step)).collect();
        if let Err(failed) = run.set(&jobs, number, sets.len()).await {
            failure = Some(left(failed, run.done, all, conditions.command));
            break;
        }
    }
    Ok(Applied { jobs: run.applied, failure })
}

impl Run<'_> {
    /// Executes one set, if the cluster still matches the plan.
    async fn set(&mut self, jobs: &[Job<'_>], number: usize, of: usize) -> Result<(), Failure> {
        let (what, session) = (format!("job set {number} of {of}"), self.session);
        let moving = moving(self.source, jobs);
        let check = self.expected.check(session, &moving);
        let terminated = |_: Terminated| Failure::refused(format!("terminated before {what}"));
        let how_far = format!("{what} will not start");
        self.signals.during(session, &how_far, check).await.map_err(terminated)??;
        if self.signals.interrupted() {
            return Err(Failure::refused(format!("interrupted before {what}")));
        }
        let labels: Vec<&str> = jobs.iter().map(|job| job.label.as_str()).collect();
        let labels = labels.join(", ");
        session.terminal().held_up(&format!("{what}: {labels}"));
        let work = futures::future::join_all(jobs.iter().map(|job| carry_out(session, job)));
        let late = format!("{what}; its operations continue");
        let work = bounded(self.conditions.timeout, &late, async { Ok(work.await) });
        let terminated = |_: Terminated| {
            Failure::refused(format!("terminated during {what}; its operations continue: {labels}"))
                .help("run \"hactl get operations -w\"")
        };
        let how_far = format!("{what} is the last job set");
        let outcomes = self.signals.during(session, &how_far, work).await.map_err(terminated)??;
        self.note(jobs, number, &what, outcomes)?;
        if self.signals.interrupted() {
            return Err(Failure::refused(format!("interrupted after {what}")));
        }
        Ok(())
    }

    /// Records the outcome of a set.
    fn note(
        &mut self,
        jobs: &[Job<'_>],
        number: usize,
        what: &str,
        outcomes: Vec<Result<(), Failure>>,
    ) -> Result<(), Failure> {
        let mut failures = Vec::new();
        for (job, outcome) in jobs.iter().zip(outcomes) {
            let phase = if outcome.is_ok() { "Succeeded" } else { "Failed" };
            let message = outcome.as_ref().err().map(|failure| failure.message.clone());
            self.applied.push(json!({
                "jobSet": number,
                "instance": self.source.instance(&job.planned.problem, job.step.guest),
                "commands": job.actions.iter().map(Action::command).collect::<Vec<_>>(),
                "phase": phase, "message": message,
            }));
            match outcome {
                Ok(()) => {
                    self.done += 1;
                    self.expected.note(self.source, job.planned, job.step);
                    self.session.terminal().held_up(&format!("{}: done", job.label));
                }
                Err(failure) => failures.push(failure),
            }
        }
        let Some(first) = failures.first() else { return Ok(()) };
        let messages: Vec<&str> = failures.iter().map(|failure| failure.message.as_str()).collect();
        Err(Failure::new(first.exit, format!("{what} failed: {}", messages.join("; ")))
            .help(first.help.clone()))
    }
}

/// Adds to a failure how many moves are done and how many are left.
fn left(failure: Failure, done: usize, all: usize, command: &str) -> Failure {
    let rest = all - done;
    let said = format!("{} of {} done, {rest} left", done, count(all, "move"));
    let message = format!("{}\n{said}", failure.message);
    let help = if failure.help.is_empty() {
        format!("run \"{command}\" to plan again from the current state")
    } else {
        failure.help
    };
    Failure { message, help, ..failure }
}

fn job<'a>(source: &Source, planned: &'a Planned, step: &'a Step) -> Job<'a> {
    let problem = &planned.problem;
    let label = format!(
        "{} {} => {}",
        source.instance(problem, step.guest),
        source.spot(problem, step.from),
        source.spot(problem, step.to)
    );
    let actions = actions(source, planned, step);
    let names = problem.guests[step.guest].instances().map(|at| &source.cluster.instances[at].name);
    let along =
        names.filter(|name| actions.iter().all(|action| action.resource != **name)).cloned().collect();
    Job { planned, step, label, actions, along, target: source.node(problem, step.to.primary).to_owned() }
}

/// Returns the services that a set moves.
fn moving<'a>(source: &'a Source, jobs: &[Job<'a>]) -> Vec<&'a str> {
    let guests = jobs.iter().map(|job| &job.planned.problem.guests[job.step.guest]);
    guests.flat_map(Guest::instances).map(|at| source.cluster.instances[at].name.as_str()).collect()
}

/// Executes the operations of a job one at a time, and then waits for the services that a rule moves along.
async fn carry_out(session: &Session, job: &Job<'_>) -> Result<(), Failure> {
    for action in &job.actions {
        let verb = action.verb();
        let recorded =
            record(session.client()?, &format!("{verb}-{}", action.resource), &action.spec()).await?;
        let ended = follow(session, recorded.name(), &format!("{}: ", job.label)).await?;
        let status = ended.status.unwrap_or_default();
        match status.phase {
            OperationPhase::Succeeded => {}
            OperationPhase::Failed
            | OperationPhase::Refused
            | OperationPhase::Pending
            | OperationPhase::Running => {
                let why = explain(&status);
                let why = if why.is_empty() { String::new() } else { format!(": {why}") };
                let said = format!("{verb} {} {}: {}{why}", action.resource, action.node, word(status.phase));
                return Err(
                    Failure::new(Exit::Refused, said).help(format!("run \"hactl why {}\"", action.resource))
                );
            }
        }
    }
    for service in &job.along {
        arrival(session, service, &job.target).await?;
    }
    Ok(())
}
