//! Tests of the state of the core as a document.

use super::*;
use ha_api_types::id::Epoch;

#[test]
fn the_state_document_shows_services_failures_and_the_next_deadline() {
    let mut world = World::running();
    let state = world.core.state(&world.now());
    assert_eq!((state.agent, state.epoch, state.heartbeats_fail_since_ms), ("Active", Epoch(1), None));
    assert!(state.watchdog.armed && state.watchdog.acknowledged && state.watchdog.takes_pets);
    let web = &state.services["web"];
    assert_eq!((web.presence.as_str(), web.step, web.authorized), ("Running", "rest", true));
    let remaining_ms = state.deadline_in_ms.expect("a proven heartbeat");

    world.network = NetworkFault::Down;
    world.advance(3_000);
    let cut_off = world.core.state(&world.now());
    assert!(cut_off.deadline_in_ms.is_some_and(|later_ms| later_ms < remaining_ms), "{cut_off:?}");
    assert!(cut_off.heartbeats_fail_since_ms.is_some() && cut_off.next.is_some(), "{cut_off:?}");
    let document = serde_json::to_string(&cut_off).expect("JSON");
    assert!(document.contains("\"heartbeatsFailSinceMs\"") && !document.contains("definition"), "{document}");
}
