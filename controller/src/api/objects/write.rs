//! Create, replace, patch and server-side apply of objects.

use super::{json_body, yaml};
use crate::api::admission::{Admitted, Context, admit, check_creatable};
use crate::api::answer::{self, Shape};
use crate::api::audit::{Change, Changes};
use crate::api::authentication::User;
use crate::api::authorization::{self, Attributes};
use crate::api::commit::{Written, commit};
use crate::api::error::ApiError;
use crate::api::read::{self, KeyContent, Stored};
use crate::api::request::{Parameters, manager, media_type, read_body};
use crate::api::reservation::gate;
use crate::api::server_side_apply::Author;
use crate::api::{
    ApiState, convert, definition, dependency_cycle, identity, patch, server_side_apply, upgrade, warnings,
};
use crate::core::commands::maintenance_refusal;
use axum::body::Body;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use ha_api_types::cluster::CLUSTER_NAME;
use ha_api_types::document;
use ha_api_types::error_reason::ErrorReason;
use ha_api_types::id::{ObjectUid, Revision};
use ha_api_types::kind::Kind;
use ha_api_types::names;
use ha_api_types::node::NodeStatus;
use ha_api_types::operation::{OperationAction, OperationSpec};
use ha_api_types::problem::Problem;
use ha_api_types::renamed;
use ha_api_types::table::Rows;
use ha_api_types::time::Timestamp;
use ha_store::{Guard, Store, Transaction};
use serde_json::Value;

/// Maximum number of attempts of a patch when other writes come first.
const MAX_ATTEMPTS: usize = 8;

/// Rules for a change of an existing object.
#[derive(Clone, Copy, Debug, Default)]
struct Options {
    /// The client sent the resourceVersion that it has read, so no other change is allowed since, not even of the
    /// status.
    guarded: bool,
    /// Create the object if it does not exist (server-side apply).
    create_missing: bool,
}

/// State that all writes of one request share.
pub(super) struct Writer<'a, S> {
    pub(super) state: &'a ApiState<S>,
    pub(super) kind: Kind,
    parameters: &'a Parameters,
    shape: Shape,
    pub(super) manager: String,
    user: User,
    changes: Changes,
    now: Timestamp,
    fresh_uid: ObjectUid,
    /// Warnings about earlier names of fields in the request.
    renamed: Vec<String>,
}

