//! The balancer's model of a cluster: groups, nodes, instances and policies. Memory and disk sizes are in MiB.

use super::live_constraints::LiveConstraints;
use std::collections::BTreeMap;

/// A cluster as it was read, before any move.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cluster {
    /// Generation of the text format in which the cluster was read and is written.
    pub generation: FormatGeneration,
    /// The node groups.
    pub groups: Vec<Group>,
    /// The nodes of all groups.
    pub nodes: Vec<Node>,
    /// The instances of all groups.
    pub instances: Vec<Instance>,
    /// Tags of the cluster; some of them configure the balancer.
    pub tags: Vec<String>,
    /// Policies of the cluster and of single groups.
    pub policies: Vec<Policy>,
    /// Further constraints of the instances of a live cluster, by position; empty for clusters from files.
    pub live_constraints: BTreeMap<usize, LiveConstraints>,
    /// `true` if the lines of instances have the field `forthcoming`, which programs before Ganeti 2.16 do not support.
    pub has_forthcoming_field: bool,
    /// `true` if cpus are counted in thousandths, as on a live cluster.
    pub cpus_in_thousandths: bool,
}

/// The two generations of the text format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FormatGeneration {
    /// Groups have 3 fields, nodes up to 10, instances 10; policies contain one range of sizes.
    Older,
    /// Groups, nodes and instances have all known fields; policies contain several ranges of sizes.
    #[default]
    Newer,
}

/// A node group; instances move inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Name of the group, unique in the cluster.
    pub name: String,
    /// Identity of the group, to which nodes refer.
    pub uuid: String,
    /// Allocation policy for new instances.
    pub allocation: Allocation,
    /// Tags of the group, which the balancer keeps but does not evaluate.
    pub tags: Vec<String>,
    /// Networks to which the group is connected.
    pub networks: Vec<String>,
}

/// The policy of a group for new instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Chosen before all other groups.
    Preferred,
    /// Chosen if no Preferred group has capacity.
    LastResort,
    /// Never chosen.
    Unallocable,
}

/// A node with its capacity, its own use, and its free amounts.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Name of the node, unique in the cluster.
    pub name: String,
    /// Total memory, in MiB.
    pub memory_total: i64,
    /// Memory that the node itself uses, in MiB.
    pub memory_own: i64,
    /// Free memory, in MiB; negative if overcommitted.
    pub memory_free: i64,
    /// Total disk space, in MiB.
    pub disk_total: i64,
    /// Free disk space, in MiB; negative if overcommitted.
    pub disk_free: i64,
    /// Number of physical cpus.
    pub cpus: i64,
    /// Role of the node in the cluster.
    pub role: Role,
    /// Group of the node, by position in [`Cluster::groups`].
    pub group: usize,
    /// Number of disk spindles.
    pub spindles: i64,
    /// Tags of the node: failure domains and migration tags, by the prefixes in the cluster's tags.
    pub tags: Vec<String>,
    /// `true` if each instance has its own spindles on this node.
    pub exclusive_storage: bool,
    /// Number of free spindles; meaningful only with exclusive storage.
    pub spindles_free: i64,
    /// Virtual cpus that the node itself uses.
    pub cpus_own: i64,
    /// Speed of the cpus relative to an ordinary node.
    pub cpu_speed: f64,
}

/// The role of a node in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs instances.
    Member,
    /// Runs instances and manages the cluster.
    Master,
    /// Powered off or not to be used. No instance is placed on the node.
    Offline,
}

/// A virtual machine or another service with a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Name of the instance, unique in the cluster.
    pub name: String,
    /// Memory, in MiB.
    pub memory: i64,
    /// Disk space, in MiB.
    pub disk: i64,
    /// Number of virtual cpus.
    pub vcpus: i64,
    /// Actual and desired run state.
    pub status: Status,
    /// `true` if the secondary reserves memory for the instance.
    pub auto_balance: bool,
    /// Node on which the instance runs, by position in [`Cluster::nodes`].
    pub primary: usize,
    /// Node with the second copy of the disk; `None` if there is only one copy.
    pub secondary: Option<usize>,
    /// Storage of the disk.
    pub template: Template,
    /// Tags of the instance: exclusion tags and desired failure domains, by the prefixes in the cluster's tags.
    pub tags: Vec<String>,
    /// Number of shared spindles that the instance uses.
    pub spindle_use: i64,
    /// Number of the instance's own spindles with exclusive storage; `None` if not given.
    pub disk_spindles: Option<i64>,
    /// `true` if the instance does not exist yet, but its resources are allocated.
    pub forthcoming: bool,
    /// Measured use in units of 1/[`LOAD_UNIT`]: cpu, memory, disk, network.
    pub load: [i64; 4],
}

