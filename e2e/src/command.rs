//! Running a program to its end, with the program's output in the error.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// Runs `program` and returns its standard output.
///
/// # Errors
/// Fails if the program cannot be started or fails. The error contains the command line and the output.
pub fn run<S: AsRef<OsStr>>(program: impl AsRef<OsStr>, arguments: &[S]) -> Result<String> {
    let output = output(program.as_ref(), arguments)?;
    if !output.status.success() {
        bail!(
            "`{}` failed ({}): {}{}",
            command_line(program.as_ref(), arguments),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim(),
            String::from_utf8_lossy(&output.stdout).trim(),
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the whole output of a command.
pub fn output_text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Checks the exit status of a command, and that its output contains these parts.
///
/// # Errors
/// Fails with the whole output.
pub fn check_output(output: &Output, expected: i32, parts: &[&str]) -> Result<()> {
    let text = output_text(output);
    ensure!(
        output.status.code() == Some(expected),
        "expected exit status {expected}, found {:?}: {text}",
        output.status
    );
    for part in parts {
        ensure!(text.contains(part), "{part:?} is missing: {text}");
    }
    Ok(())
}

/// Returns a path as an argument of a program.
pub fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Runs `program` and returns its status and output, even if it failed.
///
/// # Errors
/// Fails if the program cannot be started.
pub fn output<S: AsRef<OsStr>>(program: impl AsRef<OsStr>, arguments: &[S]) -> Result<Output> {
    Command::new(program.as_ref())
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start `{}`", command_line(program.as_ref(), arguments)))
}

/// Behaves like [`output`], with `input` on the program's standard input.
///
/// # Errors
/// Fails if the program cannot be started, or ends before it has read all input.
pub fn output_with_input<S: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    arguments: &[S],
    input: &[u8],
) -> Result<Output> {
    let mut child = Command::new(program.as_ref())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{}`", command_line(program.as_ref(), arguments)))?;
    if let Some(mut pipe) = child.stdin.take() {
        pipe.write_all(input)?;
    }
    Ok(child.wait_with_output()?)
}

/// Returns the first existing path of a tool, else its bare name for a search of PATH. Many administration tools are installed in
/// directories that an ordinary PATH lacks.
pub fn tool(name: &str) -> String {
    ["/usr/sbin", "/sbin", "/usr/bin", "/bin"]
        .iter()
        .map(|directory| format!("{directory}/{name}"))
        .find(|path| Path::new(path).exists())
        .unwrap_or_else(|| name.to_owned())
}

fn command_line<S: AsRef<OsStr>>(program: &OsStr, arguments: &[S]) -> String {
    let mut text = program.to_string_lossy().into_owned();
    for argument in arguments {
        text.push(' ');
        text.push_str(&argument.as_ref().to_string_lossy());
    }
    text
}