impl<'a, S: Store> Writer<'a, S> {
    fn new(
        state: &'a ApiState<S>,
        kind: Kind,
        parameters: &'a Parameters,
        parts: &Parts,
    ) -> Result<Writer<'a, S>, ApiError> {
        Ok(Writer {
            state,
            kind,
            parameters,
            shape: Shape::of(&parts.headers, parameters, Rows::Of(kind))?,
            manager: manager(parameters, &parts.headers),
            user: User::of_request(parts),
            changes: Changes::of_request(parts),
            now: state.timestamp(),
            fresh_uid: uuid::Uuid::new_v4().to_string().into(),
            renamed: Vec::new(),
        })
    }

    /// Converts an object or a merge patch of the request to the current names of its fields.
    fn accept(&mut self, value: &mut Value) -> Result<(), ApiError> {
        let renamed_fields = renamed::convert_to_current_names(self.kind, value).map_err(|problems| {
            let name = value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            ApiError::invalid(self.kind, name, &problems)
        })?;
        self.renamed = renamed_fields.iter().map(|renamed| renamed.warning()).collect();
        Ok(())
    }

    pub(super) fn context<'b>(&'b self, manager: Option<&'b str>) -> Context<'b> {
        Context {
            kind: self.kind,
            field_validation: self.parameters.field_validation,
            manager,
            requester: &self.user.name,
            now: &self.now,
            fresh_uid: &self.fresh_uid,
        }
    }

    /// Admits a proposal. A resource that a node-affinity rule places loses its group.
    async fn admit(
        &self,
        manager: Option<&str>,
        current: Option<&Stored>,
        mut proposed: Value,
        duplicates: &[String],
    ) -> Result<Admitted, ApiError> {
        let new_warnings = match self.kind {
            Kind::Resource => convert::convert_resource(self.state, &mut proposed).await,
            Kind::Group
            | Kind::AffinityRule
            | Kind::Node
            | Kind::NodeGroup
            | Kind::Cluster
            | Kind::Operation
            | Kind::GitSync => Vec::new(),
        };
        let mut admitted = admit(&self.context(manager), current, proposed, duplicates)?;
        upgrade::check(self.state, self.kind, current, &admitted).await?;
        admitted.warnings.extend(new_warnings);
        admitted.warnings.extend(self.renamed.iter().cloned());
        let stored = current.map(|current| &current.spec.value);
        let problems = self.state.options().limits.problems(self.kind, stored, &admitted.value);
        if !problems.is_empty() {
            return Err(ApiError::invalid(self.kind, &admitted.name, &problems));
        }
        if let (Kind::Resource, Some(agents)) = (self.kind, self.state.agents()) {
            let new_warnings = agents.check(&admitted.name, current, &admitted.value).await?;
            admitted.warnings.extend(new_warnings);
        }
        Ok(admitted)
    }

    /// Returns the warnings about an object that was stored, or would be in a dry run.
    async fn warnings(&self, name: &str, value: &Value) -> Vec<String> {
        let dry_run = self.parameters.dry_run;
        let mut new_warnings = warnings::object_warnings(self.state, self.kind, name, value, dry_run).await;
        if self.kind == Kind::AffinityRule {
            new_warnings.extend(convert::convert_resources_of_rule(self.state, name, value, dry_run).await);
        }
        new_warnings
    }

    /// Stores a new object, or only returns it in a dry run.
    async fn insert(&self, admitted: Admitted) -> Result<Response, ApiError> {
        let Admitted { name, value, mut warnings } = admitted;
        check_creatable(self.kind, &name)?;
        self.require_content(&name, None, &value)?;
        dependency_cycle::check(self.state, self.kind, &name, None, &value).await?;
        identity::check(self.state, self.kind, &name, None, &value).await?;
        warnings.extend(gate::check(self.state, self.kind, &name, None, &value).await?);
        let key = self.state.keys().spec(self.kind, &name);
        let revision = if self.parameters.dry_run {
            if read::get(self.state.store(), self.state.keys(), self.kind, &name).await?.is_some() {
                return Err(ApiError::already_exists(self.kind, &name));
            }
            Revision::default()
        } else {
            let bytes = read::bytes(self.kind, &value)?;
            self.insert_new(&key, &name, &value, &bytes).await?
        };
        self.record_change(&value, None, revision);
        warnings.extend(self.warnings(&name, &value).await);
        let object = read::object(self.kind, &value, None, revision);
        Ok(self.response(object, StatusCode::CREATED, &warnings))
    }

    /// Stores a new object's value under its key.
    async fn insert_new(
        &self,
        key: &str,
        name: &str,
        value: &Value,
        bytes: &[u8],
    ) -> Result<Revision, ApiError> {
        for _ in 0..MAX_ATTEMPTS {
            let transaction = Transaction::new().put(key, Guard::Absent, bytes.to_vec());
            let transaction = self.with_requested_state(value, transaction).await?;
            let is_single_write = transaction.writes().len() == 1;
            match commit(self.state.store(), transaction, key, Some(bytes)).await? {
                Written::Applied(revision) => return Ok(revision),
                Written::Conflict if is_single_write => {
                    return Err(ApiError::already_exists(self.kind, name));
                }
                // The name is taken, or another write changed the resource: reading again distinguishes the two.
                Written::Conflict => {
                    if read::get(self.state.store(), self.state.keys(), self.kind, name).await?.is_some() {
                        return Err(ApiError::already_exists(self.kind, name));
                    }
                }
            }
        }
        Err(ApiError::conflict_after_change(self.kind, name))
    }

    /// Stores a new version of an object. With `guard_status`, neither spec nor status may have changed since they
    /// were read.
    ///
    /// Returns `None` if another write came first.
    async fn store(
        &self,
        current: &Stored,
        admitted: Admitted,
        guard_status: bool,
    ) -> Result<Option<Response>, ApiError> {
        let Admitted { name, value, mut warnings } = admitted;
        let status = current.status.as_ref();
        let mut stored = Stored { spec: current.spec.clone(), status: status.cloned() };
        if value != current.spec.value {
            refuse_new_finalizers(self.kind, &name, &current.spec.value, &value)?;
            self.require_content(&name, Some(&current.spec.value), &value)?;
            self.refuse_maintenance(&name, current, &value).await?;
            dependency_cycle::check(self.state, self.kind, &name, Some(&current.spec.value), &value).await?;
            identity::check(self.state, self.kind, &name, Some(&current.spec.value), &value).await?;
            let new_warnings =
                gate::check(self.state, self.kind, &name, Some(&current.spec.value), &value).await?;
            warnings.extend(new_warnings);
            let guards = definition::check(self.state, self.kind, &name, current, &value).await?;
            let finished = value.pointer("/metadata/deletionTimestamp").is_some()
                && value.pointer("/metadata/finalizers").and_then(Value::as_array).is_none_or(Vec::is_empty);
            let key = self.state.keys().spec(self.kind, &name);
            let status_key = self.state.keys().status(self.kind, &name);
            let unchanged = Guard::Unchanged(current.spec.mod_revision);
            let status_guard = status.map_or(Guard::Absent, |status| Guard::Unchanged(status.mod_revision));
            if self.parameters.dry_run {
                stored.spec.value = value.clone();
            } else if finished {
                let transaction = Transaction::new().delete(&key, unchanged);
                let transaction = match status {
                    Some(_) => transaction.delete(&status_key, status_guard),
                    None => transaction.guard(&status_key, status_guard),
                };
                match commit(self.state.store(), transaction, &key, None).await? {
                    Written::Applied(revision) => stored.spec = key_content(&value, current, revision),
                    Written::Conflict => return Ok(None),
                }
            } else {
                let bytes = read::bytes(self.kind, &value)?;
                let mut transaction = Transaction::new().put(&key, unchanged, bytes.clone());
                if guard_status {
                    transaction = transaction.guard(&status_key, status_guard);
                }
                for (key, guard) in guards {
                    transaction = transaction.guard(key, guard);
                }
                match commit(self.state.store(), transaction, &key, Some(&bytes)).await? {
                    Written::Applied(revision) => stored.spec = key_content(&value, current, revision),
                    Written::Conflict => return Ok(None),
                }
            }
            self.record_change(&value, Some(current), stored.spec.mod_revision);
            warnings.extend(self.warnings(&name, &value).await);
        }
        Ok(Some(self.response(stored.object(self.kind), StatusCode::OK, &warnings)))
    }

    /// Returns the response with an object, as the user may read it.
    fn response(&self, object: Value, code: StatusCode, warnings: &[String]) -> Response {
        let object = self.user.secret_values(self.kind).in_object(object);
        answer::object_response(self.state, self.shape, object, code, warnings)
    }

    /// Records a write for the audit log.
    fn record_change(&self, value: &Value, before: Option<&Stored>, after: Revision) {
        let dry_run = self.parameters.dry_run;
        self.changes.add(Change {
            resource_version_before: before.map(Stored::resource_version),
            resource_version_after: (!dry_run).then_some(after),
            field_manager: self.manager.clone(),
            dry_run,
            ..Change::of(self.kind, value)
        });
    }

    /// Refuses an operation or a node if the user may not write its content.
    fn require_content(&self, name: &str, current: Option<&Value>, value: &Value) -> Result<(), ApiError> {
        let verb = if current.is_some() { "update" } else { "create" };
        let require = |subresource: &str| {
            authorization::require(&self.user, &Attributes::of_object(verb, self.kind, subresource, name))
        };
        match (self.kind, current) {
            (Kind::Operation, _) => {
                let spec = read::spec_of::<OperationSpec>(value);
                require(&format!("{:?}", spec.action))?;
                // A wrong statement leads to a second copy, like a wrong confirmation of a power-off.
                if spec.not_on.is_some() {
                    require(&format!("{:?}", OperationAction::ConfirmFenced))?;
                }
                Ok(())
            }
            (Kind::Node, Some(current)) if has_only_maintenance_changed(current, value) => {
                require("maintenance").or_else(|_| require(""))
            }
            // Server-side apply can also create a node.
            (Kind::Node, Some(_) | None) => require(""),
            (
                Kind::Resource
                | Kind::Group
                | Kind::AffinityRule
                | Kind::NodeGroup
                | Kind::Cluster
                | Kind::GitSync,
                _,
            ) => Ok(()),
        }
    }

    /// Refuses to begin maintenance of an unreachable node, or while the cluster is disarmed.
    async fn refuse_maintenance(&self, name: &str, current: &Stored, value: &Value) -> Result<(), ApiError> {
        let maintenance = |object: &Value| object.pointer("/spec/maintenance") == Some(&Value::Bool(true));
        if self.kind != Kind::Node || !maintenance(value) || maintenance(&current.spec.value) {
            return Ok(());
        }
        let state = current
            .status
            .as_ref()
            .and_then(|status| serde_json::from_value::<NodeStatus>(status.value.clone()).ok())
            .map(|status| status.state)
            .unwrap_or_default();
        let cluster = read::get(self.state.store(), self.state.keys(), Kind::Cluster, CLUSTER_NAME).await?;
        let disarmed = cluster.is_some_and(|cluster| {
            cluster.spec.value.pointer("/spec/disarmed").is_some_and(Value::is_string)
        });
        match maintenance_refusal(&name.into(), state, disarmed) {
            None => Ok(()),
            Some((reason, message)) => {
                let cause = (reason.as_str().to_owned(), "spec.maintenance".to_owned(), message.clone());
                Err(ApiError::new(ErrorReason::Conflict, message)
                    .with_object(self.kind, name)
                    .with_causes(vec![cause]))
            }
        }
    }

    /// Reads, changes and stores an object, until no other write interferes or the request's own precondition fails.
    async fn change(
        &self,
        name: &str,
        manager: Option<&'a str>,
        duplicates: &[String],
        build_object: impl Fn(Option<&Value>) -> Result<Value, ApiError>,
        options: Options,
    ) -> Result<Response, ApiError> {
        for _ in 0..MAX_ATTEMPTS {
            let current = match read::find(self.state.store(), self.state.keys(), self.kind, name).await {
                Ok(current) => current,
                Err(error) if options.create_missing && error.is_not_found() => {
                    let proposed = build_object(None)?;
                    let admitted = self.admit(manager, None, proposed, duplicates).await?;
                    check_named(names::without_type(name), &admitted)?;
                    match self.insert(admitted).await {
                        Err(error) if error.is_already_exists() => continue,
                        other => return other,
                    }
                }
                Err(error) => return Err(error),
            };
            let object = current.object(self.kind);
            let proposed = build_object(Some(&object))?;
            let version = |object: &Value| {
                object
                    .pointer("/metadata/resourceVersion")
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };
            let requested_version = version(&proposed);
            if !requested_version.is_empty() && requested_version != version(&object) {
                return Err(ApiError::conflict_after_change(self.kind, name));
            }
            let admitted = self.admit(manager, Some(&current), proposed, duplicates).await?;
            match self.store(&current, admitted, options.guarded).await? {
                Some(response) => return Ok(response),
                None if options.guarded => return Err(ApiError::conflict_after_change(self.kind, name)),
                None => {}
            }
        }
        Err(ApiError::conflict_after_change(self.kind, name))
    }
}

