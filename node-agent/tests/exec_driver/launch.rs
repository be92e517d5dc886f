//! The environment of a program at its start, and the reasons why it may not start.

use crate::node::{Node, script, wait_until};
use crate::secrets::write_secret;
use ha_api_types::reason::Reason;
use ha_api_types::record::FailureClass;
use ha_api_types::resource::ServiceDefinition;
use ha_node_agent::driver::Driver;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use serde_json::{Value, json};
use std::fs;

async fn check_refused(node: &Node, exec: &Value, class: FailureClass, reason: Reason, expected_text: &str) {
    let service = node.service(exec);
    let failure = node.driver.start(&service).await.unwrap_err();
    assert_eq!((failure.class, failure.reason), (class, reason), "{}", failure.message);
    assert!(failure.message.contains(expected_text), "{}", failure.message);
    node.driver.stop(&service, 1000).await.unwrap();
    node.assert_nothing_left(&service).await;
}

#[tokio::test]
async fn programs_that_cannot_run_explain_why() {
    let node = Node::new(true);
    fs::write(node.path("plain"), "no program").unwrap();
    script(&node.path("orphan"), "#!/nonexistent/interpreter\n");
    let never = FailureClass::NeverHere;
    for program in ["/nonexistent/program", "no-such-program-anywhere", "./plain", "./orphan", "."] {
        check_refused(&node, &json!({"command": [program]}), never, Reason::NotInstalled, program).await;
        let scripts = json!({"start": [program], "stop": ["true"], "monitor": ["sh", "-c", "exit 7"]});
        check_refused(&node, &scripts, never, Reason::NotInstalled, program).await;
    }
    let mut exec = json!({"command": ["sleep", "1000000"], "user": "no-such-user"});
    check_refused(&node, &exec, never, Reason::BadConfiguration, "no-such-user").await;
    for directory in ["/nonexistent/folder", "/etc/passwd"] {
        exec = json!({"command": ["sleep", "1000000"], "workingDirectory": directory});
        check_refused(&node, &exec, never, Reason::BadConfiguration, directory).await;
    }
    let long = "x".repeat(4 * 1024 * 1024);
    let configuration_wrong = FailureClass::ConfigurationWrong;
    check_refused(
        &node,
        &json!({"command": ["sleep", long]}),
        configuration_wrong,
        Reason::BadConfiguration,
        "sleep",
    )
    .await;
    check_refused(&node, &json!({}), configuration_wrong, Reason::BadConfiguration, "command").await;
}

/// Starts the service and returns the value of a line of its /proc/PID/status.
fn status(node: &Node, key: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{}/status", node.main_process().unwrap())).unwrap();
    text.lines().find_map(|line| line.strip_prefix(key)).unwrap().trim().to_owned()
}

fn forever(node: &Node) -> ServiceDefinition {
    node.service(&json!({"command": ["sleep", "1000000"]}))
}

