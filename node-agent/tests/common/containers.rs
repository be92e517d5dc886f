//! Shared helpers of the tests of drivers for containers: the service `web` with uid `uid-1`, and its events.

use ha_api_types::driver::DriverSpec;
use ha_api_types::resource::{Resource, ServiceDefinition};
use ha_node_agent::driver::{Driver, DriverEvent};
use serde_json::Value;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedReceiver;

/// A limit that suffices for the slowest machine; only a failing test reaches it.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(60);

pub(crate) fn web(driver: Value) -> ServiceDefinition {
    let mut resource = Resource::default();
    resource.metadata.name = "web".into();
    resource.metadata.uid = "uid-1".into();
    resource.spec.driver = serde_json::from_value::<DriverSpec>(driver).unwrap();
    ServiceDefinition::of(&resource)
}

pub(crate) async fn event(events: &mut UnboundedReceiver<DriverEvent>) -> DriverEvent {
    tokio::time::timeout(MAX_WAIT, events.recv()).await.expect("an event in time").expect("an event")
}

/// Returns the next event, which must be the end of the service: its message, and whether it was stopped by hand.
pub(crate) async fn exit(events: &mut UnboundedReceiver<DriverEvent>) -> (String, bool) {
    match event(events).await {
        DriverEvent::Exited { name, uid, message, stopped_externally } => {
            assert_eq!((name.as_str(), uid.as_str()), ("web", "uid-1"));
            (message, stopped_externally)
        }
        other @ (DriverEvent::Appeared { .. }
        | DriverEvent::Progress { .. }
        | DriverEvent::RequestedAmounts { .. }) => {
            panic!("{other:?}")
        }
    }
}

/// Starts a service that ignores a stop, and kills it while a graceful stop of five minutes is in progress.
pub(crate) async fn kill_during_a_stop(driver: &dyn Driver, service: &ServiceDefinition) {
    driver.start(service).await.unwrap();
    let begin = Instant::now();
    let stop = driver.stop(service, 300_000);
    let kill = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        driver.kill(service).await
    };
    let (stopped, killed) = tokio::join!(stop, kill);
    stopped.unwrap();
    killed.unwrap();
    assert!(begin.elapsed() < Duration::from_secs(60));
}