fn key_content(value: &Value, current: &Stored, revision: Revision) -> KeyContent {
    KeyContent { value: value.clone(), create_revision: current.spec.create_revision, mod_revision: revision }
}

/// Returns `true` if a new version of a node differs only in its maintenance and in whether services may be scheduled.
fn has_only_maintenance_changed(current: &Value, value: &Value) -> bool {
    let without_maintenance = |node: &Value| {
        let mut node = node.clone();
        for (parent, fields) in [
            ("/spec", ["maintenance", "unschedulable"].as_slice()),
            ("/metadata", &["generation", "managedFields", "resourceVersion"]),
        ] {
            if let Some(Value::Object(parent)) = node.pointer_mut(parent) {
                parent.retain(|name, _| !fields.contains(&name.as_str()));
            }
        }
        node
    };
    without_maintenance(current) == without_maintenance(value)
}

fn check_named(name: &str, admitted: &Admitted) -> Result<(), ApiError> {
    if admitted.name == name {
        return Ok(());
    }
    Err(ApiError::bad_request(format!(
        "the name of the object ({}) does not match the name on the URL ({name})",
        admitted.name
    )))
}

pub(super) async fn create<S: Store>(
    state: &ApiState<S>,
    kind: Kind,
    parameters: &Parameters,
    parts: &Parts,
    body: Body,
) -> Result<Response, ApiError> {
    let mut writer = Writer::new(state, kind, parameters, parts)?;
    let mut read = json_body(parts, body).await?;
    writer.accept(&mut read.value)?;
    let admitted = writer.admit(Some(&writer.manager), None, read.value, &read.duplicates).await?;
    writer.insert(admitted).await
}

