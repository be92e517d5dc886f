//! Writes the manual page ha-controller(8) to a given file. `dev/packages` puts the page into the package.

use clap_mangen::Man;
use ha_controller::shell::Options;
use ha_runtime::program::ProgramOptions;
use std::path::PathBuf;

/// Sections of the manual page that clap cannot generate from the options.
const EXTRA_SECTIONS: &str = include_str!("../../manifests/man/ha-controller.roff");

fn main() -> anyhow::Result<()> {
    let file = std::env::args_os().nth(1).map(PathBuf::from).ok_or_else(|| anyhow::anyhow!("which file?"))?;
    let mut page = Vec::new();
    Man::new(ha_runtime::config::command::<Options>(Options::PREFIX)).section("8").render(&mut page)?;
    page.extend_from_slice(EXTRA_SECTIONS.as_bytes());
    Ok(std::fs::write(file, page)?)
}
