//! Execution of a plan on the live cluster: one job set at a time, with its jobs in parallel. No further set begins
//! after a failure.

use super::actions::{Action, actions};
use super::arrival::wait_for_arrival;
use super::expected::Expected;
use super::planned::{GroupPlan, Source};
use super::search_end;
use super::signals::{Signals, Terminated};
use crate::command::operate::{create_operation, follow_operation, phase_word, status_explanation};
use crate::command::wait::with_timeout;
use crate::failure::{Exit, Failure};
use crate::session::Session;
use crate::terminal::Terminal;
use ha_api_types::names::count_with_noun;
use ha_api_types::operation::OperationPhase;
use ha_scheduler::balance::plan::Step;
use ha_scheduler::balance::problem::ProblemService;
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(crate) struct ExecutionSettings<'a> {
    /// Maximum time of one job set.
    pub(crate) timeout: Duration,
    /// Nodes that options treat as offline; their state is not checked.
    pub(crate) offline: &'a [String],
    /// Command that makes a new plan.
    pub(crate) command: &'static str,
}

/// The outcome of a plan.
pub(crate) struct ApplyResult {
    /// All jobs that were started, as JSON.
    pub(crate) jobs: Vec<Value>,
    /// Reason why the execution stopped; `None` if it is complete.
    pub(crate) failure: Option<Failure>,
    /// `true` if SIGTERM stopped the execution.
    pub(crate) is_terminated: bool,
}

/// A step that is being executed.
struct Job<'a> {
    group_plan: &'a GroupPlan,
    step: &'a Step,
    /// Label in messages: `web node1 => node2`.
    label: String,
    actions: Vec<Action>,
    /// Services that a rule moves together with the job's service, without a separate operation.
    followers: Vec<String>,
    target: String,
}

/// A plan that is being executed.
struct Execution<'a> {
    session: &'a Session,
    settings: ExecutionSettings<'a>,
    source: &'a Source,
    signals: Signals,
    expected: Expected,
    applied: Vec<Value>,
    completed_moves: usize,
}

/// Asks whether to execute this many moves, unless `--yes` was given or there is no terminal.
///
/// # Errors
/// Fails if the user does not confirm.
pub(crate) fn confirm(is_confirmed: bool, moves: usize) -> Result<(), Failure> {
    let question = format!("Apply {}?", count_with_noun(moves, "move"));
    if !is_confirmed && std::io::stdin().is_terminal() && !Terminal::confirm(&question)? {
        return Err(Failure::failed("not confirmed: nothing was changed"));
    }
    Ok(())
}

/// Executes the plans one at a time.
pub(crate) async fn apply(
    session: &Session,
    settings: ExecutionSettings<'_>,
    source: &Source,
    plans: &[GroupPlan],
) -> Result<ApplyResult, Failure> {
    let sets: Vec<(&GroupPlan, Vec<Step>)> = plans
        .iter()
        .flat_map(|group_plan| group_plan.job_sets().into_iter().map(move |set| (group_plan, set)))
        .collect();
    let move_count: usize = sets.iter().map(|(_, set)| set.len()).sum();
    let signals = Signals::install()?;
    search_end::leave_signals_to_execution();
    let mut execution = Execution {
        session,
        settings,
        source,
        signals,
        expected: Expected::new(source, settings, plans),
        applied: Vec::new(),
        completed_moves: 0,
    };
    let mut failure = None;
    for ((group_plan, set), number) in sets.iter().zip(1..) {
        let jobs: Vec<Job<'_>> = set.iter().map(|step| new_job(source, group_plan, step)).collect();
        if let Err(failed) = execution.run_job_set(&jobs, number, sets.len()).await {
            failure = Some(with_progress(failed, execution.completed_moves, move_count, settings.command));
            break;
        }
    }
    let is_terminated = execution.signals.is_terminated();
    Ok(ApplyResult { jobs: execution.applied, failure, is_terminated })
}

