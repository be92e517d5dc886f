//! Work in two threads.

/// Cores that can be used.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What both give: the first one works in this thread, the other one beside it. If either panics, so does this.
pub(super) fn side_by_side<One, Other: Send>(
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
