//! Values of this node's own keys that this version cannot read: the agent that writes them also clears them (FENCING, R1.23).

use super::AgentCore;
use super::commits::Purpose;
use super::effect::{Lane, Level};
use ha_api_types::lenient::{self, Partial};
use ha_api_types::record::NodeReport;
use ha_store::{Guard, Transaction};

/// This node's report as far as it can be read. An unreadable *armed* is taken for armed: the device is not let go before a
/// report that says otherwise is committed.
pub(super) fn own_report(text: &[u8]) -> NodeReport {
    lenient::read(text).unwrap_or_else(|partial: Partial<NodeReport>| {
        let armed = partial.value.armed || partial.has_lost("armed");
        NodeReport { armed, ..partial.value }
    })
}

impl AgentCore {
    /// Deletes reports that cannot be read and that are about no service of this node: nothing else would ever write them. One
    /// about a service is written again with the next thing that is said of it.
    pub(super) fn clear_unreadable_reports(&mut self) {
        let Some((_, created)) = self.active() else { return };
        let is_lost = |name: &String| {
            let is_sent =
                |purpose: &Purpose| matches!(purpose, Purpose::Forget { name: sent } if sent == name);
            !self.services.contains_key(name) && !self.commits.values().any(is_sent)
        };
        let reports = self.view.reports.iter().filter(|(_, stored)| stored.value.is_none());
        let lost: Vec<String> = reports.map(|(name, _)| name.clone()).filter(is_lost).collect();
        let node = self.config.node.clone();
        for name in lost {
            let keys = &self.config.keys;
            let transaction = Transaction::new()
                .delete(keys.service_report(&node, &name), self.view.reports.guard(&name))
                .guard(keys.alive(&node), Guard::Created(created))
                .guard(keys.fence(&node), self.fence_guard());
            let message = format!(
                "the report of {name} was written by another version and cannot be read: deleting it"
            );
            self.log(Level::Warning, message);
            self.commit(transaction, Lane::Ordinary, Purpose::Forget { name });
        }
    }
}
