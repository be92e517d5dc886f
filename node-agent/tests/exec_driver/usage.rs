//! The measured usage is that of the service, with and without a control group.

use crate::node::{Node, wait_until};
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::MonotonicTime;
use ha_node_agent::core::{Meter, Sample};
use ha_node_agent::driver::Driver;
use nix::unistd::{SysconfVar, sysconf};
use std::fs;

async fn sample(node: &Node, service: &ServiceDefinition) -> Option<Sample> {
    node.driver.measure(service, MonotonicTime(7)).await
}

fn cpu_us(sample: &Sample) -> u64 {
    match sample.cpu {
        Some(Meter::Total(us)) => us,
        Some(Meter::Rate(_)) | None => panic!("a counter: {sample:?}"),
    }
}

/// Returns the kernel's CPU time of the process alone, microseconds.
fn of_process(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = text.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    ticks * 1_000_000 / u64::try_from(sysconf(SysconfVar::CLK_TCK).unwrap().unwrap()).unwrap()
}

#[tokio::test]
async fn measured_usage_is_that_of_service() {
    for cgroups in [true, false] {
        let node = Node::new(cgroups);
        // 48 MiB stay in memory. One child works and ends; then the main process works indefinitely.
        let service = node.shell(
            "text=$(head -c 50331648 /dev/zero | tr '\\0' x); (i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done); \
             touch ready; while :; do :; done; echo $text",
        );
        assert_eq!(sample(&node, &service).await, None, "the service does not run");
        node.driver.start(&service).await.unwrap();
        wait_until("the service is ready", || node.path("ready").exists()).await;
        let main = node.main_process().unwrap();
        wait_until("the service has used CPU time", || of_process(main) > 500_000).await;
        let before = of_process(main);
        let measured = sample(&node, &service).await.unwrap_or_else(|| panic!("nothing, cgroups {cgroups}"));
        // The usage includes the usage of the children, and no usage is counted twice.
        let limit_us = 2 * of_process(main) + 5_000_000;
        let cpu = cpu_us(&measured);
        assert!((before..limit_us).contains(&cpu), "{cpu} µs, {before}, {limit_us}, cgroups {cgroups}");
        let memory = measured.memory.unwrap();
        assert!((48 << 20..400 << 20).contains(&memory), "{memory} bytes, cgroups {cgroups}");
        wait_until("the service has used more CPU time", || of_process(main) > before + 300_000).await;
        let later = sample(&node, &service).await.unwrap();
        assert!(cpu_us(&later) >= cpu + 250_000, "{later:?} after {measured:?}, cgroups {cgroups}");
        node.driver.stop(&service, 1000).await.unwrap();
        let after = sample(&node, &service).await;
        assert!(after.is_none_or(|sample| sample.memory == Some(0)), "{after:?}, cgroups {cgroups}");
    }
}
