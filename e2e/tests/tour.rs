//! Test of the tutorial: runs the commands of docs/tutorial.md on a sandbox from `./dev/up`, then `./dev/down`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use ha_e2e::binaries::repository;
use ha_e2e::scratch;

/// A sandbox that ends with the test.
struct Sandbox {
    directory: PathBuf,
}

impl Sandbox {
    fn up(name: &str) -> Result<Self> {
        let sandbox = Self { directory: scratch::directory(name)? };
        sandbox.run("./dev/up")?;
        Ok(sandbox)
    }

    /// Runs a line like a user: in the root of the working tree and with hactl on PATH.
    fn run(&self, line: &str) -> Result<String> {
        // The build directory is below `target/debug`, which also contains this test.
        let build = scratch::build_directory()?;
        let target = build.parent().context("build directory has no parent directory")?;
        let path = format!("{}:{}", self.directory.display(), std::env::var("PATH").unwrap_or_default());
        // A user's shell lacks the variables of cargo's test run. A change of these variables would rebuild ring and all crates
        // that depend on it.
        let of_this_test = std::env::vars_os().map(|(name, _)| name).filter(|name| {
            name.to_str()
                .is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
        });
        let mut command = Command::new("bash");
        for name in of_this_test {
            command.env_remove(name);
        }
        let output = command
            .args(["-c", line])
            .current_dir(repository())
            .env("PATH", path)
            .env("HACTL_SANDBOX", &self.directory)
            .env("CARGO_TARGET_DIR", target)
            // Build with the same features as this test. Otherwise all libraries would be built again for the programs alone.
            .env("HACTL_BUILD_ALSO", "--tests")
            .stdin(Stdio::null())
            .output()
            .with_context(|| line.to_owned())?;
        let output_text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            bail!("`{line}` failed ({}):\n{output_text}", output.status);
        }
        Ok(output_text)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // After `./dev/down`, no sandbox runs.
        let _ = self.run("./dev/down");
    }
}

/// Returns the commands between the two marks of the page, without comments.
fn tour_commands(page: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(page).with_context(|| page.display().to_string())?;
    let (_, rest) = text.split_once("<!-- tour: begin -->").context("docs/tutorial.md has no tour")?;
    let (tour, _) =
        rest.split_once("<!-- tour: end -->").context("the tour in docs/tutorial.md has no end")?;
    let blocks = tour.split("```").skip(1).step_by(2);
    let lines = blocks.flat_map(|block| block.lines().skip(1));
    let commands: Vec<String> = lines
        .map(|line| line.split("  #").next().unwrap_or_default().trim().to_owned())
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    if commands.is_empty() {
        bail!("the tour in docs/tutorial.md has no commands");
    }
    Ok(commands)
}

#[test]
fn the_commands_of_the_tutorial_work() -> Result<()> {
    let sandbox = Sandbox::up("tour")?;
    let redis = |command: &str| {
        sandbox.run(&format!(
            "cd {}/shared/redis && redis-cli -s redis.sock {command}",
            sandbox.directory.display()
        ))
    };
    redis("set greeting hello")?;
    for command in tour_commands(&repository().join("docs/tutorial.md"))? {
        sandbox.run(&command)?;
    }
    sandbox.run("hactl wait resource/cache --for=state=Started --timeout 60s")?;
    assert_eq!(redis("get greeting")?.trim(), "hello", "the data did not survive the tour");

    let output_text = sandbox.run("./dev/down")?;
    assert!(output_text.contains("removed"), "{output_text}");
    assert!(!sandbox.directory.exists(), "{} was left behind", sandbox.directory.display());
    Ok(())
}
