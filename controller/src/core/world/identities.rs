//! Identity of each resource, and the resources with the same identity (FENCING, R7.13).

use super::ClusterView;
use ha_api_types::driver::Identity;
use ha_api_types::id::ResourceName;
use std::collections::{BTreeMap, BTreeSet};

/// Identities of all resources, in both directions.
#[derive(Clone, Debug, Default)]
pub(super) struct Identities {
    by_resource: BTreeMap<ResourceName, Identity>,
    /// Identities of recorded copies that the spec does not name, such as after a restore (FENCING, R6.11).
    of_copies: BTreeMap<ResourceName, BTreeSet<Identity>>,
    resources_by_identity: BTreeMap<Identity, BTreeSet<ResourceName>>,
}

impl ClusterView {
    /// Returns the identity of a resource's definition; `None` if it cannot be determined.
    pub fn identity(&self, resource: &ResourceName) -> Option<&Identity> {
        self.identities.by_resource.get(resource)
    }

    /// Returns the resources with an identity, by their definition or by that of a copy that may run.
    pub fn resources_with_identity(&self, identity: &Identity) -> impl Iterator<Item = &ResourceName> {
        self.identities.resources_by_identity.get(identity).into_iter().flatten()
    }

    /// Updates the identities after a change of a resource or of its status.
    pub(super) fn update_identity(&mut self, name: &ResourceName) {
        let identities = &mut self.identities;
        let of_copies = identities.of_copies.remove(name).into_iter().flatten();
        for identity_key in identities.by_resource.remove(name).into_iter().chain(of_copies) {
            if let Some(names) = identities.resources_by_identity.get_mut(&identity_key) {
                names.remove(name);
                if names.is_empty() {
                    identities.resources_by_identity.remove(&identity_key);
                }
            }
        }
        let Some(resource) = self.resources.get(name) else { return };
        let identity = resource.value.spec.driver.identity(name);
        let status = self.resource_statuses.get(name).map(|status| &status.value);
        let copies = status.into_iter().flat_map(|status| &status.copies);
        let of_copies: BTreeSet<Identity> = copies
            .filter_map(|copy| copy.definition.identity())
            .filter(|copy_identity| Some(copy_identity) != identity.as_ref())
            .collect();
        for identity_key in identity.iter().chain(&of_copies) {
            identities.resources_by_identity.entry(identity_key.clone()).or_default().insert(name.clone());
        }
        if !of_copies.is_empty() {
            identities.of_copies.insert(name.clone(), of_copies);
        }
        if let Some(identity) = identity {
            identities.by_resource.insert(name.clone(), identity);
        }
    }
}
