//! Identity of each resource, and the resources with the same identity (FENCING, R7.13).

use super::World;
use ha_api_types::driver::Identity;
use std::collections::{BTreeMap, BTreeSet};

/// Identities of all resources, in both directions.
#[derive(Clone, Debug, Default)]
pub(super) struct Identities {
    of: BTreeMap<String, Identity>,
    named: BTreeMap<Identity, BTreeSet<String>>,
}

impl World {
    /// Returns the identity of a resource's definition; `None` if it cannot be determined.
    pub fn identity(&self, resource: &str) -> Option<&Identity> {
        self.identities.of.get(resource)
    }

    /// Returns the resources with an identity.
    pub fn named_as(&self, identity: &Identity) -> impl Iterator<Item = &String> {
        self.identities.named.get(identity).into_iter().flatten()
    }

    /// Updates the identity after a change of a resource.
    pub(super) fn work_out_identity(&mut self, name: &str) {
        let identities = &mut self.identities;
        if let Some(known) = identities.of.remove(name)
            && let Some(names) = identities.named.get_mut(&known)
        {
            names.remove(name);
            if names.is_empty() {
                identities.named.remove(&known);
            }
        }
        let identity =
            self.resources.get(name).and_then(|resource| resource.value.spec.driver.identity(name));
        if let Some(identity) = identity {
            identities.named.entry(identity.clone()).or_default().insert(name.to_owned());
            identities.of.insert(name.to_owned(), identity);
        }
    }
}
