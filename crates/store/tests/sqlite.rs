//! The conformance suite on SQLite.

use std::sync::Arc;

use belay_store::Sqlite;

mod suite;

use suite::*;

macro_rules! cases {
    ($($module:ident::$case:ident,)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            let directory = tempfile::tempdir().unwrap();
            let store = Arc::new(Sqlite::open(directory.path()).unwrap());
            $module::$case(store).await;
        }
    )*};
}

for_every_case!(cases);
