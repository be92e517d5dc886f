//! The simulated watchdog's timer, with the semantics of a kernel watchdog; pure.

use super::wire::{Answer, Operation};

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

const TIMEOUT_SECONDS: std::ops::RangeInclusive<u32> = 1..=65_535;

/// `EINVAL`, the kernel's answer to a timeout out of range.
const INVALID_ARGUMENT: u32 = 22;

/// `EIO`, the answer of a driver whose device no longer exists.
const IO_ERROR: u32 = 5;

/// The timer: it runs from its start until it is stopped or fires, independent of connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer {
    timeout_seconds: u32,
    expires_at_ns: Option<u64>,
    refuses: bool,
}

impl Timer {
    /// Creates a stopped timer with the usual initial timeout of kernel drivers.
    pub(crate) fn new() -> Self {
        Self { timeout_seconds: 60, expires_at_ns: None, refuses: false }
    }

    /// Sets whether the timer refuses every operation, such as a device whose management controller is reset. A running
    /// timer continues.
    pub(crate) fn set_refuses(&mut self, refuses: bool) {
        self.refuses = refuses;
    }

    /// Returns when the timer fires; `None` while it does not run.
    pub(crate) fn expires_at_ns(&self) -> Option<u64> {
        self.expires_at_ns
    }

    /// Executes an operation of the daemon. A timer whose time has passed refuses every operation, because it is about
    /// to fire.
    pub(crate) fn handle(&mut self, now_ns: u64, operation: Operation) -> Answer {
        if self.expires_at_ns.is_some_and(|at| at <= now_ns) {
            return Answer::Failed(INVALID_ARGUMENT);
        }
        // An expiry resets the node even if the device refuses pets.
        if self.refuses && operation != Operation::Expire {
            return Answer::Failed(IO_ERROR);
        }
        match operation {
            Operation::Start => {
                if self.expires_at_ns.is_none() {
                    self.restart(now_ns);
                }
                Answer::Value(self.timeout_seconds)
            }
            Operation::SetTimeout(seconds) if TIMEOUT_SECONDS.contains(&seconds) => {
                self.timeout_seconds = seconds;
                self.pet(now_ns);
                Answer::Value(seconds)
            }
            Operation::SetTimeout(_) => Answer::Failed(INVALID_ARGUMENT),
            Operation::GetTimeout => Answer::Value(self.timeout_seconds),
            Operation::KeepAlive => {
                self.pet(now_ns);
                Answer::Value(self.timeout_seconds)
            }
            Operation::TimeLeft => {
                let remaining_ms = self.expires_at_ns.map_or(0, |at| (at - now_ns).div_ceil(1_000_000));
                Answer::Value(u32::try_from(remaining_ms).unwrap_or(u32::MAX))
            }
            Operation::MagicClose => {
                self.expires_at_ns = None;
                Answer::Value(0)
            }
            Operation::Expire => {
                self.expires_at_ns = Some(now_ns);
                Answer::Value(0)
            }
        }
    }

    fn pet(&mut self, now_ns: u64) {
        if self.expires_at_ns.is_some() {
            self.restart(now_ns);
        }
    }

    fn restart(&mut self, now_ns: u64) {
        self.expires_at_ns = Some(now_ns + u64::from(self.timeout_seconds) * NANOSECONDS_PER_SECOND);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = NANOSECONDS_PER_SECOND;

    #[test]
    fn simulated_timer_behaves_like_kernel_watchdog() {
        let mut timer = Timer::new();
        let mut check = |now_seconds: u64, operation, answer, expires: Option<u64>| {
            assert_eq!(timer.handle(now_seconds * SECOND_NS, operation), answer, "{operation:?}");
            assert_eq!(timer.expires_at_ns().map(|at| at / SECOND_NS), expires, "{operation:?}");
        };
        check(1, Operation::KeepAlive, Answer::Value(60), None);
        check(1, Operation::SetTimeout(5), Answer::Value(5), None);
        check(1, Operation::TimeLeft, Answer::Value(0), None);
        check(1, Operation::Start, Answer::Value(5), Some(6));
        check(2, Operation::Start, Answer::Value(5), Some(6));
        check(2, Operation::GetTimeout, Answer::Value(5), Some(6));
        check(2, Operation::TimeLeft, Answer::Value(4000), Some(6));
        check(3, Operation::KeepAlive, Answer::Value(5), Some(8));
        check(3, Operation::SetTimeout(2), Answer::Value(2), Some(5));
        check(3, Operation::SetTimeout(0), Answer::Failed(INVALID_ARGUMENT), Some(5));
        check(4, Operation::MagicClose, Answer::Value(0), None);
        check(9, Operation::Start, Answer::Value(2), Some(11));
        check(11, Operation::KeepAlive, Answer::Failed(INVALID_ARGUMENT), Some(11));
    }

    #[test]
    fn refusing_simulated_device_is_not_petted() {
        let mut timer = Timer::new();
        timer.handle(0, Operation::SetTimeout(5));
        timer.handle(0, Operation::Start);
        timer.set_refuses(true);
        assert_eq!(timer.handle(1_000_000_000, Operation::KeepAlive), Answer::Failed(IO_ERROR));
        assert_eq!(timer.expires_at_ns(), Some(5_000_000_000));
        timer.set_refuses(false);
        assert_eq!(timer.handle(2_000_000_000, Operation::KeepAlive), Answer::Value(5));
        assert_eq!(timer.expires_at_ns(), Some(7_000_000_000));
    }

    #[test]
    fn simulated_timer_fires_on_expire_command() {
        let mut timer = Timer::new();
        assert_eq!(timer.handle(SECOND_NS, Operation::Start), Answer::Value(60));
        assert_eq!(timer.handle(2 * SECOND_NS, Operation::Expire), Answer::Value(0));
        assert_eq!(timer.expires_at_ns(), Some(2 * SECOND_NS));
    }
}
