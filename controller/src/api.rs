//! The HTTP API in the shape of Kubernetes. Every controller serves it, stateless over etcd.

mod admission;
mod answer;
mod audit;
mod authentication;
mod authorization;
mod balance;
mod certificates;
mod checks;
mod commit;
mod console;
mod controllers;
mod convert;
mod core_v1;
mod cross_origin;
mod definition;
mod dependency_cycle;
mod discovery;
mod error;
mod facts;
mod history;
mod hold;
mod identity;
mod log;
mod metrics;
mod objects;
mod observer;
mod ocf;
mod openapi;
mod openapi_v2;
mod overview;
mod patch;
mod read;
mod request;
mod request_limiter;
mod reservation;
mod reviews;
mod selector;
mod server_side_apply;
mod state;
mod timing;
mod upgrade;
mod warnings;
mod watch;
mod what_if;

use crate::core::{stored_view, usage};
use crate::policy::Limits;
pub use audit::AuditLog;
use authentication::Authenticator;
pub use authentication::AuthorizationMode;
pub use authentication::tokens::{TokenFileError, Tokens};
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, delete, get, post};
use axum::{Json, Router};
pub use certificates::JoinOptions;
use error::ApiError;
use futures::future::BoxFuture;
use ha_api_types::event::EVENT_TTL_SECONDS;
use ha_api_types::id::ControllerId;
use ha_api_types::keys::Keys;
use ha_api_types::kind::Kind;
use ha_api_types::names;
use ha_api_types::record::LOG_LEASE_SECONDS;
use ha_api_types::time::Timestamp;
use ha_api_types::view::EtcdMember;
use ha_runtime::clock::{Clock, SystemClock};
use ha_runtime::http::admin::ReadState;
use ha_store::{ShortLease, Store};
use history::History;
pub use hold::RequestHold;
pub use metrics::ApiMetrics;
use metrics::WatchPermit;
use observer::Observer;
pub(crate) use read::spec_of;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::normalize_path::NormalizePath;
use watch::ObjectFeed;

/// Maximum number of log requests that this process answers at the same time; more are refused with 429.
const LOG_REQUESTS_MAX: usize = 8;
/// Maximum number of requests to join that this process answers at the same time; more are refused with 429. These
/// requests come from clients without a certificate.
const JOIN_REQUESTS_MAX: usize = 4;
/// Maximum number of searches for a balancing plan at the same time; more are refused with 429.
const BALANCE_REQUESTS_MAX: usize = 1;

/// Settings of the API that come from the process that serves it.
#[derive(Clone)]
pub struct ApiOptions {
    /// Id of this controller, as in its candidate key.
    pub id: ControllerId,
    /// Name of the cluster, which is part of every key.
    pub cluster: String,
    /// Maximum number of open watches; more are refused with 429.
    pub watches: usize,
    /// Function that reads the health of each etcd member; `None` if the store has no members.
    pub etcd_members: Option<StoreMembers>,
    /// Function that requests an etcd-outage hold for a node from the core; `None` if no core runs in this process.
    pub request_hold: Option<RequestHold>,
    /// Function that returns the state of the core; `None` if no core runs in this process.
    pub read_state: Option<ReadState>,
    /// Metrics of requests; `None` if requests are not counted.
    pub metrics: Option<ApiMetrics>,
    /// Permissions of clients with a certificate.
    pub authorization: AuthorizationMode,
    /// Tokens that the API accepts; `None` if it accepts none.
    pub tokens: Option<Arc<Tokens>>,
    /// Destination of the audit records.
    pub audit_log: AuditLog,
    /// Root directory of the OCF resource agents on this machine, used to check parameters; `None` disables the
    /// check.
    pub ocf_root: Option<PathBuf>,
    /// Limits of the controller, which new and changed objects must respect.
    pub limits: Limits,
    /// Authority with which this controller issues certificates to nodes; `None` if it issues none.
    pub join: Option<JoinOptions>,
    /// Reason why no service has a log, as a clause; `None` if agents provide logs.
    pub no_logs: Option<&'static str>,
    /// Clock of the timestamps and of the displayed durations.
    pub clock: Arc<dyn Clock>,
}

/// Function that reads the health of each etcd member.
pub type StoreMembers = Arc<dyn Fn() -> BoxFuture<'static, Vec<EtcdMember>> + Send + Sync>;

