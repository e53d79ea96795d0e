//! The house rules, each as a test of its own.

use xtask::Workspace;
use xtask::tidy::{RULES, Tree};

macro_rules! rules {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                let rule = RULES.iter().find(|rule| rule.name == stringify!($name)).unwrap();
                let findings = (rule.check)(&Tree::read(&Workspace::find()).unwrap());
                assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
            }
        )*

        #[test]
        fn every_rule_has_a_test() {
            let names: Vec<_> = RULES.iter().map(|rule| rule.name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

rules! {
    crate_edges
    kernel_dependencies
    no_empty_crates
    lints_are_inherited
    clippy_rules_are_repeated
    function_size_is_a_lint
    planted_bugs_stay_out
    module_docs
    file_size
    line_length
    no_unfinished_code
    no_ignored_tests
    kernel_is_pure
    links_resolve
    documents_are_mapped
    no_machine_paths
    no_registry_hosts
}
