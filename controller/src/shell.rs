//! The controller's shell: etcd, fence devices, HTTP, signals and the state directory around the pure core.
//!
//! One loop ([`ha_runtime::reconcile::run_core`]) converts events to inputs and starts the effects of the core. The
//! shell makes no decisions about nodes or services.

mod commits;
mod effects;
mod election;
mod hold_requests;
mod instrumented_controller;
mod metrics;
mod options;
mod watching;

pub use options::Options;

use crate::api::{self, ApiOptions, ApiState, AuditLog, AuthorizationMode, Tokens};
use crate::core::{Config, Controller, Input};
use crate::fencer::Fencer;
use crate::policy::Limits;
use anyhow::Context;
use commits::EtcdRequests;
use effects::Effects;
use election::ElectionTask;
use futures::{FutureExt, StreamExt};
use ha_api_types::keys::Keys;
use ha_api_types::view::EtcdMember;
use ha_runtime::certificate::Certificates;
use ha_runtime::clock::{Clock, SystemClock};
use ha_runtime::http::admin::{self, HealthChecks, ReadState};
use ha_runtime::http::{Server, bind};
use ha_runtime::metrics::Metrics;
use ha_runtime::program::invalid_settings;
use ha_runtime::reconcile::run_core;
use ha_runtime::shutdown::Shutdown;
use ha_store::cache::cache;
use ha_store::etcd::EtcdStore;
use ha_store::event_writer::EventWriter;
use ha_store::{CachedStore, FollowedData};
use hold_requests::HoldRequests;
use instrumented_controller::InstrumentedController;
use metrics::{ControllerMetrics, CoreMetrics};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// Sender of inputs; cheap to clone.
pub(crate) type InputSender = mpsc::UnboundedSender<Input>;

/// Maximum time that the shutdown waits for the deletion of the leader key.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);

/// Number of open files that suffices for the limits of the connections.
const OPEN_FILES: u64 = 65_536;

/// Runs the program: reads its options, runs until a shutdown is requested, and returns the exit status.
pub fn main() -> ExitCode {
    ha_runtime::program::main(run)
}

