use crate::mounts::forest::*;
use proptest::prelude::*;
use std::collections::HashSet;

/// Goal: a path's children are those below it by components, not by letters.
#[test]
fn reads_the_forest_by_components() {
    let paths = ["/a.b", "/a", "/a/b", "/a/b/c", "/ab", "/z/y", "/a"];
    let forest = Forest::new(&paths);
    assert_eq!(forest.parents, [None, None, Some(6), Some(2), None, None, Some(1)]);
}

/// Goal: a failure spoils only its own subtree, in both directions, and the two results differ.
#[test]
fn a_failure_spoils_its_own_subtree_only() {
    let paths = ["/a", "/a/b", "/a/b/c", "/a/d", "/e"];
    let forest = Forest::new(&paths);
    let fail_at = |bad: usize| move |at: usize| if at == bad { Err("no") } else { Ok(()) };
    use Fate::{Done, Failed, Skipped};
    assert_eq!(forest.walk(Way::Down, 3, fail_at(1)), [Done, Failed("no"), Skipped, Done, Done]);
    assert_eq!(forest.walk(Way::Up, 3, fail_at(2)), [Skipped, Skipped, Failed("no"), Done, Done]);
    assert!(Forest::new::<&str>(&[]).walk(Way::Down, 3, fail_at(0)).is_empty());
}

/// Goal: jobs of unrelated places run at the same time: each of two waits until the other has
/// begun.
#[test]
fn unrelated_places_do_not_wait_for_each_other() {
    let both = std::sync::Barrier::new(2);
    let fates = Forest::new(&["/a", "/b"]).walk(Way::Down, 2, |_| {
        both.wait();
        Ok::<(), ()>(())
    });
    assert_eq!(fates, [Fate::Done, Fate::Done]);
}

proptest! {
    /// Goal: in any set of paths each place runs once, with any number of threads. A parent runs
    /// before its children on the way down, and after them on the way up.
    #[test]
    fn order_holds(names in prop::collection::vec("(/[ab]{1,2}){1,4}", 0..40), threads in 1_usize..5) {
        let forest = Forest::new(&names);
        for way in [Way::Down, Way::Up] {
            let log = Mutex::new(Vec::new());
            let fates = forest.walk(way, threads, |at| {
                log.lock().push(at);
                Ok::<(), ()>(())
            });
            prop_assert!(fates.iter().all(|fate| *fate == Fate::Done));
            let log = log.into_inner();
            prop_assert_eq!(log.iter().collect::<HashSet<_>>().len(), names.len());
            let turn = |at: usize| log.iter().position(|&other| other == at);
            for (at, parent) in forest.parents.iter().enumerate() {
                if let Some(parent) = *parent {
                    prop_assert!(Path::new(&names[at]).starts_with(&names[parent]));
                    prop_assert_eq!(turn(parent) < turn(at), way == Way::Down);
                }
            }
        }
    }
}
