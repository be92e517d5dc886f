//! Round trips of every message, and refusal of invalid messages.

use super::*;
use proptest::prelude::*;

fn every_refusal() -> Vec<Refusal> {
    vec![
        Refusal::Version { daemon: 9 },
        Refusal::BadMessage,
        Refusal::OutOfOrder { expected: u64::MAX },
        Refusal::NotPermitted { uid: 1000 },
        Refusal::AnotherPeer { pid: 4 },
        Refusal::PreviousPeerAlive { pid: 5 },
        Refusal::NotArmed,
        Refusal::DeadlinePassed,
        Refusal::DeadlineTooFar { ahead_ms: 7000, heartbeat_valid_ms: 6000 },
        Refusal::NoDevice { errno: 2, location: Name::new(b"/dev/watchdog") },
        Refusal::DeviceBusy { pid: 1, name: Name::new(b"systemd") },
        Refusal::StopsWhenClosed,
        Refusal::TimeoutTooLong { read_back_seconds: 60, largest_seconds: 5 },
        Refusal::TimeoutNotApplied { smallest_seconds: 1, largest_seconds: 65535 },
        Refusal::DeviceFailed { errno: 5 },
        Refusal::SharedWithManager { runtime: true, reboot: false },
        Refusal::SharedWithManager { runtime: false, reboot: true },
    ]
}

fn every_state() -> Vec<State> {
    let deadline = DualClockTime { monotonic_raw_ns: 1, boottime_ns: u64::MAX };
    vec![State::Released, State::Armed { deadline }, State::Staying, State::Expired { deadline }]
}

fn a_device() -> DeviceFacts {
    DeviceFacts {
        kind: DeviceKind::Simulated,
        identity: Name::new("A name with more than thirty-one bytes in it".as_bytes()),
        location: Name::tail(b"/dev/watchdog0"),
        timeout_seconds: 5,
        smallest_timeout_seconds: 1,
        largest_timeout_seconds: 65535,
        sliding: true,
        descriptor_retained: false,
        nowayout: true,
    }
}

#[test]
fn every_reply_round_trips() {
    let notices = [Notice::Welcome, Notice::Expired, Notice::DeviceFailed { errno: 16 }, Notice::NotSliding];
    let outcomes = every_refusal()
        .into_iter()
        .map(Outcome::Refused)
        .chain(notices.into_iter().map(Outcome::Notice))
        .chain([Outcome::Done]);
    for outcome in outcomes {
        for state in every_state() {
            for (device, last_pet) in
                [(None, None), (Some(a_device()), Some(DualClockTime::on_both_clocks(77)))]
            {
                let status = Status {
                    state,
                    device,
                    last_pet,
                    smallest_margin_ms: last_pet.map(|_| 4321),
                    privileges: Privileges { real_time: true, memory_locked: false },
                    worst_lateness_ms: last_pet.map(|_| 12),
                    time_left_seconds: device.map(|_| 5),
                    pretimeout_seconds: last_pet.map(|_| 0),
                    refuses_pets: device.is_some(),
                };
                let reply = Reply { answers: 12, outcome, status };
                assert_eq!(decode_reply(&encode_reply(&reply)), Ok(reply));
            }
        }
    }
}

#[test]
fn older_reply_leaves_newer_fields_unknown() {
    let privileges = Privileges { real_time: true, memory_locked: true };
    let earlier_status =
        Status { device: Some(a_device()), smallest_margin_ms: Some(4), privileges, ..Status::default() };
    let status = Status { worst_lateness_ms: Some(1), time_left_seconds: Some(2), ..earlier_status };
    let later_reply = encode_reply(&Reply { answers: 1, outcome: Outcome::Done, status });
    let first_change = encode_reply(&Reply { answers: 1, outcome: Outcome::Done, status: earlier_status });
    let earlier_length =
        later_reply.iter().zip(&first_change).position(|(earlier, later)| earlier != later).unwrap();
    let mut earlier_reply = later_reply;
    earlier_reply[earlier_length..].fill(0);
    assert_eq!(decode_reply(&earlier_reply).map(|reply| reply.status), Ok(earlier_status));
}

