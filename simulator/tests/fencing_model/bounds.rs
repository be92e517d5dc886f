//! The times of FENCING 4 in whole ticks, with the worst case of every clock and device folded in.

/// Which of the three inequalities holds for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Device {
    /// Sliding timeouts, descriptor retained.
    Sliding,
    /// Fixed timeout, retained.
    Fixed,
    /// The descriptor is not retained when its holder dies; a fixed timeout, which is the worse of the two.
    NotRetained,
}

/// The bounds, in ticks of the observer's clock at its fastest.
///
/// - Th stands for `Th (1 + ρ)`: the longest that a node may believe a heartbeat to be good for.
/// - Tw stands for `Tw' = Tw (1 + ρw) + δw` together with the lateness of the pet: the latest that the device resets.
/// - δio would add to W what it adds to the time after a reset in which writes still land; it is 0.
/// - Time is whole and every bound is closed: what may happen at a tick may happen in any order. So W is the smallest
///   whole number **above** the inequality, the equality being the moment at which a reset and a start fall together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Bounds {
    /// How long a committed heartbeat is good for.
    pub(crate) valid: i8,
    /// Before D − this nothing is stopped, and at or after it nothing is started.
    pub(crate) margin: i8,
    /// The watchdog's timeout.
    pub(crate) timeout: i8,
    /// Which inequality.
    pub(crate) device: Device,
}

impl Bounds {
    /// W.
    pub(crate) fn wait(self) -> i8 {
        let periods = match self.device {
            Device::Sliding => 1,
            Device::Fixed => 2,
            Device::NotRetained => 3,
        };
        self.valid + periods * self.timeout + 1
    }

    /// The timeout that a pet sets with `left` ticks to D, or none: after D, and with sliding timeouts when no whole tick
    /// is left, nothing is petted.
    pub(crate) fn pet(self, left: i8) -> Option<i8> {
        match self.device {
            Device::Sliding => (left >= 1).then(|| self.timeout.min(left)),
            Device::Fixed | Device::NotRetained => (left >= 0).then_some(self.timeout),
        }
    }
}
