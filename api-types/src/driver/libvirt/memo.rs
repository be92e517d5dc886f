//! A lazily computed value that does not take part in comparisons.

use std::sync::OnceLock;

/// A value that is computed on first use. Two memos are always equal, because the fields that determine the value are
/// compared instead.
///
/// Assumptions: these fields do not change after the first use; objects are replaced, not edited.
#[derive(Clone, Debug, Default)]
pub(super) struct Memo<T>(OnceLock<T>);

impl<T: Copy> Memo<T> {
    pub(super) fn get_or(&self, work_out: impl FnOnce() -> T) -> T {
        *self.0.get_or_init(work_out)
    }
}

impl<T> PartialEq for Memo<T> {
    fn eq(&self, _: &Memo<T>) -> bool {
        true
    }
}

impl<T> Eq for Memo<T> {}