impl Execution<'_> {
    /// Executes one set, if the cluster still matches the plan.
    async fn run_job_set(
        &mut self,
        jobs: &[Job<'_>],
        number: usize,
        set_count: usize,
    ) -> Result<(), Failure> {
        let (job_set_label, session) = (format!("job set {number} of {set_count}"), self.session);
        let moving = moved_services(self.source, jobs);
        let check = self.expected.check(session, &moving);
        let termination_failure =
            |_: Terminated| Failure::failed(format!("terminated before {job_set_label}"));
        let interrupt_effect = format!("{job_set_label} will not start");
        self.signals.run_to_end(session, &interrupt_effect, check).await.map_err(termination_failure)??;
        if self.signals.is_interrupted() {
            return Err(Failure::failed(format!("interrupted before {job_set_label}")));
        }
        let labels: Vec<&str> = jobs.iter().map(|job| job.label.as_str()).collect();
        let labels = labels.join(", ");
        session.terminal().notice(&format!("{job_set_label}: {labels}"));
        let work = futures::future::join_all(jobs.iter().map(|job| execute_job(session, job)));
        let timeout_message = format!("{job_set_label}; its operations continue");
        let work = with_timeout(self.settings.timeout, &timeout_message, async { Ok(work.await) });
        let termination_failure = |_: Terminated| {
            Failure::failed(format!("terminated during {job_set_label}; its operations continue: {labels}"))
                .help("run \"hactl get operations -w\"")
        };
        let interrupt_effect = format!("{job_set_label} is the last job set");
        let outcomes = self
            .signals
            .run_to_end(session, &interrupt_effect, work)
            .await
            .map_err(termination_failure)??;
        self.record_outcomes(jobs, number, &job_set_label, outcomes)?;
        if self.signals.is_interrupted() {
            return Err(Failure::failed(format!("interrupted after {job_set_label}")));
        }
        Ok(())
    }

    fn record_outcomes(
        &mut self,
        jobs: &[Job<'_>],
        number: usize,
        job_set_label: &str,
        outcomes: Vec<Result<(), Failure>>,
    ) -> Result<(), Failure> {
        let mut failures = Vec::new();
        for (job, outcome) in jobs.iter().zip(outcomes) {
            let phase = if outcome.is_ok() { "Succeeded" } else { "Failed" };
            let message = outcome.as_ref().err().map(|failure| failure.message.clone());
            self.applied.push(json!({
                "jobSet": number,
                "instance": self.source.instance(&job.group_plan.problem, job.step.service),
                "commands": job.actions.iter().map(Action::command).collect::<Vec<_>>(),
                "phase": phase, "message": message,
            }));
            match outcome {
                Ok(()) => {
                    self.completed_moves += 1;
                    self.expected.record_step(self.source, job.group_plan, job.step);
                    self.session.terminal().notice(&format!("{}: done", job.label));
                }
                Err(failure) => failures.push(failure),
            }
        }
        let Some(first_failure) = failures.first() else { return Ok(()) };
        let messages: Vec<&str> = failures.iter().map(|failure| failure.message.as_str()).collect();
        Err(Failure::new(first_failure.exit, format!("{job_set_label} failed: {}", messages.join("; ")))
            .help(first_failure.help.clone()))
    }
}

/// Adds the numbers of completed and remaining moves to a failure.
fn with_progress(failure: Failure, completed_moves: usize, move_count: usize, command: &str) -> Failure {
    let remaining = move_count - completed_moves;
    let progress =
        format!("{} of {} done, {remaining} left", completed_moves, count_with_noun(move_count, "move"));
    let message = format!("{}\n{progress}", failure.message);
    let help = if failure.help.is_empty() {
        format!("run \"{command}\" to plan again from the current state")
    } else {
        failure.help
    };
    Failure { message, help, ..failure }
}

fn new_job<'a>(source: &Source, group_plan: &'a GroupPlan, step: &'a Step) -> Job<'a> {
    let problem = &group_plan.problem;
    let label = format!(
        "{} {} => {}",
        source.instance(problem, step.service),
        source.placement(problem, step.from),
        source.placement(problem, step.to)
    );
    let actions = actions(source, group_plan, step);
    let names = problem.services[step.service]
        .instances()
        .map(|instance_index| &source.cluster.instances[instance_index].name);
    let followers =
        names.filter(|name| actions.iter().all(|action| action.resource != **name)).cloned().collect();
    Job {
        group_plan,
        step,
        label,
        actions,
        followers,
        target: source.node_name(problem, step.to.primary).to_owned(),
    }
}

fn moved_services<'a>(source: &'a Source, jobs: &[Job<'a>]) -> Vec<&'a str> {
    let services = jobs.iter().map(|job| &job.group_plan.problem.services[job.step.service]);
    services
        .flat_map(ProblemService::instances)
        .map(|instance_index| source.cluster.instances[instance_index].name.as_str())
        .collect()
}

/// Executes the operations of a job one at a time, and then waits for the services that a rule moves together with
/// them.
async fn execute_job(session: &Session, job: &Job<'_>) -> Result<(), Failure> {
    for action in &job.actions {
        let verb = action.verb();
        let operation =
            create_operation(session.client()?, &format!("{verb}-{}", action.resource), &action.spec())
                .await?;
        let operation_result =
            follow_operation(session, operation.name(), &format!("{}: ", job.label)).await?;
        let status = operation_result.status.unwrap_or_default();
        match status.phase {
            OperationPhase::Succeeded => {}
            OperationPhase::Failed
            | OperationPhase::Refused
            | OperationPhase::Pending
            | OperationPhase::Running => {
                let explanation = status_explanation(&status);
                let explanation =
                    if explanation.is_empty() { String::new() } else { format!(": {explanation}") };
                let message = format!(
                    "{verb} {} {}: {}{explanation}",
                    action.resource,
                    action.node,
                    phase_word(status.phase)
                );
                return Err(Failure::new(Exit::Failed, message)
                    .help(format!("run \"hactl why {}\"", action.resource)));
            }
        }
    }
    for service in &job.followers {
        wait_for_arrival(session, service, &job.target).await?;
    }
    Ok(())
}
