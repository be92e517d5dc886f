//! Checks of driver `ocf` that need no agent; the checks of its parameters are in `crate::ocf`.

use super::super::context::Context;
use crate::driver::OcfDriver;
use crate::ocf::AgentName;
use crate::problem::member;

pub(super) fn check(ocf: &OcfDriver, context: &mut Context) {
    let path = "spec.driver.ocf";
    if let Err(error) = ocf.agent.parse::<AgentName>() {
        context.invalid(&member(path, "agent"), error.to_string());
    }
    for (name, value) in &ocf.parameters {
        let at = member(&member(path, "parameters"), name);
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if name.is_empty() || !name.bytes().all(plain) {
            context.invalid(&at, format!("{name:?} is not a valid parameter name"));
        }
        if value.contains('\0') {
            context.invalid(&at, "must not contain a NUL character");
        }
    }
    if let Some(seconds) = ocf.monitor_interval_seconds
        && !(0.1..=86_400.0).contains(&seconds)
    {
        context.invalid(
            &member(path, "monitorIntervalSeconds"),
            format!("must be between 0.1 and 86400, got {seconds}"),
        );
    }
}
