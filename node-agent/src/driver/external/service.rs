//! Commands for one service of an external driver: probe, start or adopt, stop, kill, move, measure.

use super::protocol::{Action, Answer, Description, Request, failure};
use super::{Context, ExternalSpec};
use crate::core::DriverFailure;
use crate::driver::Sample;
use crate::driver::program::order::LaunchFailure;
use crate::driver::program::run::{End, Output, Run, describe};
use crate::driver::program::{failed, io_failure, measure, without_mark};
use ha_api_types::id::NodeName;
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, Observed};
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::schema;
use ha_api_types::time::{Millis, MonotonicTime};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Time limits of the driver's actions `describe` and `measure`.
const DESCRIBE_TIMEOUT_MS: Millis = 5_000;
const MEASURE_TIMEOUT_MS: Millis = 4_000;
/// Time after a stop during which a probe may still report the service as running, and the interval between these
/// probes.
const REAP_GRACE: Duration = Duration::from_secs(3);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time limit for the driver to kill the service, or to clean up after its processes were killed.
const KILL_TIMEOUT_MS: Millis = 20_000;

/// One request to a driver, without the service.
#[derive(Clone, Copy, Debug)]
struct DriverRequest<'a> {
    action: Action,
    limit_ms: Millis,
    source: Option<&'a str>,
    target: Option<&'a str>,
}

impl DriverRequest<'_> {
    fn new(action: Action, limit_ms: Millis) -> DriverRequest<'static> {
        DriverRequest { action, limit_ms, source: None, target: None }
    }
}

impl Context {
    /// Returns the description of a driver. The error contains the reason if this node cannot run the driver's
    /// services.
    pub(super) async fn description(&self, name: &str) -> Result<Arc<Description>, String> {
        let program = self.directories.program(name)?;
        if let Some(cached) = self.directories.cached_description(&program) {
            return Ok(cached);
        }
        let action = Action::Describe;
        let request = Request {
            timeout_milliseconds: Some(DESCRIBE_TIMEOUT_MS),
            ..Request::new(action, &self.programs.settings.node)
        };
        let input = serde_json::to_string(&request).map_err(|error| error.to_string())?;
        let run = Run {
            program: &[program.display().to_string()],
            environment: self.programs.plain_environment(),
            working_directory: "/".into(),
            user: None,
            cgroup: None,
            input: Some(input),
            output: Output::Captured,
            killed_with_agent: false,
        };
        // The colon prevents a collision with resources: no resource name contains one.
        let run_result = self.programs.run(&format!("driver:{name}"), run, DESCRIBE_TIMEOUT_MS).await;
        let answer = answer(action, run_result).map_err(|failure| failure.message)?;
        let description = Arc::new(answer.description(name)?);
        tracing::info!(driver = name, version = description.version, actions = ?description.actions, "found a driver");
        self.directories.cache_description(&program, &description);
        Ok(description)
    }

    /// Reports whether the service runs, and starts watching it. A stopped service is watched only if its driver
    /// reports events.
    pub(super) async fn probe(self: &Arc<Context>, service: &ServiceDefinition) -> Observed {
        let observed = self.observe(service).await;
        match &observed {
            Observed::Running => self.watch(service, true).await,
            Observed::NotRunning => self.watch(service, false).await,
            Observed::Remnant(_) | Observed::Unknown(_) => {}
        }
        observed
    }

    /// Reports whether the service runs.
    pub(super) async fn observe(&self, service: &ServiceDefinition) -> Observed {
        let observed = match external_spec(service) {
            Ok(spec) => match self.directories.program(&spec.name) {
                Ok(_) => {
                    let request_parameters = DriverRequest::new(Action::Probe, service.timeouts.monitor_ms());
                    match self.send_request(service, request_parameters).await {
                        Ok(answer) => answer.into_observed(),
                        Err(failure) => Observed::Unknown(failure.message),
                    }
                }
                Err(cause) if self.programs.is_start_recorded(service) => Observed::Unknown(cause),
                Err(_) => Observed::NotRunning,
            },
            Err(failure) => Observed::Unknown(failure.message),
        };
        if observed != Observed::NotRunning {
            return observed;
        }
        // A start command of an earlier agent may still be in progress.
        match self.programs.leftover_processes(service).await {
            Ok(leftovers) if leftovers.has_no_service_processes() => {
                self.programs.forget_start(service);
                Observed::NotRunning
            }
            Ok(leftovers) => Observed::Unknown(format!(
                "driver reports not running, but processes remain: {}",
                leftovers.describe()
            )),
            Err(failure) => Observed::Unknown(failure.message),
        }
    }

