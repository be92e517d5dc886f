//! The watchdog: the daemon, which pets the device only until the last proven deadline, and the agent's client.
//!
//! `core` and `protocol` are pure: the daemon and the simulator run the same state machine. The other modules make
//! system calls and need the feature `shell`.

#[cfg(feature = "shell")]
pub mod client;
#[cfg(feature = "shell")]
pub mod clock;
pub mod core;
#[cfg(feature = "shell")]
pub mod daemon;
#[cfg(feature = "shell")]
mod device;
mod dual_clock_time;
pub mod protocol;
#[cfg(feature = "shell")]
mod seqpacket;
#[cfg(feature = "shell")]
pub mod simulated;
#[cfg(feature = "shell")]
mod system_calls;
#[cfg(feature = "shell")]
pub mod system_conf;

pub use dual_clock_time::DualClockTime;
