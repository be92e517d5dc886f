//! Checks of driver `ocf`.

use super::super::context::Context;
use crate::driver::OcfDriver;

pub(super) fn check(ocf: &OcfDriver, context: &mut Context) {
    let plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    if !ocf.agent.split_once(':').is_some_and(|(provider, agent)| plain(provider) && plain(agent)) {
        context.invalid(
            "spec.driver.ocf.agent",
            format!("must be provider:agent, as heartbeat:IPaddr2, got {:?}", ocf.agent),
        );
    }
}
