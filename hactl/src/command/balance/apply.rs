//! A plan is carried out on the live cluster: job set by job set, all of a set at once, and no further after a failure.

use super::actions::{Action, actions};
use super::count;
use super::options::Options;
use super::planned::{Planned, Source};
use super::still::Expected;
use crate::command::operate::{explain, follow, record, status, word};
use crate::command::wait::bounded;
use crate::failure::{Exit, Failure};
use crate::names::name_of;
use crate::session::Session;
use ha_api_types::operation::OperationPhase;
use ha_scheduler::balance::plan::Step;
use ha_scheduler::balance::problem::Guest;
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What became of a plan.
pub(super) struct Applied {
    /// Every job that was begun, for programs.
    pub(super) jobs: Vec<Value>,
    /// Why it went no further; nothing when all is done.
    pub(super) failure: Option<Failure>,
}

/// A step that is carried out.
struct Job<'a> {
    planned: &'a Planned,
    step: &'a Step,
    /// `web node1 => node2`.
    label: String,
    actions: Vec<Action>,
}

/// The signals that end it.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

/// Carries out the plans, one after another.
pub(super) async fn apply(
    session: &Session,
    options: &Options,
    source: &Source,
    plans: &[Planned],
) -> Result<Applied, Failure> {
    let sets: Vec<(&Planned, Vec<Step>)> = plans
        .iter()
        .flat_map(|planned| planned.job_sets().into_iter().map(move |set| (planned, set)))
        .collect();
    let all: usize = sets.iter().map(|(_, set)| set.len()).sum();
    let mut signals = Signals {
        interrupt: signal(SignalKind::interrupt()).map_err(|error| no_signals(&error))?,
        terminate: signal(SignalKind::terminate()).map_err(|error| no_signals(&error))?,
    };
    let mut applied = Applied { jobs: Vec::new(), failure: None };
    let mut expected = Expected::new(source, options, plans);
    let mut done = 0;
    for ((planned, set), number) in sets.iter().zip(1..) {
        let jobs: Vec<Job<'_>> = set.iter().map(|step| job(source, planned, step)).collect();
        let what = format!("job set {number} of {}", sets.len());
        if let Err(failure) = expected.check(session, &moving(source, &jobs)).await {
            applied.failure = Some(left(failure, done, all));
            return Ok(applied);
        }
        let labels: Vec<&str> = jobs.iter().map(|job| job.label.as_str()).collect();
        session.terminal().held_up(&format!("{what}: {}", labels.join(", ")));
        let (outcomes, interrupted) = match run(session, options, &jobs, &mut signals, &what).await {
            Ok(ended) => ended,
            Err(failure) => {
                applied.failure = Some(left(failure, done, all));
                return Ok(applied);
            }
        };
        let mut failures = Vec::new();
        for (job, outcome) in jobs.iter().zip(outcomes) {
            let phase = if outcome.is_ok() { "Succeeded" } else { "Failed" };
            let message = outcome.as_ref().err().map(|failure| failure.message.clone());
            applied.jobs.push(json!({
                "jobSet": number, "instance": source.instance(&planned.problem, job.step.guest),
                "commands": job.actions.iter().map(Action::command).collect::<Vec<_>>(),
                "phase": phase, "message": message,
            }));
            match outcome {
                Ok(()) => {
                    done += 1;
                    expected.note(source, job.planned, job.step);
                    session.terminal().held_up(&format!("{}: done", job.label));
                }
                Err(failure) => failures.push(failure),
            }
        }
        if let Some(first) = failures.first() {
            let messages: Vec<&str> = failures.iter().map(|failure| failure.message.as_str()).collect();
            let failure = Failure::new(first.exit, format!("{what} failed: {}", messages.join("; ")))
                .help(first.help.clone());
            applied.failure = Some(left(failure, done, all));
            return Ok(applied);
        }
        if interrupted && done < all {
            applied.failure = Some(left(Failure::refused(format!("interrupted after {what}")), done, all));
            return Ok(applied);
        }
    }
    Ok(applied)
}

fn no_signals(error: &std::io::Error) -> Failure {
    Failure::refused(format!("signals cannot be waited for: {error}"))
}

/// Says what was done and what was left.
fn left(failure: Failure, done: usize, all: usize) -> Failure {
    let rest = all - done;
    let said = format!("{} of {} done, {rest} left", done, count(all, "move"));
    let message = format!("{}\n{said}", failure.message);
    let help = if failure.help.is_empty() {
        "hactl balance plans anew from where the cluster is".to_owned()
    } else {
        failure.help
    };
    Failure { exit: failure.exit, message, help }
}

fn job<'a>(source: &Source, planned: &'a Planned, step: &'a Step) -> Job<'a> {
    let problem = &planned.problem;
    let label = format!(
        "{} {} => {}",
        source.instance(problem, step.guest),
        source.spot(problem, step.from),
        source.spot(problem, step.to)
    );
    Job { planned, step, label, actions: actions(source, planned, step) }
}

/// The services that a set moves.
fn moving<'a>(source: &'a Source, jobs: &[Job<'a>]) -> Vec<&'a str> {
    let guests = jobs.iter().map(|job| &job.planned.problem.guests[job.step.guest]);
    guests.flat_map(Guest::instances).map(|at| source.cluster.instances[at].name.as_str()).collect()
}

/// Runs a set to its end, and says whether an interrupt has come meanwhile.
///
/// # Errors
/// When it was told to end at once, or time ran out: its operations go on.
async fn run(
    session: &Session,
    options: &Options,
    jobs: &[Job<'_>],
    signals: &mut Signals,
    what: &str,
) -> Result<(Vec<Result<(), Failure>>, bool), Failure> {
    let work = futures::future::join_all(jobs.iter().map(|job| carry_out(session, job)));
    let late = format!("{what}, whose operations go on");
    let work = bounded(options.timeout, &late, async { Ok(work.await) });
    let mut work = std::pin::pin!(work);
    let mut interrupted = false;
    loop {
        tokio::select! {
            outcomes = &mut work => return Ok((outcomes?, interrupted)),
            _ = signals.interrupt.recv() => {
                interrupted = true;
                session.terminal().held_up(&format!("interrupted: {what} is the last one"));
            }
            _ = signals.terminate.recv() => {
                let labels: Vec<&str> = jobs.iter().map(|job| job.label.as_str()).collect();
                let labels = labels.join(", ");
                return Err(Failure::refused(format!("terminated during {what}, whose operations go on: {labels}"))
                    .help("hactl get operations -w"));
            }
        }
    }
}

/// The operations of a job, one after another.
async fn carry_out(session: &Session, job: &Job<'_>) -> Result<(), Failure> {
    for action in &job.actions {
        let verb = action.verb();
        let recorded =
            record(session.client()?, &format!("{verb}-{}", action.resource), &action.spec()).await?;
        let ended = follow(session, name_of(&recorded), &format!("{}: ", job.label)).await?;
        let status = status(&ended);
        match status.phase {
            OperationPhase::Succeeded => {}
            OperationPhase::Failed
            | OperationPhase::Refused
            | OperationPhase::Pending
            | OperationPhase::Running => {
                let why = explain(&status);
                let why = if why.is_empty() { String::new() } else { format!(": {why}") };
                let said = format!("{verb} {} {}: {}{why}", action.resource, action.node, word(status.phase));
                return Err(Failure::new(Exit::Refused, said).help(format!("hactl why {}", action.resource)));
            }
        }
    }
    Ok(())
}
