//! Parallel work in two threads.

/// Returns the number of usable cores.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Runs both functions in parallel, the first in this thread, and returns both results.
///
/// Panics if either function panics.
pub(super) fn run_in_parallel<Here, Elsewhere: Send>(
    here: impl FnOnce() -> Here,
    elsewhere: impl FnOnce() -> Elsewhere + Send,
) -> (Here, Elsewhere) {
    std::thread::scope(|scope| {
        let elsewhere = scope.spawn(elsewhere);
        let here = here();
        match elsewhere.join() {
            Ok(elsewhere) => (here, elsewhere),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
