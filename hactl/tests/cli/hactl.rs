//! Runs of the binary, with checks of their results.

use super::server::Server;
use snapbox::IntoData;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// A run that has ended.
pub(crate) struct CommandResult {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl CommandResult {
    /// Asserts the exit status and the whole standard output. `SNAPSHOTS=overwrite cargo test` writes a changed output to
    /// the test.
    #[track_caller]
    pub(crate) fn expect_stdout(self, status: i32, stdout: impl IntoData) -> CommandResult {
        assert_eq!(self.status, status, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        snapbox::assert_data_eq!(self.stdout.clone(), stdout.raw());
        self
    }

    /// Asserts the exit status, and a part of standard error.
    pub(crate) fn expect_stderr(self, status: i32, part: &str) -> CommandResult {
        assert_eq!(self.status, status, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        assert!(self.stderr.contains(part), "{part:?} is not in\n{}", self.stderr);
        self
    }

    /// Asserts the exit status, and parts of standard output.
    pub(crate) fn expect_stdout_parts(self, status: i32, parts: &[&str]) -> CommandResult {
        assert_eq!(self.status, status, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        for part in parts {
            assert!(self.stdout.contains(part), "{part:?} is not in\n{}", self.stdout);
        }
        self
    }
}

/// Returns a command without environment variables that would change its behavior.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hactl"));
    command.args(arguments).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HACTL_CONFIG", "/nonexistent/config.yaml").stdin(Stdio::null());
    command
}

pub(crate) fn run(command: &mut Command) -> CommandResult {
    command_result(&command.output().expect("hactl runs"))
}

fn command_result(output: &Output) -> CommandResult {
    CommandResult {
        status: output.status.code().expect("hactl exited without a signal"),
        stdout: String::from_utf8(output.stdout.clone()).expect("UTF-8"),
        stderr: String::from_utf8(output.stderr.clone()).expect("UTF-8"),
    }
}

/// Runs `hactl --server … ARGUMENTS`.
pub(crate) fn hactl(server: &Server, arguments: &[&str]) -> CommandResult {
    run(command(&["--server", server.url()]).args(arguments))
}

/// Runs `hactl --server … ARGUMENTS` with a text on standard input.
pub(crate) fn hactl_with_input(server: &Server, arguments: &[&str], input: &str) -> CommandResult {
    let mut child = start(command(&["--server", server.url()]).args(arguments).stdin(Stdio::piped()));
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("hactl reads standard input");
    command_result(&child.wait_with_output().expect("hactl exits"))
}

/// Starts a command without waiting for its end.
pub(crate) fn start(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("hactl starts")
}

/// Writes a file into a directory and returns its path.
pub(crate) fn file(directory: &Path, name: &str, content: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, content).expect("a file");
    path.display().to_string()
}

/// Returns a resource as YAML.
pub(crate) fn resource(name: &str) -> String {
    format!(
        "apiVersion: hactl.io/v1\nkind: Resource\nmetadata:\n  name: {name}\nspec:\n  driver:\n    exec:\n      command: [sleep, '1']\n"
    )
}
