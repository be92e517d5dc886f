//! The loop with a simulated watchdog and an agent in other threads: an armed loop makes no allocations.

use super::super::super::core::Core;
use super::super::super::dual_clock_time::DualClockTime;
use super::super::super::protocol::{
    Arm, LargestTimeouts, Outcome, Privileges, Purpose, Request, decode_reply, encode_request,
};
use super::super::super::simulated::timer::Timer;
use super::super::super::simulated::wire;
use super::*;
use nix::sys::signal::SigSet;
use nix::sys::signalfd::SfdFlags;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

/// Pets that must be seen while the agent sends deadlines; one pet may answer several of them.
const PET_COUNT: usize = 40;

/// Pets that must then come from the timer alone.
const EXPECTED_PET_COUNT: usize = 5;

/// Acts as the device until the daemon closes its connection.
fn device(listener: &UnixListener) {
    let mut timer = Timer::new();
    listener.set_nonblocking(false).unwrap();
    let (holder, _) = listener.accept().unwrap();
    loop {
        let mut bytes = [0; wire::MESSAGE_BYTES];
        let Ok(length) = seqpacket::receive(&holder, &mut bytes) else { return };
        let Some((number, operation)) = bytes.get(..length).and_then(wire::decode) else { return };
        let answer = timer.handle(clock::now().boottime_ns, operation);
        seqpacket::send(&holder, &wire::encode_answer(number, answer)).unwrap();
    }
}

fn deadline() -> DualClockTime {
    clock::now().plus_ms(5_000)
}

/// Acts as the agent: arms, signals that, and sends deadlines until a request to stop. In the meantime, a second agent
/// is refused.
fn agent(socket: &Path, armed: &mpsc::Sender<()>, must_end: &AtomicBool) {
    let connection = seqpacket::connect(socket).unwrap();
    let hear = |connection: &OwnedFd| {
        let mut bytes = [0; MESSAGE_BYTES];
        let length = seqpacket::receive(connection, &mut bytes).unwrap();
        decode_reply(&bytes[..length]).unwrap()
    };
    hear(&connection);
    let timeout_seconds = 5;
    let largest = LargestTimeouts {
        sliding_retained_seconds: timeout_seconds,
        fixed_retained_seconds: timeout_seconds,
        not_retained_seconds: timeout_seconds,
    };
    let arm = Arm {
        timeout_seconds,
        largest,
        heartbeat_valid_ms: 6_000,
        deadline: Some(deadline()),
        purpose: Purpose::Guard,
    };
    seqpacket::send(&connection, &encode_request(1, &Request::Arm(arm))).unwrap();
    assert_eq!(hear(&connection).outcome, Outcome::Done);
    armed.send(()).unwrap();
    for number in 0.. {
        let request = Request::Deadline(deadline());
        seqpacket::send(&connection, &encode_request(number + 2, &request)).unwrap();
        assert_eq!(hear(&connection).outcome, Outcome::Done);
        if number == 2 {
            let second_connection = seqpacket::connect(socket).unwrap();
            assert!(matches!(
                hear(&second_connection).outcome,
                Outcome::Refused(Refusal::AnotherPeer { .. })
            ));
        }
        if number > 2 && must_end.load(Ordering::Relaxed) {
            break;
        }
    }
    // The connection stays open, as that of an idle agent does.
    std::mem::forget(connection);
}

#[test]
fn armed_event_loop_allocates_no_memory() {
    let directory = tempfile::tempdir().unwrap();
    let (simulated_watchdog, socket) =
        (directory.path().join("standin.sock"), directory.path().join("watchdogd.sock"));
    let played = seqpacket::listen_at(&simulated_watchdog).unwrap();
    thread::spawn(move || device(&played));
    let listener = seqpacket::listen_at(&socket).unwrap();
    let signals =
        SignalFd::with_flags(&SigSet::empty(), SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).unwrap();
    let mut event_loop = EventLoop::new(
        Core::new(Privileges::default()),
        None,
        DeviceLocation::Simulated(simulated_watchdog),
        listener,
        signals,
        Some(nix::unistd::geteuid().as_raw()),
        StateRecord::new(None).unwrap(),
        ServiceManager::from_environment(0),
    );
    let (armed, is_armed) = mpsc::channel();
    let must_end = Arc::new(AtomicBool::new(false));
    let agent_enough = Arc::clone(&must_end);
    thread::spawn(move || agent(&socket, &armed, &agent_enough));
    while is_armed.try_recv().is_err() {
        assert_eq!(event_loop.handle_next_event(), Ok(None));
    }
    let mut pets = 0;
    let counted = allocation_counter::measure(|| {
        let mut last_pet = event_loop.core.status().last_pet;
        while pets < PET_COUNT + EXPECTED_PET_COUNT {
            assert_eq!(event_loop.handle_next_event(), Ok(None));
            let pet = event_loop.core.status().last_pet;
            pets += usize::from(pet != last_pet);
            last_pet = pet;
            must_end.store(pets >= PET_COUNT, Ordering::Relaxed);
        }
    });
    assert_eq!((counted.count_total, counted.bytes_total), (0, 0));
    // The counter works: opening a device does allocate.
    assert!(allocation_counter::measure(|| drop(std::hint::black_box(vec![0_u8; 9]))).count_total > 0);
}
