//! Tests of an unmodified kubectl against the API: get, watch, apply, diff, describe, explain, wait and delete.

use std::io::{BufRead, BufReader};
use std::process::{Output, Stdio};

use anyhow::{Context, Result};
use ha_e2e::cluster::Cluster;
use ha_e2e::scenario::{STEP_TIMEOUT, Scenario, witness_spec};
use ha_e2e::wait::wait_until;
use serde_json::{Value, json};

fn kubectl(cluster: &Cluster, arguments: &[&str], expected: i32) -> Result<String> {
    let output: Output = cluster.kubectl(arguments)?;
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(expected), "kubectl {}: {text}", arguments.join(" "));
    Ok(text)
}

#[test]
fn kubectl_works_against_the_api() -> Result<()> {
    let scenario = Scenario::start("kubectl")?;
    let cluster = &scenario.cluster;
    let write_file = |name: &str, value: &Value| -> Result<String> {
        let path = cluster.directory().join(name);
        std::fs::write(&path, value.to_string())?;
        Ok(path.to_str().context("path is not valid UTF-8")?.to_owned())
    };
    let mut object = json!({"apiVersion": "hactl.io/v1", "kind": "Resource", "metadata": {"name": "web"},
        "spec": witness_spec("web")?});
    let manifest = write_file("web.json", &object)?;
    object["spec"]["comment"] = json!("changed");
    let changed_manifest = write_file("web-changed.json", &object)?;
    object["spec"]["maxRestrat"] = json!(1);
    let invalid_manifest = write_file("web-wrong.json", &object)?;

    let names = kubectl(cluster, &["api-resources", "--api-group=hactl.io"], 0)?;
    assert!(names.contains("resources") && names.contains("har"), "{names}");
    assert!(kubectl(cluster, &["apply", "-f", &manifest], 0)?.contains("created"));
    assert!(kubectl(cluster, &["apply", "-f", &manifest], 0)?.contains("unchanged"));
    kubectl(cluster, &["diff", "-f", &manifest], 0)?;
    assert!(kubectl(cluster, &["diff", "-f", &changed_manifest], 1)?.contains("changed"));
    assert!(kubectl(cluster, &["apply", "-f", &changed_manifest], 0)?.contains("configured"));
    let refused = kubectl(cluster, &["apply", "-f", &invalid_manifest], 1)?;
    assert!(refused.contains("maxRestrat"), "{refused}");

    kubectl(
        cluster,
        &["wait", "--for=jsonpath={.status.state}=Started", "resource/web", "--timeout=60s"],
        0,
    )?;
    kubectl(cluster, &["wait", "--for=condition=Ready", "resource/web", "--timeout=60s"], 0)?;
    let list = kubectl(cluster, &["get", "resources"], 0)?;
    assert!(list.contains("web") && list.contains("Started"), "{list}");
    assert!(kubectl(cluster, &["get", "har,hag,nodes"], 0)?.contains("node1"));
    assert!(kubectl(cluster, &["get", "resource", "web", "-o", "yaml"], 0)?.contains("comment: changed"));
    assert!(kubectl(cluster, &["describe", "resource", "web"], 0)?.contains("changed"));
    let explained = kubectl(cluster, &["explain", "resource.spec"], 0)?;
    assert!(explained.contains("maxRestart") && explained.contains("driver"), "{explained}");
    assert!(
        kubectl(cluster, &["explain", "resource.spec.maxRestart"], 0)?.to_lowercase().contains("integer")
    );

    // A watch shows the change and ends at the request's timeout.
    scenario.wait_until_started("web")?;
    let mut watch = cluster
        .kubectl_command(&["get", "resources", "-w", "--request-timeout=15s"])?
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut watch_lines = BufReader::new(watch.stdout.take().context("no standard output")?).lines();
    let mut watch_output = Vec::new();
    // The change comes after the first list, which shows that the watch has begun.
    for line in watch_lines.by_ref() {
        watch_output.push(line?);
        if watch_output.last().is_some_and(|line| line.contains("web")) {
            break;
        }
    }
    kubectl(
        cluster,
        &["patch", "resource", "web", "--type=merge", "-p", r#"{"spec":{"state":"Stopped"}}"#],
        0,
    )?;
    scenario.wait_until_stopped("web")?;
    watch_output.extend(watch_lines.collect::<std::io::Result<Vec<String>>>()?);
    watch.wait()?;
    assert!(watch_output.iter().filter(|line| line.contains("web")).count() >= 2, "{watch_output:?}");

    kubectl(cluster, &["delete", "resource", "web", "--timeout=60s"], 0)?;
    wait_until("web to be deleted", STEP_TIMEOUT, || scenario.object("resources", "web").is_none())?;
    let missing = kubectl(cluster, &["get", "resource", "web"], 1)?;
    assert!(missing.contains("NotFound"), "{missing}");
    scenario.finish()
}
