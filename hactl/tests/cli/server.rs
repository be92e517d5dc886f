//! A small API on loopback: objects with revisions and watches, and answers that a test defines.

use ha_api_types::kind::Kind;
use ha_api_types::table::{IncludeObject, Rows, table};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    /// `true` if the client requests a Table.
    pub(crate) table: bool,
    pub(crate) content_type: String,
    pub(crate) body: Value,
}

impl Request {
    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// Returns objects of a collection in the form that the client requests.
    fn rows(&self, plural: &str, objects: &[Value], metadata: &Value) -> Value {
        let kind = Kind::ALL.into_iter().find(|kind| kind.plural() == plural);
        let include =
            if self.has("includeObject=Object") { IncludeObject::Object } else { IncludeObject::Metadata };
        table(kind.map_or(Rows::Events, Rows::Of), objects, metadata, include, now_seconds())
    }

    fn has(&self, parameter: &str) -> bool {
        self.query.split('&').any(|pair| pair == parameter)
    }

    fn value(&self, name: &str) -> Option<String> {
        let pair = self.query.split('&').find_map(|pair| pair.strip_prefix(&format!("{name}=")))?;
        Some(pair.replace("%3D", "=").replace("%2C", ",").replace("%2F", "/"))
    }
}

/// A scripted answer: a status and a body, or a closed connection.
pub(crate) enum ScriptedResponse {
    Answer(u16, Value),
    /// A text, with these warnings.
    Text(String, Vec<&'static str>),
    /// The normal response, with these warnings.
    Warned(Vec<&'static str>),
    HangUp,
}

type Reaction = Box<dyn Fn(&str, &mut Value) -> bool + Send + Sync>;
type Script = Box<dyn Fn(&Request) -> Option<ScriptedResponse> + Send + Sync>;

#[derive(Default)]
struct State {
    revision: u64,
    objects: BTreeMap<(String, String), Value>,
    /// Every change with its revision: plural, type, object.
    changes: Vec<(u64, String, &'static str, Value)>,
    requests: Vec<Request>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    script: Script,
    /// Changes by a simulated leader: called after every write with the plural and the object.
    react: Reaction,
    stopping: AtomicBool,
}

/// The server, which stops when it is dropped.
pub(crate) struct Server {
    shared: Arc<Shared>,
    address: String,
}

impl Server {
    pub(crate) fn start() -> Server {
        Server::start_with(|_| None, |_, _| false)
    }

    /// Starts a server whose script may answer requests itself, and whose reaction may change objects after a write.
    pub(crate) fn start_with(
        script: impl Fn(&Request) -> Option<ScriptedResponse> + Send + Sync + 'static,
        react: impl Fn(&str, &mut Value) -> bool + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            script: Box::new(script),
            react: Box::new(react),
            stopping: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if accepting.stopping.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&accepting);
                if let Ok(stream) = stream {
                    std::thread::spawn(move || serve(&shared, stream));
                }
            }
        });
        Server { shared, address }
    }

    pub(crate) fn url(&self) -> &str {
        &self.address
    }

    /// Stores an object without a request.
    pub(crate) fn put(&self, plural: &str, object: Value) {
        let mut state = self.shared.state.lock().expect("the state");
        store(&mut state, plural, object, None);
        self.shared.changed.notify_all();
    }

    /// Removes an object without a request.
    pub(crate) fn remove(&self, plural: &str, name: &str) {
        let mut state = self.shared.state.lock().expect("the state");
        remove(&mut state, plural, name);
        self.shared.changed.notify_all();
    }

    pub(crate) fn object(&self, plural: &str, name: &str) -> Option<Value> {
        let state = self.shared.state.lock().expect("the state");
        state.objects.get(&(plural.to_owned(), name.to_owned())).cloned()
    }

    /// Returns all objects of a kind.
    pub(crate) fn objects(&self, plural: &str) -> Vec<Value> {
        let state = self.shared.state.lock().expect("the state");
        state
            .objects
            .iter()
            .filter(|((object_plural, _), _)| object_plural == plural)
            .map(|(_, object)| object.clone())
            .collect()
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.state.lock().expect("the state").requests.clone()
    }

    /// Returns the requests other than GET, including dry runs.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.requests().iter().filter(|request| request.method != "GET").map(Request::line).collect()
    }

    pub(crate) fn wait_for(&self, matches: impl Fn(&Request) -> bool) {
        self.wait_until(|requests| requests.iter().any(&matches));
    }

    /// Waits until the requests meet a condition.
    pub(crate) fn wait_until(&self, condition: impl Fn(&[Request]) -> bool) {
        let until = Instant::now() + Duration::from_secs(20);
        let mut state = self.shared.state.lock().expect("the state");
        while !condition(&state.requests) {
            assert!(
                Instant::now() < until,
                "no such request arrived; the requests are {:#?}",
                state.requests
            );
            state = self.shared.changed.wait_timeout(state, Duration::from_millis(200)).expect("the state").0;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.changed.notify_all();
        let _ = TcpStream::connect(self.address.trim_start_matches("http://"));
    }
}

