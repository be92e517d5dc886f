//! The routes below `/simulation`: the state of the simulation, its actions, its clock, and its scenario.

use crate::session::{SPEEDS, Session};
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use ha_api_types::time::{Millis, Timestamp};
use ha_simulator::interactive::{Beginning, Simulation};
use ha_simulator::world::{MachineState, Violation};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;

/// Maximum number of lines of the timeline in one answer.
const TIMELINE_LINES: usize = 500;

/// Returns the routes. The router of the API checks the client of each request.
pub(crate) fn router(session: Arc<Session>) -> Router {
    Router::new()
        .route("/simulation", get(state))
        .route("/simulation/actions", post(play))
        .route("/simulation/clock", post(set_clock))
        .route("/simulation/scenario", get(scenario).post(load))
        .route("/readyz", get(async || "ok\n"))
        .with_state(session)
}

#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct StateParameters {
    /// Number of lines of the timeline that the client has already read.
    timeline_from: usize,
}

impl Default for StateParameters {
    fn default() -> StateParameters {
        StateParameters { timeline_from: usize::MAX }
    }
}

/// State of the simulation.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SimulationState {
    /// Virtual time since time 0.
    elapsed_ms: Millis,
    /// Time of day of the simulated machines, in milliseconds since 1970.
    wall_unix_ms: i128,
    /// Virtual seconds per second.
    speed: f64,
    is_paused: bool,
    /// Whether this machine is too slow for the speed.
    is_behind: bool,
    is_etcd_available: bool,
    machines: Vec<MachineState>,
    /// Steps in the form of a scenario file.
    steps: Vec<Value>,
    executed_steps: usize,
    /// Number of lines in the whole timeline.
    timeline_length: usize,
    /// Lines of the timeline from the requested one on.
    timeline: Vec<String>,
    violations: Vec<String>,
    /// File in which the simulation is saved.
    file: Option<PathBuf>,
    /// Error of the last save.
    save_error: Option<String>,
}

async fn state(
    State(session): State<Arc<Session>>,
    Query(parameters): Query<StateParameters>,
) -> Json<SimulationState> {
    let pace = session.pace_of_time();
    let (file, save_error) = (session.file().cloned(), session.save_error());
    Json(session.with(|simulation| {
        let world = simulation.world();
        let timeline = world.timeline();
        let oldest = timeline.len().saturating_sub(TIMELINE_LINES);
        // A line number beyond the end is of another timeline, or the client has read none.
        let from = if parameters.timeline_from > timeline.len() {
            oldest
        } else {
            parameters.timeline_from.max(oldest)
        };
        let violation = |Violation { at, invariant, detail }: &Violation| {
            format!("at {:.3} s: {invariant}: {detail}", *at as f64 / 1000.0)
        };
        SimulationState {
            elapsed_ms: simulation.elapsed_ms(),
            wall_unix_ms: world.wall_unix_ms(),
            speed: pace.speed,
            is_paused: pace.is_paused,
            is_behind: pace.is_behind,
            is_etcd_available: world.is_etcd_available(),
            machines: world.machine_states(),
            steps: simulation.steps().to_vec(),
            executed_steps: simulation.executed_steps(),
            timeline_length: timeline.len(),
            timeline: timeline.get(from..).unwrap_or_default().to_vec(),
            violations: world.violations().iter().map(violation).collect(),
            file,
            save_error,
        }
    }))
}

/// Actions of a scenario file, which are executed in order.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Actions {
    r#do: Value,
}

async fn play(State(session): State<Arc<Session>>, Json(actions): Json<Actions>) -> Response {
    answer(session.change(|simulation| simulation.play(&actions.r#do)))
}

/// A change of the clock; the members apply in their order.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[derive(Default)]
struct ClockChange {
    speed: Option<f64>,
    is_paused: Option<bool>,
    /// Virtual time to go to.
    elapsed_ms: Option<Millis>,
    /// Goes to the time of the next event.
    next_event: bool,
}

async fn set_clock(State(session): State<Arc<Session>>, Json(change): Json<ClockChange>) -> Response {
    if let Some(speed) = change.speed
        && !SPEEDS.contains(&speed)
    {
        return refused(&format!("speed {speed} is not between {} and {}", SPEEDS.start(), SPEEDS.end()));
    }
    session.set_pace(change.speed, change.is_paused);
    let mut result = Ok(());
    if let Some(elapsed_ms) = change.elapsed_ms {
        result = tokio::task::block_in_place(|| session.jump(|simulation| simulation.go_to(elapsed_ms)));
    }
    if change.next_event && result.is_ok() {
        session.change(|simulation| {
            if let Some(next_ms) = simulation.next_event_ms() {
                simulation.run_until(next_ms, || true);
            }
        });
    }
    answer(result)
}

/// Answers with the scenario until now, as a file.
async fn scenario(State(session): State<Arc<Session>>) -> Response {
    match session.with(Simulation::scenario) {
        Ok(text) => {
            let headers = [
                (header::CONTENT_TYPE, "application/yaml"),
                (header::CONTENT_DISPOSITION, "attachment; filename=\"scenario.yaml\""),
            ];
            (headers, text).into_response()
        }
        Err(message) => refused(&message),
    }
}

/// Replaces the simulation with another scenario, at its time 0.
async fn load(State(session): State<Arc<Session>>, text: String) -> Response {
    let wall_clock = Timestamp::from_unix_ms(ha_runtime::clock::wall_unix_ms());
    let loaded =
        Simulation::new(Beginning::Scenario, "scenario.yaml", &text, PathBuf::from("."), &wall_clock);
    answer(loaded.and_then(|loaded| {
        session.jump(|simulation| {
            *simulation = loaded;
            Ok(())
        })
    }))
}

fn answer(result: Result<(), String>) -> Response {
    match result {
        Ok(()) => Json(json!({})).into_response(),
        Err(message) => refused(&message),
    }
}

fn refused(message: &str) -> Response {
    (StatusCode::UNPROCESSABLE_ENTITY, Json(json!({"reason": "Invalid", "message": message}))).into_response()
}
