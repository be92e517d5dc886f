//! `hactl logs`: prints the last lines of a service's log, and follows new lines.

mod follower;

use crate::client::{ApiError, Client};
use crate::failure::{Exit, Failure, Outcome};
use crate::names::Target;
use crate::session::Session;
use clap::Args;
use follower::LogFollower;
use ha_api_types::record::LOG_LINES_MAX;
use std::time::{Duration, Instant};

/// Interval between requests while a log is followed.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Overlap of the periods of two requests, so that no line is lost because of clock differences and delays.
const OVERLAP: Duration = Duration::from_secs(5);

/// Print the log of a service from its driver
///
/// systemd: journal of the unit. podman: output of the container. lxc: console output of the container. libvirt: log
/// file of the console, or of QEMU. exec, ocf and external: output of the programs. The agent of the node reads the
/// log. A response contains at most 64 KiB; older lines are omitted.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hactl logs web\n  hactl logs web -f --since 10m\n  hactl logs vm:100 --tail 1000 --node node2"
)]
pub(crate) struct Logs {
    /// Name of the resource
    #[arg(value_name = "RESOURCE")]
    name: String,
    /// Print new lines until interrupted
    ///
    /// The log is read every second. Lines are omitted if more than 64 KiB or 10000 lines are written in that time.
    /// Consecutive identical lines may be printed only once.
    #[arg(long, short = 'f')]
    follow: bool,
    /// Number of last lines; -1 prints all lines within the limits
    #[arg(long, value_name = "LINES", default_value_t = 100, allow_negative_numbers = true)]
    tail: i64,
    /// Print only lines that are newer than a duration, such as 10m
    ///
    /// Logs of lxc, libvirt, exec, ocf and external have no timestamps. The whole log is printed if the service has
    /// written to it within this duration.
    #[arg(long, value_name = "DURATION", value_parser = crate::duration::parse)]
    since: Option<Duration>,
    /// Node to read the log from, instead of the node of the service
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
}

impl Logs {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        session.format(&[])?;
        let target = super::parse_resource(&self.name)?;
        let lines = parse_tail(self.tail)?;
        let node = self.node.as_deref().map(super::parse_node).transpose()?;
        let client = session.client()?;
        // This call fails with the most similar name if no resource has this name.
        client.get_target(&target).await?;
        let terminal = session.terminal();
        let requested_at = Instant::now();
        let read = self.read(client, &target, lines, self.since.map(whole_seconds), node.as_ref()).await;
        let (text, warnings) = read.map_err(to_failure)?;
        for warning in &warnings {
            terminal.warn(warning);
        }
        if !self.follow {
            terminal.print(&text);
            return Ok(Exit::Done);
        }
        let mut follower = LogFollower::default();
        terminal.print(&follower.new_lines(&text));
        let (mut read_at, mut is_failing) = (requested_at, false);
        while !terminal.is_closed() {
            tokio::time::sleep(POLL_INTERVAL).await;
            let requested_at = Instant::now();
            let since_seconds = whole_seconds(read_at.elapsed() + OVERLAP);
            match self.read(client, &target, LOG_LINES_MAX, Some(since_seconds), node.as_ref()).await {
                Ok((text, _)) => {
                    (read_at, is_failing) = (requested_at, false);
                    terminal.print(&follower.new_lines(&text));
                }
                // A service that is being moved has no node for a moment.
                Err(error) if error.is_transient() || error.is_status(409) => {
                    if !is_failing {
                        terminal.notice(&format!("retrying: {}", to_failure(error).message));
                    }
                    is_failing = true;
                }
                Err(error) => return Err(to_failure(error)),
            }
        }
        Ok(Exit::Done)
    }

    async fn read(
        &self,
        client: &Client,
        target: &Target,
        lines: u32,
        since_seconds: Option<u64>,
        node: Option<&Target>,
    ) -> Result<(String, Vec<String>), ApiError> {
        client.log(&target.name.name, lines, since_seconds, node.map(|node| node.name.name.as_str())).await
    }
}

/// Returns the number of lines to request; -1 means the maximum.
fn parse_tail(tail: i64) -> Result<u32, Failure> {
    match u32::try_from(tail) {
        Ok(lines @ 1..=LOG_LINES_MAX) => Ok(lines),
        _ if tail == -1 => Ok(LOG_LINES_MAX),
        Ok(_) | Err(_) => {
            Err(Failure::usage(format!("--tail {tail}: must be -1 or a number from 1 to {LOG_LINES_MAX}")))
        }
    }
}

/// Returns a duration in whole seconds, at least one.
fn whole_seconds(length: Duration) -> u64 {
    u64::try_from(length.as_millis().div_ceil(1000)).unwrap_or(u64::MAX).max(1)
}

fn to_failure(error: ApiError) -> Failure {
    if error.is_status(409) {
        return Failure::from(error).help("add --node NODE to read the log from a node");
    }
    Failure::from(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_line_count_is_bounded() {
        for (tail, expected) in [
            (-1, Some(10_000)),
            (1, Some(1)),
            (10_000, Some(10_000)),
            (0, None),
            (-2, None),
            (10_001, None),
            (i64::MAX, None),
        ] {
            assert_eq!(parse_tail(tail).ok(), expected, "{tail}");
        }
    }

    #[test]
    fn log_periods_are_whole_seconds() {
        for (milliseconds, expected) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (600_000, 600)] {
            assert_eq!(whole_seconds(Duration::from_millis(milliseconds)), expected);
        }
    }
}
