//! The words that users could read during a run: events, statuses, refusals, and the answers of `hactl why`.

use super::World;
use crate::vocabulary::Vocabulary;
use ha_api_types::cluster::ClusterStatus;
use ha_api_types::event::Event;
use ha_api_types::id::{ResourceName, Revision};
use ha_api_types::kind::Kind;
use ha_api_types::node::NodeStatus;
use ha_api_types::reason::Reason;
use ha_api_types::resource::ResourceStatus;
use ha_store::Change;

impl World {
    /// Starts to collect every word that a user could read.
    pub fn collect_vocabulary(&mut self) {
        let reading = self.store.list(self.keys.root());
        let vocabulary = Vocabulary::from_store(self.keys.clone(), reading.entries, reading.revision);
        self.vocabulary = Some(Box::new(vocabulary));
    }

    /// Returns the words since `collect_vocabulary`; `None` if they are not collected.
    pub fn vocabulary(&self) -> Option<&Vocabulary> {
        self.vocabulary.as_deref()
    }

    pub(super) fn record_words(&mut self, changes: &[Change], revision: Revision) {
        if let Some(vocabulary) = &mut self.vocabulary {
            vocabulary.record_changes(changes, revision);
        }
    }

    pub(super) fn record_event(&mut self, writer: &str, event: &Event) {
        self.store_event(writer, event);
        self.emitted_events.insert((event.reason, event.name.clone()));
        if let Some(vocabulary) = &mut self.vocabulary {
            vocabulary.record_event(event);
        }
    }

    /// Records the immediate refusal of a command by the API.
    pub(super) fn record_refusal_reason(&mut self, text: &str, reason: Reason) {
        self.refusal_reasons.insert(text.to_owned(), reason);
        if let Some(vocabulary) = &mut self.vocabulary {
            vocabulary.record_refusal(reason);
        }
    }

    /// Collects the words in the explanations of all services.
    pub(super) fn record_explanations(&mut self) {
        if let Some(vocabulary) = &mut self.vocabulary {
            vocabulary.record_explanations();
        }
    }

    /// Returns `true` if a condition in an object's status has this reason.
    pub(super) fn has_condition_reason(&self, kind: Kind, name: &str, reason: Reason) -> bool {
        let conditions = match kind {
            Kind::Node => self.status_of::<NodeStatus>(kind, name).map(|status| status.conditions),
            Kind::Resource => self.status_of::<ResourceStatus>(kind, name).map(|status| status.conditions),
            Kind::Cluster => self.status_of::<ClusterStatus>(kind, name).map(|status| status.conditions),
            Kind::Group | Kind::AffinityRule | Kind::NodeGroup | Kind::Operation | Kind::GitSync => None,
        };
        conditions.into_iter().flatten().any(|condition| condition.reason == reason)
    }

    /// Returns `true` if the last command with this text was answered with this reason.
    pub(super) fn command_has_reason(&self, text: &str, reason: Reason) -> bool {
        let refused_at_once = self.refusal_reasons.get(text) == Some(&reason);
        let recorded_refusal =
            self.refused_commands.iter().rev().find(|(refused_text, _)| refused_text == text);
        let status = recorded_refusal.and_then(|(_, operation)| self.operation_status(operation.as_deref()?));
        refused_at_once || status.is_some_and(|status| status.reason == reason)
    }

    /// Returns `true` if the verdict of `hactl why` on a node has this reason.
    pub(super) fn explanation_names_reason(
        &self,
        resource: &ResourceName,
        reason: Reason,
        node: &str,
    ) -> bool {
        self.explain(resource).is_some_and(|explanation| {
            let is_of_node = |verdict: &&ha_api_types::view::Verdict| verdict.node == node;
            let causes = explanation.nodes.iter().filter(is_of_node).flat_map(|verdict| &verdict.causes);
            causes.into_iter().any(|cause| cause.reason == reason)
        })
    }
}
