//! Random services, with groups and placement rules.

use super::Size;
use super::cluster::{Cluster, object, random_between, random_name};
use crate::random::Random;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

impl Cluster {
    pub(super) fn add_services(&mut self, random: &mut Random, size: Size) {
        let groups = self.add_groups(random);
        let with_requests = random.draw_chance(0.5);
        let service_count = random_between(random, 3, size.resources);
        for number in 1..=service_count {
            let name = format!("r{number}");
            let spec = self.random_spec(random, &groups, with_requests);
            self.objects.push(object("Resource", &name, &spec));
            self.resources.push(name);
        }
        if random.draw_chance(0.3) {
            self.add_dependencies(random);
        }
        if random.draw_chance(0.2) {
            let spec = self.random_spec(random, &groups, false);
            self.later_objects.push(object("Resource", "added", &spec));
            self.added_names.push("added".to_owned());
        }
        for number in 0..random.draw_below(4) {
            let spec = self.random_rule(random);
            self.objects.push(object("AffinityRule", &format!("rule{number}"), &spec));
        }
    }

    /// Makes some services depend on one or two other services.
    fn add_dependencies(&mut self, random: &mut Random) {
        for index in 1..self.resources.len() {
            if random.draw_chance(0.6) {
                continue;
            }
            let dependencies: BTreeSet<String> =
                (0..=random.draw_below(2)).map(|_| random_name(random, &self.resources[..index])).collect();
            let name = &self.resources[index];
            let is_named = |object: &&mut Value| {
                object["kind"] == "Resource" && object["metadata"]["name"] == name.as_str()
            };
            if let Some(object) = self.objects.iter_mut().find(is_named) {
                object["spec"]["dependsOn"] = json!(dependencies);
            }
        }
    }

    fn some_nodes(&self, random: &mut Random) -> Map<String, Value> {
        let count = 2 + random.draw_below(self.nodes.len() - 1);
        (0..count).map(|_| (random_name(random, &self.nodes), json!(random.draw_below(3)))).collect()
    }

    fn add_groups(&mut self, random: &mut Random) -> Vec<String> {
        let mut names = Vec::new();
        for number in 0..random.draw_below(3) {
            let name = format!("group{number}");
            let nodes = self.some_nodes(random);
            let restricted = nodes.len() > 1 && random.draw_chance(0.3);
            let spec =
                json!({"nodes": nodes, "restricted": restricted, "nofailback": random.draw_chance(0.3)});
            self.objects.push(object("Group", &name, &spec));
            names.push(name);
        }
        names
    }

    /// Generates a rule about nodes, or about two to four services that are kept together or apart.
    fn random_rule(&self, random: &mut Random) -> Value {
        let max_members = if random.draw_chance(0.5) { 2 } else { 4 };
        let members: BTreeSet<String> =
            (0..max_members).map(|_| random_name(random, &self.resources)).collect();
        let strict = random.draw_chance(0.6);
        let mut rule = if members.len() < 2 || random.draw_chance(0.3) {
            json!({"nodeAffinity": {"resources": members, "nodes": self.some_nodes(random), "strict": strict}})
        } else {
            let affinity = if random.draw_chance(0.5) { "Positive" } else { "Negative" };
            json!({"resourceAffinity": {"resources": members, "affinity": affinity, "strict": strict}})
        };
        if random.draw_chance(0.1) {
            rule["disabled"] = json!(true);
        }
        rule
    }

    fn random_driver(&mut self, random: &mut Random) -> Value {
        let mut driver = Map::new();
        driver.insert("type".to_owned(), json!("vm"));
        driver.insert("live".to_owned(), json!(random.draw_chance(0.75)));
        driver.insert("startSeconds".to_owned(), json!(random.draw_below(4)));
        driver.insert("stopSeconds".to_owned(), json!(random.draw_below(4)));
        driver.insert("migrateSeconds".to_owned(), json!(1 + random.draw_below(8)));
        if random.draw_chance(0.2) {
            driver.insert("startFailures".to_owned(), json!(1 + random.draw_below(3)));
        }
        if random.draw_chance(0.15) {
            driver.insert("migrateFailures".to_owned(), json!(1 + random.draw_below(2)));
        }
        if random.draw_chance(0.05) {
            driver.insert("stopFails".to_owned(), json!(true));
            self.some_stops_fail = true;
        }
        if random.draw_chance(0.3) {
            driver.insert("failOn".to_owned(), json!([random_name(random, &self.nodes)]));
        }
        if random.draw_chance(0.08) {
            driver.insert("missing".to_owned(), json!([random_name(random, &self.nodes)]));
        }
        Value::Object(driver)
    }

    fn random_spec(&mut self, random: &mut Random, groups: &[String], with_requests: bool) -> Value {
        let driver = self.random_driver(random);
        let mut spec = Map::new();
        spec.insert("driver".to_owned(), json!({"simulated": driver}));
        spec.insert("maxRestart".to_owned(), json!(random.draw_below(3)));
        spec.insert("maxRelocate".to_owned(), json!(random.draw_below(3)));
        spec.insert("priority".to_owned(), json!(random.draw_below(3)));
        spec.insert("failback".to_owned(), json!(random.draw_chance(0.7)));
        if random.draw_chance(0.1) {
            spec.insert("state".to_owned(), json!("Stopped"));
        }
        if random.draw_chance(0.07) {
            spec.insert("exclusive".to_owned(), json!(false));
        }
        if !groups.is_empty() && random.draw_chance(0.5) {
            spec.insert("group".to_owned(), json!(random_name(random, groups)));
        }
        if with_requests && random.draw_chance(0.7) {
            let memory = format!("{}Mi", 256 * (1 + random.draw_below(16)));
            spec.insert("requests".to_owned(), json!({"cpu": 1 + random.draw_below(3), "memory": memory}));
        }
        Value::Object(spec)
    }
}
