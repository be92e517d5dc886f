//! Following one path through the model, for counterexamples that are too long for a search.

use stateright::Model;

use crate::configuration::Configuration;
use crate::model::Protocol;
use crate::state::State;

/// Follows a path from the initial state. Each step is a part of an action's text; the last matching action is taken. A
/// step after a question mark is optional.
pub(crate) fn walk(configuration: Configuration, steps: &[&str]) -> Result<State, String> {
    let model = Protocol { configuration };
    let mut state = model.init_states().remove(0);
    for (number, step) in steps.iter().enumerate() {
        let (text, is_optional) = match step.strip_prefix('?') {
            Some(text) => (text, true),
            None => (*step, false),
        };
        let mut actions = Vec::new();
        model.actions(&state, &mut actions);
        let found = actions.into_iter().rev().find(|action| action.to_string().contains(text));
        match found.and_then(|action| model.next_state(&state, action)) {
            Some(next) => state = next,
            None if is_optional => {}
            None => return Err(format!("step {}: {text} is not possible", number + 1)),
        }
    }
    Ok(state)
}
