use super::may_be_frozen;

/// Goal: a daemon that was started from a user's session is known by its control group, and one of
/// the system is not taken for that.
#[test]
fn sessions() {
    assert!(may_be_frozen("0::/user.slice/user-0.slice/session-3.scope"));
    for line in ["0::/system.slice/poolhouse.service", "0::/", "1:cpu:/superuser.slice", ""] {
        assert!(!may_be_frozen(line), "{line}");
    }
}
