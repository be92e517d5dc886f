//! A watchdog device that refuses pets, and the conditions under which it is accepted again (FENCING R4.17 to R4.24).

use super::AgentCore;
use super::arming::Watchdog;
use super::effect::Level;
use crate::watchdog::protocol::{Arm, Request};
use ha_api_types::time::{Millis, MonotonicTime, Now};

/// Problem reported for a watchdog that refuses pets.
pub(super) const REFUSES_PETS: &str = "the watchdog rejects renewals because its driver was unbound or its device has failed: check the kernel log";
/// Delay before the agent queries the daemon again for refused pets.
pub(super) const PETS_QUERY_DELAY_MS: Millis = 500;
/// The device's history of pets (FENCING R4.17 to R4.24). This process keeps the history, because a daemon of an
/// earlier release does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PetStatus {
    #[default]
    Accepted,
    /// The device has refused a pet or a deadline.
    Refused,
    /// The device was armed again after a refusal, and has taken every pet since.
    Recovering { since: MonotonicTime },
}

impl Watchdog {
    /// Returns `true` if the device has refused no pet, or has recovered from a refusal.
    pub(super) fn accepts_pets(&self) -> bool {
        self.pets == PetStatus::Accepted
    }

    /// Returns when pets will have succeeded for a whole timeout since the device was armed again.
    pub(super) fn recovered_at(&self) -> Option<MonotonicTime> {
        let PetStatus::Recovering { since } = self.pets else { return None };
        let timeout_ms = self.facts.map_or(0, |facts| u64::from(facts.timeout_seconds) * 1000);
        Some(since + timeout_ms)
    }
}

impl AgentCore {
    /// Handles a pet or a deadline that the device has refused.
    pub(super) fn on_pets_refused(&mut self, errno: Option<u32>) {
        let is_first_refusal = self.watchdog.accepts_pets();
        self.watchdog.pets = PetStatus::Refused;
        self.watchdog.acknowledged = None;
        if is_first_refusal {
            let errno = errno.map_or_else(String::new, |errno| format!(" (error {errno})"));
            let text =
                format!("the watchdog rejects renewals{errno}: exclusive services move away from this node");
            self.log(Level::Error, text);
            self.changed = true;
            self.are_all_dirty = true;
            if self.watchdog_test.is_under_way() {
                // The device would not cause the coming reset, so the reset would not prove that the device works.
                self.end_test("the watchdog rejects renewals");
            }
        }
    }

    /// Ends the consequences of a refused pet, once the device was armed again and has taken pets for its whole
    /// timeout.
    pub(super) fn end_pet_refusal(&mut self, now: &Now) {
        let returned = self.watchdog.recovered_at().is_some_and(|at| now.monotonic_raw >= at);
        if returned && !self.watchdog.status.refuses_pets {
            self.watchdog.pets = PetStatus::Accepted;
            self.log(Level::Info, "the watchdog accepts renewals again".to_owned());
            self.changed = true;
            self.are_all_dirty = true;
        }
    }

    /// Returns the request for a device that has refused pets while no service is active. The device is petted without
    /// a deadline, then armed again. It is released only after it has accepted pets for its whole timeout (FENCING
    /// R4.18, R4.24).
    pub(super) fn recovery_request(&self, now: &Now) -> Option<Request> {
        if !self.watchdog.is_staying() {
            return Some(Request::PetWithoutDeadline);
        }
        match self.watchdog.pets {
            PetStatus::Refused if self.may_rearm(now) => {
                Some(Request::Arm(Arm::of_timings(&self.arming_timings(), None)))
            }
            PetStatus::Recovering { .. }
                if self.watchdog.recovered_at().is_some_and(|at| now.monotonic_raw >= at) =>
            {
                Some(Request::Query)
            }
            PetStatus::Accepted | PetStatus::Refused | PetStatus::Recovering { .. } => None,
        }
    }

    /// Returns `true` if the running device may be armed again: a refusal delays the next attempt.
    pub(super) fn may_rearm(&self, now: &Now) -> bool {
        self.watchdog.rearm_at.is_none_or(|at| now.monotonic_raw >= at)
    }
}
