//! What a cluster consists of, as balancing sees it: groups, nodes, instances, policies; sizes in MiB.

use super::binding::Binding;
use std::collections::BTreeMap;

/// A cluster as it was read, before anything moves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cluster {
    /// Which generation of the text format it came in, and is written in.
    pub generation: Generation,
    /// The node groups.
    pub groups: Vec<Group>,
    /// The nodes of all groups.
    pub nodes: Vec<Node>,
    /// The instances of all groups.
    pub instances: Vec<Instance>,
    /// Tags of the cluster; some of them are settings of the balancer.
    pub tags: Vec<String>,
    /// Limits of the cluster and of single groups.
    pub policies: Vec<Policy>,
    /// What ties instances of a live cluster beyond that, by their position; files have none.
    pub bindings: BTreeMap<usize, Binding>,
    /// Cpus are counted in thousandths, as those of a live cluster are.
    pub cpus_in_thousandths: bool,
}

/// The two generations of the text format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Generation {
    /// Groups have 3 fields, nodes up to 10, instances 10; policies hold one range of sizes.
    Older,
    /// Everything that is known.
    #[default]
    Newer,
}

/// A node group: instances move inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its identity, which nodes refer to.
    pub uuid: String,
    /// Whether new instances may come to it.
    pub allocation: Allocation,
    /// Its tags.
    pub tags: Vec<String>,
    /// The networks that are connected to it.
    pub networks: Vec<String>,
}

/// Whether a group takes new instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Before all others.
    Preferred,
    /// When no preferred one has room.
    LastResort,
    /// Never.
    Unallocable,
}

/// A machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Memory of the machine.
    pub memory_total: i64,
    /// Memory that the machine itself uses.
    pub memory_own: i64,
    /// Memory that is free.
    pub memory_free: i64,
    /// Disk of the machine.
    pub disk_total: i64,
    /// Disk that is free.
    pub disk_free: i64,
    /// Physical cpus.
    pub cpus: i64,
    /// What it does in the cluster.
    pub role: Role,
    /// The group that it belongs to, by position in [`Cluster::groups`].
    pub group: usize,
    /// Disk spindles.
    pub spindles: i64,
    /// Its tags.
    pub tags: Vec<String>,
    /// Whether instances have spindles of their own here.
    pub exclusive_storage: bool,
    /// Spindles that are free; only of meaning with exclusive storage.
    pub spindles_free: i64,
    /// Virtual cpus that the machine itself uses.
    pub cpus_own: i64,
    /// Speed of its cpus relative to an ordinary node's.
    pub cpu_speed: f64,
}

/// What a node does in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs instances.
    Member,
    /// Runs instances and manages the cluster.
    Master,
    /// Is off, or to be left alone: nothing is placed here.
    Offline,
}

/// A virtual machine or another service with a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its name.
    pub name: String,
    /// Its memory.
    pub memory: i64,
    /// Its disk.
    pub disk: i64,
    /// Its virtual cpus.
    pub vcpus: i64,
    /// Whether it runs.
    pub status: Status,
    /// Whether its secondary keeps memory for it.
    pub auto_balance: bool,
    /// Where it runs, by position in [`Cluster::nodes`].
    pub primary: usize,
    /// Where the other copy of its disk is.
    pub secondary: Option<usize>,
    /// How its disk is stored.
    pub template: Template,
    /// Its tags.
    pub tags: Vec<String>,
    /// How much of a spindle it uses.
    pub spindle_use: i64,
    /// The spindles of its own, with exclusive storage.
    pub disk_spindles: Option<i64>,
    /// It does not exist yet, but its place is taken.
    pub forthcoming: bool,
    /// Measured use, in [`LOAD_UNIT`]ths: cpu, memory, disk, network.
    pub load: [i64; 4],
}

/// Loads are whole numbers of this fraction, so that sums of them are exact.
pub const LOAD_UNIT: i64 = 1_000_000_000;

/// Without measurements every instance loads everything alike.
pub const DEFAULT_LOAD: [i64; 4] = [LOAD_UNIT; 4];

/// Whether an instance runs, and whether it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Runs.
    Running,
    /// Runs although it should not.
    ErrorUp,
    /// Is stopped, as wanted.
    AdminDown,
    /// Is stopped and takes no resources.
    AdminOffline,
    /// Is stopped although it should run.
    ErrorDown,
    /// Its node is down.
    ErrorNodeDown,
    /// Its node is offline.
    ErrorNodeOffline,
    /// Runs on another node than it should.
    ErrorWrongNode,
    /// Was shut down from inside.
    UserDown,
}

