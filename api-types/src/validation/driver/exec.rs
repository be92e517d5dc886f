//! Checks of driver `exec`.

use super::super::context::Context;
use super::{arguments, environment, user, working_directory};
use crate::driver::ExecDriver;
use crate::problem::member;

pub(super) fn check(exec: &ExecDriver, context: &mut Context) {
    let path = "spec.driver.exec";
    let commands = [
        ("command", &exec.command),
        ("start", &exec.start),
        ("stop", &exec.stop),
        ("monitor", &exec.monitor),
        ("migrate", &exec.migrate),
        ("replaceSecondary", &exec.replace_secondary),
    ];
    match (exec.command.is_empty(), exec.start.is_empty()) {
        (true, true) => context
            .required(path, "set command (a supervised foreground process), or start, stop and monitor"),
        (false, false) => context.invalid(
            path,
            "command and start are mutually exclusive: command is a supervised foreground process, start \
             is a program that returns",
        ),
        (true, false) => {
            for (field, program) in [("stop", &exec.stop), ("monitor", &exec.monitor)] {
                if program.is_empty() {
                    context.required(&member(path, field), "start also requires stop and monitor");
                }
            }
        }
        (false, true) => {}
    }
    for (field, program) in commands {
        arguments(&member(path, field), program, context);
    }
    environment(&member(path, "environment"), &exec.environment, context);
    working_directory(&member(path, "workingDirectory"), exec.working_directory.as_deref(), context);
    user(&member(path, "user"), exec.user.as_deref(), context);
}
