//! Permissions in etcd: which keys the etcd user of a controller or of a node reads and writes (FENCING, section 11).

use crate::id::NodeName;
use crate::keys::Keys;
use crate::kind::Kind;

/// A permission on one key, or on all keys below a prefix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// A key, or a prefix that ends in `/`.
    pub selector: String,
    /// Whether the user also writes the keys; it can read them in any case.
    pub is_write: bool,
}

impl Permission {
    fn read(selector: String) -> Permission {
        Permission { selector, is_write: false }
    }

    fn write(selector: String) -> Permission {
        Permission { selector, is_write: true }
    }

    /// Returns `true` for all keys below a prefix.
    pub fn is_prefix(&self) -> bool {
        self.selector.ends_with('/')
    }
}

/// Returns the permissions of a controller: all keys of its cluster.
pub fn controller_permissions(keys: &Keys) -> Vec<Permission> {
    vec![Permission::write(keys.root().to_owned())]
}

/// Returns the selectors of the keys that the agent of a node watches: prefixes, which end in `/`, and the key of its own
/// Node. The agent does not see the fence devices of other nodes.
pub fn agent_selectors(keys: &Keys, node: &NodeName) -> Vec<String> {
    vec![
        keys.specs_of(Kind::Cluster),
        keys.spec(Kind::Node, node),
        keys.specs_of(Kind::Resource),
        keys.specs_of(Kind::Operation),
        keys.statuses_of(Kind::Cluster),
        keys.statuses_of(Kind::Operation),
        keys.assignments(),
        keys.fences(),
        keys.candidates(),
        keys.reports_of(node),
    ]
}

/// Returns the permissions of a node's agent: it writes only its own keys.
///
/// The agent reads the definitions of all services, because it must recognize each of them on its machine, and the
/// reports of other nodes, for migrations. The agent reads no Node object except its own, and therefore no fence devices
/// of other nodes.
pub fn agent_permissions(keys: &Keys, node: &NodeName) -> Vec<Permission> {
    let others = [keys.reports(), keys.incarnation(), keys.log_requests_of(node)];
    let writes = [
        keys.alive(node),
        keys.reports_of(node),
        keys.event(&format!("agent-{node}"), ""),
        keys.log_answers_of(node),
    ];
    let reads = agent_selectors(keys, node).into_iter().chain(others).filter(|key| !writes.contains(key));
    let mut permissions: Vec<Permission> = reads.map(Permission::read).collect();
    permissions.extend(writes.into_iter().map(Permission::write));
    permissions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_writes_only_keys_of_its_own_node() {
        let keys = Keys::new("lab");
        let permissions = agent_permissions(&keys, &"node1".into());
        for permission in permissions.iter().filter(|permission| permission.is_write) {
            assert!(permission.selector.contains("node1"), "{permission:?}");
            assert!(permission.is_prefix() || permission.selector.ends_with("alive/node1"), "{permission:?}");
        }
        let reads = |key: &str| {
            permissions.iter().any(|permission| {
                permission.selector == key
                    || (permission.is_prefix() && key.starts_with(&permission.selector))
            })
        };
        assert!(reads(&keys.spec(Kind::Node, "node1")));
        assert!(!reads(&keys.spec(Kind::Node, "node10")));
        assert!(reads(&keys.spec(Kind::Resource, "web")));
        assert!(!reads(&keys.leader()));
    }
}
