//! Ganeti's `hbal` on the same files, if it is installed.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

/// Returns the version of `hbal`; `None` if it is not installed.
pub(crate) fn version() -> Option<String> {
    let output = Command::new("hbal").arg("--version").output().ok()?;
    String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned)
}

/// Compares the score and its values with `ours`, and also the plan if `plan` is set. Only the first group is compared.
pub(crate) fn compared(file: &str, plan: bool, ours: &[f64]) -> String {
    let path: PathBuf = std::env::temp_dir().join(format!("balance-{}.data", std::process::id()));
    if let Err(error) = std::fs::write(&path, file) {
        return format!("no file for it: {error}");
    }
    let run = |arguments: &[&str]| {
        let output =
            Command::new("hbal").arg("-t").arg(&path).args(["-G", "group0"]).args(arguments).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
    };
    let table = run(&["-l", "0", "-vvv"]);
    let theirs = coefficients(&table);
    let scores = if theirs.len() == ours.len() {
        let worst = ours.iter().zip(&theirs).map(|(one, other)| (one - other).abs()).fold(0.0, f64::max);
        format!("scores differ by {worst:.1e} at most")
    } else {
        format!("scores cannot be compared: {} values instead of {}", theirs.len(), ours.len())
    };
    let planned = if plan {
        let begun = Instant::now();
        let said = run(&[]);
        let seconds = begun.elapsed().as_secs_f64();
        let improved = said.lines().find(|line| line.starts_with("Cluster score improved"));
        let end = improved.and_then(|line| line.split_whitespace().last()).unwrap_or("-");
        let copies = said.matches(" r:").count() + said.matches("a=r:").count();
        format!(", its plan: {end}, {copies} copies, {seconds:.1} s")
    } else {
        String::new()
    };
    // A file that stays in the directory for temporary files does no harm.
    let _ = std::fs::remove_file(&path);
    scores + &planned
}

/// Parses the overall score and the values from the table that `-vvv` prints.
fn coefficients(text: &str) -> Vec<f64> {
    let overall = text.lines().find_map(|line| line.strip_prefix("Initial coefficients: overall "));
    let rows = text.lines().filter(|line| line.starts_with("   ")).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [_, value, weight] if weight.starts_with('x') => value.parse().ok(),
            _ => None,
        }
    });
    overall.and_then(|score| score.trim().parse().ok()).into_iter().chain(rows).collect()
}