/// Raises the limit of open files as far as permitted. The usual limit of 1,024 is lower than the limits of the
/// connections, so that clients without credentials could use it up.
fn raise_file_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        let limit = OPEN_FILES.min(hard);
        if soft < limit { setrlimit(Resource::RLIMIT_NOFILE, limit, hard) } else { Ok(()) }
    });
    if let Err(error) = raised {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

async fn run(options: Options) -> anyhow::Result<()> {
    raise_file_limit();
    let lock = match lock_state_dir(&options.state_dir) {
        Ok(lock) => Some(lock),
        Err(error @ LockError::Held(_)) => return Err(invalid_settings(error)),
        Err(error @ LockError::Unusable(..)) => {
            tracing::warn!(%error, "cannot keep the candidate identity, joining as a new candidate at each start: use a writable --state-dir");
            None
        }
    };
    let (trigger, shutdown) = Shutdown::on_signals().context("cannot handle signals")?;
    let clock = SystemClock::new().context("cannot read the clocks of this machine")?;
    let keys = Keys::new(&options.cluster);
    let remedy = "restart ha-controller on this machine".to_owned();
    let followed = FollowedData::new(keys.incarnation(), None, None, remedy);
    let store =
        EtcdStore::following(options.store.config(), followed.clone()).await.map_err(invalid_settings)?;
    // Requests of the election have separate channels, so that no other request can queue before them.
    let election_store =
        EtcdStore::following(options.store.config(), followed.clone()).await.map_err(invalid_settings)?;
    let mut servers = Vec::new();
    for server in options.servers() {
        servers.push(bind(server).await.map_err(invalid_settings)?);
    }
    let tokens = options.token_file.as_deref().map(Tokens::new).transpose().map_err(invalid_settings)?;
    let join = options.join();
    if let Some(join) = &join {
        join.check()
            .map_err(|message| anyhow::anyhow!("cannot use --join-authority: {message}"))
            .map_err(invalid_settings)?;
    }
    let audit_log = AuditLog::new(options.audit_log.clone())
        .context("cannot open the file of --audit-log")
        .map_err(invalid_settings)?;
    let config = Config {
        cluster: options.cluster.clone(),
        id: options.id(),
        url: options.advertised_url(servers.iter().find_map(Server::address)),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        instance: uuid::Uuid::new_v4().to_string().into(),
        machine: options.machine(),
        is_only_process: lock.is_some(),
    };
    tracing::info!(id = %config.id, url = %config.url, instance = %config.instance, "starting the controller");
    let started_unix_seconds = clock.now().wall_unix_ms / 1000;
    let metrics = Metrics::new(
        "ha-controller",
        env!("CARGO_PKG_VERSION"),
        i64::try_from(started_unix_seconds).unwrap_or(0),
    )?;
    let controller_metrics = ControllerMetrics::new(&metrics)?;
    let store_config = options.store.config();
    Certificates::default()
        .with_server(options.tls().as_ref())
        .with_store(store_config.cert.as_deref(), store_config.ca.as_deref())
        .register(&metrics)?;
    let core = Arc::new(Mutex::new(Controller::new(config.clone())));
    let read_state: ReadState = Arc::new({
        let core = Arc::clone(&core);
        move || {
            let state = core.lock().unwrap_or_else(PoisonError::into_inner).state(&clock.now());
            // The serialization of the project's types cannot fail.
            std::future::ready(Some(serde_json::to_value(state).unwrap_or_default())).boxed()
        }
    });
    let core_metrics = CoreMetrics::new(&metrics, &core, &controller_metrics, move || clock.now())?;
    let mut measured_controller = InstrumentedController::new(core, &metrics)?;
    let ready = HealthChecks::new(&["store"]);
    let mut api_options = ApiOptions::new(config.id.clone(), &config.cluster);
    api_options.metrics = Some(api::ApiMetrics::new(&metrics)?);
    // Without TLS, no client has a certificate, and the mode has no effect.
    api_options.authorization =
        if options.tls().is_some() { options.authorization } else { AuthorizationMode::Roles };
    api_options.tokens = tokens.map(Arc::new);
    api_options.audit_log = audit_log;
    api_options.join = join;
    api_options.ocf_root = Some(options.ocf_root.clone());
    let limits = Limits::new(options.policy.clone());
    api_options.limits = limits.clone();
    let members = store.clone();
    api_options.etcd_members = Some(Arc::new(move || etcd_members(members.clone()).boxed()));
    let (inputs, input_receiver) = mpsc::unbounded_channel();
    let hold_requests = HoldRequests::default();
    api_options.read_state = Some(Arc::clone(&read_state));
    api_options.request_hold = Some(hold_requests.request_function(inputs.clone()));
    let (reader, writer) = cache(vec![keys.heartbeats(), keys.refreshes()]);
    let cached_store = CachedStore::new(store.clone(), reader, keys.root(), keys.incarnation());
    let api = ApiState::new(Arc::new(cached_store), keys.clone(), api_options);
    // These watches end when the process exits.
    tokio::spawn({
        let api = api.clone();
        async move { api.observe().await }
    });
    let router = api::router(api, admin::router(HealthChecks::default(), ready.clone(), metrics, read_state));
    let server_tasks =
        servers.into_iter().map(|server| tokio::spawn(server.serve(router.clone(), shutdown.clone())));
    let servers_end = futures::future::try_join_all(server_tasks.collect::<Vec<_>>());

    let watched = watching::WatchTarget { store: store.clone(), followed, keys: keys.clone(), cache: writer };
    let refresher = watching::spawn(watched, inputs.clone(), ready, controller_metrics.clone());
    let writer = EventWriter::spawn(store.clone(), keys.clone(), format!("controller-{}", config.id));
    let (ended, mut wait_for_end) = tokio::sync::watch::channel(false);
    let (election_sender, election_receiver) = mpsc::unbounded_channel();
    let task = ElectionTask {
        config: config.clone(),
        store: election_store.clone(),
        link: EtcdRequests::new(election_store, election_sender.clone(), controller_metrics.clone()),
        planner: inputs.clone(),
        ended,
    };
    election::spawn(task, &election_sender, election_receiver, clock);
    let mut effects = Effects {
        store: EtcdRequests::new(store, inputs.clone(), controller_metrics.clone()),
        refresher,
        fencer: Fencer::new(options.fence_agent_path.clone(), limits.clone()),
        limits,
        events: writer.clone(),
        hold_requests,
        metrics: core_metrics,
        inputs: inputs.clone(),
        election: election_sender.clone(),
    };
    let shutdown_signal = shutdown.clone();
    tokio::spawn(async move {
        shutdown_signal.wait_for_request().await;
        // The loop may already have ended.
        let _ = election_sender.send(Input::Shutdown);
    });
    let stream = futures::stream::poll_fn({
        let mut input_receiver = input_receiver;
        move |context| {
            controller_metrics.set_queue_length(input_receiver.len());
            input_receiver.poll_recv(context)
        }
    })
    .take_until(async move {
        tokio::select! {
            _ = wait_for_end.wait_for(|ended| *ended) => {}
            () = shutdown.wait_for_force() => tracing::warn!("exiting immediately: keys remain until their leases expire"),
            () = async { shutdown.wait_for_request().await; tokio::time::sleep(SHUTDOWN_LIMIT).await } => {
                tracing::warn!("cannot delete the keys in time: keys remain until their leases expire");
            }
        }
    });
    ha_runtime::notify::ready("running");
    run_core(&mut measured_controller, &clock, stream, |effect| effects.begin(effect)).await;
    ha_runtime::notify::stopping();
    writer.flush().await;
    trigger.request();
    let serving_result = servers_end.await.map(|_| ()).context("the HTTP server failed");
    // The lock is held as long as this process can answer an agent.
    drop(lock);
    serving_result
}

/// Asks every etcd member for its status, as the overview shows it.
async fn etcd_members(store: EtcdStore) -> Vec<EtcdMember> {
    let statuses = store.status().await;
    statuses
        .into_iter()
        .map(|status| {
            let mut problems: Vec<String> = status.problem.into_iter().collect();
            problems.extend(status.alarms.iter().map(|alarm| format!("alarm {alarm}")));
            EtcdMember {
                name: status.endpoint.clone(),
                url: status.endpoint,
                healthy: status.reachable,
                leader: status.leader,
                version: status.version.unwrap_or_default(),
                database_bytes: u64::try_from(status.database_size_bytes).unwrap_or(0),
                problem: problems.join("; "),
            }
        })
        .collect()
}

/// The exclusive lock of the state directory: while this process holds it, no earlier process of this controller is
/// alive. Released on drop, and by the kernel when the process ends.
#[derive(Debug)]
struct StateLock {
    _directory: File,
}

#[derive(Debug, thiserror::Error)]
enum LockError {
    #[error(
        "{0} is locked by another controller: stop it, or set a separate --state-dir for each controller"
    )]
    Held(PathBuf),
    #[error("cannot lock {0}: {1}")]
    Unusable(PathBuf, std::io::Error),
}

/// Creates and locks the directory. The lock is on the directory itself, so only read permission is needed.
fn lock_state_dir(directory: &Path) -> Result<StateLock, LockError> {
    let unusable = |error| LockError::Unusable(directory.to_owned(), error);
    if !directory.exists() {
        std::fs::create_dir_all(directory).map_err(unusable)?;
    }
    let opened = File::open(directory).map_err(unusable)?;
    match opened.try_lock() {
        Ok(()) => Ok(StateLock { _directory: opened }),
        Err(std::fs::TryLockError::WouldBlock) => Err(LockError::Held(directory.to_owned())),
        Err(std::fs::TryLockError::Error(error)) => Err(unusable(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_process_holds_the_lock() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("a/state");
        let lock = lock_state_dir(&directory).unwrap();
        assert!(matches!(lock_state_dir(&directory), Err(LockError::Held(_))));
        drop(lock);
        lock_state_dir(&directory).unwrap();
        let file = parent.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(matches!(lock_state_dir(&file.join("state")), Err(LockError::Unusable(..))));
    }
}
