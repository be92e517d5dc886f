//! The API client: typed requests to the cluster, with failover to the next controller.

mod error;
mod transport;
mod watch;

pub(crate) use error::ApiError;
pub(crate) use transport::{Call, Client, root_cause};
pub(crate) use watch::{Change, Watcher};

use crate::failure::{Exit, Failure};
use crate::names::{Target, name_of};
use crate::object::TypedObject;
use ha_api_types::id::{ControllerId, ObjectUid};
use ha_api_types::join::{IssuedCertificates, JoinTokenAnswer, JoinTokenRequest};
use ha_api_types::kind::Kind;
use ha_api_types::kubernetes::{
    IdentityReviewStatus, ListMeta, ResourceAttributes, ReviewSpec, ReviewStatus, RulesReviewStatus,
};
use ha_api_types::lenient;
use ha_api_types::node::NodeSpec;
use ha_api_types::object::Spec;
use ha_api_types::record::LOG_TIMEOUT_MS;
use ha_api_types::table::ColumnDefinition;
use ha_api_types::view::{
    Explanation, Overview, Plan, PlanRequest, ReservationReport, StateDump, UsageOverview,
};
use ha_scheduler::View;
use reqwest::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Time limit for reading a log: the controller's limit for the agent's answer, plus a margin for its other requests.
const LOG_TIMEOUT: Duration = Duration::from_millis(LOG_TIMEOUT_MS + 5_000);

/// Effect of a write request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteMode {
    /// The server writes the change.
    Persist,
    /// The server runs all admission checks and stores no change.
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

/// The representation in which the server sends objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Representation {
    Objects,
    /// Rows of a Table. Each item is the object that the row includes (by default only its metadata), with the row's
    /// values as `cells`.
    Rows,
}

impl Representation {
    /// Returns the media type to request.
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Representation::Objects => "application/json",
            Representation::Rows => "application/json;as=Table;v=v1;g=meta.k8s.io",
        }
    }
}

/// A page of a list, or a Table if rows were requested.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Page {
    metadata: ListMeta,
    items: Vec<Value>,
    rows: Option<Vec<Row>>,
    column_definitions: Vec<ColumnDefinition>,
}

/// A row of a Table.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Row {
    object: Option<Map<String, Value>>,
    cells: Value,
}

impl Page {
    fn read(response: Value, representation: Representation, call: &Call) -> Result<Page, ApiError> {
        let malformed = |message: String| ApiError::Malformed { server: call.describe(), message };
        let page: Page = serde_json::from_value(response).map_err(|error| malformed(error.to_string()))?;
        match representation {
            Representation::Rows if page.rows.is_none() => {
                Err(malformed("the response is not a table".to_owned()))
            }
            Representation::Objects | Representation::Rows => Ok(page),
        }
    }

    /// Returns the objects of the page. The object of a row also contains the row's `cells`.
    fn objects(self) -> impl Iterator<Item = Value> {
        let row = |row: Row| {
            let mut object = row.object.unwrap_or_default();
            object.insert("cells".to_owned(), row.cells);
            Value::Object(object)
        };
        self.items.into_iter().chain(self.rows.into_iter().flatten().map(row))
    }
}