/// Handles PUT of a whole object. With a resourceVersion, it replaces only the version that the client has read.
pub(super) async fn replace<S: Store>(
    state: &ApiState<S>,
    kind: Kind,
    name: &str,
    parameters: &Parameters,
    parts: &Parts,
    body: Body,
) -> Result<Response, ApiError> {
    let mut writer = Writer::new(state, kind, parameters, parts)?;
    let mut read = json_body(parts, body).await?;
    writer.accept(&mut read.value)?;
    let options = Options { guarded: names_version(&read.value), create_missing: false };
    let build_object = |_: Option<&Value>| Ok(read.value.clone());
    writer.change(name, Some(&writer.manager), &read.duplicates, build_object, options).await
}

/// Handles PATCH, by the body's media type.
pub(super) async fn patch<S: Store>(
    state: &ApiState<S>,
    kind: Kind,
    name: &str,
    parameters: &Parameters,
    parts: &Parts,
    body: Body,
) -> Result<Response, ApiError> {
    let mut writer = Writer::new(state, kind, parameters, parts)?;
    let bytes = read_body(body).await?;
    let json = || document::json(&bytes).map_err(|error| ApiError::bad_request(error.message));
    match media_type(&parts.headers) {
        "application/merge-patch+json" => {
            let mut read = json()?;
            writer.accept(&mut read.value)?;
            let options = Options { guarded: names_version(&read.value), create_missing: false };
            let build_object = |live: Option<&Value>| patch::merge(live.unwrap_or(&Value::Null), &read.value);
            writer.change(name, Some(&writer.manager), &read.duplicates, build_object, options).await
        }
        "application/json-patch+json" => {
            let mut read = json()?;
            let renamed_fields = renamed::convert_json_patch_to_current_names(kind, &mut read.value);
            writer.renamed = renamed_fields.iter().map(|renamed| renamed.warning()).collect();
            let build_object = |live: Option<&Value>| {
                // A whole map in the patch may have earlier names, too.
                let mut patched = patch::json(live.unwrap_or(&Value::Null), &read.value)?;
                renamed::convert_to_current_names(kind, &mut patched)
                    .map_err(|problems| ApiError::invalid(kind, name, &problems))?;
                Ok(patched)
            };
            writer
                .change(name, Some(&writer.manager), &read.duplicates, build_object, Options::default())
                .await
        }
        "application/apply-patch+yaml" | "application/apply-patch+json" => {
            if parameters.field_manager.is_none() {
                return Err(ApiError::bad_request("fieldManager is required for apply: add it to the query"));
            }
            let mut read = yaml(&bytes)?;
            writer.accept(&mut read.value)?;
            writer.apply(name, &read).await
        }
        other => Err(ApiError::unsupported_media_type(
            other,
            &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"],
        )),
    }
}

