//! What can go wrong with PostgreSQL.

use super::server::Server;

pub(crate) async fn all(
    _server: &mut Server,
    _chosen: &dyn Fn(&str) -> bool,
) -> Vec<&'static str> {
    Vec::new()
}
