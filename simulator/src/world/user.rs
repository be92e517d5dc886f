//! The user of a simulated cluster: applies objects and sends commands, which are stored as the API would store them.

use super::World;
use ha_api_types::id::{ControllerId, NodeName, ResourceName, Revision};
use ha_api_types::keys::Key;
use ha_api_types::kind::{API_VERSION, Kind};
use ha_api_types::operation::{Operation, OperationAction, OperationPhase, OperationSpec, OperationStatus};
use ha_api_types::record::{Assignment, Fence, ServiceReport};
use ha_api_types::renamed;
use ha_api_types::resource::{Resource, ResourceStatus};
use ha_api_types::timing::Timings;
use ha_api_types::validation;
use ha_controller::core::candidates;
use ha_controller::core::commands::{controller_deletion_refusal, names_node, node_deletion_refusal};
use ha_controller::core::definition_change::{BlockingRecords, refusal};
use ha_store::memory_state::MemoryState;
use ha_store::{Entry, Guard, Outcome, Transaction};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Sets a field by its path, such as `requests.memory`.
fn set_path(spec: &mut Value, path: &str, value: &Value) {
    match path.split_once('.') {
        None => spec[path] = value.clone(),
        Some((first, rest)) => {
            if !spec[first].is_object() {
                spec[first] = json!({});
            }
            set_path(&mut spec[first], rest, value);
        }
    }
}

