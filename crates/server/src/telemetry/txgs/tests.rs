use super::*;
use api::Reason;

/// Goal: a pool that is not there is refused by name; without pools there are no groups.
#[test]
fn which_pools() {
    let pools = Pools::default();
    let error = txgs(&pools, Some("none")).expect_err("it is not there");
    assert_eq!((error.about.as_str(), error.reason), ("none", Reason::NoSuchPool));
    let all = txgs(&pools, None).expect("there is none");
    assert_eq!((all.txgs, all.process), (Vec::new(), api::process_id()));
}
