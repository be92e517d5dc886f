//! The API client: typed requests to the cluster, with failover to the next controller.

mod answer;
mod transport;
mod watch;

pub(crate) use answer::ApiError;
pub(crate) use transport::{Call, Client};
pub(crate) use watch::{Change, Watcher};

use crate::failure::{Exit, Failure};
use crate::names::{Target, name_of};
use ha_api_types::kind::Kind;
use ha_api_types::node::Node;
use ha_api_types::record::LOG_PATIENCE_MS;
use ha_api_types::view::{
    Explanation, Overview, Plan, PlanRequest, ReservationReport, StateDump, UsageOverview,
};
use ha_scheduler::View;
use reqwest::Method;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::time::Duration;

/// Time for the answer with a log: that of the server for the agent's answer, and some more for its other requests.
const LOG_PATIENCE: Duration = Duration::from_millis(LOG_PATIENCE_MS + 5_000);

/// Whether a write takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Commitment {
    /// The server writes the change.
    Real,
    /// The server runs all admission and writes nothing.
    DryRun,
}

/// A collection of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collection {
    /// Objects of one of the project's kinds.
    Kind(Kind),
    /// Events, in core/v1.
    Events,
}

impl Collection {
    /// Returns the name of one object's kind, as in `resource/web`.
    pub(crate) fn singular(self) -> &'static str {
        match self {
            Collection::Kind(kind) => kind.singular(),
            Collection::Events => "event",
        }
    }

    /// Returns the name of the collection.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Collection::Kind(kind) => kind.plural(),
            Collection::Events => "events",
        }
    }

    fn path(self) -> Vec<String> {
        let parts: &[&str] = match self {
            Collection::Kind(kind) => &["apis", "hactl.io", "v1", kind.plural()],
            Collection::Events => &["api", "v1", "events"],
        };
        parts.iter().map(|part| (*part).to_owned()).collect()
    }
}

/// The form in which the server sends objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The objects.
    Objects,
    /// Rows of a Table. An item is the object that the row includes, by default its metadata, with the row as `cells`.
    Rows,
}

impl Form {
    /// Returns the media type to ask for.
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Form::Objects => "application/json",
            Form::Rows => "application/json;as=Table;v=v1;g=meta.k8s.io",
        }
    }

    /// Takes the items out of a list or, in the form of rows, a Table; `None` if the response has another form.
    fn items(self, response: &mut Value) -> Option<Vec<Value>> {
        let field = match self {
            Form::Objects => "items",
            Form::Rows => "rows",
        };
        let items = response.get_mut(field)?.as_array_mut()?.drain(..);
        Some(match self {
            Form::Objects => items.collect(),
            Form::Rows => items.map(row).collect(),
        })
    }
}

/// Returns the object of a row with the row's `cells`.
fn row(mut row: Value) -> Value {
    let mut object = match take(&mut row, "object") {
        Value::Object(object) => object,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    };
    object.insert("cells".to_owned(), take(&mut row, "cells"));
    Value::Object(object)
}

/// Takes a field out of a value; null if there is none.
fn take(value: &mut Value, field: &str) -> Value {
    value.get_mut(field).map(Value::take).unwrap_or_default()
}

/// A list of objects, with the revision at which it was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct List {
    /// Objects in the server's order.
    pub(crate) items: Vec<Value>,
    /// `columnDefinitions` of rows; null for objects.
    pub(crate) columns: Value,
    /// `metadata.resourceVersion` of the list.
    pub(crate) resource_version: String,
}

