//! The identity of a machine: the kernel's machine id and the product id of the hardware.

use crate::id::{MachineId, ProductId};

/// The ids of a machine. A cloned disk has the machine id of its original, but a different product id (FENCING R5.27).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineIds<'a> {
    /// The kernel's machine id.
    pub machine_id: &'a MachineId,
    /// Product id of the hardware; `None` if it cannot be read.
    pub product_id: Option<&'a ProductId>,
}

/// The result of the comparison of two machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineComparison {
    /// The ids show the same machine: both ids are equal, or the machine ids are equal and neither side has a product
    /// id.
    Same,
    /// Different machines: at least one id differs.
    Different,
    /// The machine ids are equal, but only one side has a product id.
    Unclear,
}

impl MachineIds<'_> {
    /// Compares two machines.
    pub fn compare(self, other: MachineIds<'_>) -> MachineComparison {
        if self.machine_id != other.machine_id {
            return MachineComparison::Different;
        }
        match (self.product_id, other.product_id) {
            (None, None) => MachineComparison::Same,
            (Some(left), Some(right)) if left == right => MachineComparison::Same,
            (Some(_), Some(_)) => MachineComparison::Different,
            (Some(_), None) | (None, Some(_)) => MachineComparison::Unclear,
        }
    }

    /// Returns `true` if both ids are known on both sides and equal. This excludes two machines that were installed
    /// from one image.
    pub fn is_certainly_same(self, other: MachineIds<'_>) -> bool {
        self.product_id.is_some() && self.compare(other) == MachineComparison::Same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_id_and_product_id_are_compared() {
        type Ids = (&'static str, Option<&'static str>);
        let owned_ids =
            |(machine_id, product_id): Ids| (MachineId::from(machine_id), product_id.map(ProductId::from));
        let check = |left: Ids, right: Ids, expected: MachineComparison, is_certain: bool| {
            for (left, right) in [(owned_ids(left), owned_ids(right)), (owned_ids(right), owned_ids(left))] {
                let left = MachineIds { machine_id: &left.0, product_id: left.1.as_ref() };
                let right = MachineIds { machine_id: &right.0, product_id: right.1.as_ref() };
                let result = (left.compare(right), left.is_certainly_same(right));
                assert_eq!(result, (expected, is_certain), "{left:?} {right:?}");
            }
        };
        check(("a", None), ("a", None), MachineComparison::Same, false);
        check(("a", Some("p")), ("a", Some("p")), MachineComparison::Same, true);
        check(("a", Some("p")), ("a", Some("q")), MachineComparison::Different, false);
        check(("a", Some("p")), ("a", None), MachineComparison::Unclear, false);
        check(("a", Some("p")), ("b", Some("p")), MachineComparison::Different, false);
        check(("a", None), ("b", None), MachineComparison::Different, false);
    }
}
