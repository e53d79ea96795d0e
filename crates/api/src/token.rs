//! Tokens that people make, as they are asked for and shown.

use belay_kernel::{Timestamp, TokenId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::access::Scope;

/// How a token that a person made begins; its id and a secret follow.
pub const TOKEN: &str = "belay_token_";

/// Whether this is the token with this hash. How long that takes tells nothing.
pub fn token_is(token: &str, hash: &str) -> bool {
    // The hash compares itself in constant time.
    blake3::Hash::from_hex(hash).is_ok_and(|known| known == blake3::hash(token.as_bytes()))
}

/// A token to be made.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// What people call it: letters, digits and `._-@`; unique among those not revoked.
    #[schema(min_length = 1, max_length = 60, pattern = "^[A-Za-z0-9._@-]+$")]
    pub name: String,
    /// What it is for; `viewer`, if it is not said.
    #[serde(default)]
    pub scope: Scope,
    /// How long it lasts, such as `90d`; until it is revoked, if it is not said.
    #[schema(pattern = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$")]
    #[serde(default)]
    pub expires_in: Option<String>,
}

/// A token that was made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MadeToken {
    /// The token. It is told once, when it is made, and kept nowhere.
    pub token: Option<String>,
    /// What is known of it.
    #[serde(flatten)]
    pub about: TokenView,
}

/// A ticket that was given: it opens one stream, instead of the token that asked for it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MadeTicket {
    /// The ticket, which goes into the query of a stream: `?ticket=…`.
    pub ticket: String,
    /// For so many milliseconds it can be used, once.
    pub lasts_ms: u64,
}

/// What is known of a token.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TokenView {
    /// Its id.
    pub id: TokenId,
    /// What people call it.
    pub name: String,
    /// What it is for.
    pub scope: Scope,
    /// Who made it.
    pub created_by: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last used, to a minute.
    pub last_used_at: Option<Timestamp>,
    /// When it ends by itself.
    pub expires_at: Option<Timestamp>,
    /// When somebody ended it.
    pub revoked_at: Option<Timestamp>,
}

/// Which tokens are listed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ListTokens {
    /// At most so many.
    pub limit: Option<usize>,
    /// Where the last page ended.
    pub after: Option<String>,
}

/// One page of tokens.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TokenPage {
    /// The tokens, newest first.
    pub tokens: Vec<TokenView>,
    /// Where to go on, if there may be more.
    pub after: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token_hash;

    #[test]
    fn only_the_very_token_has_its_hash() {
        let hash = token_hash("secret");
        assert!(token_is("secret", &hash));
        for wrong in ["", "secre", "secret ", "Secret"] {
            assert!(!token_is(wrong, &hash), "{wrong:?}");
        }
        assert!(!token_is("", ""), "what is no hash is nobody's");
    }
}