impl Client {
    /// Returns an object; `None` if it does not exist.
    pub(crate) async fn get(&self, kind: Kind, name: &str) -> Result<Option<Value>, ApiError> {
        match self.call(&Call::new(Method::GET, object_path(kind, name))).await {
            Ok(object) => Ok(Some(object)),
            Err(ApiError::Status(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the object of a target, which must exist and have the type that the user typed.
    pub(crate) async fn target(&self, target: &Target) -> Result<Value, Failure> {
        let Some(object) = self.get(target.kind, &target.name.name).await? else {
            return Err(self.missing(target).await);
        };
        if target.kind == Kind::Resource {
            target.name.check(&object)?;
        }
        Ok(object)
    }

    /// Returns a node, which must exist.
    pub(crate) async fn node(&self, target: &Target) -> Result<Node, Failure> {
        read(self.target(target).await?)
    }

    /// Returns all nodes in the server's order.
    pub(crate) async fn nodes(&self) -> Result<Vec<Node>, Failure> {
        let list = self.list(Collection::Kind(Kind::Node), &[]).await?;
        list.items.into_iter().map(read).collect()
    }

    /// Returns an object in a form, as a list with one item. The object must exist and have the type that the user typed.
    pub(crate) async fn target_as(&self, target: &Target, form: Form) -> Result<List, Failure> {
        match form {
            Form::Objects => Ok(List { items: vec![self.target(target).await?], ..List::default() }),
            Form::Rows => {
                let call = Call::new(Method::GET, object_path(target.kind, &target.name.name))
                    .form(form)
                    .query("includeObject", "Object");
                match self.call(&call).await {
                    Ok(mut table) => {
                        let items = form.items(&mut table).unwrap_or_default();
                        for item in items.iter().filter(|_| target.kind == Kind::Resource) {
                            target.name.check(item)?;
                        }
                        Ok(List { items, columns: take(&mut table, "columnDefinitions"), ..List::default() })
                    }
                    Err(error) if error.is_status(404) => Err(self.missing(target).await),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }

    /// Returns all objects of a collection that match the selectors.
    pub(crate) async fn list(
        &self,
        collection: Collection,
        query: &[(&str, String)],
    ) -> Result<List, ApiError> {
        self.list_as(collection, query, Form::Objects).await
    }

    /// Returns all objects of a collection that match the selectors, in a form.
    pub(crate) async fn list_as(
        &self,
        collection: Collection,
        query: &[(&str, String)],
        form: Form,
    ) -> Result<List, ApiError> {
        let mut list = List::default();
        let mut next = String::new();
        loop {
            let mut call = Call::new(Method::GET, collection.path()).form(form).query("limit", "500");
            for (name, value) in query {
                call = call.query(name, value);
            }
            if !next.is_empty() {
                call = call.query("continue", &next);
            }
            let mut page = self.call(&call).await?;
            let items = form.items(&mut page);
            if items.is_none() && form == Form::Rows {
                let (server, message) = (call.describe(), "the response is not a table".to_owned());
                return Err(ApiError::Malformed { server, message });
            }
            list.items.extend(items.unwrap_or_default());
            if list.columns.is_null() {
                list.columns = take(&mut page, "columnDefinitions");
            }
            let metadata = |field: &str| page["metadata"][field].as_str().unwrap_or_default().to_owned();
            list.resource_version = metadata("resourceVersion");
            next = metadata("continue");
            if next.is_empty() {
                break;
            }
        }
        if let (Collection::Kind(kind), Form::Objects) = (collection, form) {
            // Items of a list may lack apiVersion and kind; later code relies on both.
            for item in &mut list.items {
                if let Some(item) = item.as_object_mut() {
                    item.entry("apiVersion").or_insert_with(|| ha_api_types::kind::API_VERSION.into());
                    item.entry("kind").or_insert_with(|| kind.name().into());
                }
            }
        }
        Ok(list)
    }

    pub(crate) async fn create(
        &self,
        kind: Kind,
        object: &Value,
        commitment: Commitment,
    ) -> Result<Value, ApiError> {
        let call = Call::new(Method::POST, Collection::Kind(kind).path());
        self.call(&write(call, "application/json", object, commitment)).await
    }

    /// Merges a patch (RFC 7396) into an object.
    pub(crate) async fn patch(
        &self,
        kind: Kind,
        name: &str,
        patch: &Value,
        commitment: Commitment,
    ) -> Result<Value, ApiError> {
        self.patch_as("application/merge-patch+json", kind, name, patch, commitment).await
    }

    /// Applies a patch of a media type to an object.
    pub(crate) async fn patch_as(
        &self,
        media_type: &'static str,
        kind: Kind,
        name: &str,
        patch: &Value,
        commitment: Commitment,
    ) -> Result<Value, ApiError> {
        let call = Call::new(Method::PATCH, object_path(kind, name));
        self.call(&write(call, media_type, patch, commitment)).await
    }

    /// Replaces an object, guarded by its resourceVersion.
    pub(crate) async fn replace(
        &self,
        kind: Kind,
        object: &Value,
        commitment: Commitment,
    ) -> Result<Value, ApiError> {
        let call = Call::new(Method::PUT, object_path(kind, name_of(object)));
        self.call(&write(call, "application/json", object, commitment)).await
    }

    /// Deletes an object, or only the object with this uid if one is given. Returns `false` if it did not exist.
    pub(crate) async fn delete(
        &self,
        kind: Kind,
        name: &str,
        uid: Option<&str>,
        commitment: Commitment,
    ) -> Result<bool, ApiError> {
        let mut options = serde_json::json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        if let Some(uid) = uid.filter(|uid| !uid.is_empty()) {
            options["preconditions"] = serde_json::json!({"uid": uid});
        }
        let mut call = Call::new(Method::DELETE, object_path(kind, name)).body("application/json", &options);
        if commitment == Commitment::DryRun {
            call = call.query("dryRun", "All");
        }
        match self.call(&call).await {
            Ok(_) => Ok(true),
            Err(ApiError::Status(status)) if status.code == 404 => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Deletes the key of a controller. Returns `false` if it did not exist.
    pub(crate) async fn delete_controller(&self, id: &str, commitment: Commitment) -> Result<bool, ApiError> {
        let mut call = Call::new(Method::DELETE, ours_path(&["controllers", id]));
        if commitment == Commitment::DryRun {
            call = call.query("dryRun", "All");
        }
        match self.call(&call).await {
            Ok(_) => Ok(true),
            Err(ApiError::Status(status)) if status.code == 404 => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the overview of the cluster.
    pub(crate) async fn overview(&self) -> Result<Overview, Failure> {
        self.ours(&Call::new(Method::GET, ours_path(&["status"]))).await
    }

    /// Returns the facts on which placement decisions are based.
    pub(crate) async fn placement(&self) -> Result<View, Failure> {
        self.ours(&Call::new(Method::GET, ours_path(&["placement"]))).await
    }

    /// Returns all keys of the cluster.
    pub(crate) async fn state(&self) -> Result<StateDump, Failure> {
        self.ours(&Call::new(Method::GET, ours_path(&["state"]))).await
    }

    /// Returns the usage of nodes and services.
    pub(crate) async fn usage(&self) -> Result<UsageOverview, Failure> {
        self.ours(&Call::new(Method::GET, ours_path(&["usage"]))).await
    }

    /// Returns the explanation why a service runs on its node, or why it does not run.
    pub(crate) async fn explanation(&self, name: &str) -> Result<Explanation, Failure> {
        self.ours(&Call::new(Method::GET, ours_path(&["resources", name, "explain"]))).await
    }

    /// Returns the last lines of a service's log, and the warnings of the server.
    ///
    /// `node`: read the log on this node, instead of the service's own.
    pub(crate) async fn log(
        &self,
        name: &str,
        tail_lines: u32,
        since_seconds: Option<u64>,
        node: Option<&str>,
    ) -> Result<(String, Vec<String>), ApiError> {
        let mut call = Call::new(Method::GET, ours_path(&["resources", name, "log"]))
            .patience(LOG_PATIENCE)
            .query("tailLines", &tail_lines.to_string());
        if let Some(seconds) = since_seconds {
            call = call.query("sinceSeconds", &seconds.to_string());
        }
        if let Some(node) = node {
            call = call.query("node", node);
        }
        self.text(&call).await
    }

    /// Returns the result of the failover capacity (N+1) check. `proof`: also the nodes to which services would move.
    pub(crate) async fn reservation(
        &self,
        failures: u32,
        by: &str,
        proof: bool,
    ) -> Result<ReservationReport, Failure> {
        let call = Call::new(Method::GET, ours_path(&["reservation"]))
            .query("failures", &failures.to_string())
            .query("by", by)
            .query("proof", if proof { "true" } else { "false" });
        self.ours(&call).await
    }

    /// Returns the effects that a change would have.
    pub(crate) async fn plan(&self, request: &PlanRequest) -> Result<Plan, Failure> {
        let body = serde_json::to_value(request).map_err(|error| Failure::refused(error.to_string()))?;
        self.ours(&Call::new(Method::POST, ours_path(&["plan"])).body("application/json", &body).harmless())
            .await
    }

    /// Returns the server's version.
    pub(crate) async fn server_version(&self) -> Result<Value, ApiError> {
        self.document(&["version"]).await
    }

    /// Returns the document at a path, such as the discovery document `/apis`.
    pub(crate) async fn document(&self, path: &[&str]) -> Result<Value, ApiError> {
        self.call(&Call::new(Method::GET, path.iter().map(|part| (*part).to_owned()).collect())).await
    }

    /// Returns the review of an action, in the form of `SelfSubjectAccessReview`.
    pub(crate) async fn access_review(&self, attributes: &Value) -> Result<Value, ApiError> {
        let path = ["apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews"];
        let review = serde_json::json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        });
        let call = Call::new(Method::POST, path.map(str::to_owned).to_vec());
        self.call(&call.body("application/json", &review).harmless()).await
    }

    async fn ours<T: DeserializeOwned>(&self, call: &Call) -> Result<T, Failure> {
        let value = self.call(call).await.map_err(|error| {
            // The object names were checked before, so the path is unknown to the server.
            if error.is_status(404) {
                Failure::refused(format!("the controller does not serve {}", call.describe()))
                    .help("run \"hactl version\" to compare the versions of hactl and the controller")
            } else {
                error.into()
            }
        })?;
        serde_json::from_value(value).map_err(|error| {
            Failure::refused(format!("cannot parse the response to {}: {error}", call.describe()))
                .help("run \"hactl version\" to compare the versions of hactl and the controller")
        })
    }

    /// Returns the error that an object does not exist, with the most similar existing name.
    async fn missing(&self, target: &Target) -> Failure {
        let failure = Failure::refused(format!("{} not found", target.shown())).of_server("NotFound");
        let names =
            self.list(Collection::Kind(target.kind), &[]).await.map(|list| list.items).unwrap_or_default();
        match crate::names::nearest(&target.name.name, names.iter().map(name_of)) {
            Some(nearest) => failure.help(format!("did you mean {nearest}?")),
            None => failure.help(format!("run \"hactl get {}\"", target.kind.plural())),
        }
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Failure {
        error.into_failure()
    }
}

/// Parses an object into its type.
///
/// # Errors
/// Fails if the server's object has another shape than the type.
pub(crate) fn read<T: DeserializeOwned>(object: Value) -> Result<T, Failure> {
    serde_json::from_value(object)
        .map_err(|error| Failure::refused(format!("cannot read the response: {error}")))
}

fn object_path(kind: Kind, name: &str) -> Vec<String> {
    let mut path = Collection::Kind(kind).path();
    path.push(name.to_owned());
    path
}

fn ours_path(parts: &[&str]) -> Vec<String> {
    ["apis", "hactl.io", "v1"].iter().chain(parts).map(|part| (*part).to_owned()).collect()
}

fn write(call: Call, content_type: &'static str, body: &Value, commitment: Commitment) -> Call {
    let call =
        call.body(content_type, body).query("fieldManager", "hactl").query("fieldValidation", "Strict");
    match commitment {
        Commitment::Real => call,
        Commitment::DryRun => call.query("dryRun", "All").harmless(),
    }
}

/// Returns the exit status for the code of a Status error.
fn exit_of(code: u16) -> Exit {
    match code {
        401 | 403 => Exit::NotPermitted,
        400 | 413 | 422 => Exit::Usage,
        503 | 504 => Exit::Unreachable,
        _ => Exit::Refused,
    }
}
