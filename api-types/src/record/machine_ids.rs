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
pub enum SameMachine {
    /// The ids show the same machine: both ids are equal, or the machine ids are equal and neither side has a product
    /// id.
    Yes,
    /// Different machines: at least one id differs.
    No,
    /// The machine ids are equal, but only one side has a product id.
    Unclear,
}

impl MachineIds<'_> {
    /// Compares two machines.
    pub fn same(self, other: MachineIds<'_>) -> SameMachine {
        if self.machine_id != other.machine_id {
            return SameMachine::No;
        }
        match (self.product_id, other.product_id) {
            (None, None) => SameMachine::Yes,
            (Some(one), Some(other)) if one == other => SameMachine::Yes,
            (Some(_), Some(_)) => SameMachine::No,
            (Some(_), None) | (None, Some(_)) => SameMachine::Unclear,
        }
    }

    /// Returns `true` if both ids are known on both sides and equal. This excludes two machines that were installed
    /// from one image.
    pub fn is_surely(self, other: MachineIds<'_>) -> bool {
        self.product_id.is_some() && self.same(other) == SameMachine::Yes
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
        let check = |one: MachineIds<'_>, other: MachineIds<'_>, expected: SameMachine, surely: bool| {
            assert_eq!((one.same(other), one.is_surely(other)), (expected, surely), "{one:?} {other:?}");
            assert_eq!((other.same(one), other.is_surely(one)), (expected, surely), "{other:?} {one:?}");
        };
        check(of("a", None), of("a", None), SameMachine::Yes, false);
        check(of("a", Some("p")), of("a", Some("p")), SameMachine::Yes, true);
        check(of("a", Some("p")), of("a", Some("q")), SameMachine::No, false);
        check(of("a", Some("p")), of("a", None), SameMachine::Unclear, false);
        check(of("a", Some("p")), of("b", Some("p")), SameMachine::No, false);
        check(of("a", None), of("b", None), SameMachine::No, false);
    }
}
