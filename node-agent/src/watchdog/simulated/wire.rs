//! The encoding of messages between daemon and simulated watchdog.

/// Size of each message, bytes.
pub(crate) const MESSAGE_BYTES: usize = 16;

/// The first bytes of each message.
const MAGIC: u32 = u32::from_le_bytes(*b"HAWS");

/// The daemon's operations on the device, equivalent to those on a kernel's device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Starts the timer, as opening a kernel's device does. A running timer does not change.
    Start,
    /// Sets the timeout, seconds, and pets if the timer runs.
    SetTimeout(u32),
    /// Returns the timeout, seconds.
    GetTimeout,
    /// Pets; returns the timeout, seconds.
    KeepAlive,
    /// Returns the time left, milliseconds; 0 if the timer does not run.
    TimeLeft,
    /// Stops the timer.
    MagicClose,
    /// Makes the timer fire now.
    Expire,
}

/// The simulated watchdog's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The operation was executed; this is its value.
    Value(u32),
    /// The operation failed with this error number of the kernel.
    Failed(u32),
}

pub(crate) fn encode(number: u32, operation: Operation) -> [u8; MESSAGE_BYTES] {
    let (tag, argument) = match operation {
        Operation::Start => (1, 0),
        Operation::SetTimeout(seconds) => (2, seconds),
        Operation::GetTimeout => (3, 0),
        Operation::KeepAlive => (4, 0),
        Operation::TimeLeft => (5, 0),
        Operation::MagicClose => (6, 0),
        Operation::Expire => (7, 0),
    };
    pack(number, tag, argument)
}

pub(crate) fn decode(bytes: &[u8]) -> Option<(u32, Operation)> {
    let (number, tag, argument) = unpack(bytes)?;
    let operation = match tag {
        1 => Operation::Start,
        2 => Operation::SetTimeout(argument),
        3 => Operation::GetTimeout,
        4 => Operation::KeepAlive,
        5 => Operation::TimeLeft,
        6 => Operation::MagicClose,
        7 => Operation::Expire,
        _ => return None,
    };
    Some((number, operation))
}

/// Encodes an answer. Number 0 refuses the connection.
pub(crate) fn encode_answer(number: u32, answer: Answer) -> [u8; MESSAGE_BYTES] {
    match answer {
        Answer::Value(value) => pack(number, 100, value),
        Answer::Failed(errno) => pack(number, 101, errno),
    }
}

pub(crate) fn decode_answer(bytes: &[u8]) -> Option<(u32, Answer)> {
    match unpack(bytes)? {
        (number, 100, value) => Some((number, Answer::Value(value))),
        (number, 101, errno) => Some((number, Answer::Failed(errno))),
        _ => None,
    }
}

fn pack(number: u32, tag: u32, value: u32) -> [u8; MESSAGE_BYTES] {
    let mut bytes = [0; MESSAGE_BYTES];
    for (target, word) in bytes.chunks_exact_mut(4).zip([MAGIC, number, tag, value]) {
        target.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn unpack(bytes: &[u8]) -> Option<(u32, u32, u32)> {
    let bytes: [u8; MESSAGE_BYTES] = bytes.try_into().ok()?;
    let mut fields = bytes.chunks_exact(4).map(|word| word.try_into().map_or(0, u32::from_le_bytes));
    let magic = fields.next()?;
    (magic == MAGIC).then_some((fields.next()?, fields.next()?, fields.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated_watchdog_messages_round_trip() {
        for operation in [
            Operation::Start,
            Operation::SetTimeout(7),
            Operation::GetTimeout,
            Operation::KeepAlive,
            Operation::TimeLeft,
            Operation::MagicClose,
            Operation::Expire,
        ] {
            assert_eq!(decode(&encode(9, operation)), Some((9, operation)));
        }
        for answer in [Answer::Value(u32::MAX), Answer::Failed(16)] {
            assert_eq!(decode_answer(&encode_answer(3, answer)), Some((3, answer)));
        }
        assert_eq!(decode(&[0; MESSAGE_BYTES]), None);
        assert_eq!(decode(&[]), None);
    }
}
