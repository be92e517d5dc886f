//! Invariants of writes: no write of a deposed leader is applied, and no acknowledged API write is lost.

use super::super::World;
use super::super::link::Request;
use super::super::process::Client;
use ha_api_types::id::Term;
use ha_api_types::keys::Key;
use ha_api_types::kind::Kind;
use serde_json::Value;

impl World {
    /// Returns the term in which a process acts as leader when it sends a request.
    pub(in crate::world) fn believed_term(&self, client: &Client) -> Option<Term> {
        match client {
            Client::Agent(_) => None,
            Client::Controller(node) => self.controllers.get(node).and_then(|process| process.core.term()),
        }
    }

    /// Returns `true` if a request is a leader's write and its sender is not the leader when the request reaches etcd.
    pub(in crate::world) fn is_deposed_leader_write(
        &self,
        client: &Client,
        term: Option<Term>,
        request: &Request,
    ) -> bool {
        let (Client::Controller(_), Request::Commit(transaction)) = (client, request) else { return false };
        let needs_leadership = transaction.writes().keys().any(|key| match self.keys.parse(key) {
            Some(
                Key::Spec(..)
                | Key::Status(..)
                | Key::Assignment(_)
                | Key::Tombstone(_)
                | Key::Fence(_)
                | Key::NotificationRecord
                | Key::RestoreMarker
                | Key::Incarnation,
            ) => true,
            Some(
                Key::Leader
                | Key::Backup
                | Key::Candidate(_)
                | Key::Refresh(_)
                | Key::Alive(_)
                | Key::NodeReport(_)
                | Key::DoctorReport(_)
                | Key::UsageReport(_)
                | Key::ServiceReport(..)
                | Key::Event(..)
                | Key::LogRequest(..)
                | Key::JoinToken(..)
                | Key::IssuedCertificate(..)
                | Key::LogAnswer(..),
            )
            | None => false,
        });
        let reading = if needs_leadership { Some(self.store.get(&self.keys.leader())) } else { None };
        reading.is_some_and(|reading| {
            reading.entries.first().map(|entry| Term::created_at(entry.create_revision)) != term
                || term.is_none()
        })
    }

    /// Records that a write was acknowledged to the user.
    pub(in crate::world) fn acknowledge(&mut self, key: &str, value: &Value) {
        let spec_and_deletion = (value.get("spec").cloned(), is_deleted(value));
        self.acknowledged.insert(key.to_owned(), spec_and_deletion);
    }

    /// Checks that a stored object still has the spec and the deletion that were acknowledged.
    pub(super) fn check_spec(&mut self, key: &str, value: &[u8]) {
        let Ok(value) = serde_json::from_slice::<Value>(value) else {
            return self.record_violation("readable records", format!("{key} cannot be read"));
        };
        let is_lost = self.acknowledged.get(key).is_some_and(|(spec, deleted)| {
            !is_same_request(value.get("spec"), spec.as_ref()) || (*deleted && !is_deleted(&value))
        });
        if is_lost {
            self.record_violation(
                "no acknowledged write is lost",
                format!("{key} differs from the stored value"),
            );
        }
    }

    /// Checks that the deletion of an object was requested. The leader may also delete an operation that has ended.
    pub(super) fn check_spec_deleted(&mut self, kind: Kind, key: &str) {
        let is_lost = self.acknowledged.remove(key).is_some_and(|(_, deleted)| !deleted);
        if is_lost && kind != Kind::Operation {
            self.record_violation(
                "no acknowledged write is lost",
                format!("{key} is missing without a deletion"),
            );
        }
    }
}

/// Returns `true` if a stored spec equals the acknowledged spec. With `externalStop: Accept`, the requested state may
/// differ, because a change by hand changes it.
fn is_same_request(stored: Option<&Value>, acknowledged: Option<&Value>) -> bool {
    let without_state = |spec: Option<&Value>| {
        let mut spec = spec?.clone();
        let accepts_external_stop = spec.get("externalStop").is_some_and(|policy| policy == "Accept");
        if accepts_external_stop && let Some(fields) = spec.as_object_mut() {
            fields.remove("state");
        }
        Some(spec)
    };
    without_state(stored) == without_state(acknowledged)
}

fn is_deleted(value: &Value) -> bool {
    value.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null())
}
