//! The interactive simulator: the API and the console of a controller over a simulated cluster, and routes for the
//! switches of the simulation.
//!
//! `hactl simulate --serve` runs this crate. Read [`InteractiveServer`] first.
//!
//! - `session` has the running simulation and its virtual clock.
//! - `store` is the simulated etcd, as the API reads and writes it.
//! - `routes` has the state of the simulation, its actions and its clock, below `/simulation`.
//!
//! Rule: each action of a user is a step of the simulation, so that the saved scenario replays it.

mod routes;
mod session;
mod store;

use ha_controller::api::{self, ApiOptions, ApiState};
use ha_runtime::http::{ServeError, ServeOptions, Server, bind};
use ha_runtime::shutdown::Shutdown;
use ha_simulator::interactive::Simulation;
use session::Session;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use store::SimulatedStore;

/// Name of the cluster in the API.
const CLUSTER: &str = "default";

/// Reason why the interactive simulator could not run.
#[derive(Debug, thiserror::Error)]
pub enum InteractiveError {
    /// The server could not start.
    #[error(transparent)]
    Server(#[from] ServeError),
    /// The signals of this process cannot be handled.
    #[error("cannot handle signals")]
    Signals(#[source] io::Error),
    /// The state could not be saved.
    #[error("{0}")]
    NotSaved(String),
}

/// A server with a simulated cluster behind it.
///
/// Guarantees: no port except the given one is opened, and no process of a real cluster is contacted. With a file, the
/// state is saved after every action and at the end.
pub struct InteractiveServer {
    server: Server,
    session: Arc<Session>,
}

impl InteractiveServer {
    /// Listens on an address of loopback; port 0 selects a free port. The simulation runs once [`InteractiveServer::run`]
    /// is called, and is saved in `file`.
    ///
    /// # Errors
    /// Fails if the address is not on loopback, or cannot be bound.
    pub async fn bind(
        simulation: Simulation,
        address: SocketAddr,
        file: Option<PathBuf>,
    ) -> Result<InteractiveServer, InteractiveError> {
        let server = bind(ServeOptions::new(address, None)).await?;
        Ok(InteractiveServer { server, session: Arc::new(Session::new(simulation, file)) })
    }

    /// Returns the URL of the console.
    pub fn url(&self) -> String {
        self.server.address().map_or_else(String::new, |address| format!("http://{address}/console/"))
    }

    /// Runs the simulation and answers requests until this process receives SIGINT or SIGTERM.
    ///
    /// # Errors
    /// Fails if the signals cannot be handled, or if the state cannot be saved at the end.
    pub async fn run(self) -> Result<(), InteractiveError> {
        let (_trigger, shutdown) = Shutdown::on_signals().map_err(InteractiveError::Signals)?;
        self.run_until(shutdown).await
    }

    async fn run_until(self, shutdown: Shutdown) -> Result<(), InteractiveError> {
        let session = self.session;
        let store = Arc::new(SimulatedStore::new(Arc::clone(&session)));
        let mut options = ApiOptions::new("simulation", CLUSTER);
        options.clock = Arc::clone(&session) as _;
        options.no_logs = Some(store::NO_LOGS);
        options.etcd_members = Some({
            let session = Arc::clone(&session);
            Arc::new(move || {
                let members = session.with(|simulation| simulation.world().etcd_members());
                Box::pin(std::future::ready(members))
            })
        });
        let state = ApiState::new(store, ha_api_types::keys::Keys::new(CLUSTER), options);
        let observing = tokio::spawn({
            let state = state.clone();
            async move { state.observe().await }
        });
        let pacing = tokio::spawn(Arc::clone(&session).pace(shutdown.clone()));
        let router = api::router(state, routes::router(Arc::clone(&session)));
        self.server.serve(router, shutdown).await;
        observing.abort();
        // The task ends with the shutdown, which has been requested.
        let _ = pacing.await;
        session.save().map_err(InteractiveError::NotSaved)
    }
}

#[cfg(test)]
mod tests;