    /// Starts the service, unless it already runs.
    pub(super) async fn start(self: &Arc<Context>, service: &ServiceDefinition) -> Result<(), DriverFailure> {
        self.usable_driver(service).await?;
        let runs = self.observe(service).await == Observed::Running;
        self.programs.record_start(service)?;
        if !runs {
            self.watches.end(&service.name);
            let request_parameters = DriverRequest::new(Action::Start, service.timeouts.start_ms());
            self.send_request(service, request_parameters).await?.into_result(Action::Start)?;
            match self.observe(service).await {
                Observed::Running => {}
                Observed::NotRunning => {
                    let message = "driver reports that the service does not run after its start";
                    return Err(failed(Reason::StartFailed, message));
                }
                Observed::Remnant(message) | Observed::Unknown(message) => {
                    return Err(failed(Reason::StartFailed, &format!("after the start: {message}")));
                }
            }
        }
        self.watch(service, true).await;
        Ok(())
    }

    /// Stops the service. If the driver's `stop` fails, or leaves processes of the service, they are killed.
    pub(super) async fn stop(
        self: &Arc<Context>,
        service: &ServiceDefinition,
        graceful_ms: Millis,
    ) -> Result<(), DriverFailure> {
        self.watches.end(&service.name);
        if graceful_ms == 0 {
            return self.kill(service).await;
        }
        match self.run_command(service, DriverRequest::new(Action::Stop, graceful_ms)).await {
            Ok(()) => self.confirm_stopped(service, None).await,
            Err(failure) => {
                tracing::warn!(
                    resource = service.name.as_str(),
                    why = failure.message,
                    "stop failed, killing the service"
                );
                self.kill(service).await
            }
        }
    }

    /// Kills the service's processes, then runs the driver's `kill` or `stop` to remove other parts of the service.
    pub(super) async fn kill(self: &Arc<Context>, service: &ServiceDefinition) -> Result<(), DriverFailure> {
        self.watches.end(&service.name);
        self.programs.kill_leftovers(service).await?;
        let description = match external_spec(service) {
            Ok(spec) => self.description(&spec.name).await.ok(),
            Err(_) => None,
        };
        let has_kill = description.is_some_and(|description| description.supports(Action::Kill));
        let action = if has_kill { Action::Kill } else { Action::Stop };
        let ended = self.run_command(service, DriverRequest::new(action, KILL_TIMEOUT_MS)).await;
        self.confirm_stopped(service, ended.err()).await
    }

    /// Confirms a stop: no process that the driver started may remain, and its probe must agree.
    async fn confirm_stopped(
        self: &Arc<Context>,
        service: &ServiceDefinition,
        stop: Option<DriverFailure>,
    ) -> Result<(), DriverFailure> {
        self.programs.kill_leftovers(service).await?;
        let deadline = Instant::now() + REAP_GRACE;
        let problem = loop {
            match self.observe(service).await {
                Observed::NotRunning => {
                    if let Some(cgroup) = self.programs.cgroup_of(&service.name) {
                        cgroup.remove();
                    }
                    self.watch(service, false).await;
                    return Ok(());
                }
                Observed::Running if Instant::now() < deadline => sleep(POLL_INTERVAL).await,
                Observed::Running => break "driver reports that the service still runs".to_owned(),
                Observed::Remnant(message) | Observed::Unknown(message) => break message,
            }
        };
        let stop_failure = stop.map_or_else(String::new, |failure| format!("{}; ", failure.message));
        Err(failed(Reason::StopFailed, &format!("{stop_failure}{problem}")))
    }

    /// Prepares this node, the target of a live migration.
    pub(super) async fn receive(&self, service: &ServiceDefinition) -> Result<(), DriverFailure> {
        let description = self.usable_driver(service).await?;
        check_can_migrate(service, &description)?;
        if !description.supports(Action::Receive) {
            return Ok(());
        }
        self.watches.end(&service.name);
        self.programs.record_start(service)?;
        self.run_command(service, DriverRequest::new(Action::Receive, service.timeouts.start_ms())).await
    }

