//! The signals that end the search for a plan: the first one ends the search with the moves found so far, the second one
//! ends the program.

use std::sync::Once;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::signal::unix::{SignalKind, signal};

/// Effect of the next signal.
static SIGNAL_EFFECT: AtomicU8 = AtomicU8::new(EXIT);
/// The signal ends the program.
const EXIT: u8 = 0;
/// The signal ends the search.
const END_SEARCH: u8 = 1;
/// A signal has ended the search; the next one ends the program.
const SEARCH_ENDED: u8 = 2;
/// The execution of the plan handles signals.
const NONE: u8 = 3;

/// Exit status of a program that SIGINT ends, in a shell.
const INTERRUPT_STATUS: i32 = 130;
/// Exit status of a program that SIGTERM ends, in a shell.
const TERMINATE_STATUS: i32 = 143;

pub(crate) const MESSAGE: &str =
    "A signal ended the search. The plan contains the moves found so far; nothing was applied.";

/// Runs a search that the first SIGINT or SIGTERM ends early.
pub(crate) fn run_search<T>(search: impl FnOnce() -> T) -> T {
    static RECEIVER: Once = Once::new();
    SIGNAL_EFFECT.store(END_SEARCH, Ordering::SeqCst);
    // The search occupies the thread of the main runtime.
    RECEIVER.call_once(|| {
        std::thread::spawn(receive_signals);
    });
    let found = search();
    // If no signal has arrived, the next one ends the program.
    let _ = SIGNAL_EFFECT.compare_exchange(END_SEARCH, EXIT, Ordering::SeqCst, Ordering::SeqCst);
    found
}

/// Returns `true` if a signal has ended the search.
pub(crate) fn has_received_signal() -> bool {
    SIGNAL_EFFECT.load(Ordering::SeqCst) == SEARCH_ENDED
}

/// Leaves all further signals to the execution of the plan.
pub(super) fn leave_signals_to_execution() {
    SIGNAL_EFFECT.store(NONE, Ordering::SeqCst);
}

/// Handles signals until the program ends. Without a runtime, signals end the program immediately.
fn receive_signals() {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else { return };
    runtime.block_on(async {
        let (Ok(mut interrupt), Ok(mut terminate)) =
            (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
        else {
            return;
        };
        loop {
            let status = tokio::select! {
                _ = interrupt.recv() => INTERRUPT_STATUS,
                _ = terminate.recv() => TERMINATE_STATUS,
            };
            let ended =
                SIGNAL_EFFECT.compare_exchange(END_SEARCH, SEARCH_ENDED, Ordering::SeqCst, Ordering::SeqCst);
            match ended {
                Ok(_) | Err(NONE) => {}
                Err(_) => std::process::exit(status),
            }
        }
    });
}