impl World {
    /// Stores an object like an apply: a new object gets a uid, and a changed spec gets a new generation.
    pub(super) fn apply(&mut self, object: &Value) -> Result<(), String> {
        let kind = object
            .get("kind")
            .and_then(Value::as_str)
            .and_then(Kind::parse)
            .ok_or("kind is missing or unknown")?;
        let name =
            object.pointer("/metadata/name").and_then(Value::as_str).ok_or("metadata.name is missing")?;
        // The API refuses an invalid object and stores no part of it.
        if let Some(problem) = validation::problems(kind, object).first() {
            return Err(problem.to_string());
        }
        let key = self.keys.spec(kind, name);
        let existing_entry = self.store.get(&key).entries.first().cloned();
        let mut stored = if let Some(entry) = &existing_entry {
            serde_json::from_slice::<Value>(&entry.value).map_err(|error| error.to_string())?
        } else {
            self.uid_count += 1;
            let finalizers = if kind == Kind::Resource { json!(["hactl.io/managed"]) } else { json!([]) };
            json!({
                "apiVersion": API_VERSION, "kind": kind.name(),
                "metadata": {
                    "name": name, "uid": format!("uid-{}", self.uid_count), "generation": 0,
                    "creationTimestamp": self.timestamp(),
                    "finalizers": finalizers,
                },
            })
        };
        let mut object = object.clone();
        renamed::to_stored(kind, &mut object);
        let spec = object.get("spec").cloned().unwrap_or_else(|| Value::Object(Map::new()));
        if existing_entry.is_some() && kind == Kind::Resource {
            self.check_definition(&name.into(), &stored, &spec)?;
        }
        if stored.get("spec") != Some(&spec) {
            stored["spec"] = spec;
            let generation = stored.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0);
            stored["metadata"]["generation"] = json!(generation + 1);
        }
        self.put_object(&key, existing_entry.map(|entry| entry.mod_revision), &stored)
    }

    /// Refuses a change of the identity or of `exclusive` while a copy may exist, as the API does.
    fn check_definition(&self, name: &ResourceName, stored: &Value, spec: &Value) -> Result<(), String> {
        let mut changed = stored.clone();
        changed["spec"] = spec.clone();
        let read = |value: &Value| serde_json::from_value::<Resource>(value.clone()).ok();
        let (Some(before), Some(changed)) = (read(stored), read(&changed)) else { return Ok(()) };
        let status: Option<ResourceStatus> = self.status_of(Kind::Resource, name);
        let mut reported = Vec::new();
        for entry in self.store.list(&self.keys.reports()).entries {
            if let Some(Key::ServiceReport(node, service)) = self.keys.parse(&entry.key)
                && service == *name
                && self
                    .read_record::<ServiceReport>(&entry.key)
                    .is_some_and(|report| report.uid == before.metadata.uid && report.phase.may_run())
            {
                reported.push(node.clone());
            }
        }
        let blocking_records = BlockingRecords {
            assigned: self
                .read_record::<Assignment>(&self.keys.assignment(name))
                .map(|assignment| assignment.node.to_string()),
            reported,
            has_tombstone: !self.store.get(&self.keys.tombstone(name)).entries.is_empty(),
        };
        refusal(&before, &changed, status.as_ref(), &blocking_records)
            .map_or(Ok(()), |refusal| Err(refusal.message))
    }

    /// Writes a value as the API does.
    ///
    /// Errors: the write was not applied, or not confirmed.
    fn put_object(&mut self, key: &str, revision: Option<Revision>, value: &Value) -> Result<(), String> {
        let guard = revision.map_or(Guard::Absent, Guard::Unchanged);
        let revision_before = self.store.revision();
        let transaction = Transaction::new().put(key, guard, value.to_string().into_bytes());
        let outcome = self.store.commit(&transaction);
        // Without space, etcd may have applied a write that it answers with an error.
        if self.store.revision() != revision_before {
            self.acknowledge(key, value);
        }
        self.handle_commit(revision_before + 1);
        match outcome {
            Outcome::Applied(_) => Ok(()),
            Outcome::Conflict(_) => Err("object has changed in the meantime".to_owned()),
            Outcome::LeaseNotFound => Err("lease no longer exists".to_owned()),
            Outcome::Refused(text) | Outcome::Unknown(text) => Err(text),
        }
    }

    /// Changes fields of a spec.
    pub(super) fn change_spec(
        &mut self,
        kind: Kind,
        name: &str,
        fields: &[(String, Value)],
    ) -> Result<(), String> {
        let stored_entry = self.stored_spec(kind, name)?;
        let (_, mut stored) = stored_entry.ok_or_else(|| format!("{kind} {name} not found"))?;
        renamed::from_stored(kind, &mut stored);
        for (field, value) in fields {
            set_path(&mut stored["spec"], field, value);
        }
        self.apply(&stored)
    }

    /// Requests the deletion of a resource.
    pub(super) fn delete(&mut self, name: &ResourceName) -> Result<(), String> {
        let stored_entry = self.stored_spec(Kind::Resource, name)?;
        let (entry, mut stored) = stored_entry.ok_or_else(|| format!("resource {name} not found"))?;
        stored["metadata"]["deletionTimestamp"] = json!(self.timestamp());
        self.put_object(&entry.key, Some(entry.mod_revision), &stored)
    }

    /// Returns the entry of an object, and its value in its form in etcd; `None` if the object does not exist.
    fn stored_spec(&self, kind: Kind, name: &str) -> Result<Option<(Entry, Value)>, String> {
        let Some(entry) = self.store.get(&self.keys.spec(kind, name)).entries.into_iter().next() else {
            return Ok(None);
        };
        let stored = serde_json::from_slice(&entry.value).map_err(|error| error.to_string())?;
        Ok(Some((entry, stored)))
    }

    /// Deletes a Node object if the API would allow it. Its status stays, and shows Gone.
    pub(super) fn delete_node(&mut self, node: &NodeName) -> Result<(), String> {
        let key = self.keys.spec(Kind::Node, node);
        let entry =
            self.store.get(&key).entries.first().cloned().ok_or_else(|| format!("node {node} not found"))?;
        let fence_key = self.keys.fence(node);
        let fence = self.store.get(&fence_key).entries.first().cloned();
        let state = fence.as_ref().and_then(|entry| serde_json::from_slice::<Fence>(&entry.value).ok());
        let assignments = self.store.list(&self.keys.assignments()).entries;
        let resource_names: Vec<&str> = assignments
            .iter()
            .filter(|entry| {
                names_node(serde_json::from_slice::<Assignment>(&entry.value).ok().as_ref(), node)
            })
            .filter_map(|entry| entry.key.rsplit('/').next())
            .collect();
        if let Some(refusal) = node_deletion_refusal(node, state.map(|fence| fence.state), &resource_names) {
            return Err(refusal);
        }
        // The user requested this deletion.
        self.acknowledged.remove(&key);
        let revision_before = self.store.revision();
        let guard = fence.map_or(Guard::Absent, |entry| Guard::Unchanged(entry.mod_revision));
        let transaction =
            Transaction::new().delete(key, Guard::Unchanged(entry.mod_revision)).guard(fence_key, guard);
        self.store.commit(&transaction);
        self.handle_commit(revision_before + 1);
        Ok(())
    }

    /// Deletes the keys of a controller, unless they were refreshed recently.
    pub(super) fn delete_controller(&mut self, id: &ControllerId) -> Result<(), String> {
        let first_entry = |store: &MemoryState, key: String| store.get(&key).entries.into_iter().next();
        let candidate = first_entry(&self.store, self.keys.candidate(id))
            .ok_or_else(|| format!("controller {id} not found"))?;
        let refresh = first_entry(&self.store, self.keys.refresh(id)).map(|entry| entry.mod_revision);
        let heartbeat_age_ms = self.refreshed_at.get(id).map(|at| self.now - at);
        let valid_ms = Timings::from(&self.scenario.timing).heartbeat_valid_ms;
        if let Some(refusal) = controller_deletion_refusal(id, heartbeat_age_ms, valid_ms) {
            return Err(refusal);
        }
        let revision_before = self.store.revision();
        self.store.commit(&candidates::controller_deletion(&self.keys, id, candidate.mod_revision, refresh));
        self.handle_commit(revision_before + 1);
        Ok(())
    }

    /// Creates an operation. `text` is the step's text, for the list of refusals.
    pub(super) fn submit_operation(&mut self, text: &str, spec: OperationSpec) {
        self.uid_count += 1;
        let name = format!("op-{}", self.uid_count);
        let mut operation =
            Operation::new(&name, OperationSpec { requested_by: "operator".to_owned(), ..spec });
        operation.metadata.uid = format!("uid-{}", self.uid_count).into();
        operation.metadata.generation = 1;
        operation.metadata.creation_timestamp = Some(self.timestamp());
        let key = self.keys.spec(Kind::Operation, &name);
        if let Ok(value) = serde_json::to_value(&operation)
            && let Err(problem) = self.put_object(&key, None, &value)
        {
            self.log(&"script".into(), "", &format!("{text} is refused: {problem}"));
            self.refused_commands.push((text.to_owned(), None));
            return;
        }
        self.refused_commands.push((text.to_owned(), Some(name.clone())));
        self.operations.insert(name, text.to_owned());
    }

    pub(super) fn submit_resource_operation(
        &mut self,
        text: &str,
        action: OperationAction,
        resource: &ResourceName,
        node: Option<&NodeName>,
    ) {
        let spec = OperationSpec {
            action,
            resource: Some(resource.to_string()),
            node: node.cloned(),
            ..OperationSpec::default()
        };
        self.submit_operation(text, spec);
    }

    /// Returns the commands that were refused, with the texts of their steps, in order.
    pub(crate) fn refusals(&self) -> Vec<String> {
        let is_refused = |name: &String| {
            self.operation_status(name).is_some_and(|status| status.phase == OperationPhase::Refused)
        };
        self.refused_commands
            .iter()
            .filter(|(_, operation)| operation.as_ref().is_none_or(is_refused))
            .map(|(text, _)| text.clone())
            .collect()
    }

    /// Returns `true` if an operation has not ended.
    pub(super) fn operations_pending(&self) -> bool {
        self.operations
            .keys()
            .any(|name| self.operation_status(name).is_none_or(|status| !status.phase.is_final()))
    }

    pub(super) fn operation_status(&self, name: &str) -> Option<OperationStatus> {
        self.status_of(Kind::Operation, name)
    }

    /// Returns the operations that have not ended, as texts of their steps.
    pub(crate) fn open_operations(&self) -> Vec<String> {
        let is_open =
            |name: &&String| self.operation_status(name).is_none_or(|status| !status.phase.is_final());
        self.operations.keys().filter(is_open).filter_map(|name| self.operations.get(name).cloned()).collect()
    }

    /// Returns the names of all stored resources.
    pub(crate) fn resource_names(&self) -> Vec<ResourceName> {
        self.names_of(Kind::Resource).into_iter().map(ResourceName::from).collect()
    }

    /// Returns the names of the stored objects of a kind.
    pub(crate) fn names_of(&self, kind: Kind) -> Vec<String> {
        let prefix = self.keys.specs_of(kind);
        let name = |key: &str| match self.keys.parse(key) {
            Some(Key::Spec(_, name)) => Some(name.to_owned()),
            Some(
                Key::Status(..)
                | Key::Assignment(_)
                | Key::Tombstone(_)
                | Key::Fence(_)
                | Key::NotificationRecord
                | Key::Backup
                | Key::RestoreMarker
                | Key::Incarnation
                | Key::Leader
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
            | None => None,
        };
        self.store.entries_of(&prefix).filter_map(|entry| name(&entry.key)).collect()
    }

    /// Returns a stored status.
    pub(crate) fn status_of<T: DeserializeOwned>(&self, kind: Kind, name: &str) -> Option<T> {
        self.read_record(&self.keys.status(kind, name))
    }

    /// Returns `true` if the object exists.
    pub(crate) fn is_stored(&self, kind: Kind, name: &str) -> bool {
        !self.store.get(&self.keys.spec(kind, name)).entries.is_empty()
    }

    /// Returns a stored object.
    pub(crate) fn spec_of(&self, kind: Kind, name: &str) -> Option<Value> {
        self.read_record(&self.keys.spec(kind, name))
    }

    /// Returns the value under a key of the store; `None` if it does not exist or cannot be read.
    pub(crate) fn read_record<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let reading = self.store.get(key);
        self.decoded_record(&reading.entries.first()?.value)
    }
}
