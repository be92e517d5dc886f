//! The loop of a shell, which passes inputs and deadlines to a pure core, and runs its effects.

use crate::clock::Clock;
use futures::{FutureExt, Stream, StreamExt};
use ha_api_types::time::{MonotonicTime, Now};
use std::pin::pin;
use std::time::Duration;

/// A pure core: a shell passes its inputs, and runs its effects.
pub trait Core {
    /// All inputs of the core.
    type Input;
    /// All effects that the core can request.
    type Effect;

    /// Processes an input.
    fn handle(&mut self, now: &Now, input: Self::Input);

    /// Returns the next requested effect; `None` if there is none until the next call of `handle`.
    fn poll_effect(&mut self) -> Option<Self::Effect>;

    /// Returns the time (of `Now::raw`) at which the core must be called again, and the reason.
    fn deadline(&self) -> Option<(MonotonicTime, &'static str)>;

    /// Returns the input for a deadline that has passed.
    fn deadline_input() -> Self::Input;

    /// Maximum number of waiting inputs that are processed before effects are run and the deadline is checked again.
    const MAX_BATCH_SIZE: usize = 256;
}

/// Drives a core until `inputs` ends.
///
/// # Guarantees
/// `run` is called for every effect, in order, before further inputs are awaited. Inputs keep their order. A deadline
/// is processed even if inputs arrive without a pause, after at most [`Core::MAX_BATCH_SIZE`] of them. Each input is
/// processed with its own reading of the clock.
///
/// # Assumptions
/// `run` returns immediately: long operations are spawned, and their results arrive through `inputs`.
pub async fn run_core<C: Core>(
    core: &mut C,
    clock: &dyn Clock,
    inputs: impl Stream<Item = C::Input>,
    mut run: impl FnMut(C::Effect),
) {
    let mut inputs = pin!(inputs);
    loop {
        while let Some(effect) = core.poll_effect() {
            run(effect);
        }
        let deadline = core.deadline();
        let input = tokio::select! {
            biased;
            () = wait_until(clock, deadline) => Some(C::deadline_input()),
            input = inputs.next() => input,
        };
        let Some(input) = input else { return };
        core.handle(&clock.now(), input);
        for _ in 1..C::MAX_BATCH_SIZE {
            match inputs.next().now_or_never() {
                Some(Some(input)) => core.handle(&clock.now(), input),
                Some(None) => {
                    while let Some(effect) = core.poll_effect() {
                        run(effect);
                    }
                    return;
                }
                None => break,
            }
        }
    }
}

/// Waits for the deadline by the given clock. Never returns without a deadline.
async fn wait_until(clock: &dyn Clock, deadline: Option<(MonotonicTime, &'static str)>) {
    let Some((at, why)) = deadline else { return std::future::pending().await };
    loop {
        let wait_ms = at.since(clock.now().monotonic_raw);
        if wait_ms == 0 {
            tracing::trace!(why, "due");
            return;
        }
        // The timer uses another clock, which the time daemon can slew, so the given clock is read again after the
        // wait.
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
    }
}

/// Delay before the next of several attempts: doubled each time up to a maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    ceiling: Duration,
    next: Duration,
}

impl Backoff {
    /// Creates a backoff that begins with `first`.
    pub fn new(first: Duration, ceiling: Duration) -> Backoff {
        Backoff { first, ceiling, next: first.min(ceiling) }
    }

    /// Returns the current delay, and doubles the next one, up to the maximum.
    pub fn advance(&mut self) -> Duration {
        let wait = self.next;
        self.next = wait.saturating_mul(2).min(self.ceiling);
        wait
    }

    /// Starts again with the first delay, after a success.
    pub fn reset(&mut self) {
        self.next = self.first.min(self.ceiling);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use tokio_stream_free::channel;

    /// A stream of the sent values, without an additional dependency.
    mod tokio_stream_free {
        use futures::Stream;
        pub(super) fn channel<T>() -> (tokio::sync::mpsc::UnboundedSender<T>, impl Stream<Item = T>) {
            let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
            (sender, futures::stream::poll_fn(move |context| receiver.poll_recv(context)))
        }
    }

    /// A core that echoes each number, and then requests to be called again after as many milliseconds.
    #[derive(Default)]
    struct Echo {
        due: Option<MonotonicTime>,
        effects: std::collections::VecDeque<String>,
    }

    enum Input {
        Number(u64),
        Due,
    }

    impl Core for Echo {
        type Input = Input;
        type Effect = String;
        fn handle(&mut self, now: &Now, input: Input) {
            match input {
                Input::Number(number) => {
                    self.effects.push_back(format!("number {number}"));
                    self.due = Some(now.monotonic_raw + number);
                }
                Input::Due => {
                    assert!(
                        self.due.take().is_some_and(|due| due <= now.monotonic_raw),
                        "called before the deadline"
                    );
                    self.effects.push_back("due".to_owned());
                }
            }
        }
        fn poll_effect(&mut self) -> Option<String> {
            self.effects.pop_front()
        }
        fn deadline(&self) -> Option<(MonotonicTime, &'static str)> {
            self.due.map(|due| (due, "to echo"))
        }
        fn deadline_input() -> Input {
            Input::Due
        }
    }

    #[tokio::test]
    async fn inputs_deadlines_and_effects_keep_their_order() {
        let (sender, inputs) = channel();
        let mut effects = Vec::new();
        sender.send(Input::Number(1_000_000)).unwrap();
        sender.send(Input::Number(3)).unwrap();
        let mut sender = Some(sender);
        run_core(&mut Echo::default(), &SystemClock::new().unwrap(), inputs, |effect| {
            if effect == "due" {
                sender = None;
            }
            effects.push(effect);
        })
        .await;
        assert_eq!(effects, ["number 1000000", "number 3", "due"]);
    }

    #[tokio::test]
    async fn effects_of_final_inputs_are_executed() {
        let (sender, inputs) = channel();
        sender.send(Input::Number(9_000)).unwrap();
        drop(sender);
        let mut effects = Vec::new();
        run_core(&mut Echo::default(), &SystemClock::new().unwrap(), inputs, |effect| effects.push(effect))
            .await;
        assert_eq!(effects, ["number 9000"]);
    }

    #[test]
    fn a_backoff_doubles_up_to_its_ceiling() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(350));
        let waits: Vec<u128> = (0..4).map(|_| backoff.advance().as_millis()).collect();
        assert_eq!(waits, [100, 200, 350, 350]);
        backoff.reset();
        assert_eq!(backoff.advance().as_millis(), 100);
    }
}
