//! The agent's shell: etcd, drivers, journal, watchdog daemon and signals around the pure core.
//!
//! One loop ([`ha_runtime::reconcile::run_core`]) converts events to inputs and begins the core's effects. The shell
//! makes no decisions about services.

mod certificate_renewal;
mod commits;
mod drivers;
mod effects;
mod hold_requests;
mod identity;
mod inhibitor;
mod instrumented_core;
mod journal_file;
mod logind;
mod logs;
mod machine_usage;
mod metrics;
mod options;
mod shutdown_cause;
mod sleep;
mod watchdog_connection;
mod watching;

pub use options::Options;

use crate::core::{AgentCore, Config, Exit, Input};
use crate::doctor::{Owner, read};
use anyhow::Context;
use commits::EtcdRequests;
use drivers::Drivers;
use effects::Effects;
use futures::StreamExt;
use ha_api_types::id::BootId;
use ha_api_types::keys::Keys;
use ha_runtime::certificate::Certificates;
use ha_runtime::clock::{Clock, SystemClock};
use ha_runtime::http::admin::{self, HealthChecks};
use ha_runtime::http::{ServeOptions, bind};
use ha_runtime::metrics::Metrics;
use ha_runtime::program::invalid_settings;
use ha_runtime::reconcile::run_core;
use ha_runtime::shutdown::Shutdown;
use ha_store::FollowedData;
use ha_store::etcd::EtcdStore;
use ha_store::event_writer::EventWriter;
use hold_requests::HoldRequestSender;
use instrumented_core::InstrumentedCore;
use journal_file::JournalFile;
use logind::ShutdownDelay;
use metrics::AgentMetrics;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Sender of inputs to the core; cheap to clone.
pub(crate) type Inputs = mpsc::UnboundedSender<Input>;

/// Interval between examinations of the machine: once an operator has fixed a problem, it is reported for at most this
/// time.
const EXAMINE_INTERVAL: Duration = Duration::from_secs(10);

/// Entry point of the program: reads its options, runs until a request to exit, and returns the exit code.
pub fn main() -> ExitCode {
    ha_runtime::program::main(run)
}