#[tokio::test]
async fn program_inherits_no_signals_or_descriptors() {
    // The agent was started with ignored signals, as by nohup, and leaks a descriptor.
    let wrapper = tempfile::tempdir().unwrap();
    let shim = wrapper.path().join("shim");
    let real = env!("CARGO_BIN_EXE_ha-exec-shim");
    script(
        &shim,
        &format!("#!/bin/sh\numask 077\ntrap '' HUP USR1 PIPE\nexec 7</dev/zero\nexec {real} \"$@\"\n"),
    );
    let leaked = fs::File::open("/dev/null").unwrap();
    fcntl(&leaked, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    let node = Node::with(|settings| settings.programs.shim_path = shim);
    let service = forever(&node);
    node.driver.start(&service).await.unwrap();
    let main = node.main_process().unwrap();
    let mut descriptors: Vec<String> = fs::read_dir(format!("/proc/{main}/fd"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    descriptors.sort();
    assert_eq!(descriptors, ["0", "1", "2"]);
    assert_eq!(fs::read_link(format!("/proc/{main}/fd/0")).unwrap().to_str(), Some("/dev/null"));
    // Two signals belong to the C library, which does not allow changes to them.
    let of_the_library = 1 << 31 | 1 << 32;
    for mask in ["SigIgn:", "SigBlk:"] {
        let signals = u64::from_str_radix(&status(&node, mask), 16).unwrap();
        assert_eq!(signals & !of_the_library, 0, "{mask}");
    }
    assert_eq!(status(&node, "Umask:"), "0022");
    let score = |pid: &str| fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
    assert_eq!(score(&main.to_string()), score("self"));
    drop(leaked);
    node.driver.kill(&service).await.unwrap();
}

#[tokio::test]
async fn program_sees_only_its_own_environment() {
    let node = Node::new(true);
    let service = node.service(&json!({
        "command": ["/bin/sh", "-c", "env > seen.new; pwd > where; mv seen.new seen; exec sleep 1000000"],
        "environment": {"COLOUR": "blue green", "HA_NODE": "forged"},
    }));
    node.driver.start(&service).await.unwrap();
    wait_until("the service has written its file", || node.path("seen").exists()).await;
    let environment = node.read("seen");
    let mut names: Vec<&str> = environment.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.sort_unstable();
    // The shell itself sets PWD, OLDPWD, SHLVL and _.
    names.retain(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name));
    assert_eq!(names, ["COLOUR", "HA_NODE", "HA_RESOURCE", "HA_RESOURCE_UID", "HA_SERVICE_FOLDER", "PATH"]);
    for line in ["COLOUR=blue green", "HA_NODE=node1", "HA_RESOURCE=web", "HA_RESOURCE_UID=uid-1"] {
        assert!(
            environment.lines().any(|environment_line| environment_line == line),
            "{line} in {environment}"
        );
    }
    assert_eq!(node.read("where").trim(), node.directory.path().to_str().unwrap());
    node.driver.kill(&service).await.unwrap();
}

/// The value is neither in the service's directory nor in a message, and only a start needs it.
#[tokio::test]
async fn a_value_from_the_node_reaches_only_the_program() {
    let node = Node::new(true);
    let secret = write_secret(&node.path("secrets"), "db", "hunter2\n");
    let reference = json!({"valueFrom": {"file": "db"}});
    let supervised = node.service(&json!({
        "command": ["/bin/sh", "-c", "echo $PASSWORD > seen.new; mv seen.new seen; exec sleep 1000000"],
        "environment": {"PASSWORD": reference},
    }));
    let scripts = |name: &str| {
        let mut service = node.service(&json!({
            "start": ["/bin/sh", "-c", "echo $PASSWORD > started; sleep 1000000 &"],
            "stop": ["/bin/sh", "-c", "echo stopped$PASSWORD > stopped; rm started"],
            "monitor": ["/bin/sh", "-c", "test -e started || exit 7"],
            "environment": {"PASSWORD": reference},
        }));
        service.name = name.into();
        service
    };
    node.driver.start(&supervised).await.unwrap();
    wait_until("the service has written its file", || node.path("seen").exists()).await;
    assert_eq!(node.read("seen"), "hunter2\n");
    for file in fs::read_dir(node.path("state/exec/web")).unwrap() {
        let path = file.unwrap().path();
        assert!(!fs::read_to_string(&path).unwrap_or_default().contains("hunter2"), "{}", path.display());
    }
    let db = scripts("db");
    node.driver.start(&db).await.unwrap();
    assert_eq!(node.read("started"), "hunter2\n");

    fs::remove_file(&secret).unwrap();
    node.driver.stop(&supervised, 5000).await.unwrap();
    node.driver.stop(&db, 5000).await.unwrap();
    assert_eq!(node.read("stopped"), "stopped\n");
    for service in [&supervised, &db] {
        let failure = node.driver.start(service).await.unwrap_err();
        assert!(failure.message.contains("PASSWORD: file db: cannot read"), "{}", failure.message);
    }
}

#[tokio::test]
async fn program_user_has_groups_and_home() {
    let node = Node::new(true);
    let service = node.service(&json!({
        "command": ["/bin/sh", "-c", "id -un; id -gn; echo home=$HOME user=$USER; exec sleep 1000000"],
        "user": "nobody",
        "workingDirectory": "/",
    }));
    let started = node.driver.start(&service).await;
    if !nix::unistd::Uid::effective().is_root() {
        let failure = started.unwrap_err();
        assert_eq!(failure.class, FailureClass::NeverHere, "{}", failure.message);
        return;
    }
    started.unwrap();
    wait_until("the service has printed three lines", || node.log().lines().count() == 3).await;
    let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    let group = nix::unistd::Group::from_gid(nobody.gid).unwrap().unwrap();
    let expected = format!("nobody\n{}\nhome={} user=nobody\n", group.name, nobody.dir.display());
    assert_eq!(node.log(), expected);
    assert_eq!(status(&node, "Uid:"), vec![nobody.uid.to_string(); 4].join("\t"));
    // None of root's groups is left.
    assert_eq!(status(&node, "Groups:"), nobody.gid.to_string());
    node.driver.stop(&service, 20_000).await.unwrap();
    node.assert_nothing_left(&service).await;
}

#[tokio::test]
async fn program_output_goes_to_bounded_log() {
    let node = Node::with(|settings| settings.programs.log_bytes_max = 64 * 1024);
    let service = node.shell(
        "i=0; while [ $i -lt 4000 ]; do echo line $i of what it prints all the time; i=$((i+1)); done; \
         echo last line >&2; exec sleep 1000000",
    );
    node.driver.start(&service).await.unwrap();
    wait_until("the last line is there", || node.log().ends_with("last line\n")).await;
    let previous = node.driver.log("web").with_extension("log.1");
    for file in [node.driver.log("web"), previous] {
        let length = fs::metadata(&file).unwrap().len();
        assert!(length <= 64 * 1024, "{}: {length}", file.display());
    }
    node.driver.kill(&service).await.unwrap();
}

#[tokio::test]
async fn output_during_stop_is_kept() {
    let node = Node::new(true);
    let service =
        node.shell("trap 'echo one more thing; kill -9 $$' TERM; echo ready; while :; do sleep 0.05; done");
    node.driver.start(&service).await.unwrap();
    wait_until("the service is ready", || node.log().contains("ready")).await;
    node.driver.stop(&service, 20_000).await.unwrap();
    assert_eq!(node.log(), "ready\none more thing\n");
}