impl ApiOptions {
    /// Returns the default options: 1000 watches, this machine's clock, no metrics, and no connection to etcd members or
    /// the core.
    pub fn new(id: impl Into<ControllerId>, cluster: &str) -> ApiOptions {
        ApiOptions {
            id: id.into(),
            cluster: cluster.to_owned(),
            watches: 1000,
            etcd_members: None,
            request_hold: None,
            read_state: None,
            metrics: None,
            authorization: AuthorizationMode::Roles,
            tokens: None,
            audit_log: AuditLog::default(),
            ocf_root: None,
            limits: Limits::default(),
            join: None,
            no_logs: None,
            clock: Arc::new(SystemClock::default()),
        }
    }
}

impl ApiOptions {
    async fn members(&self) -> Vec<EtcdMember> {
        match &self.etcd_members {
            Some(ask) => ask().await,
            None => Vec::new(),
        }
    }
}

/// State that all requests share. Cheap to clone.
pub struct ApiState<S> {
    shared: Arc<SharedState<S>>,
}

impl<S> Clone for ApiState<S> {
    fn clone(&self) -> ApiState<S> {
        ApiState { shared: Arc::clone(&self.shared) }
    }
}

struct SharedState<S> {
    store: Arc<S>,
    keys: Keys,
    options: ApiOptions,
    watches: Arc<Semaphore>,
    logs: Arc<Semaphore>,
    joins: Arc<Semaphore>,
    balances: Arc<Semaphore>,
    log_lease: ShortLease,
    event_lease: ShortLease,
    observer: Arc<Observer>,
    history: History,
    feeds: BTreeMap<Kind, ObjectFeed>,
    agents: Option<ocf::Agents>,
}

impl<S> ApiState<S> {
    /// Creates the API over a store.
    pub fn new(store: Arc<S>, keys: Keys, options: ApiOptions) -> ApiState<S> {
        let watches = Arc::new(Semaphore::new(options.watches));
        let logs = Arc::new(Semaphore::new(LOG_REQUESTS_MAX));
        let joins = Arc::new(Semaphore::new(JOIN_REQUESTS_MAX));
        let balances = Arc::new(Semaphore::new(BALANCE_REQUESTS_MAX));
        let log_lease = ShortLease::new(LOG_LEASE_SECONDS);
        let event_lease = ShortLease::new(EVENT_TTL_SECONDS);
        let agents = options.ocf_root.clone().map(ocf::Agents::new);
        let observer = Arc::new(Observer::new(Arc::clone(&options.clock)));
        let history = History::new(Arc::clone(&options.clock));
        let feeds = Kind::ALL.into_iter().map(|kind| (kind, ObjectFeed::new(kind))).collect();
        let shared = SharedState {
            store,
            keys,
            options,
            watches,
            logs,
            joins,
            balances,
            log_lease,
            event_lease,
            observer,
            history,
            feeds,
            agents,
        };
        ApiState { shared: Arc::new(shared) }
    }

    fn store(&self) -> &S {
        &self.shared.store
    }

    fn options(&self) -> &ApiOptions {
        &self.shared.options
    }

    fn agents(&self) -> Option<&ocf::Agents> {
        self.shared.agents.as_ref()
    }

    fn observer(&self) -> &Observer {
        &self.shared.observer
    }

    fn history(&self) -> &History {
        &self.shared.history
    }

    fn keys(&self) -> &Keys {
        &self.shared.keys
    }

    fn feed(&self, kind: Kind) -> &ObjectFeed {
        &self.shared.feeds[&kind]
    }

    fn watch_permit(&self) -> Result<WatchPermit, ApiError> {
        let permit = Arc::clone(&self.shared.watches).try_acquire_owned();
        let permit = permit.map_err(|_| ApiError::too_many_watches())?;
        Ok(WatchPermit::new(permit, self.shared.options.metrics.clone()))
    }

    /// Returns the permission for one request for a log, which ends on drop.
    fn log_permit(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        Arc::clone(&self.shared.logs).try_acquire_owned().map_err(|_| ApiError::too_many_logs())
    }

    /// Returns the permission for one request to join, which ends on drop.
    fn join_permit(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        Arc::clone(&self.shared.joins).try_acquire_owned().map_err(|_| ApiError::too_many_joins())
    }

    /// Returns the permission for one search for a balancing plan, which ends on drop.
    fn balance_permit(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        Arc::clone(&self.shared.balances).try_acquire_owned().map_err(|_| ApiError::too_many_plans())
    }

