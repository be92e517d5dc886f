//! `hactl completion`, and the hidden `hactl generate` for packages.

use crate::arguments::Arguments;
use crate::failure::{Exit, Failure, Outcome};
use crate::session::Session;
use clap::{Args, CommandFactory, ValueHint};
use clap_complete::Shell;
use std::path::{Path, PathBuf};

/// Print the completion script for a shell
#[derive(Args, Debug)]
#[command(
    after_help = "bash: source <(hactl completion bash)\nfish: hactl completion fish | source\nzsh:  hactl completion zsh > \"${fpath[1]}/_hactl\""
)]
pub(crate) struct Completion {
    /// Shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completion {
    pub(crate) fn run(&self, session: &Session) -> Exit {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Arguments::command(), "hactl", &mut script);
        session.terminal().print(&String::from_utf8_lossy(&script));
        Exit::Done
    }
}

/// Write man pages and completion scripts to a directory, for packages
#[derive(Args, Debug)]
pub(crate) struct Generate {
    /// Directory in which `man1` and `completions` are created
    #[arg(value_hint = ValueHint::DirPath)]
    directory: PathBuf,
}

impl Generate {
    pub(crate) fn run(&self) -> Outcome {
        write(&self.directory).map_err(|error| {
            Failure::failed(format!("cannot write {}: {error}", self.directory.display()))
        })?;
        Ok(Exit::Done)
    }
}

fn write(directory: &Path) -> std::io::Result<()> {
    let pages = directory.join("man1");
    std::fs::create_dir_all(&pages)?;
    clap_mangen::generate_to(Arguments::command().disable_help_subcommand(true), &pages)?;
    let completions = directory.join("completions");
    std::fs::create_dir_all(&completions)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut Arguments::command(), "hactl", &completions)?;
    }
    Ok(())
}
