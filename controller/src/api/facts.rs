//! The cluster as the store has it now, typed.

use super::ApiState;
use super::error::ApiError;
use crate::core::world::World;
use ha_api_types::time::Mono;
use ha_store::Store;

/// Everything but events, read at one revision.
pub(crate) async fn world<S: Store>(state: &ApiState<S>) -> Result<World, ApiError> {
    let keys = state.keys();
    let selectors = [
        keys.specs(),
        keys.statuses(),
        keys.assignments(),
        keys.fences(),
        keys.heartbeats(),
        keys.reports(),
        keys.candidates(),
        keys.leader(),
    ];
    let reading = state.store().list_all(&selectors).await?;
    let mut world = World::new(keys.clone());
    // The moments at which things were seen are for the leader; this view lives for one request.
    world.replace(reading.entries, reading.revision, Mono(0));
    Ok(world)
}
