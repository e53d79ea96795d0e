//! Tokens: who may ask, as far as people made them. Of the token itself only its hash is kept.

use belay_kernel::{Timestamp, TokenId};

use crate::cell::Name;
use crate::row::record;

record! {
    /// A token that a person made.
    pub struct TokenRow in "tokens" {
        id: TokenId, key: 1, rank: 17, newest: "created_at", timer: None;
        /// Its id, which the token names.
        id: TokenId,
        /// What people call it; unique among those that are not revoked.
        name: Name,
        /// What it is for: `viewer`, `operator`, `admin` or `runner`.
        scope: Name,
        /// The hash of the token.
        hash: Name,
        /// Who made it.
        created_by: Name,
        /// When it was made.
        created_at: Timestamp,
        /// When it was last used, to a minute.
        last_used_at: Option<Timestamp>,
        /// When it ends by itself.
        expires_at: Option<Timestamp>,
        /// When somebody ended it.
        revoked_at: Option<Timestamp>,
        ;
        live: Option<Name> = |row| row.revoked_at.is_none().then(|| row.name.clone()),
    }
}
