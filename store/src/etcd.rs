//! The store on etcd: one channel for each member, ordered failover, a deadline for every request, and unknown
//! outcomes as a separate result.

mod commit;
mod config;
mod credentials;
mod failure;
mod http;
mod member;
mod race;
mod resolve;
mod status;
mod watch;

pub use config::{Config, StoreOptions};
pub use status::MemberStatus;

use crate::followed::FollowedData;
use crate::store::{Reading, Store, StoreError, WatchItem};
use crate::transaction::{Entry, LeaseId, Outcome, Transaction};
use credentials::Credentials;
use etcd_client::{Client, GetOptions, KvClient, ResponseHeader, Txn, TxnOp, TxnOpResponse};
use failure::Failure;
use futures::stream::BoxStream;
use ha_api_types::id::Revision;
use member::Member;
use race::{Call, RetryPolicy, race};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// A client of an etcd cluster. Clones share its channels.
///
/// Guarantees: those of [`Store`]. A member is used only after its version was checked (FENCING, section 11). No
/// request waits longer than three attempt timeouts. Every request and watch requires that its member has a leader.
///
/// Assumptions: only the process to which a lease was granted uses it, and a process has at most one write in progress
/// for each key.
#[derive(Clone)]
pub struct EtcdStore {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    members: Vec<Member>,
    credentials: Credentials,
    /// Index of the member that answered last.
    preferred: AtomicUsize,
    attempt_timeout_ms: AtomicU64,
    allow_old_store: bool,
    versions_checked: AtomicBool,
    followed: FollowedData,
}

impl EtcdStore {
    /// Creates the channels. No member has to be reachable; later requests report unreachable members.
    ///
    /// Errors: [`StoreError::Configuration`] for invalid settings, with a hint.
    pub async fn connect(config: Config) -> Result<EtcdStore, StoreError> {
        EtcdStore::following(config, FollowedData::default()).await
    }

    /// Behaves like [`EtcdStore::connect`], for a process that follows one etcd cluster and its incarnation
    /// (FENCING, R1.29).
    pub async fn following(config: Config, followed: FollowedData) -> Result<EtcdStore, StoreError> {
        config.validate()?;
        let endpoints = config.endpoints.iter();
        let inner = Inner {
            members: endpoints.map(|url| Member::new(url.trim_end_matches('/').to_owned())).collect(),
            credentials: Credentials::new(&config)?,
            preferred: AtomicUsize::new(0),
            attempt_timeout_ms: AtomicU64::new(config.attempt_timeout_ms),
            allow_old_store: config.allow_old_store,
            versions_checked: AtomicBool::new(false),
            followed,
        };
        for member in &inner.members {
            member.prepare(&inner).await.map_err(Failure::into_store_error)?;
        }
        Ok(EtcdStore { inner: Arc::new(inner) })
    }

    /// Sets the time limit of one attempt in milliseconds: the active heartbeat interval.
    pub fn set_attempt_timeout_ms(&self, attempt_timeout_ms: u64) {
        self.inner.attempt_timeout_ms.store(attempt_timeout_ms.max(1), Ordering::Relaxed);
    }

    /// Checks the version of every reachable member, and fails if one is too old. The first request also makes this
    /// check.
    ///
    /// Errors: [`StoreError::Unsupported`] with a message for the operator; [`StoreError::Unreachable`] if no member
    /// answers.
    pub async fn check_versions(&self) -> Result<(), StoreError> {
        self.inner.versions_checked.store(false, Ordering::Relaxed);
        self.inner.check_versions().await.map_err(Failure::into_store_error)?;
        if self.inner.versions_checked.load(Ordering::Relaxed) {
            Ok(())
        } else {
            let members: Vec<&str> =
                self.inner.members.iter().map(|member| member.endpoint.as_str()).collect();
            Err(StoreError::Unreachable(format!("no etcd member responds: {}", members.join(", "))))
        }
    }

    /// Returns the status of every member. Never fails, and takes at most one attempt timeout.
    pub async fn status(&self) -> Vec<MemberStatus> {
        status::status(&self.inner).await
    }
}

impl Inner {
    fn attempt_timeout(&self) -> Duration {
        Duration::from_millis(self.attempt_timeout_ms.load(Ordering::Relaxed))
    }

