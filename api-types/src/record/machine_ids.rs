//! The identity of a machine: the kernel's machine id and the product id of the hardware.

/// The ids of a machine. A cloned disk has the machine id of its original, but a different product id (FENCING R5.27).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineIds<'a> {
    /// The kernel's machine id.
    pub machine_id: &'a str,
    /// Product id of the hardware; `None` if it cannot be read.
    pub product_id: Option<&'a str>,
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
            (Some(one), Some(other)) if one == other => MachineComparison::Same,
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
        let of = |machine_id: &'static str, product_id: Option<&'static str>| MachineIds {
            machine_id,
            product_id,
        };
        let check =
            |one: MachineIds<'_>, other: MachineIds<'_>, expected: MachineComparison, certain: bool| {
                assert_eq!(
                    (one.compare(other), one.is_certainly_same(other)),
                    (expected, certain),
                    "{one:?} {other:?}"
                );
                assert_eq!(
                    (other.compare(one), other.is_certainly_same(one)),
                    (expected, certain),
                    "{other:?} {one:?}"
                );
            };
        check(of("a", None), of("a", None), MachineComparison::Same, false);
        check(of("a", Some("p")), of("a", Some("p")), MachineComparison::Same, true);
        check(of("a", Some("p")), of("a", Some("q")), MachineComparison::Different, false);
        check(of("a", Some("p")), of("a", None), MachineComparison::Unclear, false);
        check(of("a", Some("p")), of("b", Some("p")), MachineComparison::Different, false);
        check(of("a", None), of("b", None), MachineComparison::Different, false);
    }
}
