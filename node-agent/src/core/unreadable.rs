//! Values of this node's own keys that this version cannot read: their writer, the agent, also clears them (FENCING,
//! R1.23).

use super::AgentCore;
use super::commits::CommitPurpose;
use super::effect::{CommitUrgency, Level};
use ha_api_types::id::ResourceName;
use ha_api_types::lenient::{self, Partial};
use ha_api_types::record::NodeReport;
use ha_store::{Guard, Transaction};

/// Reads this node's report as far as possible. An unreadable *armed* counts as armed: the device is not released
/// before a report that is not armed is committed.
pub(super) fn own_report(text: &[u8]) -> NodeReport {
    lenient::read(text).unwrap_or_else(|partial: Partial<NodeReport>| {
        let armed = partial.value.armed || partial.is_unreadable("armed");
        NodeReport { armed, ..partial.value }
    })
}

impl AgentCore {
    /// Deletes unreadable reports that concern no service of this node, because no other process writes them. An
    /// unreadable report of a service is overwritten by the service's next report.
    pub(super) fn clear_unreadable_reports(&mut self) {
        let Some((_, create_revision)) = self.active_registration() else { return };
        let is_orphaned = |name: &ResourceName| {
            let is_deletion_in_progress = |purpose: &CommitPurpose| {
                let CommitPurpose::DeleteReport { name: deleted } = purpose else { return false };
                deleted == name
            };
            !self.services.contains_key(name) && !self.commits.values().any(is_deletion_in_progress)
        };
        let reports = self.view.reports.iter().filter(|(_, stored)| stored.value.is_none());
        let orphaned_reports: Vec<ResourceName> =
            reports.map(|(name, _)| name.clone()).filter(is_orphaned).collect();
        let node = self.config.node.clone();
        for name in orphaned_reports {
            let keys = &self.config.keys;
            let transaction = Transaction::new()
                .delete(keys.service_report(&node, &name), self.view.reports.guard(&name))
                .guard(keys.alive(&node), Guard::Created(create_revision))
                .guard(keys.fence(&node), self.fence_guard());
            let message =
                format!("cannot read the report of {name}, written by another version: deleting it");
            self.log(Level::Warning, message);
            self.commit(transaction, CommitUrgency::Ordinary, CommitPurpose::DeleteReport { name });
        }
    }
}
