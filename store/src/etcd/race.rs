//! A request to several members: first the preferred member, then another one if it fails or is slow, all within a time
//! limit.

use super::Inner;
use super::failure::Failure;
use etcd_client::Client;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use std::ops::ControlFlow;
use std::sync::Arc;
use tokio::time::Instant;

/// Maximum number of attempts of one request that may reach etcd.
pub(super) const MAX_ATTEMPTS: usize = ha_api_types::timing::ATTEMPTS as usize;

/// A request as it is sent to one member.
pub(super) type Call<T> =
    Arc<dyn Fn(Client) -> BoxFuture<'static, Result<T, etcd_client::Error>> + Send + Sync>;

/// Permission for several attempts of a request to reach etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetryPolicy {
    /// Another attempt runs in parallel with a slow attempt, and after an attempt that failed without an answer.
    Always,
    /// Another attempt runs only after attempts that certainly did not reach etcd.
    IfNotSent,
}

/// Runs a request.
///
/// `judge` receives the result of each attempt, and the number of unresolved attempts: those that are running or ended
/// with an unknown outcome. `judge` returns `Break` if the result settles the request. If no attempt settles the
/// request, the error is the last failure, or [`Failure::Unknown`] if any attempt may have been applied.
///
/// Guarantees: if an attempt exceeds the attempt timeout, another one starts in parallel on the next member. The slow
/// attempt may still answer. At most [`MAX_ATTEMPTS`] attempts may have reached etcd. The request ends after that many
/// attempt timeouts.
pub(super) async fn race<T: Send + 'static, R>(
    inner: &Arc<Inner>,
    call: Call<T>,
    retry_policy: RetryPolicy,
    mut handle_result: impl FnMut(Result<T, Failure>, usize) -> ControlFlow<R>,
) -> Result<R, Failure> {
    let attempt_timeout = inner.attempt_timeout();
    let started = Instant::now();
    let deadline = started + attempt_timeout * u32::try_from(MAX_ATTEMPTS).unwrap_or(1);
    let mut slow_at = started + attempt_timeout;
    let first = inner.preferred();
    let mut launched = 0;
    let mut not_sent = 0;
    let mut unknown = 0;
    let mut last_failure = Failure::NotSent("no member was tried".to_owned());
    let mut running = FuturesUnordered::new();
    // A rejection of the request before it is proposed does not count as an attempt. Each member may reject once.
    let max_attempts = MAX_ATTEMPTS + inner.members.len();
    loop {
        let attempt_limit = match retry_policy {
            RetryPolicy::Always => MAX_ATTEMPTS,
            RetryPolicy::IfNotSent => 1,
        };
        let may_launch = launched - not_sent < attempt_limit && launched < max_attempts;
        if running.is_empty() {
            if !may_launch {
                return Err(if unknown > 0 {
                    Failure::Unknown(last_failure.to_string())
                } else {
                    last_failure
                });
            }
            running.push(attempt(inner.clone(), first + launched, call.clone()));
            launched += 1;
            slow_at = Instant::now() + attempt_timeout;
            continue;
        }
        tokio::select! {
            Some((member, result)) = running.next() => {
                match &result {
                    Ok(_) => inner.prefer(member),
                    Err(failure) => {
                        match failure {
                            Failure::NotSent(_) | Failure::TokenExpired(_) | Failure::Unsupported(_) => {
                                not_sent += 1;
                            }
                            Failure::Unknown(_) => unknown += 1,
                            Failure::Refused(_)
                            | Failure::Full(_)
                            | Failure::LeaseNotFound
                            | Failure::Compacted(_)
                            | Failure::Configuration(_) => {}
                        }
                        last_failure = failure.clone();
                    }
                }
                let unresolved = running.len() + unknown;
                if let ControlFlow::Break(outcome) = handle_result(result, unresolved) {
                    return Ok(outcome);
                }
            }
            () = tokio::time::sleep_until(slow_at), if may_launch && slow_at < deadline => {
                running.push(attempt(inner.clone(), first + launched, call.clone()));
                launched += 1;
                slow_at = Instant::now() + attempt_timeout;
            }
            () = tokio::time::sleep_until(deadline) => {
                let text = format!("no response within {} ms", started.elapsed().as_millis());
                inner.demote(first);
                return Err(Failure::Unknown(text));
            }
        }
    }
}

/// Makes one attempt on one member. If the token has expired, authenticates and tries again: the member has rejected
/// the request before proposing it.
fn attempt<T: Send + 'static>(
    inner: Arc<Inner>,
    index: usize,
    call: Call<T>,
) -> BoxFuture<'static, (usize, Result<T, Failure>)> {
    Box::pin(async move {
        let index = index % inner.members.len();
        let member = &inner.members[index];
        let result = async {
            let client = member.client(&inner).await?;
            match call(client).await.map_err(|error| Failure::of(&error)) {
                Err(Failure::TokenExpired(_)) => {
                    let client = member.authenticate_again(&inner).await?;
                    call(client).await.map_err(|error| Failure::of(&error))
                }
                result => result,
            }
        }
        .await;
        if let Err(Failure::NotSent(_) | Failure::Unknown(_)) = &result {
            member.on_connection_lost();
        }
        if result.is_err()
            && let Some(key) = inner.followed.unverified_cluster_key()
            && let Ok(client) = member.client(&inner).await
            && let Ok(response) = client.kv_client().get(key, None).await
        {
            let cluster = response.header().map_or(0, etcd_client::ResponseHeader::cluster_id);
            let read = |entry: &etcd_client::KeyValue| serde_json::from_slice(entry.value()).ok();
            inner.followed.resolve_other_cluster(cluster, response.kvs().first().and_then(read).as_ref());
        }
        (index, result.map_err(|failure| failure.at(&member.endpoint)))
    })
}