    fn preferred(&self) -> usize {
        self.preferred.load(Ordering::Relaxed)
    }

    fn prefer(&self, member: usize) {
        self.preferred.store(member, Ordering::Relaxed);
    }

    /// Makes the next member the preferred one, if this member is preferred.
    fn demote(&self, member: usize) {
        let next = (member + 1) % self.members.len();
        // If another request has changed the preferred member in the meantime, that choice stays.
        let _ = self.preferred.compare_exchange(member, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Refuses all requests except the read of the incarnation while the data of this etcd is refused.
    fn check_followed(&self, selectors: &[String]) -> Result<(), Failure> {
        match self.followed.refused() {
            Some(cause) if *selectors != [self.followed.key()] => Err(Failure::Refused(cause)),
            Some(_) | None => Ok(()),
        }
    }

    /// Checks that an answer comes from the etcd cluster that this process follows.
    fn accept(&self, header: Option<&ResponseHeader>) -> Result<(), etcd_client::Error> {
        let cluster = header.map_or(0, ResponseHeader::cluster_id);
        self.followed.accept(cluster).map_err(etcd_client::Error::WatchError)
    }

    /// Fails if a reachable member is too old. Other members are checked before their first use.
    async fn check_versions(&self) -> Result<(), Failure> {
        if self.versions_checked.load(Ordering::Relaxed) {
            return Ok(());
        }
        let answers = futures::future::join_all(self.members.iter().map(|member| async {
            tokio::time::timeout(self.attempt_timeout(), member.client(self)).await.ok()
        }))
        .await;
        let mut answered = false;
        for result in answers.into_iter().flatten() {
            match result {
                Ok(_) => answered = true,
                Err(Failure::Unsupported(sentence)) => return Err(Failure::Unsupported(sentence)),
                Err(failure) => tracing::debug!(%failure, "cannot get the version of an etcd member"),
            }
        }
        if answered {
            self.versions_checked.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Makes a request that may be repeated any number of times.
async fn request<T: Send + 'static>(inner: &Arc<Inner>, call: Call<T>) -> Result<T, StoreError> {
    inner.check_versions().await.map_err(Failure::into_store_error)?;
    let settled = race(inner, call, RetryPolicy::Always, |result, _| into_control_flow(result));
    settled.await.and_then(|result| result).map_err(Failure::into_store_error)
}

/// Returns `Break` if an answer ends a repeatable request.
fn into_control_flow<T>(result: Result<T, Failure>) -> ControlFlow<Result<T, Failure>> {
    match result {
        Ok(answer) => ControlFlow::Break(Ok(answer)),
        Err(
            failure @ (Failure::Refused(_)
            | Failure::Full(_)
            | Failure::LeaseNotFound
            | Failure::Compacted(_)
            | Failure::Configuration(_)),
        ) => ControlFlow::Break(Err(failure)),
        Err(
            Failure::NotSent(_) | Failure::Unknown(_) | Failure::TokenExpired(_) | Failure::Unsupported(_),
        ) => ControlFlow::Continue(()),
    }
}

/// Returns the key-value service without a limit on the size of answers.
fn kv_client(client: &Client) -> KvClient {
    client.kv_client().max_decoding_message_size(usize::MAX)
}

fn to_entry(key_value: &etcd_client::KeyValue) -> Entry {
    Entry {
        key: String::from_utf8_lossy(key_value.key()).into_owned(),
        value: key_value.value().into(),
        create_revision: Revision(key_value.create_revision()),
        mod_revision: Revision(key_value.mod_revision()),
        lease: LeaseId(key_value.lease()),
    }
}

/// Grants a lease. A lease that was granted to an attempt without an answer expires.
async fn grant_lease(inner: &Arc<Inner>, ttl_seconds: i64) -> Result<LeaseId, StoreError> {
    let accepting = inner.clone();
    let call: Call<LeaseId> = Arc::new(move |mut client| {
        let inner = accepting.clone();
        Box::pin(async move {
            let granted = client.lease_grant(ttl_seconds, None).await?;
            inner.accept(granted.header())?;
            Ok(LeaseId(granted.id()))
        })
    });
    request(inner, call).await
}

/// Sends one keep-alive, and returns the time to live in seconds. A lease provides presence and cleanup, but is not
/// proof: an isolated member that was paused continues to answer keep-alives of an expired lease (FENCING, section 3).
async fn keep_alive(inner: &Arc<Inner>, lease: LeaseId) -> Result<i64, StoreError> {
    let call: Call<i64> = Arc::new(move |mut client| {
        Box::pin(async move {
            // The client library discards the first answer, which has the time to live; so the client sends a second
            // keep-alive.
            let (mut keeper, mut answers) = client.lease_keep_alive(lease.0).await?;
            keeper.keep_alive().await?;
            Ok(answers.message().await?.map_or(0, |answer| answer.ttl()))
        })
    });
    match request(inner, call).await? {
        ttl if ttl > 0 => Ok(ttl),
        _ => Err(StoreError::LeaseNotFound),
    }
}

/// Revokes a lease. If the lease does not exist after an attempt without an answer, that attempt counts as successful.
async fn revoke_lease(inner: &Arc<Inner>, lease: LeaseId) -> Result<(), StoreError> {
    inner.check_versions().await.map_err(Failure::into_store_error)?;
    let call: Call<()> =
        Arc::new(move |mut client| Box::pin(async move { client.lease_revoke(lease.0).await.map(|_| ()) }));
    let settled = race(inner, call, RetryPolicy::Always, |result, unresolved| match result {
        Err(Failure::LeaseNotFound) if unresolved > 0 => ControlFlow::Break(Ok(())),
        result => into_control_flow(result),
    });
    settled.await.and_then(|result| result).map_err(Failure::into_store_error)
}

/// Reads all keys under any of the selectors, now or at an earlier revision.
async fn list(
    inner: &Arc<Inner>,
    selectors: &[String],
    earlier_revision: Option<Revision>,
) -> Result<Reading, StoreError> {
    // A transaction that only reads is linearizable and reads all keys at one revision.
    let gets: Vec<TxnOp> = selectors
        .iter()
        .map(|selector| {
            let options = GetOptions::new().with_revision(earlier_revision.map_or(0, |revision| revision.0));
            let options = if selector.is_empty() {
                options.with_all_keys()
            } else if selector.ends_with('/') {
                options.with_prefix()
            } else {
                options
            };
            TxnOp::get(selector.as_str(), Some(options))
        })
        .collect();
    inner.check_followed(selectors).map_err(Failure::into_store_error)?;
    let read = Txn::new().and_then(gets);
    let caller = inner.clone();
    let call: Call<Reading> = Arc::new(move |client| {
        let (read, inner) = (read.clone(), caller.clone());
        Box::pin(async move {
            let response = kv_client(&client).txn(read).await?;
            inner.accept(response.header())?;
            let mut entries = BTreeMap::new();
            for operation in response.op_responses() {
                if let TxnOpResponse::Get(got) = operation {
                    entries.extend(got.kvs().iter().map(to_entry).map(|entry| (entry.key.clone(), entry)));
                }
            }
            let newest_revision = response.header().map_or(0, etcd_client::ResponseHeader::revision);
            let revision = earlier_revision.unwrap_or(Revision(newest_revision));
            Ok(Reading { entries: entries.into_values().collect(), revision })
        })
    });
    request(inner, call).await
}

impl Store for EtcdStore {
    async fn list_all(&self, selectors: &[String]) -> Result<Reading, StoreError> {
        list(&self.inner, selectors, None).await
    }

    async fn list_at(&self, selectors: &[String], revision: Revision) -> Result<Reading, StoreError> {
        list(&self.inner, selectors, Some(revision)).await
    }

    fn watch_all(
        &self,
        selectors: &[String],
        from: Revision,
    ) -> BoxStream<'static, Result<WatchItem, StoreError>> {
        watch::watch(self.inner.clone(), selectors.to_vec(), from)
    }

    async fn commit(&self, transaction: Transaction) -> Outcome {
        commit::commit(&self.inner, transaction).await
    }

    async fn grant_lease(&self, ttl_seconds: i64) -> Result<LeaseId, StoreError> {
        self.inner.check_followed(&[]).map_err(Failure::into_store_error)?;
        grant_lease(&self.inner, ttl_seconds).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<i64, StoreError> {
        keep_alive(&self.inner, lease).await
    }

    async fn revoke_lease(&self, lease: LeaseId) -> Result<(), StoreError> {
        revoke_lease(&self.inner, lease).await
    }
}