/// A list of objects, with the revision at which it was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct List {
    /// Objects in the server's order.
    pub(crate) items: Vec<Value>,
    /// Columns of rows; empty for objects.
    pub(crate) columns: Vec<ColumnDefinition>,
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
    pub(crate) async fn get_target(&self, target: &Target) -> Result<Value, Failure> {
        let Some(object) = self.get(target.kind, &target.name.name).await? else {
            return Err(self.not_found_failure(target).await);
        };
        if target.kind == Kind::Resource {
            target.name.check(&object)?;
        }
        Ok(object)
    }

    /// Returns an object of a known kind; `None` if it does not exist.
    pub(crate) async fn find<S: Spec>(&self, name: &str) -> Result<Option<TypedObject<S>>, ApiError> {
        Ok(self.get(S::KIND, name).await?.map(TypedObject::from_value))
    }

    /// Returns a node, which must exist.
    pub(crate) async fn node(&self, target: &Target) -> Result<TypedObject<NodeSpec>, Failure> {
        Ok(TypedObject::from_value(self.get_target(target).await?))
    }

    /// Returns all objects of a known kind in the server's order.
    pub(crate) async fn all<S: Spec>(&self) -> Result<Vec<TypedObject<S>>, ApiError> {
        let list = self.list(Collection::Kind(S::KIND), &[]).await?;
        Ok(list.items.into_iter().map(TypedObject::from_value).collect())
    }

    /// Returns an object in a representation, as a list with one item. The object must exist and have the type that the user typed.
    pub(crate) async fn list_target_as(
        &self,
        target: &Target,
        representation: Representation,
    ) -> Result<List, Failure> {
        match representation {
            Representation::Objects => {
                Ok(List { items: vec![self.get_target(target).await?], ..List::default() })
            }
            Representation::Rows => {
                let call = Call::new(Method::GET, object_path(target.kind, &target.name.name))
                    .representation(representation)
                    .query("includeObject", "Object");
                match self.call(&call).await {
                    Ok(table) => {
                        let mut page = Page::read(table, representation, &call)?;
                        let columns = std::mem::take(&mut page.column_definitions);
                        let items: Vec<Value> = page.objects().collect();
                        for item in items.iter().filter(|_| target.kind == Kind::Resource) {
                            target.name.check(item)?;
                        }
                        Ok(List { items, columns, ..List::default() })
                    }
                    Err(error) if error.is_status(404) => Err(self.not_found_failure(target).await),
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
        self.list_as(collection, query, Representation::Objects).await
    }

    /// Returns all objects of a collection that match the selectors, in a representation.
    pub(crate) async fn list_as(
        &self,
        collection: Collection,
        query: &[(&str, String)],
        representation: Representation,
    ) -> Result<List, ApiError> {
        let mut list = List::default();
        let mut next = String::new();
        loop {
            let mut call = Call::new(Method::GET, collection.path())
                .representation(representation)
                .query("limit", "500");
            for (name, value) in query {
                call = call.query(name, value);
            }
            if !next.is_empty() {
                call = call.query("continue", &next);
            }
            let mut page = Page::read(self.call(&call).await?, representation, &call)?;
            let metadata = std::mem::take(&mut page.metadata);
            list.columns = std::mem::take(&mut page.column_definitions);
            list.items.extend(page.objects());
            list.resource_version = metadata.resource_version;
            next = metadata.continue_token;
            if next.is_empty() {
                break;
            }
        }
        if let (Collection::Kind(kind), Representation::Objects) = (collection, representation) {
            // Items of a list may lack apiVersion and kind, which later code needs.
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
        write_mode: WriteMode,
    ) -> Result<Value, ApiError> {
        let call = Call::new(Method::POST, Collection::Kind(kind).path());
        self.call(&self.write_request(call, "application/json", object, write_mode)).await
    }

    /// Merges a patch (RFC 7396) into an object.
    pub(crate) async fn patch(
        &self,
        kind: Kind,
        name: &str,
        patch: &Value,
        write_mode: WriteMode,
    ) -> Result<Value, ApiError> {
        self.patch_as("application/merge-patch+json", kind, name, patch, write_mode).await
    }

    /// Applies a patch of a media type to an object.
    pub(crate) async fn patch_as(
        &self,
        media_type: &'static str,
        kind: Kind,
        name: &str,
        patch: &Value,
        write_mode: WriteMode,
    ) -> Result<Value, ApiError> {
        let call = Call::new(Method::PATCH, object_path(kind, name));
        self.call(&self.write_request(call, media_type, patch, write_mode)).await
    }

    /// Merges a patch into the status of an object. Only the status of a GitSync can be written.
    pub(crate) async fn patch_status(
        &self,
        kind: Kind,
        name: &str,
        status: &Value,
    ) -> Result<Value, ApiError> {
        let mut path = object_path(kind, name);
        path.push("status".to_owned());
        let call = Call::new(Method::PATCH, path);
        let patch = json!({ "status": status });
        self.call(&self.write_request(call, "application/merge-patch+json", &patch, WriteMode::Persist)).await
    }

    /// Replaces an object, guarded by its resourceVersion.
    pub(crate) async fn replace(
        &self,
        kind: Kind,
        object: &Value,
        write_mode: WriteMode,
    ) -> Result<Value, ApiError> {
        let call = Call::new(Method::PUT, object_path(kind, name_of(object)));
        self.call(&self.write_request(call, "application/json", object, write_mode)).await
    }

    /// Deletes an object, but only if it has this uid, unless `uid` is empty. Returns `false` if the object did not exist.
    pub(crate) async fn delete(
        &self,
        kind: Kind,
        name: &str,
        uid: &ObjectUid,
        write_mode: WriteMode,
    ) -> Result<bool, ApiError> {
        let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        if !uid.is_empty() {
            options["preconditions"] = json!({"uid": uid});
        }
        let mut call = Call::new(Method::DELETE, object_path(kind, name)).body("application/json", &options);
        if write_mode == WriteMode::DryRun {
            call = call.query("dryRun", "All");
        }
        match self.call(&call).await {
            Ok(_) => Ok(true),
            Err(ApiError::Status(status)) if status.code == 404 => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Deletes the key of a controller. Returns `false` if it did not exist.
    pub(crate) async fn delete_controller(
        &self,
        id: &ControllerId,
        write_mode: WriteMode,
    ) -> Result<bool, ApiError> {
        let mut call = Call::new(Method::DELETE, hactl_api_path(&["controllers", id]));
        if write_mode == WriteMode::DryRun {
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
        self.call_hactl_api(&Call::new(Method::GET, hactl_api_path(&["status"]))).await
    }

    /// Returns the facts on which placement decisions are based.
    pub(crate) async fn placement(&self) -> Result<View, Failure> {
        self.call_hactl_api(&Call::new(Method::GET, hactl_api_path(&["placement"]))).await
    }

    /// Returns all keys of the cluster.
    pub(crate) async fn state(&self) -> Result<StateDump, Failure> {
        self.call_hactl_api(&Call::new(Method::GET, hactl_api_path(&["state"]))).await
    }

    /// Returns the usage of nodes and services.
    pub(crate) async fn usage(&self) -> Result<UsageOverview, Failure> {
        self.call_hactl_api(&Call::new(Method::GET, hactl_api_path(&["usage"]))).await
    }

    /// Returns the reasons why a service runs on its node, or does not run.
    pub(crate) async fn explanation(&self, name: &str) -> Result<Explanation, Failure> {
        self.call_hactl_api(&Call::new(Method::GET, hactl_api_path(&["resources", name, "explain"]))).await
    }

    /// Returns the last lines of a service's log, and the warnings of the server.
    ///
    /// The log is read on `node`, or on the service's own node if `node` is `None`.
    pub(crate) async fn log(
        &self,
        name: &str,
        tail_lines: u32,
        since_seconds: Option<u64>,
        node: Option<&str>,
    ) -> Result<(String, Vec<String>), ApiError> {
        let mut call = Call::new(Method::GET, hactl_api_path(&["resources", name, "log"]))
            .min_timeout(LOG_TIMEOUT)
            .query("tailLines", &tail_lines.to_string());
        if let Some(seconds) = since_seconds {
            call = call.query("sinceSeconds", &seconds.to_string());
        }
        if let Some(node) = node {
            call = call.query("node", node);
        }
        self.text(&call).await
    }

    /// Returns the result of the failover capacity (N+1) check. With `proof`, the result includes the nodes to which
    /// services would move.
    pub(crate) async fn reservation(
        &self,
        failures: u32,
        domain: &str,
        proof: bool,
    ) -> Result<ReservationReport, Failure> {
        let call = Call::new(Method::GET, hactl_api_path(&["reservation"]))
            .query("failures", &failures.to_string())
            .query("by", domain)
            .query("proof", if proof { "true" } else { "false" });
        self.call_hactl_api(&call).await
    }

    /// Creates the join token of a node.
    pub(crate) async fn create_join_token(
        &self,
        node: &str,
        valid_seconds: u32,
    ) -> Result<JoinTokenAnswer, Failure> {
        let body = json!(JoinTokenRequest { valid_seconds });
        let call = Call::new(Method::POST, hactl_api_path(&["nodes", node, "jointoken"]));
        Ok(lenient::read_part(&self.call(&call.body("application/json", &body)).await?))
    }

    /// Returns the certificates that controllers issued to a node and that have not expired.
    pub(crate) async fn issued_certificates(&self, node: &str) -> Result<IssuedCertificates, Failure> {
        self.call_hactl_api(&Call::new(Method::GET, hactl_api_path(&["nodes", node, "certificates"]))).await
    }

    /// Returns the effects of a planned change.
    pub(crate) async fn plan(&self, request: &PlanRequest) -> Result<Plan, Failure> {
        let body = serde_json::to_value(request).map_err(|error| Failure::failed(error.to_string()))?;
        self.call_hactl_api(
            &Call::new(Method::POST, hactl_api_path(&["plan"])).body("application/json", &body).read_only(),
        )
        .await
    }

    /// Returns the document at a path, such as `/version` or the discovery document `/apis`.
    pub(crate) async fn get_document<T: DeserializeOwned + Default>(
        &self,
        path: &[&str],
    ) -> Result<T, ApiError> {
        let path = path.iter().map(|part| (*part).to_owned()).collect();
        Ok(lenient::read_part(&self.call(&Call::new(Method::GET, path)).await?))
    }

    /// Asks the API whether it allows an action.
    pub(crate) async fn access_review(&self, action: ResourceAttributes) -> Result<ReviewStatus, ApiError> {
        let spec = json!(ReviewSpec { resource_attributes: action });
        self.review("authorization.k8s.io", "SelfSubjectAccessReview", &spec).await
    }

    /// Returns all permissions of the user.
    pub(crate) async fn rules_review(&self) -> Result<RulesReviewStatus, ApiError> {
        // Kubernetes requires a namespace in this review.
        let spec = json!({"namespace": "default"});
        self.review("authorization.k8s.io", "SelfSubjectRulesReview", &spec).await
    }

    /// Returns the name and groups of the user, as the API sees them.
    pub(crate) async fn identity_review(&self) -> Result<IdentityReviewStatus, ApiError> {
        self.review("authentication.k8s.io", "SelfSubjectReview", &json!({})).await
    }

    /// Sends a review, and returns its status.
    async fn review<T: DeserializeOwned + Default>(
        &self,
        group: &str,
        kind: &str,
        spec: &Value,
    ) -> Result<T, ApiError> {
        let plural = format!("{}s", kind.to_ascii_lowercase());
        let review = json!({"apiVersion": format!("{group}/v1"), "kind": kind, "spec": spec});
        let call = Call::new(Method::POST, ["apis", group, "v1", &plural].map(str::to_owned).to_vec());
        let answer = self.call(&call.body("application/json", &review).read_only()).await?;
        Ok(lenient::read_part(&answer["status"]))
    }

    async fn call_hactl_api<T: DeserializeOwned>(&self, call: &Call) -> Result<T, Failure> {
        let value = self.call(call).await.map_err(|error| {
            // The object names were checked before, so a 404 means that the server does not have this path.
            if error.is_status(404) {
                Failure::failed(format!("the controller does not serve {}", call.describe()))
                    .help("run \"hactl version\" to compare the versions of hactl and the controller")
            } else {
                error.into()
            }
        })?;
        serde_json::from_value(value).map_err(|error| {
            Failure::failed(format!("cannot parse the response to {}: {error}", call.describe()))
                .help("run \"hactl version\" to compare the versions of hactl and the controller")
        })
    }

    fn write_request(
        &self,
        call: Call,
        content_type: &'static str,
        body: &Value,
        write_mode: WriteMode,
    ) -> Call {
        let call = call
            .body(content_type, body)
            .query("fieldManager", self.field_manager())
            .query("fieldValidation", "Strict");
        match write_mode {
            WriteMode::Persist => call,
            WriteMode::DryRun => call.query("dryRun", "All").read_only(),
        }
    }

    /// Returns the failure for an object that does not exist, with the most similar existing name.
    async fn not_found_failure(&self, target: &Target) -> Failure {
        let failure =
            Failure::failed(format!("{} not found", target.display_name())).with_server_reason("NotFound");
        let names =
            self.list(Collection::Kind(target.kind), &[]).await.map(|list| list.items).unwrap_or_default();
        match crate::names::most_similar(&target.name.name, names.iter().map(name_of)) {
            Some(most_similar) => failure.help(format!("did you mean {most_similar}?")),
            None => failure.help(format!("run \"hactl get {}\"", target.kind.plural())),
        }
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Failure {
        error.into_failure()
    }
}

fn object_path(kind: Kind, name: &str) -> Vec<String> {
    let mut path = Collection::Kind(kind).path();
    path.push(name.to_owned());
    path
}

fn hactl_api_path(parts: &[&str]) -> Vec<String> {
    ["apis", "hactl.io", "v1"].iter().chain(parts).map(|part| (*part).to_owned()).collect()
}

/// Returns the exit status for the code of a Status error.
fn exit_for_status(code: u16) -> Exit {
    match code {
        401 | 403 => Exit::NotPermitted,
        400 | 413 | 422 => Exit::Usage,
        503 | 504 => Exit::Unreachable,
        _ => Exit::Failed,
    }
}
