//! Reads of the store: which were requested, and which are complete.

/// Identifies a request for a complete read; assigned in ascending order. The default is no request.
///
/// A revision is not a request:
///
/// ```compile_fail,E0308
/// use ha_api_types::id::Revision;
/// use ha_store::election::ReadTracker;
///
/// ReadTracker::default().complete(Revision(1));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FullReadId(pub u64);

/// Counts the requested, started and completed reads. After a commit with an unknown outcome, the only legal next step
/// is a read that begins later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadTracker {
    requested: FullReadId,
    started: FullReadId,
    completed: FullReadId,
}

impl Default for ReadTracker {
    fn default() -> ReadTracker {
        ReadTracker { requested: FullReadId(1), started: FullReadId(0), completed: FullReadId(0) }
    }
}

impl ReadTracker {
    /// Requests a read that begins after this call, and returns its id.
    pub fn request(&mut self) -> FullReadId {
        // A read that has not begun yet answers all earlier requests.
        if self.requested == self.started {
            self.requested.0 += 1;
        }
        self.requested
    }

    /// Returns the id of the read that must begin now; `None` if none was requested.
    pub fn begin(&mut self) -> Option<FullReadId> {
        if self.requested > self.started {
            self.started = self.requested;
            return Some(self.requested);
        }
        None
    }

    /// Records that a read, and all before it, are complete.
    pub fn complete(&mut self, reading: FullReadId) {
        self.completed = self.completed.max(reading.min(self.started));
    }

    /// Returns `true` if this read is complete.
    pub fn is_complete(&self, reading: FullReadId) -> bool {
        self.completed >= reading
    }
}
