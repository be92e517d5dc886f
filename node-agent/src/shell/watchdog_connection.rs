//! The connection to the watchdog daemon, which is restored whenever it is lost.

use super::Inputs;
use crate::core::{Input, WatchdogEvent, WatchdogRequestId};
use crate::watchdog::client::{Client, ClientError, Event};
use crate::watchdog::protocol::{Notice, Request};
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::mpsc;

/// Interval between attempts to connect.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Sends requests to the daemon, in order.
#[derive(Clone, Debug)]
pub(super) struct WatchdogConnection {
    requests: mpsc::UnboundedSender<(WatchdogRequestId, Request)>,
}

impl WatchdogConnection {
    /// Sends a request. An answer follows, or an event that reports the loss of the connection.
    pub(super) fn send_request(&self, id: WatchdogRequestId, request: Request) {
        // Sending cannot fail: the task runs until this sender is dropped.
        let _ = self.requests.send((id, request));
    }
}

/// Connects, and reconnects for as long as the loop runs.
pub(super) fn spawn(socket: PathBuf, inputs: Inputs) -> WatchdogConnection {
    let (requests, mut received) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut last_error = String::new();
        loop {
            let message = match Client::connect(&socket).await {
                Ok((client, status, events)) => {
                    last_error.clear();
                    // Requests that were made for the lost connection are not sent on the new one.
                    while received.try_recv().is_ok() {}
                    if !send_event(
                        &inputs,
                        WatchdogEvent::Connected { status, device: socket.display().to_string() },
                    ) {
                        return;
                    }
                    match serve(&client, events, &mut received, &inputs).await {
                        Some(error) => error.to_string(),
                        None => return,
                    }
                }
                Err(error) => error.to_string(),
            };
            if message != last_error {
                tracing::debug!(error = %message, "cannot use ha-watchdogd");
                last_error.clone_from(&message);
                if !send_event(&inputs, WatchdogEvent::Disconnected { message }) {
                    return;
                }
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    });
    WatchdogConnection { requests }
}

/// Serves one connection until it is lost; returns `None` once the loop has ended.
async fn serve(
    client: &Client,
    mut events: mpsc::Receiver<Event>,
    requests: &mut mpsc::UnboundedReceiver<(WatchdogRequestId, Request)>,
    inputs: &Inputs,
) -> Option<ClientError> {
    loop {
        tokio::select! {
            request = requests.recv() => {
                let (id, request) = request?;
                // Requests are sent one at a time: the order of requests is the order of their effects.
                let (refusal, status) = match client.send_request(request).await {
                    Ok(status) => (None, status),
                    // A refusal does not contain the daemon's status.
                    Err(ClientError::Refused(refusal)) => match client.status().await {
                        Ok(status) => (Some(refusal), status),
                        Err(error) => return Some(error),
                    },
                    Err(error) => return Some(error),
                };
                if !send_event(inputs, WatchdogEvent::Answered { id, refusal, status }) {
                    return None;
                }
            }
            event = events.recv() => {
                let (notice, status) = match event {
                    Some(Event::Expired(status)) => (Notice::Expired, status),
                    Some(Event::DeviceFailed { errno, status }) => (Notice::DeviceFailed { errno }, status),
                    Some(Event::NotSliding(status)) => (Notice::NotSliding, status),
                    Some(Event::Lost) | None => return Some(ClientError::Lost),
                };
                if !send_event(inputs, WatchdogEvent::Notice { notice, status }) {
                    return None;
                }
            }
        }
    }
}

fn send_event(inputs: &Inputs, event: WatchdogEvent) -> bool {
    inputs.send(Input::Watchdog(event)).is_ok()
}
