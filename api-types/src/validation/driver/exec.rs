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
        (true, true) => context.required(
            path,
            "give command (a foreground process that is supervised), or start, stop and monitor",
        ),
        (false, false) => context.invalid(
            path,
            "has both command and start: command is a foreground process that is supervised, start a program that returns",
        ),
        (true, false) => {
            for (field, program) in [("stop", &exec.stop), ("monitor", &exec.monitor)] {
                if program.is_empty() {
                    context.required(&member(path, field), "start needs stop and monitor beside it");
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
