//! Commands for one service of a resource agent: probe, start or adopt, stop, kill, move.

use super::outcome::{MonitorResult, Outcome, to_observed};
use super::request::{self, Action, AgentContext, Request};
use super::{Context, OcfSpec};
use crate::core::DriverFailure;
use crate::driver::program::run::{End, Output, Run};
use crate::driver::program::{failed, without_mark};
use ha_api_types::id::NodeName;
use ha_api_types::ocf::{AgentMetadata, AgentName, METADATA_LIMIT_SECONDS};
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, Observed};
use ha_api_types::resource::{ServiceDefinition, TimeoutsSpec};
use ha_api_types::time::Millis;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Time after a stop during which `monitor` may still report the service as running: a killed process keeps its pid
/// until process 1 reaps it.
const REAP_GRACE: Duration = Duration::from_secs(3);
/// Interval between runs of `monitor` within [`REAP_GRACE`].
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum time limit of the stop action after all processes were killed.
const STOP_AFTER_KILL_TIMEOUT_MS: Millis = 20_000;

impl Context {
    /// Reports whether the service runs, and starts watching it if so.
    pub(super) async fn probe(self: &Arc<Context>, service: &ServiceDefinition) -> Observed {
        let start_recorded = self.programs.is_start_recorded(service);
        let monitor_result = self.monitor(service, Action::Probe).await;
        let observed = to_observed(monitor_result, start_recorded);
        match &observed {
            Observed::Running => {
                if let Some(spec) = &service.driver.ocf {
                    self.watch(service, spec);
                }
            }
            Observed::Remnant(_) | Observed::Unknown(_) => {}
            // A start by an earlier node agent may still be in progress.
            Observed::NotRunning => match self.programs.leftover_processes(service).await {
                Ok(leftovers) if leftovers.has_no_service_processes() => self.programs.forget_start(service),
                Ok(leftovers) => {
                    let process_list = leftovers.describe();
                    return Observed::Unknown(format!(
                        "resource agent reports not running, but processes remain: {process_list}"
                    ));
                }
                Err(failure) => return Observed::Unknown(failure.message),
            },
        }
        observed
    }

    /// Starts the service, unless it already runs.
    pub(super) async fn start(self: &Arc<Context>, service: &ServiceDefinition) -> Result<(), DriverFailure> {
        let (_, spec) = agent_of(service)?;
        let mut monitor_result = self.monitor(service, Action::Probe).await;
        if matches!(monitor_result, MonitorResult::Failing(_)) {
            monitor_result = self.monitor(service, Action::Probe).await;
        }
        match monitor_result {
            MonitorResult::Running => self.programs.record_start(service)?,
            MonitorResult::NotRunning => self.start_stopped(service).await?,
            MonitorResult::Failing(_) | MonitorResult::Unclear(_) => {
                self.kill(service).await?;
                self.start_stopped(service).await?;
            }
        }
        self.watch(service, spec);
        Ok(())
    }

    async fn start_stopped(&self, service: &ServiceDefinition) -> Result<(), DriverFailure> {
        self.validate(service).await?;
        self.programs.record_start(service)?;
        let timeout_ms = self.timeouts(service).await.start_ms();
        let outcome = self.run_action(service, Request { action: Action::Start, timeout_ms }).await;
        if !outcome.is_success() {
            return Err(outcome.failure("start", Reason::StartFailed));
        }
        match self.monitor(service, Action::Probe).await {
            MonitorResult::Running => Ok(()),
            MonitorResult::NotRunning => {
                let message = "resource agent reports that the service does not run after its start";
                Err(failed(Reason::StartFailed, message))
            }
            MonitorResult::Failing(message) | MonitorResult::Unclear(message) => {
                Err(failed(Reason::StartFailed, &format!("after the start: {message}")))
            }
        }
    }

    /// Checks whether the parameters can work on this node, as far as the resource agent can determine this before a
    /// start.
    async fn validate(&self, service: &ServiceDefinition) -> Result<(), DriverFailure> {
        let metadata = self.metadata(service).await;
        if !metadata.actions.is_empty() && !metadata.supports(Action::Validate.name()) {
            return Ok(());
        }
        let timeout_ms = self.timeouts(service).await.start_ms();
        let outcome = self.run_action(service, Request { action: Action::Validate, timeout_ms }).await;
        if outcome.rules_out_start() {
            Err(outcome.failure("validate-all", Reason::StartFailed))
        } else {
            Ok(())
        }
    }