fn serve(shared: &Shared, stream: TcpStream) {
    let Ok(mut writer) = stream.try_clone() else { return };
    let mut reader = BufReader::new(stream);
    while let Some(request) = read(&mut reader) {
        let scripted = (shared.script)(&request);
        {
            let mut state = shared.state.lock().expect("the state");
            state.requests.push(request.clone());
            shared.changed.notify_all();
        }
        let outcome = match scripted {
            Some(ScriptedResponse::HangUp) => return,
            Some(ScriptedResponse::Answer(code, body)) => answer(&mut writer, code, &body, &[]),
            Some(ScriptedResponse::Text(text, warnings)) => {
                send(&mut writer, 200, "text/plain", &text, &warnings)
            }
            None if request.has("watch=true") => watch(shared, &mut writer, &request),
            Some(ScriptedResponse::Warned(warnings)) => {
                let (code, body) = handle_request(shared, &request);
                answer(&mut writer, code, &body, &warnings)
            }
            None => {
                let (code, body) = handle_request(shared, &request);
                answer(&mut writer, code, &body, &[])
            }
        };
        if outcome.is_err() {
            return;
        }
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (mut length, mut table) = (0, false);
    let mut content_type = String::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        if header.trim().is_empty() {
            break;
        }
        let header = header.to_ascii_lowercase();
        table |= header.starts_with("accept:") && header.contains("as=table");
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if let Some(value) = header.strip_prefix("content-type:") {
            value.trim().clone_into(&mut content_type);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Some(Request { method, path: path.to_owned(), query: query.to_owned(), table, content_type, body })
}

fn now_seconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
    i64::try_from(since.as_secs()).expect("a time")
}

fn answer(writer: &mut TcpStream, code: u16, body: &Value, warnings: &[&str]) -> std::io::Result<()> {
    send(writer, code, "application/json", &body.to_string(), warnings)
}

fn send(
    writer: &mut TcpStream,
    code: u16,
    media_type: &str,
    body: &str,
    warnings: &[&str],
) -> std::io::Result<()> {
    let header = |text: &&str| format!("warning: 299 - \"{text}\"\r\n");
    let warnings: String = warnings.iter().map(header).collect();
    write!(
        writer,
        "HTTP/1.1 {code} X\r\ncontent-type: {media_type}\r\n{warnings}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn status(code: u16, reason: &str, message: &str) -> (u16, Value) {
    (
        code,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message}),
    )
}

fn handle_request(shared: &Shared, request: &Request) -> (u16, Value) {
    let Some(rest) =
        request.path.strip_prefix("/apis/hactl.io/v1/").or_else(|| request.path.strip_prefix("/api/v1/"))
    else {
        return status(404, "NotFound", "no such path");
    };
    let (plural, name) =
        rest.split_once('/').map_or((rest, None), |(plural, name)| (plural, Some(name.to_owned())));
    let mut state = shared.state.lock().expect("the state");
    let is_dry_run = request.has("dryRun=All");
    let name =
        name.or_else(|| request.body.pointer("/metadata/name").and_then(Value::as_str).map(str::to_owned));
    let key = (plural.to_owned(), name.clone().unwrap_or_default());
    let live = state.objects.get(&key).cloned();
    let written = match (request.method.as_str(), live) {
        ("GET", _) if name.is_none() => return (200, list(&state, plural, request)),
        ("GET" | "PATCH" | "PUT" | "DELETE", None) => return status(404, "NotFound", "not found"),
        ("GET", Some(object)) if request.table => return (200, request.rows(plural, &[object], &json!({}))),
        ("GET", Some(object)) => return (200, object),
        ("POST", Some(_)) => return status(409, "AlreadyExists", "already exists"),
        ("POST", None) => (201, request.body.clone(), None),
        ("PATCH", Some(mut object)) => {
            let before = object.clone();
            merge(&mut object, &request.body);
            (200, object, Some(before))
        }
        ("PUT", Some(before)) => {
            if request.body["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"] {
                return status(409, "Conflict", "the object has been modified");
            }
            (200, request.body.clone(), Some(before))
        }
        ("DELETE", Some(object)) => {
            if !is_dry_run {
                remove(&mut state, plural, &key.1);
                shared.changed.notify_all();
            }
            return (200, object);
        }
        _ => return status(405, "MethodNotAllowed", "no"),
    };
    let (code, mut object, before) = written;
    if is_dry_run {
        return (code, object);
    }
    store(&mut state, plural, object.clone(), before.as_ref());
    if (shared.react)(plural, &mut object) {
        store(&mut state, plural, object, before.as_ref());
    }
    shared.changed.notify_all();
    (code, state.objects[&key].clone())
}

