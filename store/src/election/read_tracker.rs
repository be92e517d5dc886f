//! Reads of the store: which were requested, and which are complete.

/// Counts the requested, begun and completed reads. After a commit with an unknown outcome, the only legal next step
/// is a read that begins later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadTracker {
    requested: u64,
    begun: u64,
    completed: u64,
}

impl Default for ReadTracker {
    fn default() -> ReadTracker {
        ReadTracker { requested: 1, begun: 0, completed: 0 }
    }
}

impl ReadTracker {
    /// Requests a read that begins after this call, and returns its number.
    pub fn request(&mut self) -> u64 {
        // A read that has not begun yet answers all earlier requests.
        if self.requested == self.begun {
            self.requested += 1;
        }
        self.requested
    }

    /// Returns the number of the read that must begin now; `None` if none was requested.
    pub fn begin(&mut self) -> Option<u64> {
        if self.requested > self.begun {
            self.begun = self.requested;
            return Some(self.requested);
        }
        None
    }

    /// Records that a read, and all before it, are complete.
    pub fn complete(&mut self, reading: u64) {
        self.completed = self.completed.max(reading.min(self.begun));
    }

    /// Returns `true` if this read is complete.
    pub fn is_complete(&self, reading: u64) -> bool {
        self.completed >= reading
    }
}
