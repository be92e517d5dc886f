//! Turns: each user has a limited number of requests in progress, so that no user can block the others.

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
pub(super) struct Turns {
    users: Mutex<BTreeMap<String, Arc<UserTurns>>>,
}

#[derive(Debug)]
struct UserTurns {
    in_progress: Arc<Semaphore>,
    waiting: Semaphore,
}

impl Turns {
    /// Waits until the user has a free turn, which ends when the permit is dropped.
    ///
    /// # Errors
    /// 429 if too many requests of the user wait, or if no turn became free in time.
    pub(super) async fn wait(&self, user: &str) -> Result<OwnedSemaphorePermit, ApiError> {
        let turns = self.of_user(user);
        if let Ok(turn) = Arc::clone(&turns.in_progress).try_acquire_owned() {
            return Ok(turn);
        }
        let _waiting = turns.waiting.try_acquire().map_err(|_| ApiError::too_many_requests(user))?;
        let turn = Arc::clone(&turns.in_progress).acquire_owned();
        match tokio::time::timeout(WAIT_LIMIT, turn).await {
            Ok(Ok(turn)) => Ok(turn),
            Ok(Err(_)) | Err(_) => Err(ApiError::too_many_requests(user)),
        }
    }

    /// Returns the turns of a user, and removes users without requests.
    fn of_user(&self, user: &str) -> Arc<UserTurns> {
        let mut users = lock(&self.users);
        if let Some(turns) = users.get(user) {
            return Arc::clone(turns);
        }
        users.retain(|_, turns| {
            Arc::strong_count(turns) > 1 || turns.in_progress.available_permits() < REQUESTS_IN_PROGRESS
        });
        let turns = Arc::new(UserTurns {
            in_progress: Arc::new(Semaphore::new(REQUESTS_IN_PROGRESS)),
            waiting: Semaphore::new(WAITING_REQUESTS),
        });
        users.insert(user.to_owned(), Arc::clone(&turns));
        turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test(start_paused = true)]
    async fn each_user_waits_only_for_its_own_requests() {
        let turns = Turns::default();
        let mut busy = Vec::new();
        for _ in 0..REQUESTS_IN_PROGRESS {
            busy.push(turns.wait("loop").await.unwrap());
        }
        assert!(turns.wait("loop").now_or_never().is_none(), "waits");
        assert!(turns.wait("operator").now_or_never().is_some_and(|turn| turn.is_ok()));
        assert!(turns.wait("loop").await.is_err(), "the time limit");
        let waiting = turns.wait("loop");
        let release = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            busy.pop();
        };
        assert!(futures::join!(waiting, release).0.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn too_many_waiting_requests_are_refused_immediately() {
        let turns = Turns::default();
        let count = REQUESTS_IN_PROGRESS + WAITING_REQUESTS;
        let mut waiting: Vec<_> = (0..count).map(|_| Box::pin(turns.wait("loop"))).collect();
        let mut held = Vec::new();
        for wait in &mut waiting {
            held.extend(wait.as_mut().now_or_never());
        }
        assert_eq!(held.len(), REQUESTS_IN_PROGRESS);
        let refused = turns.wait("loop").now_or_never();
        assert!(refused.is_some_and(|refused| refused.is_err()));
    }

    #[tokio::test]
    async fn users_without_requests_are_forgotten() {
        let turns = Turns::default();
        drop(turns.wait("one").await.unwrap());
        let _held = turns.wait("two").await.unwrap();
        drop(turns.wait("three").await.unwrap());
        let names: Vec<String> = turns.users.lock().unwrap().keys().cloned().collect();
        assert_eq!(names, ["three", "two"]);
    }
}