fn names_version(value: &Value) -> bool {
    value.pointer("/metadata/resourceVersion").and_then(Value::as_str).is_some_and(|text| !text.is_empty())
}

impl<S: Store> Writer<'_, S> {
    async fn apply(&self, name: &str, read: &document::Json) -> Result<Response, ApiError> {
        let configuration = &read.value;
        let has_metadata = configuration.get("metadata").is_some_and(Value::is_object);
        if !has_metadata {
            return Err(ApiError::bad_request(
                "an applied configuration requires apiVersion, kind and metadata.name",
            ));
        }
        if configuration.pointer("/metadata/managedFields").is_some_and(|list| !list.is_null()) {
            return Err(ApiError::bad_request(
                "metadata.managedFields must be empty in an applied configuration",
            ));
        }
        let given_name = configuration.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        if !given_name.is_empty() && names::without_type(given_name) != names::without_type(name) {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({given_name}) does not match the name on the URL ({name})"
            )));
        }
        let mut configuration = configuration.clone();
        if let Some(map) = configuration.as_object_mut() {
            map.shift_remove("status");
        }
        // The URL names the object; a name with a type prefix denotes the same object.
        configuration["metadata"]["name"] = Value::from(names::without_type(name));
        let build_object = |live: Option<&Value>| {
            let applied = server_side_apply::apply(
                live,
                &configuration,
                Author { manager: &self.manager, user: &self.user.name },
                self.parameters.force,
                &self.now,
            );
            let mut applied = applied.map_err(|conflicts| refused(self.kind, name, conflicts))?;
            if let Some(version) = configuration.pointer("/metadata/resourceVersion") {
                applied["metadata"]["resourceVersion"] = version.clone();
            }
            Ok(applied)
        };
        let options = Options { guarded: names_version(&configuration), create_missing: true };
        self.change(name, None, &read.duplicates, build_object, options).await
    }
}