    /// Returns the lease of the requests for logs.
    fn log_lease(&self) -> &ShortLease {
        &self.shared.log_lease
    }

    /// Returns the lease of the events that the API writes.
    fn event_lease(&self) -> &ShortLease {
        &self.shared.event_lease
    }

    /// Returns the wall clock time, for timestamps that people read.
    fn timestamp(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.options().clock.now().wall_unix_ms)
    }

    fn now_seconds(&self) -> i64 {
        self.timestamp().unix_seconds().unwrap_or(0)
    }
}

impl<S: Store> ApiState<S> {
    /// Watches the store for all requests: heartbeats and candidates, so that the overview can report the time since
    /// the last change of each; statuses, so that the history contains their changes; and the objects, so that watches
    /// of clients share their changes.
    ///
    /// The caller runs this future as long as the server runs. Without it, the overview omits those times, the history
    /// is empty, and each watch of a client watches the store.
    pub async fn observe(&self) {
        let (store, keys) = (&self.shared.store, &self.shared.keys);
        let feeds = self.shared.feeds.values().map(|feed| feed.run(Arc::clone(store), keys));
        futures::join!(
            self.shared.observer.run(Arc::clone(store), keys),
            self.shared.history.run(Arc::clone(store), keys),
            futures::future::join_all(feeds),
        );
    }
}

/// Returns the routes of the API.
///
/// `process_routes` are those that belong to the process: `/livez`, `/readyz`, `/metrics` and `/state`
/// (`ha_runtime::http::admin`). Every request is checked, by the `ClientIdentity` in its extensions, which
/// `ha_runtime::http` adds. A request without this extension needs a token. Only the files of the console are public.
pub fn router<S: Store>(state: ApiState<S>, process_routes: Router) -> Router {
    let metrics = state.options().metrics.clone();
    let options = state.options();
    let checks = checks::RequestChecks {
        authenticator: Authenticator::new(options.authorization, options.tokens.clone()),
        audit_log: options.audit_log.clone(),
        request_limiter: Arc::default(),
    };
    let observer = Arc::clone(&state.shared.observer);
    let router = Router::new()
        .route("/version", get(async || Json(version())))
        .route("/api", get(async |request: Request| discovery::core_versions(request.headers())))
        .route("/apis", get(async |request: Request| discovery::groups(request.headers())))
        .route("/api/v1", get(async || Json(discovery::core_resources())))
        .route("/apis/hactl.io", get(async || Json(discovery::group())))
        .route("/apis/hactl.io/v1", get(async || Json(discovery::resources())))
        .route("/apis/authorization.k8s.io", get(async || Json(discovery::authorization_group())))
        .route("/apis/authorization.k8s.io/v1", get(async || Json(discovery::authorization_resources())))
        .route("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", any(reviews::self_access))
        .route("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", any(reviews::self_rules))
        .route("/apis/authorization.k8s.io/v1/subjectaccessreviews", any(reviews::subject_access))
        .route("/apis/authentication.k8s.io", get(async || Json(discovery::authentication_group())))
        .route("/apis/authentication.k8s.io/v1", get(async || Json(discovery::authentication_resources())))
        .route("/apis/authentication.k8s.io/v1/selfsubjectreviews", any(reviews::self_identity))
        .route("/api/v1/namespaces", get(core_v1::namespaces::<S>))
        .route("/api/v1/namespaces/{name}", get(core_v1::one_namespace))
        .route("/api/v1/events", get(core_v1::all_events::<S>))
        .route("/api/v1/namespaces/{name}/events", get(core_v1::namespaced_events::<S>))
        .route("/api/v1/namespaces/{name}/events/{event}", get(core_v1::one_event::<S>))
        .route("/openapi/v2", get(openapi_v2::document))
        .route("/openapi/v3", get(openapi::index))
        .route("/openapi/v3/{*path}", get(openapi::group_version))
        .route("/apis/hactl.io/v1/status", get(overview::handler::<S>))
        .route("/apis/hactl.io/v1/usage", get(usage::<S>))
        .route("/apis/hactl.io/v1/state", get(state::handler::<S>))
        .route("/apis/hactl.io/v1/placement", get(placement::<S>))
        .route("/apis/hactl.io/v1/plan", post(what_if::handler::<S>))
        .route("/apis/hactl.io/v1/timing", post(timing::handler::<S>))
        .route("/apis/hactl.io/v1/balance", get(balance::handler::<S>))
        .route("/apis/hactl.io/v1/audit", get(audit::page::handler::<S>))
        .route("/apis/hactl.io/v1/history", get(history::handler::<S>))
        .route("/apis/hactl.io/v1/reservation", get(reservation::handler::<S>))
        .route("/apis/hactl.io/v1/resources/{name}/explain", get(explain::<S>))
        .route("/apis/hactl.io/v1/resources/{name}/log", get(log::handler::<S>))
        .route("/apis/hactl.io/v1/events/stream", get(core_v1::stream::<S>))
        .route("/apis/hactl.io/v1/nodes/{name}/hold", post(hold::handler::<S>))
        .route("/apis/hactl.io/v1/nodes/{name}/jointoken", post(certificates::create_token::<S>))
        .route(
            "/apis/hactl.io/v1/nodes/{name}/join",
            get(certificates::join_authority::<S>).post(certificates::join::<S>),
        )
        .route("/apis/hactl.io/v1/nodes/{name}/certificate", post(certificates::renew::<S>))
        .route("/apis/hactl.io/v1/nodes/{name}/certificates", get(certificates::list::<S>))
        .route("/apis/hactl.io/v1/controllers/{id}", delete(controllers::delete::<S>))
        .route("/apis/hactl.io/v1/{plural}", any(objects::handle_collection::<S>))
        .route("/apis/hactl.io/v1/{plural}/{name}", any(objects::handle_object::<S>))
        .route("/apis/hactl.io/v1/{plural}/{name}/status", any(objects::handle_status::<S>))
        .fallback(async || ApiError::no_such_path())
        .method_not_allowed_fallback(async || {
            ApiError::method_not_allowed("method not allowed for this path")
        })
        .with_state(state)
        .merge(process_routes)
        .layer(CatchPanicLayer::custom(panic_response))
        .layer(axum::middleware::from_fn_with_state(checks, checks::check))
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&observer), cross_origin::share));
    let router = match metrics {
        Some(metrics) => router.layer(axum::middleware::from_fn_with_state(metrics, metrics::count_request)),
        None => router,
    };
    // Some clients end paths with a slash. The paths of the console are links of a page, which need the slash.
    console::router(observer)
        .fallback_service(NormalizePath::trim_trailing_slash(router))
        .layer(axum::middleware::from_fn(console::redirect_browser))
}

