//! Sessions: the durable conversation and working tree behind tasks.

use belay_kernel::{Epoch, NodeId, RunnerId, SessionId, Timestamp};

use crate::cell::Name;
use crate::row::record;

record! {
    /// A session.
    pub struct SessionRow in "sessions" {
        id: SessionId, key: 1, rank: 3, newest: "created_at", timer: Due;
        /// Its id.
        id: SessionId,
        /// Its fencing number.
        epoch: Epoch,
        /// The runner that holds its tree.
        runner: Option<RunnerId>,
        /// The node that owns it, while that node's lease lives.
        owner: Option<NodeId>,
        /// The agent's own name for the conversation.
        conversation: Option<Name>,
        /// Whether it pauses instead of being terminated when it is idle.
        keep_alive: bool,
        /// When it was made.
        created_at: Timestamp,
        /// When it is to be looked at again.
        due_at: Option<Timestamp>,
    }
}