    /// Live-migrates the service from this node to `target`.
    pub(super) async fn migrate(
        &self,
        service: &ServiceDefinition,
        target: &NodeName,
    ) -> Result<(), DriverFailure> {
        let description = self.usable_driver(service).await?;
        check_can_migrate(service, &description)?;
        self.watches.end(&service.name);
        let request_parameters = DriverRequest::new(Action::Migrate, service.timeouts.migrate_ms());
        self.run_command(service, DriverRequest { target: Some(target), ..request_parameters }).await
    }

    /// Takes over the service on this node, the target of a live migration, once the source has handed it over.
    pub(super) async fn arrive(
        &self,
        service: &ServiceDefinition,
        source: &NodeName,
    ) -> Result<(), DriverFailure> {
        let description = self.usable_driver(service).await?;
        self.programs.record_start(service)?;
        if !description.supports(Action::Arrive) {
            return Ok(());
        }
        let request_parameters = DriverRequest::new(Action::Arrive, service.timeouts.migrate_ms());
        self.run_command(service, DriverRequest { source: Some(source), ..request_parameters }).await
    }

    /// Returns the service's resource usage, from its driver's `measure` if supported, otherwise from its processes.
    pub(super) async fn measure(
        self: &Arc<Context>,
        service: &ServiceDefinition,
        at: MonotonicTime,
    ) -> Option<Sample> {
        let spec = external_spec(service).ok()?;
        if self.description(&spec.name).await.ok()?.supports(Action::Measure) {
            let answer =
                self.send_request(service, DriverRequest::new(Action::Measure, MEASURE_TIMEOUT_MS)).await;
            return answer.ok()?.sample(at);
        }
        let (context, service) = (Arc::clone(self), service.clone());
        // Reading files may block.
        let read = move || measure::of_service(&context.programs, &service, at);
        tokio::task::spawn_blocking(read).await.ok().flatten()
    }

    /// Returns the description of the service's driver, if the driver is installed and accepts the service's settings.
    async fn usable_driver(&self, service: &ServiceDefinition) -> Result<Arc<Description>, DriverFailure> {
        let spec = external_spec(service)?;
        let description = self.description(&spec.name).await.map_err(|message| DriverFailure {
            class: FailureClass::NeverHere,
            reason: Reason::NotInstalled,
            message,
        })?;
        let settings: Map<String, Value> = self.required_settings(spec)?.into_iter().collect();
        let schema_problems = description.settings.as_ref().map(|settings_schema| {
            schema::check_value(settings_schema, &Value::Object(settings), "spec.driver.external.settings")
        });
        match schema_problems.unwrap_or_default().as_slice() {
            [] => Ok(description),
            problems => {
                let problem_texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
                Err(invalid_configuration(problem_texts.join("; ")))
            }
        }
    }

    async fn run_command(
        &self,
        service: &ServiceDefinition,
        request_parameters: DriverRequest<'_>,
    ) -> Result<(), DriverFailure> {
        self.send_request(service, request_parameters).await?.into_result(request_parameters.action)
    }

    /// Sends the driver a request about a service, and returns its answer.
    async fn send_request(
        &self,
        service: &ServiceDefinition,
        request_parameters: DriverRequest<'_>,
    ) -> Result<Answer, DriverFailure> {
        let request = Request {
            source: request_parameters.source,
            target: request_parameters.target,
            timeout_milliseconds: Some(request_parameters.limit_ms),
            ..self.request(service, request_parameters.action)?
        };
        let run = self.prepare_run(service, &request)?;
        answer(
            request_parameters.action,
            self.programs.run(&service.name, run.as_run(), request_parameters.limit_ms).await,
        )
    }

    /// Returns the settings, with all values from the node.
    fn required_settings(&self, spec: &ExternalSpec) -> Result<BTreeMap<String, Value>, DriverFailure> {
        let settings = self.programs.settings.values.resolve_values(&spec.settings);
        settings.map_err(|error| io_failure("cannot read a setting of the service", &error))
    }