/// Locks a mutex, also after a panic of another holder: the data of the API are valid after each statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers with the current resource usage of nodes and services.
async fn usage<S: Store>(State(state): State<ApiState<S>>) -> Result<Response, ApiError> {
    Ok(Json(usage::overview(&facts::cluster_view(&state).await?)).into_response())
}

/// Answers with the input of the scheduler, which every controller can serve.
async fn placement<S: Store>(State(state): State<ApiState<S>>) -> Result<Response, ApiError> {
    Ok(Json(stored_view::view(&facts::cluster_view(&state).await?).0).into_response())
}

/// Answers with the reasons for the placement of a service, and the verdict for each node.
async fn explain<S: Store>(
    State(state): State<ApiState<S>>,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    // This call refuses a name with the wrong type.
    read::find(state.store(), state.keys(), Kind::Resource, &name).await?;
    let cluster_view = facts::cluster_view(&state).await?;
    let name = names::without_type(&name);
    let resource =
        cluster_view.resources.get(name).ok_or_else(|| ApiError::not_found(Kind::Resource, name))?;
    Ok(Json(crate::core::explain::explain(&cluster_view, &resource.value)).into_response())
}

/// Answers a request whose handler panicked. Only this request fails; the log shows where.
#[expect(clippy::needless_pass_by_value, reason = "the layer passes it so")]
fn panic_response(cause: Box<dyn std::any::Any + Send>) -> Response {
    let text =
        cause.downcast_ref::<&str>().copied().or_else(|| cause.downcast_ref::<String>().map(String::as_str));
    tracing::error!(cause = text.unwrap_or("no text"), "request handler panicked");
    ApiError::internal("internal error: see the log of the controller").into_response()
}

/// Returns the body of `/version`: the Kubernetes version that this API resembles, for clients that check it, and the
/// hactl version.
fn version() -> serde_json::Value {
    let server_version = env!("CARGO_PKG_VERSION");
    serde_json::json!({
        "major": "1",
        "minor": "32",
        "gitVersion": format!("v1.32.0+hactl-{server_version}"),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
        "hactlVersion": server_version,
    })
}
