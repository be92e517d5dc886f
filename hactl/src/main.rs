//! The command line `hactl`, a client of the API.

#![allow(
    clippy::format_push_string,
    clippy::format_collect,
    reason = "the output is short, and the code reads best in the order of the output"
)]

mod arguments;
mod atomic_file;
mod client;
mod command;
mod config;
mod duration;
mod encryption;
mod etcdctl;
mod failure;
mod help;
mod manifest;
mod merge;
mod names;
mod object;
mod render;
mod schema;
mod session;
mod terminal;

use arguments::Arguments;
use clap::error::ErrorKind;
use failure::{Exit, Failure};
use session::Session;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let program = words.next().unwrap_or_default();
    let name = std::path::Path::new(&program).file_name().and_then(std::ffi::OsStr::to_str);
    if let Some(program) = name.and_then(command::htools::Program::from_name) {
        return program.run(words);
    }
    let arguments = match Arguments::read() {
        Ok(arguments) => arguments,
        Err(error) => {
            // The help cannot be printed, and this error cannot be reported in another way.
            let _ = error.print();
            let is_requested = [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion].contains(&error.kind());
            return if is_requested { Exit::Done.into() } else { Exit::Usage.into() };
        }
    };
    let session = Session::new(&arguments.global);
    let outcome = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("cannot start the runtime: {error}")))
        .and_then(|runtime| runtime.block_on(command::run(&session, arguments.command)));
    match outcome {
        Ok(exit) => exit.into(),
        Err(failure) => {
            session.terminal().failure(&failure);
            failure.exit.into()
        }
    }
}