    /// Returns a request about a service.
    pub(super) fn request<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        action: Action,
    ) -> Result<Request<'a>, DriverFailure> {
        let spec = external_spec(service)?;
        let settings = match action {
            Action::Start | Action::Receive | Action::Migrate | Action::Arrive => {
                self.required_settings(spec)?
            }
            // A stop must not depend on the values from the node.
            Action::Stop
            | Action::Kill
            | Action::Describe
            | Action::Probe
            | Action::Measure
            | Action::Monitor => self.programs.settings.values.resolve_available_values(&spec.settings),
        };
        Ok(Request {
            resource: Some(&service.name),
            uid: Some(&service.uid),
            settings: Some(settings),
            ..Request::new(action, &self.programs.settings.node)
        })
    }

    /// Prepares the run of the driver for a request.
    pub(super) fn prepare_run(
        &self,
        service: &ServiceDefinition,
        request: &Request<'_>,
    ) -> Result<PreparedRun, DriverFailure> {
        let spec = external_spec(service)?;
        let program = self.directories.program(&spec.name).map_err(|message| DriverFailure {
            class: FailureClass::NeverHere,
            reason: Reason::NotInstalled,
            message,
        })?;
        let environment = self.programs.environment(service, &BTreeMap::new(), request.target);
        let make_cgroup = || {
            let make_cgroup = self.programs.make_cgroup(&service.name);
            make_cgroup.map_err(|error| io_failure("cannot create the control group of the service", &error))
        };
        let (environment, cgroup) = match request.action {
            // Processes that these actions start are the service.
            Action::Start | Action::Receive | Action::Arrive => (environment, make_cgroup()?),
            Action::Stop | Action::Kill => (environment, None),
            Action::Migrate => {
                let mut environment = environment;
                environment.push(self.programs.migration_mark(service));
                (environment, None)
            }
            Action::Describe | Action::Probe | Action::Measure | Action::Monitor => {
                (without_mark(environment), None)
            }
        };
        let input = serde_json::to_string(request)
            .map_err(|error| failure(request.action, &format!("cannot write the request: {error}")))?;
        let program = [program.display().to_string()];
        Ok(PreparedRun {
            program,
            environment,
            cgroup,
            input,
            killed_with_agent: request.action == Action::Monitor,
        })
    }
}

/// A prepared run of a driver; it owns the values that [`Run`] borrows.
pub(super) struct PreparedRun {
    program: [String; 1],
    environment: Vec<(String, String)>,
    cgroup: Option<crate::driver::program::cgroup::ServiceCgroup>,
    input: String,
    killed_with_agent: bool,
}

impl PreparedRun {
    /// Returns the run in the form that the launcher takes.
    pub(super) fn as_run(&self) -> Run<'_> {
        Run {
            program: &self.program,
            environment: self.environment.clone(),
            working_directory: "/".into(),
            user: None,
            cgroup: self.cgroup.clone(),
            input: Some(self.input.clone()),
            output: Output::Captured,
            killed_with_agent: self.killed_with_agent,
        }
    }
}

/// Parses the answer of a run of a driver. The error is the reason why there is no valid answer.
fn answer(action: Action, run_result: std::io::Result<End>) -> Result<Answer, DriverFailure> {
    let name = action.name();
    match run_result {
        Ok(End::Ended(ended)) if ended.status.success() => {
            Answer::parse(action, &ended.output).map_err(|message| failure(action, &message))
        }
        Ok(End::Ended(ended)) => {
            let exit_text = describe(ended.status);
            Err(failure(
                action,
                &format!("driver action {name} failed: {exit_text}{}", ended.last_line_suffix()),
            ))
        }
        Ok(End::TimedOut) => {
            Err(failed(Reason::TimedOut, &format!("driver action {name} timed out and was killed")))
        }
        Ok(End::NotLaunched(failure)) => Err(LaunchFailure::to_driver_failure(&failure)),
        Err(error) => Err(io_failure(&format!("cannot run driver action {name}"), &error)),
    }
}

fn check_can_migrate(service: &ServiceDefinition, description: &Description) -> Result<(), DriverFailure> {
    let spec = external_spec(service)?;
    if !spec.allow_migrate {
        return Err(failed(Reason::MoveFailed, "spec.driver.external.allowMigrate is not set"));
    }
    if !description.supports(Action::Migrate) {
        let message =
            format!("driver {} cannot live-migrate a service because it has no action migrate", spec.name);
        return Err(failed(Reason::MoveFailed, &message));
    }
    Ok(())
}

fn external_spec(service: &ServiceDefinition) -> Result<&ExternalSpec, DriverFailure> {
    let spec = service.driver.external.as_ref();
    spec.ok_or_else(|| invalid_configuration("spec.driver.external is missing".to_owned()))
}

fn invalid_configuration(message: String) -> DriverFailure {
    DriverFailure { class: FailureClass::ConfigurationWrong, reason: Reason::BadConfiguration, message }
}
