//! Start and Stop operations. The transaction that records them also changes the resource's requested state, because
//! only users write specs, not the leader.

use super::write::Writer;
use crate::api::admission::{Context, admit};
use crate::api::error::ApiError;
use crate::api::read;
use ha_api_types::kind::Kind;
use ha_api_types::operation::{Operation, OperationAction};
use ha_api_types::resource::RequestedState;
use ha_store::{Guard, Store, Transaction};
use serde_json::{Value, json};

/// Returns the resource and the state that an operation asks for.
fn requested(operation: &Value) -> Option<(String, RequestedState)> {
    let spec = serde_json::from_value::<Operation>(operation.clone()).ok()?.spec;
    let state = match spec.action {
        OperationAction::Start => RequestedState::Started,
        OperationAction::Stop => RequestedState::Stopped,
        OperationAction::Migrate
        | OperationAction::Relocate
        | OperationAction::ReplaceSecondary
        | OperationAction::Restart
        | OperationAction::ClearError
        | OperationAction::UpdateInPlace
        | OperationAction::ConfirmFenced
        | OperationAction::Fence
        | OperationAction::Unfence
        | OperationAction::FollowStore
        | OperationAction::ShutdownContinue
        | OperationAction::TestWatchdog
        | OperationAction::Balance
        | OperationAction::TestNotifications => return None,
    };
    Some((spec.resource?, state))
}

/// Returns `true` if the requested state already matches the operation. A Disabled resource is stopped, so Stop
/// leaves it Disabled.
fn is_met(current: RequestedState, requested_state: RequestedState) -> bool {
    current == requested_state
        || (current == RequestedState::Disabled && requested_state == RequestedState::Stopped)
}

impl<S: Store> Writer<'_, S> {
    /// Adds the change of the requested state to the transaction that records an operation. If the resource does not
    /// exist, the operation is recorded alone, and the leader refuses it.
    pub(super) async fn with_requested_state(
        &self,
        operation: &Value,
        transaction: Transaction,
    ) -> Result<Transaction, ApiError> {
        let Some((name, requested_state)) = requested(operation).filter(|_| self.kind == Kind::Operation)
        else {
            return Ok(transaction);
        };
        let Some(current) = read::get(self.state.store(), self.state.keys(), Kind::Resource, &name).await?
        else {
            return Ok(transaction);
        };
        let state = current.spec.value.pointer("/spec/state").cloned().unwrap_or_else(|| json!("Started"));
        let state: RequestedState =
            serde_json::from_value(state).map_err(|error| ApiError::internal(error.to_string()))?;
        if is_met(state, requested_state) {
            return Ok(transaction);
        }
        let mut proposed = current.object(Kind::Resource);
        proposed["spec"]["state"] = json!(requested_state);
        let context = Context { kind: Kind::Resource, ..self.context(Some(&self.manager)) };
        let admitted = admit(&context, Some(&current), proposed, &[])?;
        let bytes = read::bytes(Kind::Resource, &admitted.value)?;
        let key = self.state.keys().spec(Kind::Resource, &name);
        Ok(transaction.put(key, Guard::Unchanged(current.spec.mod_revision), bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(action: &str, expected: Option<RequestedState>) {
        let operation = json!({
            "apiVersion": "hactl.io/v1", "kind": "Operation", "metadata": {"name": "o"},
            "spec": {"action": action, "resource": "web"},
        });
        assert_eq!(requested(&operation).map(|(_, state)| state), expected, "{action}");
    }

    #[test]
    fn only_start_and_stop_change_the_requested_state() {
        check("Start", Some(RequestedState::Started));
        check("Stop", Some(RequestedState::Stopped));
        check("Restart", None);
        check("Migrate", None);
    }
}