fn refused(kind: Kind, name: &str, conflicts: Vec<server_side_apply::Conflict>) -> ApiError {
    let list: Vec<String> = conflicts
        .iter()
        .map(|conflict| format!("conflict with {:?}: {}", conflict.manager, conflict.path))
        .collect();
    let count = conflicts.len();
    let plural = if count == 1 { "" } else { "s" };
    let text = format!("Apply failed with {count} conflict{plural}: {}", list.join(", "));
    let causes = conflicts
        .into_iter()
        .map(|conflict| {
            (
                "FieldManagerConflict".to_owned(),
                conflict.path,
                format!("conflict with {:?}", conflict.manager),
            )
        })
        .collect();
    ApiError::new(ErrorReason::Conflict, text).with_object(kind, name).with_causes(causes)
}

/// Refuses to add a finalizer to an object that is being deleted, because its deletion might then never end.
fn refuse_new_finalizers(kind: Kind, name: &str, current: &Value, value: &Value) -> Result<(), ApiError> {
    let finalizers = |object: &Value| -> Vec<Value> {
        object.pointer("/metadata/finalizers").and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let current_finalizers = finalizers(current);
    let is_deleted = current.pointer("/metadata/deletionTimestamp").is_some();
    if !is_deleted || finalizers(value).iter().all(|finalizer| current_finalizers.contains(finalizer)) {
        return Ok(());
    }
    let message = "no finalizer can be added: the object is being deleted";
    Err(ApiError::invalid(kind, name, &[Problem::invalid("metadata.finalizers", message)]))
}
