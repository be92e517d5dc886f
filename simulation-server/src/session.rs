//! The running simulation: its pace, its changes, and the file in which it is saved.

use ha_api_types::id::Revision;
use ha_api_types::time::{Millis, MonotonicTime, Now};
use ha_runtime::clock::Clock;
use ha_runtime::shutdown::Shutdown;
use ha_simulator::interactive::Simulation;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

/// Interval at which virtual time advances.
const TICK: Duration = Duration::from_millis(20);
/// Longest time for which one advance blocks requests. If the events take longer, virtual time is slower than requested.
const ADVANCE_LIMIT: Duration = Duration::from_millis(15);
/// Interval at which the state is saved while time advances.
const SAVE_INTERVAL: Duration = Duration::from_secs(5);

/// Range of the speed: virtual seconds per second.
pub(crate) const SPEEDS: std::ops::RangeInclusive<f64> = 0.1..=1000.0;

/// Position in the history of the simulated etcd, for watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// Number of jumps to another time or scenario, after which earlier revisions are invalid.
    pub(crate) jumps: u64,
    pub(crate) revision: Revision,
    /// Revision of the events, which are stored separately.
    pub(crate) events: Revision,
}

/// Pace of virtual time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Virtual seconds per second.
    pub(crate) speed: f64,
    pub(crate) is_paused: bool,
    /// `true` if the machine is too slow for the speed.
    pub(crate) is_behind: bool,
}

struct Running {
    simulation: Simulation,
    pace: Pace,
    /// Real time up to which virtual time has advanced.
    advanced_at: Instant,
    /// Part of a virtual millisecond that has passed in addition.
    remainder_ms: f64,
    /// Virtual time at the last save.
    saved_ms: Option<Millis>,
    save_error: Option<String>,
}

/// A simulation that runs in real time.
pub(crate) struct Session {
    running: Mutex<Running>,
    position: watch::Sender<Position>,
    file: Option<PathBuf>,
}

impl Session {
    pub(crate) fn new(simulation: Simulation, file: Option<PathBuf>) -> Session {
        let first = position_of(&simulation, 0);
        let running = Running {
            simulation,
            pace: Pace { speed: 1.0, is_paused: false, is_behind: false },
            advanced_at: Instant::now(),
            remainder_ms: 0.0,
            saved_ms: None,
            save_error: None,
        };
        let (position, _) = watch::channel(first);
        Session { running: Mutex::new(running), position, file }
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        // A panic of the simulation fails one request. The next jump builds a new world.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn with<T>(&self, read: impl FnOnce(&Simulation) -> T) -> T {
        read(&self.lock().simulation)
    }

    /// Changes the simulation, saves it, and notifies the watches.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Simulation) -> T) -> T {
        let mut running = self.lock();
        let result = change(&mut running.simulation);
        self.notify(&running, false);
        drop(running);
        self.save_and_record();
        result
    }

    /// Moves the simulation to another time, or replaces it. All watches end.
    pub(crate) fn jump(
        &self,
        change: impl FnOnce(&mut Simulation) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut running = self.lock();
        let result = change(&mut running.simulation);
        running.advanced_at = Instant::now();
        running.remainder_ms = 0.0;
        running.saved_ms = None;
        self.notify(&running, true);
        drop(running);
        self.save_and_record();
        result
    }

    pub(crate) fn pace_of_time(&self) -> Pace {
        self.lock().pace
    }

    /// Sets the pace from now on.
    pub(crate) fn set_pace(&self, speed: Option<f64>, is_paused: Option<bool>) {
        let mut running = self.lock();
        running.pace.speed = speed.unwrap_or(running.pace.speed);
        running.pace.is_paused = is_paused.unwrap_or(running.pace.is_paused);
    }

    pub(crate) fn save_error(&self) -> Option<String> {
        self.lock().save_error.clone()
    }

    pub(crate) fn file(&self) -> Option<&PathBuf> {
        self.file.as_ref()
    }

    pub(crate) fn positions(&self) -> watch::Receiver<Position> {
        self.position.subscribe()
    }

    fn notify(&self, running: &Running, is_jump: bool) {
        self.position.send_if_modified(|position| {
            let jumps = position.jumps + u64::from(is_jump);
            let next = position_of(&running.simulation, jumps);
            std::mem::replace(position, next) != next
        });
    }

    /// Lets virtual time pass until a shutdown is requested.
    pub(crate) async fn pace(self: std::sync::Arc<Self>, shutdown: Shutdown) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut saves = interval(SAVE_INTERVAL);
        loop {
            tokio::select! {
                () = shutdown.wait_for_request() => return,
                _ = ticks.tick() => tokio::task::block_in_place(|| self.advance()),
                _ = saves.tick() => tokio::task::block_in_place(|| self.save_and_record()),
            }
        }
    }

    fn advance(&self) {
        let mut running = self.lock();
        let now = Instant::now();
        let passed = now - std::mem::replace(&mut running.advanced_at, now);
        if running.pace.is_paused {
            return;
        }
        running.remainder_ms += passed.as_secs_f64() * 1000.0 * running.pace.speed;
        let whole_ms = to_millis(running.remainder_ms);
        running.remainder_ms -= running.remainder_ms.trunc();
        let target_ms = running.simulation.elapsed_ms() + whole_ms;
        let limit = now + ADVANCE_LIMIT;
        let has_reached = running.simulation.run_until(target_ms, || Instant::now() < limit);
        running.pace.is_behind = !has_reached;
        self.notify(&running, false);
    }

    fn save_and_record(&self) {
        let result = self.save();
        self.lock().save_error = result.err();
    }

    /// Saves the simulation in the file, if there is one and time has passed since the last save.
    ///
    /// # Errors
    /// Fails if the file cannot be written; the message names it.
    pub(crate) fn save(&self) -> Result<(), String> {
        let Some(file) = &self.file else { return Ok(()) };
        let (elapsed_ms, text) = {
            let running = self.lock();
            let elapsed_ms = running.simulation.elapsed_ms();
            if running.saved_ms == Some(elapsed_ms) {
                return Ok(());
            }
            (elapsed_ms, running.simulation.scenario()?)
        };
        // A crash leaves the old file or the new one.
        let temporary = file.with_extension("yaml.new");
        std::fs::write(&temporary, text)
            .and_then(|()| std::fs::rename(&temporary, file))
            .map_err(|error| format!("cannot save {}: {error}", file.display()))?;
        self.lock().saved_ms = Some(elapsed_ms);
        Ok(())
    }
}

fn position_of(simulation: &Simulation, jumps: u64) -> Position {
    let world = simulation.world();
    let events = world.events().map_or(Revision(0), ha_store::memory_state::MemoryState::revision);
    Position { jumps, revision: world.store().revision(), events }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and below a day")]
fn to_millis(ms: f64) -> Millis {
    ms.clamp(0.0, 86_400_000.0) as Millis
}

impl Clock for Session {
    /// Returns the virtual time, which the simulated machines show as the time of day.
    fn now(&self) -> Now {
        self.with(|simulation| {
            let elapsed = MonotonicTime(simulation.elapsed_ms());
            Now { monotonic_raw: elapsed, boottime: elapsed, wall_unix_ms: simulation.world().wall_unix_ms() }
        })
    }
}
