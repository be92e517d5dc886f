//! Readings of the store that were asked for, and which of them are in.

/// Counts readings: after an unknown outcome the only legal next step is to read again, at a revision that is not older.
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
    /// Asks for a reading that begins after now; returns its number.
    pub fn ask(&mut self) -> u64 {
        // One that has not begun yet serves everybody who asks before it does.
        if self.asked == self.begun {
            self.asked += 1;
        }
        self.asked
    }

    /// The reading to begin now, if one was asked for.
    pub fn begin(&mut self) -> Option<u64> {
        if self.asked > self.begun {
            self.begun = self.asked;
            return Some(self.asked);
        }
        None
    }

    /// A reading is in, and with it all before it.
    pub fn answer(&mut self, reading: u64) {
        self.answered = self.answered.max(reading.min(self.begun));
    }

    /// Whether this reading is in.
    pub fn is_answered(&self, reading: u64) -> bool {
        self.answered >= reading
    }
}
