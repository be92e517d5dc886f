//! The GitSync object, in which `hactl sync` publishes the outcome of its passes.

use super::git::short;
use super::{Sync, SyncPass};
use crate::client::{Client, WriteMode};
use crate::duration;
use crate::failure::Failure;
use crate::merge;
use crate::object::TypedObject;
use ha_api_types::git_sync::{Drift, GitSync, GitSyncSpec, GitSyncStatus, MAX_DRIFT};
use ha_api_types::kind::Kind;
use ha_api_types::meta::{Condition, ConditionStatus};
use ha_api_types::reason::Reason;
use serde_json::{Value, json};

/// Longest message of a condition, in characters.
const MAX_MESSAGE_LENGTH: usize = 1000;
/// Number of drifted objects that the message of a condition names.
const NAMED_OBJECTS: usize = 3;

/// The object as it was read before a pass.
pub(super) struct PublishedStatus {
    object: TypedObject<GitSyncSpec>,
}

impl PublishedStatus {
    /// Reads the object. It is created if it does not exist, and updated if the flags differ from its spec.
    pub(super) async fn read(client: &Client, flags: &Sync) -> Result<PublishedStatus, Failure> {
        let kind = Kind::GitSync;
        let spec = GitSyncSpec {
            repository: flags.git.clone(),
            branch: flags.branch.clone().unwrap_or_default(),
            path: flags.path.clone(),
            interval_seconds: (!flags.once)
                .then(|| u32::try_from(flags.interval.as_secs()).unwrap_or(u32::MAX)),
            verify_signatures: flags.verify_signatures,
            comment: String::new(),
        };
        let Some(live) = client.get(kind, &flags.name).await? else {
            let object = json!(GitSync::new(&flags.name, spec));
            let created = client.create(kind, &object, WriteMode::Persist).await?;
            return Ok(PublishedStatus { object: TypedObject::from_value(created) });
        };
        let mut desired = json!({ "spec": spec });
        for field in ["branch", "intervalSeconds"] {
            // A merge patch removes a field with null. A comment of the operator stays.
            if desired["spec"].get(field).is_none() {
                desired["spec"][field] = Value::Null;
            }
        }
        let patch = merge::merge_patch(None, &desired, &live);
        let object = if patch == json!({}) {
            live
        } else {
            client.patch(kind, &flags.name, &patch, WriteMode::Persist).await?
        };
        Ok(PublishedStatus { object: TypedObject::from_value(object) })
    }

    fn status(&self) -> GitSyncStatus {
        self.object.status.clone().unwrap_or_default()
    }

    /// Returns the id of the commit that was applied last; empty if none was.
    pub(super) fn applied_revision(&self) -> &str {
        self.object.text_at("/status/appliedRevision")
    }

    /// Returns the number of objects in the files of the applied commit.
    pub(super) fn objects(&self) -> usize {
        usize::try_from(self.status().objects).unwrap_or_default()
    }

    /// Writes the outcome of a pass to the status.
    pub(super) async fn report(&self, client: &Client, pass: &SyncPass) -> Result<(), Failure> {
        let mut status = json!(status_after(&self.status(), pass, self.object.metadata.generation));
        // A merge patch removes a field with null.
        for field in ["revision", "appliedRevision", "appliedTime", "drift"] {
            if status.get(field).is_none() {
                status[field] = Value::Null;
            }
        }
        client.patch_status(Kind::GitSync, self.object.name(), &status).await?;
        Ok(())
    }
}

fn status_after(before: &GitSyncStatus, pass: &SyncPass, generation: i64) -> GitSyncStatus {
    let now = duration::now();
    let condition = |kind: &str, status: ConditionStatus, reason: Reason, message: String| Condition {
        kind: kind.to_owned(),
        status,
        reason,
        message: message.chars().take(MAX_MESSAGE_LENGTH).collect(),
        last_transition_time: None,
        observed_generation: generation,
    };
    let ready = if let Some((reason, failure)) = &pass.failure {
        condition("Ready", ConditionStatus::False, *reason, failure.message.replace('\n', "; "))
    } else {
        let plural = if pass.objects == 1 { "object" } else { "objects" };
        let commit = short(&pass.applied_revision);
        let message = format!("Commit {commit} is applied ({} {plural})", pass.objects);
        condition("Ready", ConditionStatus::True, Reason::CommitApplied, message)
    };
    let drifted = if pass.drift.is_empty() {
        condition("Drifted", ConditionStatus::False, Reason::NoDrift, String::new())
    } else {
        condition("Drifted", ConditionStatus::True, Reason::DriftCorrected, drift_message(&pass.drift))
    };
    let is_same = before.applied_revision == pass.applied_revision;
    GitSyncStatus {
        observed_generation: generation,
        revision: if pass.revision.is_empty() { before.revision.clone() } else { pass.revision.clone() },
        applied_revision: pass.applied_revision.clone(),
        applied_time: if is_same { before.applied_time.clone() } else { Some(now.clone()) },
        checked_time: Some(now),
        objects: u32::try_from(pass.objects).unwrap_or(u32::MAX),
        drift: pass.drift.iter().take(MAX_DRIFT).cloned().collect(),
        conditions: vec![drifted, ready],
    }
}

/// Returns the message about drifted objects, with the first ones.
fn drift_message(drift: &[Drift]) -> String {
    let named: Vec<String> = drift
        .iter()
        .take(NAMED_OBJECTS)
        .map(|drift| format!("{}/{}: {}", drift.kind.singular(), drift.name, drift.sentence()))
        .collect();
    let others = drift.len().saturating_sub(NAMED_OBJECTS);
    let others = if others == 0 { String::new() } else { format!("; and {others} more") };
    format!("{}{others}", named.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drift(name: &str) -> Drift {
        let (fields, users) = (vec!["spec.group".to_owned()], vec!["ada".to_owned()]);
        let managers = vec!["hactl".to_owned()];
        Drift { kind: Kind::Resource, name: name.to_owned(), fields, users, managers, deleted: false }
    }

    #[test]
    fn conditions_show_the_outcome_of_a_pass() {
        let check = |pass: &SyncPass, expected: [(&str, &str); 2]| {
            let status = status_after(&GitSyncStatus::default(), pass, 2);
            let conditions: Vec<_> =
                status.conditions.iter().map(|held| (held.reason.as_str(), held.message.as_str())).collect();
            assert_eq!(conditions, expected);
        };
        let mut pass =
            SyncPass { revision: "0123456789abcdef".to_owned(), objects: 2, ..SyncPass::default() };
        pass.applied_revision.clone_from(&pass.revision);
        check(&pass, [("NoDrift", ""), ("CommitApplied", "Commit 0123456789 is applied (2 objects)")]);
        pass.drift = ["a", "b", "c", "d", "e"].map(drift).to_vec();
        let changed = "spec.group changed by ada (hactl)";
        let message =
            format!("resource/a: {changed}; resource/b: {changed}; resource/c: {changed}; and 2 more");
        pass.failure = Some((Reason::CommitRefused, Failure::failed("web.yaml:3: bad\nweb.yaml:4: worse")));
        check(&pass, [("DriftCorrected", &message), ("CommitRefused", "web.yaml:3: bad; web.yaml:4: worse")]);
    }
}