fn list(state: &State, plural: &str, request: &Request) -> Value {
    let items: Vec<Value> = state
        .objects
        .iter()
        .filter(|((object_plural, _), object)| object_plural == plural && matches(request, object))
        .map(|(_, object)| object.clone())
        .collect();
    let metadata = json!({"resourceVersion": state.revision.to_string()});
    if request.table {
        return request.rows(plural, &items, &metadata);
    }
    json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items})
}

fn matches(request: &Request, object: &Value) -> bool {
    let label = request.value("labelSelector").is_none_or(|selector| {
        selector.split_once('=').is_some_and(|(key, value)| object["metadata"]["labels"][key] == value)
    });
    let fields = request.value("fieldSelector").unwrap_or_default();
    let field = fields.split(',').filter(|part| !part.is_empty()).all(|part| {
        let (path, value) = part.split_once('=').expect("a selector");
        object
            .pointer(&format!("/{}", path.replace('.', "/")))
            .is_some_and(|current_value| current_value == value)
    });
    label && field
}

fn store(state: &mut State, plural: &str, mut object: Value, before: Option<&Value>) {
    let name = object["metadata"]["name"].as_str().expect("a name").to_owned();
    let key = (plural.to_owned(), name.clone());
    if state.objects.get(&key) == Some(&object) {
        return;
    }
    state.revision += 1;
    let metadata = object["metadata"].as_object_mut().expect("metadata");
    metadata.entry("uid").or_insert_with(|| json!(format!("uid-{name}")));
    let before = before.map(|before| &before["spec"]);
    let generation = metadata.get("generation").and_then(Value::as_u64).unwrap_or(0);
    let spec_changed = before.is_none_or(|before| *before != object["spec"]);
    let metadata = object["metadata"].as_object_mut().expect("metadata");
    metadata.insert("generation".to_owned(), json!(if spec_changed { generation + 1 } else { generation }));
    metadata.insert("resourceVersion".to_owned(), json!(state.revision.to_string()));
    let event_type = if state.objects.contains_key(&key) { "MODIFIED" } else { "ADDED" };
    state.changes.push((state.revision, plural.to_owned(), event_type, object.clone()));
    state.objects.insert(key, object);
}

fn remove(state: &mut State, plural: &str, name: &str) {
    if let Some(object) = state.objects.remove(&(plural.to_owned(), name.to_owned())) {
        state.revision += 1;
        state.changes.push((state.revision, plural.to_owned(), "DELETED", object));
    }
}

fn watch(shared: &Shared, writer: &mut TcpStream, request: &Request) -> std::io::Result<()> {
    let plural = request.path.rsplit('/').next().unwrap_or_default().to_owned();
    let mut from: u64 = request.value("resourceVersion").and_then(|text| text.parse().ok()).unwrap_or(0);
    write!(
        writer,
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    )?;
    loop {
        let mut state = shared.state.lock().expect("the state");
        let newer: Vec<(u64, &'static str, Value)> = state
            .changes
            .iter()
            .filter(|(revision, object_plural, _, object)| {
                *revision > from && *object_plural == plural && matches(request, object)
            })
            .map(|(revision, _, event_type, object)| (*revision, *event_type, object.clone()))
            .collect();
        if newer.is_empty() {
            if shared.stopping.load(Ordering::SeqCst) {
                return Err(std::io::ErrorKind::ConnectionAborted.into());
            }
            state = shared.changed.wait_timeout(state, Duration::from_millis(200)).expect("the state").0;
        }
        drop(state);
        for (revision, event_type, object) in newer {
            from = revision;
            let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
            let object = if request.table { request.rows(&plural, &[object], &metadata) } else { object };
            let line = format!("{}\n", json!({"type": event_type, "object": object}));
            write!(writer, "{:x}\r\n{line}\r\n", line.len())?;
        }
    }
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let target = target.as_object_mut().expect("an object");
    for (field, value) in patch {
        if value.is_null() {
            target.remove(field);
        } else {
            merge(target.entry(field.clone()).or_insert(Value::Null), value);
        }
    }
}
