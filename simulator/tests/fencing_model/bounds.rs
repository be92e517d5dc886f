//! The times of FENCING 4 in whole ticks, including the worst case of every clock and device.

/// Kind of the watchdog device, which selects one of the three inequalities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Device {
    /// Sliding timeouts, descriptor retained.
    Sliding,
    /// Fixed timeout, descriptor retained.
    Fixed,
    /// The descriptor is not retained after the death of its holder. Assumes a fixed timeout, which is worse than a
    /// sliding timeout.
    NotRetained,
}

/// The bounds, in ticks of the observer's clock at its fastest.
///
/// - Th means `Th (1 + ρ)`: the longest time for which a node may consider a heartbeat valid.
/// - Tw means `Tw' = Tw (1 + ρw) + δw` plus the lateness of the pet: the latest time of the device's reset.
/// - δio is 0. It would extend W by the time after a reset in which writes still reach the storage.
/// - Time is an integer and every bound is closed: events of one tick may happen in any order. Therefore, W is the
///   smallest integer **above** the inequality, because at equality a reset and a start may coincide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Bounds {
    /// Time for which a committed heartbeat is valid.
    pub(crate) heartbeat_valid: i8,
    /// Margin Ts: before D − Ts, no service is stopped; from then on, no service is started.
    pub(crate) margin: i8,
    /// Timeout of the watchdog.
    pub(crate) timeout: i8,
    /// Kind of the device.
    pub(crate) device: Device,
}

impl Bounds {
    /// Returns W: Th, one or more watchdog timeouts (by kind of device), and one tick.
    pub(crate) fn fencing_delay(self) -> i8 {
        let periods = match self.device {
            Device::Sliding => 1,
            Device::Fixed => 2,
            Device::NotRetained => 3,
        };
        self.heartbeat_valid + periods * self.timeout + 1
    }

    /// Returns the timeout that a pet sets with `remaining` ticks to D. `None`: no pet is allowed, because D has passed
    /// or, with sliding timeouts, because no whole tick remains.
    pub(crate) fn pet(self, remaining: i8) -> Option<i8> {
        match self.device {
            Device::Sliding => (remaining >= 1).then(|| self.timeout.min(remaining)),
            Device::Fixed | Device::NotRetained => (remaining >= 0).then_some(self.timeout),
        }
    }
}