    /// Stops the service. If the resource agent's stop fails, or leaves processes of the service, they are killed.
    pub(super) async fn stop(
        &self,
        service: &ServiceDefinition,
        graceful_ms: Millis,
    ) -> Result<(), DriverFailure> {
        self.watches.end(&service.name);
        if graceful_ms == 0 {
            return self.kill(service).await;
        }
        let spec_stop_ms = service.timeouts.stop_ms();
        let timeout_ms =
            if graceful_ms == spec_stop_ms { self.timeouts(service).await.stop_ms() } else { graceful_ms };
        let outcome = self.run_action(service, Request { action: Action::Stop, timeout_ms }).await;
        if outcome.is_success() {
            return self.confirm_stopped(service, &outcome).await;
        }
        tracing::warn!(
            resource = service.name.as_str(),
            why = outcome.message("stop"),
            "stop failed, killing the service"
        );
        self.kill(service).await
    }

    /// Kills the service's processes, then runs the resource agent's stop action to remove other parts of the service.
    pub(super) async fn kill(&self, service: &ServiceDefinition) -> Result<(), DriverFailure> {
        self.watches.end(&service.name);
        self.programs.kill_leftovers(service).await?;
        let timeout_ms = self.timeouts(service).await.stop_ms().min(STOP_AFTER_KILL_TIMEOUT_MS);
        let outcome = self.run_action(service, Request { action: Action::Stop, timeout_ms }).await;
        self.confirm_stopped(service, &outcome).await
    }

    /// Confirms a stop: no process that the resource agent started may remain, and its monitor must agree.
    async fn confirm_stopped(
        &self,
        service: &ServiceDefinition,
        stop: &Outcome,
    ) -> Result<(), DriverFailure> {
        self.programs.kill_leftovers(service).await?;
        let deadline = Instant::now() + REAP_GRACE;
        let problem = loop {
            match self.monitor(service, Action::Probe).await {
                MonitorResult::NotRunning => {
                    self.programs.forget_start(service);
                    if let Some(cgroup) = self.programs.cgroup_of(&service.name) {
                        cgroup.remove();
                    }
                    return Ok(());
                }
                MonitorResult::Running | MonitorResult::Failing(_) if Instant::now() < deadline => {
                    sleep(POLL_INTERVAL).await;
                }
                MonitorResult::Running => {
                    break "resource agent reports that the service still runs".to_owned();
                }
                MonitorResult::Failing(message) | MonitorResult::Unclear(message) => break message,
            }
        };
        let stop_failure =
            if stop.is_success() { String::new() } else { format!("{}; ", stop.message("stop")) };
        Err(failed(Reason::StopFailed, &format!("{stop_failure}{problem}")))
    }

    /// Checks whether the service could run on this node, the target of a live migration.
    pub(super) async fn receive(&self, service: &ServiceDefinition) -> Result<(), DriverFailure> {
        let (name, _) = agent_of(service)?;
        self.agents.program(&name).map_err(|message| not_installed(&message))?;
        self.check_can_migrate(service, &["migrate_from"]).await?;
        self.validate(service).await
    }

    /// Takes over the service from the source, on the target of a live migration.
    pub(super) async fn arrive(
        &self,
        service: &ServiceDefinition,
        source: &NodeName,
    ) -> Result<(), DriverFailure> {
        self.programs.record_start(service)?;
        let timeout_ms = self.timeouts(service).await.migrate_ms();
        let outcome =
            self.run_action(service, Request { action: Action::MigrateFrom { source }, timeout_ms }).await;
        if outcome.is_success() { Ok(()) } else { Err(outcome.failure("migrate_from", Reason::MoveFailed)) }
    }

    /// Hands the service over to `target`, on the source of a live migration.
    pub(super) async fn migrate(
        &self,
        service: &ServiceDefinition,
        target: &NodeName,
    ) -> Result<(), DriverFailure> {
        self.check_can_migrate(service, &["migrate_to", "migrate_from"]).await?;
        self.watches.end(&service.name);
        let timeout_ms = self.timeouts(service).await.migrate_ms();
        let outcome =
            self.run_action(service, Request { action: Action::MigrateTo { target }, timeout_ms }).await;
        if outcome.is_success() { Ok(()) } else { Err(outcome.failure("migrate_to", Reason::MoveFailed)) }
    }

    async fn check_can_migrate(
        &self,
        service: &ServiceDefinition,
        actions: &[&str],
    ) -> Result<(), DriverFailure> {
        let (name, spec) = agent_of(service)?;
        if !spec.allow_migrate {
            return Err(failed(Reason::MoveFailed, "spec.driver.ocf.allowMigrate is not set"));
        }
        let metadata = self.metadata(service).await;
        let lacking =
            actions.iter().find(|action| !metadata.actions.is_empty() && !metadata.supports(action));
        match lacking {
            Some(action) => Err(failed(
                Reason::MoveFailed,
                &format!("{name} cannot live-migrate because it has no action {action}"),
            )),
            None => Ok(()),
        }
    }

    /// Runs the resource agent's `monitor`.
    pub(super) async fn monitor(&self, service: &ServiceDefinition, action: Action<'_>) -> MonitorResult {
        let timeout_ms = self.timeouts(service).await.monitor_ms();
        self.run_action(service, Request { action, timeout_ms })
            .await
            .monitor_result(self.programs.is_start_recorded(service))
    }

