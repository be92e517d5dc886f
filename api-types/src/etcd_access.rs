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

/// The keys that the agent of a node watches. The agent does not see the fence devices of other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each variant is named like its keys")]
pub enum AgentSelector {
    ClusterSpecs,
    OwnNodeSpec,
    ResourceSpecs,
    OperationSpecs,
    ClusterStatuses,
    OperationStatuses,
    Assignments,
    Fences,
    Candidates,
    OwnReports,
}

impl AgentSelector {
    /// All selectors.
    pub const ALL: [AgentSelector; 10] = [
        AgentSelector::ClusterSpecs,
        AgentSelector::OwnNodeSpec,
        AgentSelector::ResourceSpecs,
        AgentSelector::OperationSpecs,
        AgentSelector::ClusterStatuses,
        AgentSelector::OperationStatuses,
        AgentSelector::Assignments,
        AgentSelector::Fences,
        AgentSelector::Candidates,
        AgentSelector::OwnReports,
    ];

    /// Returns the prefix of the keys, which ends in `/`, or the key of the node's own object.
    pub fn key_or_prefix(self, keys: &Keys, node: &NodeName) -> String {
        match self {
            AgentSelector::ClusterSpecs => keys.specs_of(Kind::Cluster),
            AgentSelector::OwnNodeSpec => keys.spec(Kind::Node, node),
            AgentSelector::ResourceSpecs => keys.specs_of(Kind::Resource),
            AgentSelector::OperationSpecs => keys.specs_of(Kind::Operation),
            AgentSelector::ClusterStatuses => keys.statuses_of(Kind::Cluster),
            AgentSelector::OperationStatuses => keys.statuses_of(Kind::Operation),
            AgentSelector::Assignments => keys.assignments(),
            AgentSelector::Fences => keys.fences(),
            AgentSelector::Candidates => keys.candidates(),
            AgentSelector::OwnReports => keys.reports_of(node),
        }
    }
}

/// Returns the keys and prefixes that the agent of a node watches, in the order of [`AgentSelector::ALL`].
pub fn agent_selectors(keys: &Keys, node: &NodeName) -> Vec<String> {
    AgentSelector::ALL.iter().map(|selector| selector.key_or_prefix(keys, node)).collect()
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
