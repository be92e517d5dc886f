//! The API over any store, called in-process, and objects for tests.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use futures::StreamExt;
use ha_api_types::keys::Keys;
use ha_api_types::kind::Kind;
use ha_controller::api::{ApiOptions, ApiState, router};
use ha_runtime::tls::ClientIdentity;
use ha_store::{Guard, Store, Transaction};
use serde_json::{Value, json};
use std::sync::Arc;
use tower::ServiceExt;

/// The API over a store, called without a network.
pub(crate) struct Api<S> {
    pub(crate) store: Arc<S>,
    pub(crate) keys: Keys,
    router: Router,
    identity: ClientIdentity,
}

/// A response: status code, warnings, body.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) warnings: Vec<String>,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) async fn read(response: axum::response::Response) -> Answer {
        let code = response.status().as_u16();
        let warnings = response
            .headers()
            .get_all("warning")
            .iter()
            .map(|value| value.to_str().unwrap().to_owned())
            .collect();
        let bytes = axum::body::to_bytes(response.into_body(), 10_000_000).await.unwrap();
        Answer { code, warnings, body: serde_json::from_slice(&bytes).unwrap_or(Value::Null) }
    }

    /// Returns the field at a JSON pointer.
    pub(crate) fn at(&self, pointer: &str) -> &Value {
        self.body.pointer(pointer).unwrap_or(&Value::Null)
    }
}

pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

impl<S: Store> Api<S> {
    /// Creates the API with at most two open watches.
    pub(crate) fn over(store: S) -> Api<S> {
        let mut options = ApiOptions::new("c1", "test");
        options.watches = 2;
        Api::with(store, options)
    }

    pub(crate) fn with(store: S, options: ApiOptions) -> Api<S> {
        Api::sharing(Arc::new(store), options)
    }

    /// Creates the API of a controller over a store that other controllers also use.
    pub(crate) fn sharing(store: Arc<S>, options: ApiOptions) -> Api<S> {
        let keys = Keys::new("test");
        let state = ApiState::new(Arc::clone(&store), keys.clone(), options);
        let observed = state.clone();
        // Some tests only create the API, without a runtime.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { observed.observe().await });
        }
        let router = router(state, Router::new());
        Api { store, keys, router, identity: ClientIdentity::Loopback }
    }

    /// Returns the same API for a client with a certificate of this name and these groups.
    pub(crate) fn of_user(&self, name: &str, groups: &[&str]) -> Api<S> {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        self.of_identity(ClientIdentity::Certificate { name: name.to_owned(), groups })
    }

    /// Returns the same API for another client.
    pub(crate) fn of_identity(&self, identity: ClientIdentity) -> Api<S> {
        let (store, keys, router) = (Arc::clone(&self.store), self.keys.clone(), self.router.clone());
        Api { store, keys, router, identity }
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        media_type: &str,
        body: impl Into<Body>,
    ) -> axum::response::Response {
        self.try_send(method, path, media_type, body).await.unwrap()
    }

    /// Sends a request. Fails only for an invalid path, which no client could send.
    pub(crate) async fn try_send(
        &self,
        method: &str,
        path: &str,
        media_type: &str,
        body: impl Into<Body>,
    ) -> Result<axum::response::Response, axum::http::Error> {
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/apis/hactl.io/v1/{path}") };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, media_type)
            .header(header::USER_AGENT, "test/1")
            .body(body.into())?;
        Ok(self.dispatch(request).await)
    }

    /// Passes on a request as it is, with the identity of the client.
    pub(crate) async fn dispatch(&self, mut request: Request<Body>) -> axum::response::Response {
        request.extensions_mut().insert(self.identity.clone());
        self.router.clone().oneshot(request).await.unwrap()
    }

    pub(crate) async fn call(&self, method: &str, path: &str, media_type: &str, body: &Value) -> Answer {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        Answer::read(self.send(method, path, media_type, body).await).await
    }

    /// Gets a collection or an object as a Table.
    pub(crate) async fn table(&self, path: &str) -> Answer {
        let request = Request::builder()
            .uri(format!("/apis/hactl.io/v1/{path}"))
            .header(header::HOST, "localhost")
            .header(header::ACCEPT, "application/json;as=Table;v=v1;g=meta.k8s.io")
            .body(Body::empty())
            .unwrap();
        Answer::read(self.dispatch(request).await).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, "", &Value::Null).await
    }
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.call("POST", path, "application/json", body).await
    }
    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.call("PUT", path, "application/json", body).await
    }
    pub(crate) async fn merge(&self, path: &str, body: &Value) -> Answer {
        self.call("PATCH", path, MERGE, body).await
    }
    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.call("DELETE", path, "", &Value::Null).await
    }

    /// Writes a key as another process would.
    pub(crate) async fn write(&self, key: &str, value: &Value) {
        let snapshot = self.store.get(key).await.unwrap();
        let guard =
            snapshot.entries.first().map_or(Guard::Absent, |entry| Guard::Unchanged(entry.mod_revision));
        let outcome =
            self.store.commit(Transaction::new().put(key, guard, value.to_string().into_bytes())).await;
        assert!(outcome.applied().is_some(), "{outcome:?}");
    }

    pub(crate) async fn status(&self, kind: Kind, name: &str, status: &Value) {
        self.write(&self.keys.status(kind, name), status).await;
    }

    /// Returns the lines of a running watch, each as (type, object).
    pub(crate) async fn watch(&self, path: &str) -> futures::stream::BoxStream<'static, (String, Value)> {
        let response = self.send("GET", path, "", Vec::new()).await;
        assert_eq!(response.status(), StatusCode::OK);
        let mut chunks = response.into_body().into_data_stream();
        Box::pin(async_stream::stream! {
            let mut text = String::new();
            while let Some(Ok(chunk)) = chunks.next().await {
                text.push_str(std::str::from_utf8(&chunk).unwrap());
                while let Some(end) = text.find('\n') {
                    let line: Value = serde_json::from_str(&text[..end]).unwrap();
                    text.drain(..=end);
                    yield (line["type"].as_str().unwrap().to_owned(), line["object"].clone());
                }
            }
        })
    }
}

/// Returns a resource with the simulated driver.
pub(crate) fn resource(name: &str) -> Value {
    json!({"apiVersion": "hactl.io/v1", "kind": "Resource", "metadata": {"name": name},
        "spec": {"driver": {"simulated": {"type": "vm"}}}})
}

/// Returns a group with one node.
pub(crate) fn group(name: &str) -> Value {
    json!({"apiVersion": "hactl.io/v1", "kind": "Group", "metadata": {"name": name}, "spec": {"nodes": {"node1": 1}}})
}