    /// Returns the time limits of the service's actions.
    pub(super) async fn timeouts(&self, service: &ServiceDefinition) -> TimeoutsSpec {
        request::timeouts(service.timeouts, &*self.metadata(service).await)
    }

    /// Returns the metadata of the service's resource agent; empty metadata if it cannot be read.
    pub(super) async fn metadata(&self, service: &ServiceDefinition) -> Arc<AgentMetadata> {
        let Ok((name, _)) = agent_of(service) else { return Arc::default() };
        let Ok(program) = self.agents.program(&name) else { return Arc::default() };
        if let Some(cached) = self.agents.cached_metadata(&program) {
            return cached;
        }
        let request = Request { action: Action::Metadata, timeout_ms: METADATA_LIMIT_SECONDS * 1000 };
        let (metadata, is_cacheable) = match self.run(service, request, Output::Captured).await {
            Ok(End::Ended(ended)) if ended.status.success() => {
                (AgentMetadata::parse(&ended.output).map_err(|error| error.to_string()), true)
            }
            Ok(End::Ended(ended)) => {
                (Err(Outcome::of(Ok(End::Ended(ended))).message(request.action.name())), true)
            }
            // The result is not cached: a machine that is too busy now may answer later.
            end => (Err(Outcome::of(end).message(request.action.name())), false),
        };
        let metadata = metadata.unwrap_or_else(|message| {
            tracing::warn!(agent = %name, why = message, "cannot read the meta-data of a resource agent");
            AgentMetadata::default()
        });
        let metadata = Arc::new(metadata);
        if is_cacheable {
            self.agents.cache_metadata(&program, &metadata);
        }
        metadata
    }

    /// Runs an action of the service's resource agent.
    async fn run_action(&self, service: &ServiceDefinition, request: Request<'_>) -> Outcome {
        let (name, _) = match agent_of(service) {
            Ok(resources) => resources,
            Err(failure) => return Outcome::NotRun(failure),
        };
        match self.agents.program(&name) {
            Ok(_) => Outcome::of(self.run(service, request, Output::Log).await),
            Err(message) => Outcome::NotInstalled(message),
        }
    }

    async fn run(
        &self,
        service: &ServiceDefinition,
        request: Request<'_>,
        output: Output,
    ) -> io::Result<End> {
        let (name, spec) = agent_of(service).map_err(|failure| io::Error::other(failure.message))?;
        self.agents.make_state_directory()?;
        let context = AgentContext {
            node: &self.programs.settings.node,
            root: &self.agents.root,
            run: &self.agents.run,
        };
        let values = &self.programs.settings.values;
        let parameters = match request.action {
            Action::Start | Action::Validate | Action::MigrateTo { .. } | Action::MigrateFrom { .. } => {
                values.resolve(&spec.parameters)?
            }
            // A stop must not depend on the values from the node.
            Action::Stop | Action::Probe | Action::Monitor { .. } | Action::Metadata => {
                values.resolve_available(&spec.parameters)
            }
        };
        let variables = request::environment(context, &service.name, &name, spec, &parameters, request);
        let environment = self.programs.environment(service, &variables, None);
        let (environment, cgroup) = match request.action {
            // The processes that these actions start belong to the service.
            Action::Start | Action::MigrateFrom { .. } => {
                (environment, self.programs.make_cgroup(&service.name)?)
            }
            Action::Stop => (environment, None),
            Action::MigrateTo { .. } => {
                let mut environment = environment;
                environment.push(self.programs.migration_mark(service));
                (environment, None)
            }
            Action::Probe | Action::Monitor { .. } | Action::Validate | Action::Metadata => {
                (without_mark(environment), None)
            }
        };
        let program = name.program(&self.agents.root).display().to_string();
        let run = Run {
            program: &[program, request.action.name().to_owned()],
            environment,
            working_directory: "/".into(),
            user: None,
            cgroup,
            input: None,
            output,
            killed_with_agent: false,
        };
        self.programs.run(&service.name, run, request.timeout_ms).await
    }
}

/// Returns the name and the settings of the service's resource agent.
fn agent_of(service: &ServiceDefinition) -> Result<(AgentName, &OcfSpec), DriverFailure> {
    let invalid_configuration = |message: String| DriverFailure {
        class: FailureClass::ConfigurationWrong,
        reason: Reason::BadConfiguration,
        message,
    };
    let spec = service
        .driver
        .ocf
        .as_ref()
        .ok_or_else(|| invalid_configuration("spec.driver.ocf is missing".to_owned()))?;
    let name = spec
        .agent
        .parse()
        .map_err(|error| invalid_configuration(format!("spec.driver.ocf.agent: {error}")))?;
    Ok((name, spec))
}

fn not_installed(message: &str) -> DriverFailure {
    DriverFailure {
        class: FailureClass::NeverHere,
        reason: Reason::NotInstalled,
        message: message.to_owned(),
    }
}