/// Number of units in a load of 1. Loads are integers, so that their sums are exact.
pub const LOAD_UNIT: i64 = 1_000_000_000;

/// Load of an instance without measurements: 1 of each kind.
pub const DEFAULT_LOAD: [i64; 4] = [LOAD_UNIT; 4];

/// The actual and the desired run state of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Runs.
    Running,
    /// Running although a stop was requested.
    ErrorUp,
    /// Stopped as requested.
    AdminDown,
    /// Stopped as requested, without reserved resources.
    AdminOffline,
    /// Stopped although a start was requested.
    ErrorDown,
    /// The node of the instance is down.
    ErrorNodeDown,
    /// The node of the instance is offline.
    ErrorNodeOffline,
    /// Running on a node other than the intended one.
    ErrorWrongNode,
    /// Shut down by its guest operating system.
    UserDown,
}

impl Status {
    /// Every status with its word in the text format.
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

    /// Returns `true` if the instance runs, so that it uses memory and a move is a migration.
    pub fn is_running(self) -> bool {
        matches!(self, Status::Running | Status::ErrorUp)
    }

    /// Returns `true` if the instance uses neither cpus nor memory, nor reserves memory on its secondary.
    pub fn is_offline(self) -> bool {
        self == Status::AdminOffline
    }
}

/// The storage of an instance's disk.
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
    /// A Ceph block device.
    Rbd,
    /// Another provider of shared storage.
    External,
    /// A Gluster volume.
    Gluster,
}

/// The nodes that reach the storage of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageReach {
    /// Two nodes have copies.
    Replicated,
    /// Every node reaches the storage.
    Shared,
    /// Only one node has the storage, so the instance cannot move.
    Local,
}

impl Template {
    /// Every template with its word in the text format.
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

    /// Returns the range of nodes that can access the storage.
    pub fn reach(self) -> StorageReach {
        match self {
            Template::Drbd => StorageReach::Replicated,
            Template::File | Template::Plain => StorageReach::Local,
            Template::Diskless
            | Template::SharedFile
            | Template::BlockDevice
            | Template::Rbd
            | Template::External
            | Template::Gluster => StorageReach::Shared,
        }
    }

    /// Returns `true` if the disk uses space and spindles of its nodes.
    pub fn uses_node_disk(self) -> bool {
        matches!(self, Template::Plain | Template::Drbd)
    }
}

/// Limits of the cluster or of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Name of the group; empty for the cluster.
    pub owner: String,
    /// The default size of an instance.
    pub standard: Specification,
    /// Allowed ranges of sizes, as pairs of minimum and maximum size.
    pub ranges: Vec<(Specification, Specification)>,
    /// Allowed disk templates.
    pub templates: Vec<Template>,
    /// Maximum number of virtual cpus per physical cpu.
    pub vcpu_ratio: f64,
    /// Maximum number of uses per spindle.
    pub spindle_ratio: f64,
}

/// The size of an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Specification {
    /// Memory, in MiB.
    pub memory: i64,
    /// Number of virtual cpus.
    pub cpus: i64,
    /// Disk space, in MiB.
    pub disk: i64,
    /// Number of disks.
    pub disks: i64,
    /// Number of network cards.
    pub nics: i64,
    /// Number of spindles in use.
    pub spindles: i64,
}

/// Ratio of virtual to physical cpus if no policy applies, as in Ganeti.
pub const DEFAULT_VCPU_RATIO: f64 = 4.0;
/// Ratio of uses to spindles if no policy applies, as in Ganeti.
pub const DEFAULT_SPINDLE_RATIO: f64 = 32.0;

impl Cluster {
    /// Returns the effective policy of a group: its own, or else that of the cluster.
    pub fn policy(&self, group: usize) -> Option<&Policy> {
        let name = self.groups.get(group).map_or("", |group| group.name.as_str());
        let owned_by = |owner: &str| self.policies.iter().find(|policy| policy.owner == owner);
        owned_by(name).or_else(|| owned_by(""))
    }
}
