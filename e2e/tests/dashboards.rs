//! Tests of Grafana's dashboards on a real cluster with a real Prometheus: every query has a result.

use anyhow::Result;
use ha_e2e::dashboard::history;
use ha_e2e::dashboard::model::Dashboard;
use ha_e2e::dashboard::rig::Rig;
use ha_e2e::scenario::STEP_TIMEOUT;
use ha_e2e::scratch;
use ha_e2e::wait::wait_until;

#[test]
fn every_query_of_every_dashboard_has_an_answer() -> Result<()> {
    let mut rig = Rig::start(&scratch::directory("dashboards")?, 1)?;
    let chosen = history::cause_events(&mut rig)?;
    let dashboards = Dashboard::all()?;
    assert_eq!(dashboards.len(), 5);
    // The last events still have to be scraped and evaluated by the rules.
    let mut missing = Vec::new();
    let outcome = wait_until("an answer to every query", STEP_TIMEOUT, || {
        missing.clear();
        let querier = rig.querier(200);
        for dashboard in dashboards.values() {
            match querier.query_dashboard(dashboard, &chosen) {
                Ok(answers) => missing.extend(answers.missing),
                Err(error) => missing.push(format!("{error:#}")),
            }
        }
        missing.is_empty()
    });
    assert!(outcome.is_ok(), "{outcome:?}\n{}", missing.join("\n"));

    // Queries without data must be found: also a query whose `or vector(0)` hides the missing data, and one with an
    // unknown value of a label.
    let mut broken = dashboards["overview"].clone();
    let panel = broken.panels.iter_mut().find(|panel| !panel.targets.is_empty()).expect("a panel");
    let title = panel.title.clone();
    for query in [
        r#"hactl_leader{cluster="$cluster",instance="nobody"}"#,
        r#"sum(hactl_resource_state{cluster="$cluster",state="Strated"}) or vector(0)"#,
    ] {
        broken.panels.iter_mut().find(|panel| panel.title == title).expect("a panel").targets[0].expr =
            query.to_owned();
        let missing = rig.querier(200).query_dashboard(&broken, &chosen)?.missing;
        assert!(missing.iter().any(|missing| missing.contains(&title)), "{query}: {missing:?}");
    }
    rig.finish()
}
