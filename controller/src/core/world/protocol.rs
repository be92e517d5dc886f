//! Protocol version of writes: the version that every controller and every registered node reads (FENCING, R1.12,
//! R1.13).

use super::ClusterView;
use ha_api_types::id::ControllerId;
use ha_api_types::lenient;
use ha_api_types::protocol::Protocol;
use ha_api_types::record::{Candidate, FenceState};
use ha_store::Entry;

impl ClusterView {
    /// Returns the controllers by id. An unreadable field has its default value.
    pub fn candidates(&self) -> impl Iterator<Item = (&ControllerId, Candidate)> {
        self.candidate_entries.iter().map(|(id, entry)| (id, read_candidate(entry)))
    }

    /// Stores the protocol of a controller. Every plan needs it, and it changes only with the candidate key.
    pub(super) fn update_candidate_protocol(&mut self, id: &ControllerId) {
        match self.candidate_entries.get(id).map(|entry| read_candidate(entry).protocol) {
            Some(protocol) => drop(self.candidate_protocols.insert(id.clone(), protocol)),
            None => drop(self.candidate_protocols.remove(id)),
        }
    }

    /// Returns `true` if a word of this version may be written.
    pub fn may_write(&self, version: Protocol) -> bool {
        let stored = self.cluster_status.as_ref().map(|status| status.value.allows(version));
        stored.unwrap_or(version <= Protocol::FIRST)
    }

    /// Returns the controllers and registered nodes that do not read this version, as `controller/ID` and
    /// `node/NAME`.
    pub fn outdated_readers(&self, version: Protocol) -> Vec<String> {
        let outdated = self.readers().filter(|(.., reads)| *reads < version);
        outdated.map(|(role, name, reads)| format!("{role}/{name} (protocol {reads})")).collect()
    }

    /// Returns the lowest version over all controllers and registered nodes.
    pub(in crate::core) fn common_protocol(&self) -> Protocol {
        self.readers().map(|(.., reads)| reads).min().unwrap_or_default().max(Protocol::FIRST)
    }

    /// Returns role, name and version of every controller and registered node.
    fn readers(&self) -> impl Iterator<Item = (&'static str, &str, Protocol)> {
        let controllers =
            self.candidate_protocols.iter().map(|(id, protocol)| ("controller", id.as_str(), *protocol));
        let open = self.fences.iter().filter(|(node, fence)| match fence.value.state {
            FenceState::Open => true,
            // An unreadable fence counts as Fencing, and its node may be registered.
            FenceState::Fencing => self.is_fence_unreadable(node),
            FenceState::Fenced | FenceState::Closed => false,
        });
        let nodes = open.map(|(node, _)| {
            let report = self.node_reports.get(node).map(|report| report.value.protocol);
            ("node", node.as_str(), report.unwrap_or_default())
        });
        controllers.chain(nodes)
    }
}

fn read_candidate(entry: &Entry) -> Candidate {
    lenient::read(&entry.value).unwrap_or_else(|partial| partial.value)
}
