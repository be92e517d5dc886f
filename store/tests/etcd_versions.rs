//! Members with an old version are refused by name, unless the operator accepts them.

#[path = "support/etcd.rs"]
#[allow(dead_code, reason = "each test file uses a part of it")]
mod etcd;

use bytes::Bytes;
use etcd::{Cluster, Flags};
use futures::StreamExt as _;
use ha_api_types::id::Revision;
use ha_store::{Config, EtcdStore, Guard, Outcome, Store as _, StoreError, Transaction};
use http_body_util::StreamBody;
use hyper::body::{Frame, Incoming};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::time::Duration;
use tokio::net::TcpListener;

/// Starts a server that answers a status request with only a version, which suffices for a refusal. The server ends
/// with the runtime of the test. Returns the URL of the server.
async fn start_fake_member(version: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(serve(listener, version));
    format!("http://{address}")
}

async fn serve(listener: TcpListener, version: &'static str) {
    while let Ok((stream, _)) = listener.accept().await {
        let service =
            service_fn(move |request| async move { Ok::<_, Infallible>(answer(&request, version)) });
        let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service);
        tokio::spawn(connection);
    }
}

type Body = StreamBody<futures::stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>>>;

fn answer(request: &Request<Incoming>, version: &str) -> Response<Body> {
    let mut trailers = HeaderMap::new();
    let mut frames = Vec::new();
    if request.uri().path() == "/etcdserverpb.Maintenance/Status" {
        // StatusResponse { version } (field 2, a string), in a gRPC frame.
        let mut message = vec![0x12, u8::try_from(version.len()).expect("a short version")];
        message.extend(version.as_bytes());
        let mut frame = vec![0, 0, 0, 0, u8::try_from(message.len()).expect("a short message")];
        frame.extend(message);
        frames.push(Ok(Frame::data(Bytes::from(frame))));
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
    } else {
        trailers.insert("grpc-status", HeaderValue::from_static("12"));
    }
    frames.push(Ok(Frame::trailers(trailers)));
    let mut response = Response::new(StreamBody::new(futures::stream::iter(frames)));
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    response
}

fn put() -> Transaction {
    Transaction::new().put("/version/key", Guard::Absent, vec![1])
}

/// Checks the members' versions once a member answers.
async fn first_answer(store: &EtcdStore) -> Result<(), StoreError> {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        match store.check_versions().await {
            Err(StoreError::Unreachable(_)) if tokio::time::Instant::now() < deadline => {}
            result => return result,
        }
    }
}

fn names_member_and_version(text: &str, member: &str, version: &str) -> bool {
    text.contains(member) && text.contains(version) && text.contains("--allow-old-store")
}

#[tokio::test]
async fn outdated_member_is_refused_by_name() {
    let old = start_fake_member("3.4.23").await;
    let store = EtcdStore::connect(Config::new([old.clone()])).await.expect("good settings");
    for result in [store.check_versions().await, store.get("/version/key").await.map(|_| ())] {
        assert!(
            matches!(&result, Err(StoreError::Unsupported(text)) if names_member_and_version(text, &old, "3.4.23")),
            "{result:?}"
        );
    }
    let outcome = store.commit(put()).await;
    assert!(
        matches!(&outcome, Outcome::Refused(text) if names_member_and_version(text, &old, "3.4.23")),
        "{outcome:?}"
    );
    let watched = store.watch("/version/", Revision(1)).next().await;
    assert!(matches!(&watched, Some(Err(StoreError::Unsupported(_)))), "{watched:?}");
    let lease = store.grant_lease(10).await;
    assert!(matches!(&lease, Err(StoreError::Unsupported(_))), "{lease:?}");
    let status = store.status().await;
    assert!(
        status[0].problem.as_ref().is_some_and(|text| names_member_and_version(text, &old, "3.4.23")),
        "{status:?}"
    );
}

#[tokio::test]
async fn outdated_member_among_current_members_is_refused() {
    let old = start_fake_member("3.5.16").await;
    let cluster = Cluster::start(1, &Flags::default());
    let endpoints = [cluster.endpoints()[0].clone(), old.clone()];
    let store = EtcdStore::connect(Config::new(endpoints.clone())).await.expect("good settings");
    let result = store.get("/version/key").await;
    assert!(
        matches!(&result, Err(StoreError::Unsupported(text)) if names_member_and_version(text, &old, "3.5.16")),
        "{result:?}"
    );
    let accepted = Config { allow_old_store: true, ..Config::new(endpoints) };
    let store = EtcdStore::connect(accepted).await.expect("good settings");
    let outcome = store.commit(put()).await;
    assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
}

#[tokio::test]
async fn outdated_member_that_joins_later_is_unused() {
    let mut cluster = Cluster::start(1, &Flags::default());
    let store = EtcdStore::connect(Config::new(cluster.endpoints())).await.expect("good settings");
    first_answer(&store).await.expect("new enough");
    cluster.kill(0);
    // A member with an old version runs at the same address, after the connection is lost.
    let address = cluster.endpoints()[0].trim_start_matches("http://").to_owned();
    let listener = TcpListener::bind(&address).await.expect("the address is free again");
    tokio::spawn(serve(listener, "3.5.16"));
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    let mut outcome = store.commit(put()).await;
    // The request was in progress when the connection broke, or a slow machine did not answer in time.
    while matches!(outcome, Outcome::Unknown(_)) && tokio::time::Instant::now() < deadline {
        outcome = store.commit(put()).await;
    }
    assert!(matches!(&outcome, Outcome::Refused(text) if text.contains("3.5.16")), "{outcome:?}");
}
