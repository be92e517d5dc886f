//! The key layout in etcd; no other module formats or parses a key.
//!
//! Keys are `/hactl/<cluster>/v1/…`. Each prefix has one writer, so that etcd's own RBAC enforces the permissions. Prefixes
//! end in `/`, so that a prefix for node1 does not match node10.

use crate::id::{ControllerId, NodeName, ResourceName};
use crate::kind::Kind;

/// The keys of one cluster, to be built and parsed.
///
/// ```
/// use ha_api_types::keys::{Key, Keys};
/// use ha_api_types::kind::Kind;
///
/// let keys = Keys::new("lab");
/// let key = keys.spec(Kind::Resource, "web");
/// assert_eq!(key, "/hactl/lab/v1/spec/resource/web");
/// assert!(key.starts_with(&keys.specs()));
/// assert_eq!(keys.parse(&key), Some(Key::Spec(Kind::Resource, "web")));
/// assert_eq!(Keys::new("other").parse(&key), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    root: String,
}

/// A parsed key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key<'a> {
    /// `spec/<kind>/<name>`.
    Spec(Kind, &'a str),
    /// `status/<kind>/<name>`.
    Status(Kind, &'a str),
    /// `assignment/<resource>`.
    Assignment(ResourceName),
    /// `tombstone/<resource>`.
    Tombstone(ResourceName),
    /// `fence/<node>`.
    Fence(NodeName),
    /// `notified`.
    NotificationRecord,
    /// `backup`.
    Backup,
    /// `restored`.
    RestoreMarker,
    /// `incarnation`.
    Incarnation,
    /// `leader`.
    Leader,
    /// `candidate/<id>`.
    Candidate(ControllerId),
    /// `refresh/<id>`.
    Refresh(ControllerId),
    /// `alive/<node>`.
    Alive(NodeName),
    /// `report/<node>/node`.
    NodeReport(NodeName),
    /// `report/<node>/doctor`.
    DoctorReport(NodeName),
    /// `report/<node>/usage`.
    UsageReport(NodeName),
    /// `report/<node>/resource/<name>`: node, name.
    ServiceReport(NodeName, ResourceName),
    /// `event/<writer>/<id>`.
    Event(&'a str, &'a str),
    /// `log/<node>/<id>`: node, request.
    LogRequest(NodeName, &'a str),
    /// `log-answer/<node>/<id>`: node, request.
    LogAnswer(NodeName, &'a str),
    /// `join/<node>`.
    JoinToken(NodeName),
    /// `issued/<node>/<serial>`: node, serial number.
    IssuedCertificate(NodeName, &'a str),
}

/// Prefix of the keys of every cluster.
pub const ALL_CLUSTERS: &str = "/hactl/";
/// Separator between the name of a cluster and the keys of this version.
const VERSION: &str = "/v1/";

/// Returns the cluster of a key; `None` for keys of later versions and of other programs.
pub fn cluster_of(key: &str) -> Option<&str> {
    let (cluster, rest) = key.strip_prefix(ALL_CLUSTERS)?.split_once('/')?;
    rest.starts_with(VERSION.trim_start_matches('/')).then_some(cluster)
}

impl Keys {
    /// Returns the keys of a cluster.
    pub fn new(cluster: &str) -> Keys {
        Keys { root: format!("{ALL_CLUSTERS}{cluster}{VERSION}") }
    }

    /// Returns the prefix of all keys of the cluster, with its final `/`.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Returns the key for the spec of an object, written by the API.
    pub fn spec(&self, kind: Kind, name: &str) -> String {
        format!("{}spec/{}/{name}", self.root, kind.singular())
    }

    /// Returns the prefix of all specs of a kind.
    pub fn specs_of(&self, kind: Kind) -> String {
        format!("{}spec/{}/", self.root, kind.singular())
    }

    /// Returns the prefix of all specs.
    pub fn specs(&self) -> String {
        format!("{}spec/", self.root)
    }

    /// Returns the key for the status of an object, written by the leader.
    pub fn status(&self, kind: Kind, name: &str) -> String {
        format!("{}status/{}/{name}", self.root, kind.singular())
    }

    /// Returns the prefix of all statuses of a kind.
    pub fn statuses_of(&self, kind: Kind) -> String {
        format!("{}status/{}/", self.root, kind.singular())
    }

    /// Returns the prefix of all statuses.
    pub fn statuses(&self) -> String {
        format!("{}status/", self.root)
    }

    /// Returns the key for the assignment of a service to a node.
    pub fn assignment(&self, resource: &ResourceName) -> String {
        format!("{}assignment/{resource}", self.root)
    }

    /// Returns the prefix of all assignments.
    pub fn assignments(&self) -> String {
        format!("{}assignment/", self.root)
    }

    /// Returns the key for the remains of a deleted resource.
    pub fn tombstone(&self, resource: &ResourceName) -> String {
        format!("{}tombstone/{resource}", self.root)
    }

    /// Returns the prefix of the remains of all deleted resources.
    pub fn tombstones(&self) -> String {
        format!("{}tombstone/", self.root)
    }

    /// Returns the key for the epoch and fencing state of a node.
    pub fn fence(&self, node: &NodeName) -> String {
        format!("{}fence/{node}", self.root)
    }

    /// Returns the prefix of the fencing states of all nodes.
    pub fn fences(&self) -> String {
        format!("{}fence/", self.root)
    }

    /// Returns the key for the state of notifications.
    pub fn notification_record(&self) -> String {
        format!("{}notified", self.root)
    }

    /// Returns the key for the last verified backup.
    pub fn backup_record(&self) -> String {
        format!("{}backup", self.root)
    }

    /// Returns the key for the marker of a restore from a backup.
    pub fn restore_marker(&self) -> String {
        format!("{}restored", self.root)
    }

    /// Returns the key for the identity of the data in etcd.
    pub fn incarnation(&self) -> String {
        format!("{}incarnation", self.root)
    }

    /// Returns the key of the leader.
    pub fn leader(&self) -> String {
        format!("{}leader", self.root)
    }

    /// Returns the key of a controller.
    pub fn candidate(&self, id: &ControllerId) -> String {
        format!("{}candidate/{id}", self.root)
    }

    /// Returns the prefix of all controllers.
    pub fn candidates(&self) -> String {
        format!("{}candidate/", self.root)
    }

    /// Returns the key that a controller refreshes to show that it can still commit.
    pub fn refresh(&self, id: &ControllerId) -> String {
        format!("{}refresh/{id}", self.root)
    }

    /// Returns the prefix of the refreshes of all controllers.
    pub fn refreshes(&self) -> String {
        format!("{}refresh/", self.root)
    }

    /// Returns the key for the heartbeat of a node.
    pub fn alive(&self, node: &NodeName) -> String {
        format!("{}alive/{node}", self.root)
    }

    /// Returns the prefix of all heartbeats.
    pub fn heartbeats(&self) -> String {
        format!("{}alive/", self.root)
    }

    /// Returns the prefix of the reports of all agents.
    pub fn reports(&self) -> String {
        format!("{}report/", self.root)
    }

    /// Returns the key for the report of an agent about its node.
    pub fn node_report(&self, node: &NodeName) -> String {
        format!("{}report/{node}/node", self.root)
    }

    /// Returns the key for the results of an agent's checks of its machine.
    pub fn doctor_report(&self, node: &NodeName) -> String {
        format!("{}report/{node}/doctor", self.root)
    }

    /// Returns the key for the measurements of an agent.
    pub fn usage_report(&self, node: &NodeName) -> String {
        format!("{}report/{node}/usage", self.root)
    }

    /// Returns the key for the report of an agent about a service.
    pub fn service_report(&self, node: &NodeName, resource: &ResourceName) -> String {
        format!("{}report/{node}/resource/{resource}", self.root)
    }

    /// Returns the prefix of all reports of one agent.
    pub fn reports_of(&self, node: &NodeName) -> String {
        format!("{}report/{node}/", self.root)
    }

    /// Returns the key of an event; `writer` must not contain `/`.
    pub fn event(&self, writer: &str, id: &str) -> String {
        format!("{}event/{writer}/{id}", self.root)
    }

    /// Returns the prefix of all events.
    pub fn events(&self) -> String {
        format!("{}event/", self.root)
    }

    /// Returns the key for a request for the log of a service, written by the API; `id` must not contain `/`.
    pub fn log_request(&self, node: &NodeName, id: &str) -> String {
        format!("{}log/{node}/{id}", self.root)
    }

    /// Returns the prefix of the log requests to one agent.
    pub fn log_requests_of(&self, node: &NodeName) -> String {
        format!("{}log/{node}/", self.root)
    }

    /// Returns the key for the answer of an agent to the log request with this id.
    pub fn log_answer(&self, node: &NodeName, id: &str) -> String {
        format!("{}log-answer/{node}/{id}", self.root)
    }

    /// Returns the prefix of the log answers of one agent.
    pub fn log_answers_of(&self, node: &NodeName) -> String {
        format!("{}log-answer/{node}/", self.root)
    }

    /// Returns the key of the join token of a node, written by the API. Agents cannot read it.
    pub fn join_token(&self, node: &NodeName) -> String {
        format!("{}join/{node}", self.root)
    }

    /// Returns the key of a certificate that a controller issued to a node; `serial` must not contain `/`.
    pub fn issued_certificate(&self, node: &NodeName, serial: &str) -> String {
        format!("{}issued/{node}/{serial}", self.root)
    }

    /// Returns the prefix of the certificates that controllers issued to a node.
    pub fn issued_certificates_of(&self, node: &NodeName) -> String {
        format!("{}issued/{node}/", self.root)
    }

    /// Parses a key; `None` for keys of other clusters and of later versions.
    pub fn parse<'a>(&self, key: &'a str) -> Option<Key<'a>> {
        let rest = key.strip_prefix(self.root.as_str())?;
        let mut parts = rest.split('/');
        let parsed = match (parts.next()?, parts.next(), parts.next(), parts.next()) {
            ("spec", Some(kind), Some(name), None) => Key::Spec(kind_with_name(kind)?, name),
            ("status", Some(kind), Some(name), None) => Key::Status(kind_with_name(kind)?, name),
            ("assignment", Some(resource), None, None) => Key::Assignment(resource.into()),
            ("tombstone", Some(resource), None, None) => Key::Tombstone(resource.into()),
            ("fence", Some(node), None, None) => Key::Fence(node.into()),
            ("notified", None, None, None) => Key::NotificationRecord,
            ("backup", None, None, None) => Key::Backup,
            ("restored", None, None, None) => Key::RestoreMarker,
            ("incarnation", None, None, None) => Key::Incarnation,
            ("leader", None, None, None) => Key::Leader,
            ("candidate", Some(id), None, None) => Key::Candidate(id.into()),
            ("refresh", Some(id), None, None) => Key::Refresh(id.into()),
            ("alive", Some(node), None, None) => Key::Alive(node.into()),
            ("report", Some(node), Some("node"), None) => Key::NodeReport(node.into()),
            ("report", Some(node), Some("doctor"), None) => Key::DoctorReport(node.into()),
            ("report", Some(node), Some("usage"), None) => Key::UsageReport(node.into()),
            ("report", Some(node), Some("resource"), Some(name)) => {
                Key::ServiceReport(node.into(), name.into())
            }
            ("event", Some(writer), Some(id), None) => Key::Event(writer, id),
            ("log", Some(node), Some(id), None) => Key::LogRequest(node.into(), id),
            ("log-answer", Some(node), Some(id), None) => Key::LogAnswer(node.into(), id),
            ("join", Some(node), None, None) => Key::JoinToken(node.into()),
            ("issued", Some(node), Some(serial), None) => Key::IssuedCertificate(node.into(), serial),
            _ => return None,
        };
        // No key of this version has a fifth part.
        if parts.next().is_some() { None } else { Some(parsed) }
    }
}

fn kind_with_name(text: &str) -> Option<Kind> {
    Kind::ALL.into_iter().find(|kind| kind.singular() == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_round_trips() {
        let keys = Keys::new("default");
        let check = |key: String, expected: Key<'_>| assert_eq!(keys.parse(&key), Some(expected), "{key}");
        for kind in Kind::ALL {
            check(keys.spec(kind, "web"), Key::Spec(kind, "web"));
            check(keys.status(kind, "web"), Key::Status(kind, "web"));
        }
        check(keys.assignment(&"web".into()), Key::Assignment("web".into()));
        check(keys.tombstone(&"web".into()), Key::Tombstone("web".into()));
        check(keys.fence(&"node1".into()), Key::Fence("node1".into()));
        check(keys.notification_record(), Key::NotificationRecord);
        check(keys.backup_record(), Key::Backup);
        check(keys.restore_marker(), Key::RestoreMarker);
        check(keys.incarnation(), Key::Incarnation);
        check(keys.leader(), Key::Leader);
        check(keys.candidate(&"c1".into()), Key::Candidate("c1".into()));
        check(keys.refresh(&"c1".into()), Key::Refresh("c1".into()));
        check(keys.alive(&"node1".into()), Key::Alive("node1".into()));
        check(keys.node_report(&"node1".into()), Key::NodeReport("node1".into()));
        check(keys.doctor_report(&"node1".into()), Key::DoctorReport("node1".into()));
        check(keys.usage_report(&"node1".into()), Key::UsageReport("node1".into()));
        check(
            keys.service_report(&"node1".into(), &"web".into()),
            Key::ServiceReport("node1".into(), "web".into()),
        );
        check(keys.event("agent-node1", "1"), Key::Event("agent-node1", "1"));
        check(keys.log_request(&"node1".into(), "1"), Key::LogRequest("node1".into(), "1"));
        check(keys.log_answer(&"node1".into(), "1"), Key::LogAnswer("node1".into(), "1"));
        check(keys.join_token(&"node1".into()), Key::JoinToken("node1".into()));
        check(keys.issued_certificate(&"node1".into(), "1f"), Key::IssuedCertificate("node1".into(), "1f"));
    }

    #[test]
    fn keys_identify_their_cluster() {
        for (key, cluster) in [
            ("/hactl/default/v1/fence/n1", Some("default")),
            ("/hactl/lab/v1/leader", Some("lab")),
            ("/hactl/x/v2/leader", None),
            ("/hactl/x/v1", None),
            ("/other/v1/a", None),
        ] {
            assert_eq!(cluster_of(key), cluster, "{key}");
        }
    }

    #[test]
    fn foreign_keys_are_ignored() {
        let keys = Keys::new("default");
        for key in
            ["/hactl/other/v1/leader", "/hactl/default/v1/report/n/x", "/hactl/default/v1/leader/x", "x"]
        {
            assert_eq!(keys.parse(key), None, "{key}");
        }
    }
}
