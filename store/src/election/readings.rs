//! Reads of the store: which were requested, and which are complete.

/// Counter of reads. After an unknown outcome, the only legal next step is another read, at a revision that is
/// not older.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readings {
    asked: u64,
    begun: u64,
    answered: u64,
}

impl Default for Readings {
    fn default() -> Readings {
        Readings { asked: 1, begun: 0, answered: 0 }
    }
}

impl Readings {
    /// Requests a read that begins after this call, and returns its number.
    pub fn ask(&mut self) -> u64 {
        // A read that has not begun yet serves all earlier requests.
        if self.asked == self.begun {
            self.asked += 1;
        }
        self.asked
    }

    /// Returns the number of the read that must begin now; `None` if none was requested.
    pub fn begin(&mut self) -> Option<u64> {
        if self.asked > self.begun {
            self.begun = self.asked;
            return Some(self.asked);
        }
        None
    }

    /// Records that a read, and all before it, are complete.
    pub fn answer(&mut self, reading: u64) {
        self.answered = self.answered.max(reading.min(self.begun));
    }

    /// Returns `true` if this read is complete.
    pub fn is_answered(&self, reading: u64) -> bool {
        self.answered >= reading
    }
}