impl Status {
    /// Every status with its word in files.
    pub const WORDS: [(Status, &str); 9] = [
        (Status::Running, "running"),
        (Status::ErrorUp, "ERROR_up"),
        (Status::AdminDown, "ADMIN_down"),
        (Status::AdminOffline, "ADMIN_offline"),
        (Status::ErrorDown, "ERROR_down"),
        (Status::ErrorNodeDown, "ERROR_nodedown"),
        (Status::ErrorNodeOffline, "ERROR_nodeoffline"),
        (Status::ErrorWrongNode, "ERROR_wrongnode"),
        (Status::UserDown, "USER_down"),
    ];

    /// It runs, so it uses memory, and moving it is a migration.
    pub fn is_running(self) -> bool {
        matches!(self, Status::Running | Status::ErrorUp)
    }

    /// It takes neither cpus nor memory, here or on its secondary.
    pub fn is_offline(self) -> bool {
        self == Status::AdminOffline
    }
}

/// How an instance's disk is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Template {
    /// No disk.
    Diskless,
    /// A file on the node.
    File,
    /// A file on shared storage.
    SharedFile,
    /// A logical volume of the node.
    Plain,
    /// A shared block device.
    BlockDevice,
    /// Two copies, on the primary and the secondary.
    Drbd,
    /// Ceph.
    Rbd,
    /// Another provider of shared storage.
    External,
    /// Gluster.
    Gluster,
}

/// How far the storage of an instance reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Two nodes have copies.
    Replicated,
    /// Every node reaches it.
    Shared,
    /// Only one node has it: the instance stays.
    Local,
}

impl Template {
    /// Every template with its word in files.
    pub const WORDS: [(Template, &str); 9] = [
        (Template::Diskless, "diskless"),
        (Template::File, "file"),
        (Template::SharedFile, "sharedfile"),
        (Template::Plain, "plain"),
        (Template::BlockDevice, "blockdev"),
        (Template::Drbd, "drbd"),
        (Template::Rbd, "rbd"),
        (Template::External, "ext"),
        (Template::Gluster, "gluster"),
    ];

    /// How far it reaches.
    pub fn reach(self) -> Reach {
        match self {
            Template::Drbd => Reach::Replicated,
            Template::File | Template::Plain => Reach::Local,
            Template::Diskless
            | Template::SharedFile
            | Template::BlockDevice
            | Template::Rbd
            | Template::External
            | Template::Gluster => Reach::Shared,
        }
    }

    /// It takes disk space and spindles of its nodes.
    pub fn uses_node_disk(self) -> bool {
        matches!(self, Template::Plain | Template::Drbd)
    }
}

/// Limits of the cluster (owner empty) or of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Name of the group; empty for the cluster.
    pub owner: String,
    /// The usual size.
    pub standard: Specification,
    /// Allowed ranges, least and greatest.
    pub ranges: Vec<(Specification, Specification)>,
    /// Allowed ways to store disks.
    pub templates: Vec<Template>,
    /// Virtual cpus for each physical one, at most.
    pub vcpu_ratio: f64,
    /// Uses for each spindle, at most.
    pub spindle_ratio: f64,
}

/// A size of an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Specification {
    /// Memory.
    pub memory: i64,
    /// Virtual cpus.
    pub cpus: i64,
    /// Disk.
    pub disk: i64,
    /// Number of disks.
    pub disks: i64,
    /// Number of network cards.
    pub nics: i64,
    /// Use of spindles.
    pub spindles: i64,
}

/// Virtual cpus for each physical one where nothing else is said.
pub const DEFAULT_VCPU_RATIO: f64 = 4.0;
/// Uses for each spindle where nothing else is said.
pub const DEFAULT_SPINDLE_RATIO: f64 = 32.0;

impl Cluster {
    /// The policy in force for a group: its own, else the cluster's.
    pub fn policy(&self, group: usize) -> Option<&Policy> {
        let name = self.groups.get(group).map_or("", |group| group.name.as_str());
        let owned_by = |owner: &str| self.policies.iter().find(|policy| policy.owner == owner);
        owned_by(name).or_else(|| owned_by(""))
    }
}
