//! Which thing each resource names, and which resources name one thing (FENCING, R7.13).

use super::World;
use ha_api_types::driver::Identity;
use std::collections::{BTreeMap, BTreeSet};

/// The identities of all resources, in both directions.
#[derive(Clone, Debug, Default)]
pub(super) struct Identities {
    of: BTreeMap<String, Identity>,
    named: BTreeMap<Identity, BTreeSet<String>>,
}

impl World {
    /// The identity of a resource's definition; `None` when it cannot be told.
    pub fn identity(&self, resource: &str) -> Option<&Identity> {
        self.identities.of.get(resource)
    }

    /// The resources that have an identity.
    pub fn named_as(&self, identity: &Identity) -> impl Iterator<Item = &String> {
        self.identities.named.get(identity).into_iter().flatten()
    }

    /// Follows a change of a resource.
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
