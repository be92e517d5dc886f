//! The controllers and nodes that a backup names, and the questions about them for the operator (FENCING, R10.15,
//! R10.17, R10.18).

use crate::failure::Failure;
use crate::terminal::Terminal;
use ha_api_types::id::{ControllerId, NodeName};
use ha_api_types::keys::{Key, Keys};
use ha_api_types::lenient;
use ha_api_types::record::{Incarnation, NodeReport};
use ha_api_types::time::Millis;
use std::collections::BTreeSet;

/// The facts about a cluster in a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BackupFacts {
    pub(super) controllers: BTreeSet<ControllerId>,
    pub(super) nodes: BTreeSet<NodeName>,
    /// Longest W in the nodes' reports; `None` if no report exists.
    pub(super) longest_fencing_delay_ms: Option<Millis>,
    pub(super) incarnation: Option<Incarnation>,
}

impl BackupFacts {
    pub(super) fn collect(keys: &Keys, values: &[(String, String)]) -> BackupFacts {
        let mut facts = BackupFacts::default();
        for (key, value) in values {
            match keys.parse(key) {
                Some(Key::Candidate(id)) => drop(facts.controllers.insert(id)),
                Some(Key::Fence(node)) => drop(facts.nodes.insert(node)),
                Some(Key::NodeReport(node)) => {
                    facts.nodes.insert(node);
                    // Timings that cannot be read are covered by the longest wait of the profiles.
                    let report: NodeReport =
                        lenient::read(value.as_bytes()).unwrap_or_else(|partial| partial.value);
                    facts.longest_fencing_delay_ms =
                        facts.longest_fencing_delay_ms.max(Some(report.fencing_delay_ms()));
                }
                Some(Key::Incarnation) => facts.incarnation = serde_json::from_str(value).ok(),
                Some(_) | None => {}
            }
        }
        facts
    }

    /// Returns the questions that must be confirmed before the backup may be used.
    pub(super) fn questions(&self, cluster: &str, is_empty: bool) -> Vec<String> {
        let question_about =
            |component: &str| format!("Is {component} stopped or connected to the new etcd?");
        let controllers = self.controllers.iter().map(|id| question_about(&format!("controller {id}")));
        let nodes = self.nodes.iter().map(|node| question_about(&format!("node {node}")));
        let mut questions: Vec<String> = controllers.chain(nodes).collect();
        if is_empty {
            questions.push(format!(
                "The controllers and nodes of the old cluster {cluster} are unknown.\n\
                 Is each of them stopped or connected to the new etcd?"
            ));
        }
        questions
    }
}

/// Warning about the consequence of a wrong answer.
pub(super) const WARNING: &str = "data loss if a controller of the old cluster still runs without a connection to the new etcd: \
    the nodes connected to the controller keep their services running, which then run twice";

/// Asks the user to confirm each question, unless `confirmed` is set.
pub(super) fn confirm(confirmed: bool, questions: &[String]) -> Result<(), Failure> {
    if confirmed || questions.is_empty() {
        return Ok(());
    }
    for question in questions {
        if !Terminal::confirm(question)? {
            return Err(Failure::failed("not confirmed: nothing was written").help(
                "stop the controller or node, or connect it to the new etcd, then run the command again",
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_api_types::timing::Timings;

    #[test]
    fn backup_questions_cover_every_controller_and_node() {
        let keys = Keys::new("lab");
        let timings = Timings { io_drain_ms: 600_000, ..Timings::default() };
        let mut report =
            serde_json::to_value(NodeReport { timings, ..NodeReport::default() }).expect("sound");
        // Unknown values of a later version must not hide the timings.
        report["mode"] = serde_json::json!({"kind": "Novel"});
        let report = report.to_string();
        let values = [
            (keys.candidate(&"c1".into()), "{}"),
            (keys.candidate(&"c2".into()), "{}"),
            (keys.fence(&"n1".into()), "{}"),
            (keys.node_report(&"n1".into()), report.as_str()),
            (keys.fence(&"n2".into()), "not even JSON"),
            (keys.incarnation(), r#"{"value": "a"}"#),
            (keys.leader(), "{}"),
        ];
        let values = values.map(|(key, value)| (key, value.to_owned()));
        let facts = BackupFacts::collect(&keys, &values);
        assert!(facts.longest_fencing_delay_ms >= Some(600_000), "{facts:?}");
        assert_eq!(facts.incarnation.as_ref().map(|incarnation| incarnation.value.as_str()), Some("a"));
        let questions = facts.questions("lab", false);
        assert_eq!(questions.len(), 4);
        for name in ["controller c1", "controller c2", "node n1", "node n2"] {
            assert!(questions.iter().any(|question| question.contains(name)), "{name}: {questions:?}");
        }
        assert_eq!(BackupFacts::default().questions("lab", true).len(), 1);
        assert!(confirm(true, &questions).is_ok());
    }
}