async fn run(options: Options) -> anyhow::Result<()> {
    let (trigger, shutdown) = Shutdown::on_signals().context("cannot handle signals")?;
    let clock = SystemClock::new().context("cannot read the clocks of this machine")?;
    std::fs::create_dir_all(&options.state_dir)
        .with_context(|| format!("cannot create --state-dir {}", options.state_dir.display()))
        .map_err(invalid_settings)?;
    let journal_file = JournalFile::open(&options.state_dir)?;
    let journal = journal_file.load()?;
    let keys = Keys::new(&options.cluster);
    let remedy = format!("run hactl node follow-store {}", options.node);
    let followed = FollowedData::new(
        keys.incarnation(),
        Some(options.node.clone()),
        journal.incarnation.clone(),
        remedy,
    );
    let store =
        EtcdStore::following(options.store.config(), followed.clone()).await.map_err(invalid_settings)?;
    // Heartbeats have separate channels, so that other requests do not delay them.
    let heartbeats =
        EtcdStore::following(options.store.config(), followed.clone()).await.map_err(invalid_settings)?;
    let (inputs, received) = mpsc::unbounded_channel();
    let boot_id =
        BootId::from(identity::read_id(&options.boot_id_file, "--boot-id-file").map_err(invalid_settings)?);
    let drivers = Drivers::new(&options, &boot_id, &inputs).map_err(invalid_settings)?;
    let config = Config {
        keys: keys.clone(),
        node: options.node.clone(),
        instance: uuid::Uuid::new_v4().to_string().into(),
        machine_id: identity::read_id(&options.machine_id_file, "--machine-id-file")
            .map_err(invalid_settings)?
            .into(),
        product_id: identity::product_id(&options.product_id_file),
        boot_id,
        is_virtual: options.machine_is_virtual(),
        sleep_protection: Some(sleep::prevent_sleep(&options, inputs.clone()).await),
        drivers: drivers.usable_names().await,
        policy: options.policy.clone(),
        hardware: identity::hardware(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    tracing::info!(
        node = %config.node, instance = %config.instance, boot_id = %config.boot_id,
        is_virtual = config.is_virtual, drivers = ?config.drivers, "starting the agent"
    );
    let started = clock.now().wall_unix_ms / 1000;
    let metrics =
        Metrics::new("ha-node-agent", env!("CARGO_PKG_VERSION"), i64::try_from(started).unwrap_or(0))?;
    let agent_metrics = AgentMetrics::new(&metrics)?;
    let store_config = options.store.config();
    Certificates::default()
        .with_store(store_config.cert.as_deref(), store_config.ca.as_deref())
        .register(&metrics)?;
    let ready = HealthChecks::new(&["store"]);
    let (state_requester, state_requests) = mpsc::unbounded_channel();
    let server = bind(ServeOptions::new(options.admin_listen, None)).await.map_err(invalid_settings)?;
    tokio::spawn(server.serve(
        admin::router(
            HealthChecks::default(),
            ready.clone(),
            metrics.clone(),
            instrumented_core::reader(state_requester),
        ),
        shutdown.clone(),
    ));

    watching::spawn(store.clone(), followed, keys.clone(), options.node.clone(), inputs.clone(), ready);
    shutdown_cause::spawn(shutdown.clone(), inputs.clone());
    let delay = ShutdownDelay::spawn(inputs.clone());
    drivers.spawn_checks();
    spawn_examinations(inputs.clone());
    logs::spawn(store.clone(), keys.clone(), &options.node, drivers.clone());
    certificate_renewal::spawn(store.clone(), keys.clone(), options.node.clone(), options.store.config());
    let writer = EventWriter::spawn(store.clone(), keys, format!("agent-{}", config.node));
    let process = config.instance.clone();
    let mut core =
        InstrumentedCore::new(AgentCore::new(config, journal), agent_metrics.clone(), state_requests);
    let exit = Arc::new(std::sync::Mutex::new(None::<Exit>));
    let (ended, mut wait_for_end) = tokio::sync::watch::channel(false);
    let mut effects = Effects {
        store: EtcdRequests::new(store, heartbeats, inputs.clone()),
        controllers: HoldRequestSender::new(options.node.clone(), options.store.config(), inputs.clone()),
        drivers,
        clock,
        journal: journal_file.spawn_writer(inputs.clone()),
        watchdog: watchdog_connection::spawn(options.watchdog_socket.clone(), inputs.clone()),
        events: writer.clone(),
        // The process id distinguishes these events from those of an earlier process of this node.
        process: process.to_string(),
        event_number: 0,
        metrics: agent_metrics,
        exit: Arc::clone(&exit),
        ended,
    };
    let forced = shutdown.clone();
    let stream = futures::stream::poll_fn({
        let mut received = received;
        move |context| received.poll_recv(context)
    })
    .take_until(async move {
        tokio::select! {
            _ = wait_for_end.wait_for(|ended| *ended) => {}
            () = forced.wait_for_force() => tracing::warn!("exiting immediately: running services and an armed watchdog keep running"),
        }
    });
    ha_runtime::notify::ready("running");
    run_core(&mut core, &clock, stream, |effect| effects.begin(effect)).await;
    ha_runtime::notify::stopping();
    writer.flush().await;
    delay.finish(shutdown.wait_for_request()).await;
    trigger.request();
    let exit = exit.lock().ok().and_then(|exit| *exit);
    match exit {
        Some(Exit::Superseded) => anyhow::bail!("another agent process of this node has taken over"),
        Some(Exit::Restart | Exit::Left) | None => Ok(()),
    }
}

/// Starts examinations of the machine for `hactl doctor`, the first one immediately, for as long as the loop runs.
fn spawn_examinations(inputs: Inputs) {
    tokio::spawn(async move {
        let mut owner: Option<Owner> = None;
        loop {
            let previous_owner = owner.clone();
            // Reading files may block, and a disk that hangs must not block the loop.
            let read = tokio::task::spawn_blocking(move || {
                read::read_machine_facts(Path::new("/"), previous_owner.as_ref())
            })
            .await;
            if let Ok(facts) = read {
                owner.clone_from(&facts.watchdog_owner);
                if inputs.send(Input::Examined(facts)).is_err() {
                    return;
                }
            }
            tokio::time::sleep(EXAMINE_INTERVAL).await;
        }
    });
}
