//! Migrations: the same numbers on both databases, forward only, never edited after a release.
//!
//! Each has one text for both and one for each, run in one transaction under a lock. A database
//! that
//! knows a higher number than this program is refused: an older program would write rows that the
//! newer schema means differently.

/// One step of the schema.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// Its number: 1, 2, …
    pub number: u32,
    /// What it brings.
    pub name: &'static str,
    /// For both databases.
    pub common: &'static str,
    /// For SQLite alone, before the common text.
    pub sqlite: &'static str,
    /// For PostgreSQL alone, before the common text.
    pub postgres: &'static str,
}

/// Every migration, in order.
pub const MIGRATIONS: &[Migration] = &[
    Migration {
        number: 1,
        name: "work",
        common: include_str!("schema/0001_work.sql"),
        sqlite: include_str!("schema/0001_work.sqlite.sql"),
        postgres: include_str!("schema/0001_work.postgres.sql"),
    },
    Migration {
        number: 2,
        name: "fleet",
        common: include_str!("schema/0002_fleet.sql"),
        sqlite: "",
        postgres: "",
    },
    Migration {
        number: 3,
        name: "runs",
        common: include_str!("schema/0003_runs.sql"),
        sqlite: "",
        postgres: "",
    },
    Migration {
        number: 4,
        name: "tokens",
        common: include_str!("schema/0004_tokens.sql"),
        sqlite: "",
        postgres: "",
    },
    Migration {
        number: 5,
        name: "watch",
        common: include_str!("schema/0005_watch.sql"),
        sqlite: "",
        postgres: "",
    },
    Migration {
        number: 6,
        name: "kept",
        common: include_str!("schema/0006_kept.sql"),
        sqlite: "",
        postgres: "",
    },
    Migration {
        number: 7,
        name: "paused",
        common: include_str!("schema/0007_paused.sql"),
        sqlite: "",
        postgres: "",
    },
    Migration {
        number: 8,
        name: "frozen",
        common: include_str!("schema/0008_frozen.sql"),
        sqlite: "",
        postgres: "",
    },
    Migration {
        number: 9,
        name: "sessions",
        common: include_str!("schema/0009_sessions.sql"),
        sqlite: "",
        postgres: "",
    },
];

/// The number of the last migration that this program knows.
pub const NEWEST: u32 = MIGRATIONS[MIGRATIONS.len() - 1].number;

impl Migration {
    /// Its text for SQLite: whole numbers are INTEGER, and every table is strict.
    pub fn sqlite(&self) -> String {
        let common = self.common.replace("BIGINT", "INTEGER").replace("\n);", "\n) STRICT;");
        spelled_out(&format!("{}\n{common}", self.sqlite))
    }

    /// Its text for PostgreSQL: text is ordered by its bytes, as it is in SQLite.
    pub fn postgres(&self) -> String {
        format!("{}\n{}", self.postgres, self.common).replace(" TEXT", " TEXT COLLATE \"C\"")
    }
}

/// `a IN ('b', 'c')` as `(a = 'b' OR a = 'c')`. They mean the same; but of a list in a CHECK,
/// SQLite makes a table with every row that is written, which was half of what a write cost.
fn spelled_out(sql: &str) -> String {
    const IN: &str = " IN";
    let mut out = String::with_capacity(sql.len() * 2);
    let mut rest = sql;
    while let Some(at) = rest.find(IN) {
        let (before, after) = (&rest[..at], &rest[at + IN.len()..]);
        let list = after.trim_start().strip_prefix('(').and_then(|list| list.split_once(')'));
        let Some((items, tail)) = list.filter(|(items, _)| items.trim_start().starts_with('\''))
        else {
            out += before;
            out += IN;
            rest = after;
            continue;
        };
        let (before, compare, joint) = match before.strip_suffix(" NOT") {
            Some(before) => (before, "<>", " AND "),
            None => (before, "=", " OR "),
        };
        let name = before.rsplit(|one: char| !one.is_ascii_alphanumeric() && one != '_').next();
        let name = name.unwrap_or_default();
        let tests: Vec<_> =
            items.split(',').map(|item| format!("{name} {compare} {}", item.trim())).collect();
        out += &before[..before.len() - name.len()];
        out += &format!("({})", tests.join(joint));
        rest = tail;
    }
    out + rest
}

/// What stands between what a database has and what this program needs.
pub(crate) fn missing(applied: u32, upto: u32) -> Result<Vec<&'static Migration>, Newer> {
    if applied > NEWEST {
        return Err(Newer { found: applied });
    }
    let wanted = |migration: &&Migration| migration.number > applied && migration.number <= upto;
    Ok(MIGRATIONS.iter().filter(wanted).collect())
}

/// The database was written by a newer program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Newer {
    pub(crate) found: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_counted_from_one_without_gaps() {
        let numbers: Vec<_> = MIGRATIONS.iter().map(|migration| migration.number).collect();
        assert_eq!(numbers, (1..=NEWEST).collect::<Vec<_>>());
    }

    #[test]
    fn lists_are_spelled_out_and_nothing_else_is_touched() {
        let told = |sql| spelled_out(sql);
        assert_eq!(told("CHECK (a IN ('b',\n 'c') AND x)"), "CHECK ((a = 'b' OR a = 'c') AND x)");
        assert_eq!(told("(a NOT IN\n ('b', 'c'))"), "((a <> 'b' AND a <> 'c'))");
        let left = "CREATE INDEX i ON t (a) WHERE b IN (0, 1); c INTEGER, d IN (SELECT 1)";
        assert_eq!(told(left), left);
        let all = MIGRATIONS.iter().map(Migration::sqlite).collect::<String>();
        assert!(!all.contains("IN ('"), "{all}");
    }

    #[test]
    fn only_what_is_missing_is_applied_and_a_newer_database_is_refused() {
        let numbers = |applied| {
            let found = missing(applied, NEWEST);
            found.map(|found| found.iter().map(|one| one.number).collect::<Vec<_>>())
        };
        assert_eq!(numbers(0), Ok((1..=NEWEST).collect()));
        assert_eq!(numbers(NEWEST), Ok(vec![]));
        assert_eq!(numbers(NEWEST + 1), Err(Newer { found: NEWEST + 1 }));
    }
}
