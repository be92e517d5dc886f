//! `hactl node watchdog`: shows a node's watchdog as its agent committed it, with the daemon's observations.

use crate::failure::{Exit, Failure, Outcome};
use crate::render::Format;
use crate::render::table::{Cell, Table};
use crate::session::Session;
use crate::terminal::Style;
use clap::Args;
use ha_api_types::node::WatchdogStatus;
use ha_api_types::time::DecimalSeconds;

#[derive(Args, Debug)]
pub(super) struct Watchdog {
    /// Name of the node
    node: String,
}

impl Watchdog {
    pub(super) async fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Yaml, Format::Json])?;
        let node = session.client()?.node(&super::super::parse_node(&self.node)?).await?.into_strict()?;
        let watchdog = node.status.and_then(|status| status.watchdog).ok_or_else(|| {
            Failure::failed(format!("node {} has not reported its watchdog", self.node))
                .help("run \"hactl status\" to check that the agent has registered")
        })?;
        let value = serde_json::to_value(&watchdog)
            .map_err(|error| Failure::failed(format!("cannot print the watchdog: {error}")))?;
        if !session.print_value(format, &value)? {
            let terminal = session.terminal();
            let mut table = Table::new(&["", ""]);
            for (name, value) in rows(&watchdog) {
                table.add_row(vec![Cell::styled(name, Style::Dim), Cell::plain(&value)]);
            }
            terminal.print(&table.render(terminal, 0));
        }
        Ok(if watchdog.kind == "None" { Exit::Failed } else { Exit::Done })
    }
}

fn rows(watchdog: &WatchdogStatus) -> Vec<(&'static str, String)> {
    let yes_or_no = |holds: bool| if holds { "yes" } else { "no" }.to_owned();
    let facts = watchdog.observation.as_ref();
    let or_unknown =
        |text: Option<String>| text.unwrap_or_else(|| "unknown while the watchdog is not armed".to_owned());
    let kind = if watchdog.sliding {
        "sliding: each renewal sets the time left before the deadline"
    } else {
        "fixed: may fire up to a full timeout after the deadline"
    };
    vec![
        ("Kind", watchdog.kind.clone()),
        ("Device", watchdog.device.clone()),
        ("Identity", watchdog.identity.clone()),
        ("Timeout", format!("{} s", seconds(watchdog.timeout_seconds))),
        (
            "Supported timeouts",
            or_unknown(
                facts
                    .map(|facts| format!("{} to {} s", facts.min_timeout_seconds, facts.max_timeout_seconds)),
            ),
        ),
        ("Timeout type", kind.to_owned()),
        ("Descriptor retained", yes_or_no(watchdog.descriptor_retained)),
        ("nowayout", or_unknown(facts.map(|facts| yes_or_no(facts.nowayout)))),
        (
            "Pretimeout",
            or_unknown(facts.map(|facts| {
                facts.pretimeout_seconds.map_or_else(|| "none".to_owned(), |seconds| format!("{seconds} s"))
            })),
        ),
        ("Armed", yes_or_no(watchdog.armed)),
        ("Tested", yes_or_no(watchdog.tested)),
        ("Last test", last_test(watchdog)),
        (
            "Smallest margin",
            or_unknown(
                facts
                    .and_then(|facts| facts.min_margin_seconds)
                    .map(|margin| format!("{} ms left at a renewal", margin.ms())),
            ),
        ),
        (
            "Largest delay",
            or_unknown(
                facts
                    .and_then(|facts| facts.max_delay_seconds)
                    .map(|delay| format!("{} ms in the renewal loop", delay.ms())),
            ),
        ),
        (
            "Daemon",
            or_unknown(facts.map(|facts| match (facts.real_time, facts.memory_locked) {
                (true, true) => "real-time, memory locked".to_owned(),
                (true, false) => "real-time, memory not locked".to_owned(),
                (false, true) => "not real-time, memory locked".to_owned(),
                (false, false) => "neither real-time nor memory locked".to_owned(),
            })),
        ),
    ]
}

fn seconds(duration: DecimalSeconds) -> f64 {
    duration.ms() as f64 / 1000.0
}

/// Returns the last passed test of this machine's watchdog driver, and the reason if the test is no longer valid.
fn last_test(watchdog: &WatchdogStatus) -> String {
    let Some(test) = &watchdog.last_test else {
        return "none passed: run \"hactl node test-watchdog NODE\"".to_owned();
    };
    let outdated_note = if watchdog.tested { "" } else { "; the timeout has changed since: test again" };
    format!(
        "{}: reset with a timeout of {} s, {} s after arming (boot {} ended, boot {} started){outdated_note}",
        test.at,
        seconds(test.timeout_seconds),
        test.lasted_seconds.ms().div_ceil(1000),
        test.boot_id,
        test.next_boot_id,
    )
}
