//! Roles, and whoever works for them.

use crate::cell::Name;
use crate::row::record;

record! {
    /// A role.
    pub struct RoleRow in "roles" {
        id: Name, key: 1, rank: 0, newest: "name", timer: None;
        /// Its name.
        name: Name,
        /// How many workers it may have.
        workers: u32,
    }
}
