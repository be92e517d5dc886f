//! Parallel work in two threads.

/// Returns the number of usable cores.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Runs both functions in parallel, `one` in this thread, and returns both results.
///
/// Panics if either function panics.
pub(super) fn run_in_parallel<One, Other: Send>(
    one: impl FnOnce() -> One,
    other: impl FnOnce() -> Other + Send,
) -> (One, Other) {
    std::thread::scope(|scope| {
        let other = scope.spawn(other);
        let one = one();
        match other.join() {
            Ok(other) => (one, other),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