#[test]
fn every_request_round_trips() {
    let arm = Arm {
        timeout_seconds: 5,
        largest: LargestTimeouts {
            sliding_retained_seconds: 5,
            fixed_retained_seconds: 2,
            not_retained_seconds: 1,
        },
        heartbeat_valid_ms: 6000,
        deadline: Some(DualClockTime::on_both_clocks(123_456_789)),
        purpose: Purpose::Guard,
    };
    for request in [
        Request::Arm(arm),
        Request::Arm(Arm { deadline: None, ..arm }),
        Request::Arm(Arm { purpose: Purpose::Test, ..arm }),
        Request::Deadline(DualClockTime { monotonic_raw_ns: 5, boottime_ns: 6 }),
        Request::PetWithoutDeadline,
        Request::Release,
        Request::Query,
    ] {
        assert_eq!(decode_request(&encode_request(u64::MAX, &request)), Ok((u64::MAX, request)));
    }
}

#[test]
fn corrupted_saved_state_is_rejected() {
    for state in every_state() {
        let timing = Timing {
            timeout_seconds: 5,
            largest: LargestTimeouts::default(),
            heartbeat_valid_ms: 6000,
            purpose: Purpose::Test,
        };
        let saved = SavedState { state, device: Some(a_device()), timing: Some(timing), refuses_pets: true };
        let bytes = encode_saved(&saved);
        assert_eq!(decode_saved(&bytes), Ok(saved));
        let mut half_written = bytes;
        half_written[20] ^= 1;
        assert_eq!(decode_saved(&half_written), Err(DecodeError::Malformed));
    }
    assert_eq!(decode_saved(&[0; MESSAGE_BYTES]), Err(DecodeError::Malformed));
}

#[test]
fn decode_error_names_unsupported_version() {
    let mut bytes = encode_request(1, &Request::Query);
    bytes[4] = 7;
    assert_eq!(decode_request(&bytes), Err(DecodeError::Version(7)));
    assert_eq!(decode_request(&bytes[..100]), Err(DecodeError::Malformed));
    assert_eq!(decode_reply(&encode_request(1, &Request::Query)), Err(DecodeError::Malformed));
}

proptest! {
    #[test]
    fn decoding_arbitrary_bytes_never_panics(mut bytes in proptest::collection::vec(any::<u8>(), MESSAGE_BYTES), tag in 0u8..210) {
        let _ = decode_request(&bytes);
        bytes[..8].copy_from_slice(&[b'H', b'A', b'W', b'D', 1, 0, tag, 0]);
        let _ = (decode_request(&bytes), decode_reply(&bytes), decode_saved(&bytes));
    }
}

/// Returns the encoded record with another version and a matching checksum.
fn record_of_version(saved: &SavedState, version: u16) -> [u8; MESSAGE_BYTES] {
    let mut bytes = encode_saved(saved);
    bytes[4..6].copy_from_slice(&version.to_le_bytes());
    let checksum = checksum(&bytes);
    bytes[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

#[test]
fn saved_record_is_independent_of_message_version() {
    let saved =
        SavedState { state: State::Staying, device: Some(a_device()), timing: None, refuses_pets: false };
    let check = |version: u16, expected: Result<SavedState, DecodeError>| {
        assert_eq!(decode_saved(&record_of_version(&saved, version)), expected);
    };
    check(RECORD_VERSION, Ok(saved));
    check(RECORD_VERSION - 1, Ok(saved));
    check(RECORD_VERSION + 1, Err(DecodeError::Version(RECORD_VERSION + 1)));
}

#[test]
fn saved_record_of_older_release_is_decoded() {
    // The record of releases before 0.2 for an armed device, byte by byte up to its last field.
    let mut bytes = [0; MESSAGE_BYTES];
    bytes[..4].copy_from_slice(b"HAWD");
    bytes[4] = 1;
    bytes[6] = 200;
    bytes[16] = 1;
    bytes[17] = 7;
    bytes[25] = 8;
    let checksum = checksum(&bytes);
    bytes[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
    let deadline = DualClockTime { monotonic_raw_ns: 7, boottime_ns: 8 };
    let expected = SavedState { state: State::Armed { deadline }, ..SavedState::default() };
    assert_eq!(decode_saved(&bytes), Ok(expected));
    assert_eq!(encode_saved(&expected), bytes, "and such a release reads ours");
}
