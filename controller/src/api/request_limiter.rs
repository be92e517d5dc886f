//! Limit of requests: each user has a limited number of requests in progress, so that no user can block the others.

use super::error::ApiError;
use super::lock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Number of requests of one user that are in progress at the same time. An open watch is not in progress.
const REQUESTS_IN_PROGRESS: usize = 4;
/// Number of further requests of one user that wait. More are refused.
const WAITING_REQUESTS: usize = 200;
/// Maximum time that a request waits.
const WAIT_LIMIT: Duration = Duration::from_secs(10);

/// The requests in progress, by user. Each user waits only for its own requests.
#[derive(Debug, Default)]
pub(super) struct RequestLimiter {
    users: Mutex<BTreeMap<String, Arc<UserRequests>>>,
}

#[derive(Debug)]
struct UserRequests {
    in_progress: Arc<Semaphore>,
    waiting: Semaphore,
}

impl RequestLimiter {
    /// Waits until the user has a free slot, which the user occupies until the returned permit is dropped.
    ///
    /// # Errors
    /// 429 if too many requests of the user wait, or if no slot became free in time.
    pub(super) async fn acquire_slot(&self, user: &str) -> Result<OwnedSemaphorePermit, ApiError> {
        let requests = self.requests_of_user(user);
        if let Ok(slot) = Arc::clone(&requests.in_progress).try_acquire_owned() {
            return Ok(slot);
        }
        let _waiting = requests.waiting.try_acquire().map_err(|_| ApiError::too_many_requests(user))?;
        let free_slot = Arc::clone(&requests.in_progress).acquire_owned();
        match tokio::time::timeout(WAIT_LIMIT, free_slot).await {
            Ok(Ok(slot)) => Ok(slot),
            Ok(Err(_)) | Err(_) => Err(ApiError::too_many_requests(user)),
        }
    }

    /// Returns the requests of a user, and removes users without requests.
    fn requests_of_user(&self, user: &str) -> Arc<UserRequests> {
        let mut users = lock(&self.users);
        if let Some(requests) = users.get(user) {
            return Arc::clone(requests);
        }
        users.retain(|_, requests| {
            Arc::strong_count(requests) > 1 || requests.in_progress.available_permits() < REQUESTS_IN_PROGRESS
        });
        let requests = Arc::new(UserRequests {
            in_progress: Arc::new(Semaphore::new(REQUESTS_IN_PROGRESS)),
            waiting: Semaphore::new(WAITING_REQUESTS),
        });
        users.insert(user.to_owned(), Arc::clone(&requests));
        requests
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test(start_paused = true)]
    async fn each_user_waits_only_for_its_own_requests() {
        let limiter = RequestLimiter::default();
        let mut busy = Vec::new();
        for _ in 0..REQUESTS_IN_PROGRESS {
            busy.push(limiter.acquire_slot("loop").await.unwrap());
        }
        assert!(limiter.acquire_slot("loop").now_or_never().is_none(), "waits");
        assert!(limiter.acquire_slot("operator").now_or_never().is_some_and(|slot| slot.is_ok()));
        assert!(limiter.acquire_slot("loop").await.is_err(), "the time limit");
        let waiting = limiter.acquire_slot("loop");
        let release = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            busy.pop();
        };
        assert!(futures::join!(waiting, release).0.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn too_many_waiting_requests_are_refused_immediately() {
        let limiter = RequestLimiter::default();
        let count = REQUESTS_IN_PROGRESS + WAITING_REQUESTS;
        let mut waiting: Vec<_> = (0..count).map(|_| Box::pin(limiter.acquire_slot("loop"))).collect();
        let mut held = Vec::new();
        for wait in &mut waiting {
            held.extend(wait.as_mut().now_or_never());
        }
        assert_eq!(held.len(), REQUESTS_IN_PROGRESS);
        let refused = limiter.acquire_slot("loop").now_or_never();
        assert!(refused.is_some_and(|refused| refused.is_err()));
    }

    #[tokio::test]
    async fn users_without_requests_are_forgotten() {
        let limiter = RequestLimiter::default();
        drop(limiter.acquire_slot("one").await.unwrap());
        let _held = limiter.acquire_slot("two").await.unwrap();
        drop(limiter.acquire_slot("three").await.unwrap());
        let names: Vec<String> = limiter.users.lock().unwrap().keys().cloned().collect();
        assert_eq!(names, ["three", "two"]);
    }
}
