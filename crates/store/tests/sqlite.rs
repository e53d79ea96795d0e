//! The conformance suite on SQLite.

use std::sync::Arc;

use belay_store::rows::TaskRow;
use belay_store::sqlite::DATABASE;
use belay_store::{Commit, Sqlite};

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

/// The writer remembers what it wrote. What an operator writes beside it is seen all the same: a
/// commit makes the row what it says, whole.
#[tokio::test]
async fn what_somebody_else_wrote_is_not_taken_for_what_we_wrote() {
    let directory = tempfile::tempdir().unwrap();
    let store = Sqlite::open(directory.path()).unwrap();
    let row = make::task("builder");
    make::done(&store, make::creation(&row)).await;
    let beside = rusqlite::Connection::open(directory.path().join(DATABASE)).unwrap();
    let id = row.task.id.to_string();
    beside.execute("UPDATE tasks SET due_at = 5 WHERE id = ?1", [&id]).unwrap();
    assert_eq!(make::task_of(&store, row.task.id).await.row.due_at, Some(make::at(5)));
    let next = TaskRow { priority: 3, ..row };
    make::done(&store, Commit::new().update(make::FIRST, &next)).await;
    assert_eq!(make::task_of(&store, next.task.id).await.row, next);
}
